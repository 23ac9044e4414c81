#!/usr/bin/env python3
"""A partner that catches up: `catch_up.py "host=... dbname=..." PARTNER INBOX_FILE`. It reads the partner's feed from the last
cursor that it has kept, and takes in what it does not know. `pip install "psycopg[binary]"`; the role needs the right "feed"
(`select webhook.grant_access('role', 'feed', 'partner')`). Usually the sender offers this by an interface of its own; the SQL
is the same.

The cursor is kept in the same file and changed in the same transaction as what was read. So a partner that has restored last
week's backup of its inbox has last week's cursor, and gets the week again: nothing is missing, and what webhooks have brought
meanwhile is recognised by its id.
"""

import sqlite3
import sys

import psycopg

TABLES = """
create table if not exists inbox (id text primary key, body text, processed integer not null default 0);
create table if not exists cursor (one integer primary key check (one = 1), value text);
"""
PAGE = "select cursor, event_id, data from webhook.events_after(%s, %s, max_events => 500, payload => true)"

database, partner, inbox_file = sys.argv[1:4]
inbox = sqlite3.connect(inbox_file)
inbox.executescript(TABLES)


def catch_up(feed):
    new = known = 0
    while True:
        kept = inbox.execute("select value from cursor").fetchone()
        page = feed.execute(PAGE, (partner, kept[0] if kept else None)).fetchall()
        if not page:
            return new, known
        with inbox:
            for _, event_id, data in page:
                # A row without an event moves the cursor and nothing else.
                if event_id is not None:
                    added = inbox.execute("insert or ignore into inbox (id, body) values (?, ?)", (event_id, data)).rowcount
                    new, known = new + added, known + 1 - added
            inbox.execute("insert or replace into cursor values (1, ?)", (page[-1][0],))


with psycopg.connect(database, autocommit=True) as feed:
    try:
        print("caught up: {} new, {} known".format(*catch_up(feed)), flush=True)
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        # The cursor was not used for longer than events are kept: compare with the source once, then go on from the cursor
        # that the hint names.
        sys.exit(f"{error.diag.message_primary}: {error.diag.message_detail} {error.diag.message_hint}")
