//! How tests operate an outbox: they ask and wait for the answer, look at health and alerts, and end the leader.
//! Like `outbox`, it reads the public views, with one exception: that a row of the due table was not written again
//! shows nowhere else.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use postgres::{Client, fallible_iterator::FallibleIterator};
use serde_json::Value;

use crate::{
    outbox::{Endpoint, Outbox, PATIENCE, quoted},
    wait::wait_for,
};

/// What the leader made of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The request.
    pub id: i64,
    /// done or refused.
    pub state: String,
    /// What came of it, in words.
    pub result: String,
    /// How many deliveries it concerned.
    pub deliveries: i64,
}

impl Outbox<'_> {
    /// Calls a function of the extension that returns a request, and waits until the leader has answered it.
    #[track_caller]
    pub fn ask(&mut self, call: &str) -> Reply {
        let id = self.number(&format!("select webhook.{call}"));
        self.reply(id)
    }

    /// Like [`ask`](Self::ask); the leader must have carried it out.
    #[track_caller]
    pub fn have_done(&mut self, call: &str) -> Reply {
        let reply = self.ask(call);
        assert_eq!(reply.state, "done", "{call}: {reply:?}");
        reply
    }

    /// The answer to a request, once there is one.
    #[track_caller]
    pub fn reply(&mut self, id: i64) -> Reply {
        self.wait_until(&format!(
            "(select state <> 'pending' and finished_at is not null from webhook.requests where request_id = {id})"
        ));
        let rows = self.rows(&format!(
            "select state, result, coalesce(deliveries, 0) from webhook.requests where request_id = {id}"
        ));
        let text = |column: usize| rows[0][column].clone().unwrap_or_default();
        Reply {
            id,
            state: text(0),
            result: text(1),
            deliveries: text(2).parse().expect("a count"),
        }
    }

    /// Waits until something holds of the endpoint's row in `endpoint_health`.
    #[track_caller]
    pub fn wait_for_health(&mut self, endpoint: &Endpoint, condition: &str) {
        self.wait_until(&format!(
            "(select {condition} from webhook.endpoint_health where endpoint_id = {})",
            endpoint.id
        ));
    }

    /// One value of the endpoint's row in `endpoint_health`.
    #[track_caller]
    pub fn health(&mut self, endpoint: &Endpoint, value: &str) -> String {
        self.text(&format!(
            "select {value} from webhook.endpoint_health where endpoint_id = {}",
            endpoint.id
        ))
    }

    /// The state of an endpoint that is in force.
    #[track_caller]
    pub fn state(&mut self, endpoint: &Endpoint) -> String {
        self.text(&format!(
            "select state from webhook.endpoints where endpoint_id = {}",
            endpoint.id
        ))
    }

    /// The kinds of the alerts about an endpoint, in the order in which they were raised.
    #[track_caller]
    pub fn alerts(&mut self, endpoint: &Endpoint) -> Vec<String> {
        self.column(&format!(
            "select kind from webhook.alerts where endpoint_id = {} order by at, alert_id",
            endpoint.id
        ))
    }

    /// Waits until there is an alert of this kind about the endpoint.
    #[track_caller]
    pub fn wait_for_alert(&mut self, endpoint: &Endpoint, kind: &str) {
        self.wait_until(&format!(
            "exists (select from webhook.alerts where endpoint_id = {} and kind = {})",
            endpoint.id,
            quoted(kind)
        ));
    }

    /// How many deliveries of an endpoint are in a state.
    #[track_caller]
    pub fn deliveries(&mut self, endpoint: &Endpoint, state: &str) -> i64 {
        self.number(&format!(
            "select count(*) from webhook.deliveries where endpoint_id = {} and state = {}",
            endpoint.id,
            quoted(state)
        ))
    }

    /// Waits until exactly so many deliveries of an endpoint are in a state.
    #[track_caller]
    pub fn wait_for_deliveries(&mut self, endpoint: &Endpoint, state: &str, count: i64) {
        self.wait_for_deliveries_within(endpoint, state, count, PATIENCE);
    }

    /// The same with a deadline of its own: what waits for a probe may have to wait for some seconds by design.
    #[track_caller]
    pub fn wait_for_deliveries_within(
        &mut self,
        endpoint: &Endpoint,
        state: &str,
        count: i64,
        deadline: Duration,
    ) {
        let end = Instant::now() + deadline;
        loop {
            let found = self.deliveries(endpoint, state);
            if found == count {
                return;
            }
            assert!(
                Instant::now() < end,
                "waited {deadline:?} in vain: {count} deliveries are {state}; {found} are"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The versions of an endpoint's rows in the due table, by event: another value is another write.
    #[track_caller]
    pub fn due_versions(&mut self, endpoint: &Endpoint) -> HashMap<String, String> {
        self.rows(&format!(
            "select event_id, xmin::text || ctid::text from webhook._due where endpoint_id = {}",
            endpoint.id
        ))
        .into_iter()
        .map(|mut row| {
            let version = row.pop().flatten().unwrap_or_default();
            (row.pop().flatten().unwrap_or_default(), version)
        })
        .collect()
    }

    /// Waits until the loop of the leader has come round twice: it has looked at whatever was committed, and read
    /// whatever settings were loaded, before this was called.
    #[track_caller]
    pub fn wait_for_a_round(&mut self) {
        for _ in 0..2 {
            let before = self.text("select last_loop_at from webhook.stat_worker");
            self.wait_until(&format!(
                "(select last_loop_at > '{before}' from webhook.stat_worker)"
            ));
        }
    }

    /// Ends the leader in order (SIGTERM) and waits for its next life.
    #[track_caller]
    pub fn restart_leader(&mut self) {
        let old = self.leader();
        self.run(&format!("select pg_terminate_backend({old})"));
        wait_for("another leader", PATIENCE, || {
            let new = self.leader();
            new != 0 && new != old
        });
        self.wait_for_worker("running");
    }
}

/// The first notification about an endpoint that a session hears which listens to `webhook_alerts`. What an alert is
/// about stands in the view alone.
///
/// # Panics
/// When there is none in time.
#[track_caller]
pub fn heard_about(listener: &mut Client, endpoint: &Endpoint) -> Value {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let mut heard = Vec::new();
        {
            let mut notifications = listener.notifications();
            let mut some = notifications.timeout_iter(Duration::from_millis(200));
            while let Some(notification) = some.next().expect("the connection") {
                assert_eq!(notification.channel(), "webhook_alerts");
                heard.push(serde_json::from_str::<Value>(notification.payload()).expect("JSON"));
            }
        }
        for heard in heard {
            let id = heard["alert_id"].as_i64().expect("an alert id");
            let query = "select exists (select from webhook.alerts where alert_id = $1 and endpoint_id = $2)";
            let row = listener.query_one(query, &[&id, &endpoint.id]);
            if row.expect("the alert").get(0) {
                return heard;
            }
        }
    }
    panic!("nothing was notified about endpoint {}", endpoint.id);
}
