//! Days that are over: partitions of the past and rows in them, so that nobody has to wait for things to become old.

use crate::outbox::{Endpoint, Outbox};

/// Tables with daily partitions.
pub const TABLES: [&str; 5] = ["_event", "_feed", "_delivery", "_attempt", "_excerpt"];

impl Outbox<'_> {
    /// Makes the partitions of a day in the past, as the leader would have made them then.
    pub fn old_day(&mut self, days_ago: i32) {
        let day = format!("(clock_timestamp() at time zone 'UTC')::date - {days_ago}");
        for table in TABLES {
            let key = match table {
                "_event" => "event_id",
                "_feed" => "partner_id, pos",
                "_delivery" => "event_id, endpoint_id",
                _ => "event_id, endpoint_id, attempt_no",
            };
            self.run(&format!(
                "do $$
                 declare
                   leaf text := '{table}_' || to_char({day}, 'YYYYMMDD');
                 begin
                   execute format('create table webhook.%I (like webhook.{table} including defaults including constraints)', leaf);
                   execute format('alter table webhook.%I add primary key ({key})', leaf);
                   execute format('alter table webhook.{table} attach partition webhook.%I for values from (%L) to (%L)', leaf,
                                  webhook._day_bound('{table}', {day}), webhook._day_bound('{table}', {day} + 1));
                 end
                 $$"
            ));
        }
    }

    /// A copy of an event that has been read, as if it had been emitted so many days ago; returns its id.
    pub fn old_event(&mut self, event: &str, days_ago: i32) -> String {
        let old = self.text(&format!(
            "select webhook._event_bound(date_trunc('day', clock_timestamp(), 'UTC') - interval '{days_ago} days'
                                         + random() * interval '23 hours')"
        ));
        self.run(&format!(
            "create temp table old as select * from webhook._event where event_id = '{event}';
             update old set event_id = '{old}';
             insert into webhook._event select * from old;
             drop table old;
             insert into webhook._feed (pos, published_at, test, partner_id, event_id, type)
             select webhook._pos_bound(webhook._event_time('{old}')) + 1, webhook._event_time('{old}'), e.test, e.partner_id, e.event_id, e.type
               from webhook._event e where e.event_id = '{old}'"
        ));
        old
    }

    /// A delivery of such an event, with two attempts and an excerpt.
    pub fn old_delivery(&mut self, event: &str, endpoint: &Endpoint, state: &str) {
        let id = endpoint.id;
        self.run(&format!(
            "insert into webhook._delivery (endpoint_id, event_id, state, attempt_count, series_start, revision, last_attempt_at, delivered_at)
             values ({id}, '{event}', '{state}', 2, 0, 1, webhook._event_time('{event}'),
                     case when '{state}' = 'delivered' then webhook._event_time('{event}') end);
             insert into webhook._attempt (endpoint_id, event_id, attempt_no, started_at, incarnation, outcome)
             values ({id}, '{event}', 1, webhook._event_time('{event}'), 1, 'retry'), ({id}, '{event}', 2, webhook._event_time('{event}'), 1, 'dead');
             insert into webhook._excerpt (endpoint_id, event_id, attempt_no, body) values ({id}, '{event}', 1, 'an answer')"
        ));
        if matches!(state, "pending" | "retrying") {
            self.run(&format!(
                "insert into webhook._due (endpoint_id, event_id, next_attempt_at, attempt_count, series_start, class)
                 values ({id}, '{event}', clock_timestamp() + interval '1 day', 2, 0, 1)"
            ));
        }
    }

    /// Has the leader begin a pass of retention at once.
    pub fn begin_pass(&mut self) {
        self.run("select pg_reload_conf()");
    }

    /// The partition of a day; empty when there is none.
    pub fn leaf(&mut self, table: &str, days_ago: i32) -> String {
        self.text(&format!(
            "select to_regclass('webhook.{table}_' || to_char((clock_timestamp() at time zone 'UTC')::date - {days_ago}, 'YYYYMMDD'))"
        ))
    }
}
