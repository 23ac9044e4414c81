#!/usr/bin/env python3
"""A sender in Python: `sender.py "host=... dbname=..." PARTNER ORDER`. It pays an order and tells the partner so, in one
transaction. `pip install "psycopg[binary]"`; the role needs the right "emit" and its own table.

There is no HTTP here, no queue and no retry: when the transaction commits the event will be sent, when it does not nothing has
happened. That holds for whatever ends the transaction: an error, a lost connection, a crash.
"""

import sys

import psycopg
from psycopg.types.json import Jsonb

database, partner, order = sys.argv[1], sys.argv[2], int(sys.argv[3])

EMIT = """select webhook.emit('order.paid', %(partner)s, %(data)s, subject_type => 'order', subject_id => %(order)s,
                              subject_version => %(version)s, idempotency_key => %(key)s)"""


def pay(connection):
    with connection.transaction():
        version = connection.execute(
            """insert into shop_order (id, status, version) values (%s, 'paid', 1)
               on conflict (id) do update set status = 'paid', version = shop_order.version + 1
                                        where shop_order.status <> 'paid'
               returning version""",
            (order,),
        ).fetchone()
        if version is None:
            # Paid already: a repeated request of our own clients changes nothing and tells nobody anything.
            return None
        return connection.execute(
            EMIT,
            {
                "partner": partner,
                # Money is text or an integer of minor units, never a float.
                "data": Jsonb({"order": str(order), "total": "19.90", "currency": "EUR"}),
                "order": str(order),
                "version": version[0],
                "key": f"order-{order}-paid-{version[0]}",
            },
        ).fetchone()[0]


with psycopg.connect(database) as connection:
    print(f"order {order}:", pay(connection) or "paid already", flush=True)
