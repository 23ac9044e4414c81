//! The scene of a storm: a server, its endpoints, and the receiver behind them that writes down what arrives. Who is
//! on it and how the receiver behaves is the test's affair.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    cluster::Cluster,
    dice::Dice,
    meter::number,
    outbox::Outbox,
    receiver::Receiver,
    storm::Storm,
    wait::wait_until,
    witness::{Arrival, Arrivals, Reaction},
};

/// For catching up, on a busy machine.
pub const CATCH_UP: Duration = Duration::from_secs(240);

/// An endpoint of the scene.
#[derive(Clone, Copy, Debug)]
pub struct Subscription {
    /// Path at the receiver.
    pub path: &'static str,
    /// Its partner.
    pub partner: &'static str,
    /// The event types that it gets.
    pub patterns: &'static [&'static str],
    /// Further arguments of `create_endpoint`, such as `, ordered => true`.
    pub more: &'static str,
}

impl Subscription {
    /// Whether it gets events of this partner and type.
    pub fn wants(&self, partner: &str, kind: &str) -> bool {
        let fits = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(prefix) => kind.starts_with(prefix),
            None => kind == *pattern,
        };
        self.partner == partner && self.patterns.iter().any(fits)
    }
}

/// A row of `webhook.events`.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its id.
    pub id: String,
    /// The partner.
    pub partner: String,
    /// The type.
    pub kind: String,
    /// The correlation_id.
    pub mark: String,
    /// The subject_id; empty = none.
    pub subject: String,
}

/// A server, its endpoints and the receiver behind them.
pub struct Scene {
    /// The server.
    pub cluster: Cluster,
    /// Who gets what.
    pub subscriptions: &'static [Subscription],
    /// Ids of the endpoints, in the order of the subscriptions.
    pub endpoints: Vec<i64>,
    /// What arrived.
    pub arrivals: Arrivals,
    /// Repeats the scene.
    pub seed: u64,
    /// webhook.result_flush_interval.
    pub flush: Duration,
    /// When it began, by both clocks.
    pub begun: (Instant, SystemTime),
    receiver: Receiver,
}

impl Scene {
    /// Sets the scene. `react` says how a request is answered; each endpoint has dice of its own.
    pub fn set(
        subscriptions: &'static [Subscription],
        settings: &[(&str, &str)],
        react: impl Fn(&mut Dice) -> Reaction + Clone + Send + 'static,
    ) -> Scene {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock");
        let now = usize::try_from(now.as_millis()).expect("a time");
        let seed = u64::try_from(number("WEBHOOK_SEED", now)).expect("a seed");
        let mut dice = Dice::new(seed);
        // What shifts the work between memory, first pass and due table.
        let cap = *dice.pick(&["2", "8"]);
        let limit = *dice.pick(&["100ms", "300ms", "2s"]);
        let flush = *dice.pick(&[5, 20, 100]);
        crate::say!(
            "WEBHOOK_SEED={seed}: {cap} requests per endpoint, first pass {limit}, results every {flush} ms"
        );
        let usual = Cluster::plan()
            .setting("fsync", "on")
            .setting("webhook.max_in_flight_per_endpoint", cap)
            .setting("webhook.first_pass_limit", limit)
            .setting("webhook.result_flush_interval", &format!("{flush}ms"))
            .setting(
                "webhook.retry_schedule",
                &["200ms,500ms", &",1s".repeat(40)].concat(),
            );
        let plan = settings
            .iter()
            .fold(usual, |plan, (name, value)| plan.setting(name, value));
        let cluster = plan.start();
        let begun = (Instant::now(), SystemTime::now());
        let mut shop = Outbox::create(&cluster, "shop");
        let (receiver, arrivals) = (Receiver::http(), Arrivals::default());
        let mut endpoints = Vec::new();
        for (n, subscription) in subscriptions.iter().enumerate() {
            let list = subscription.patterns.join("','");
            let more = format!(", event_types => array['{list}']{}", subscription.more);
            let url = receiver.url(subscription.path);
            endpoints.push(shop.endpoint_with(subscription.partner, &url, &more).id);
            let mut dice = Dice::new(seed.wrapping_mul(31).wrapping_add(n as u64));
            let (arrivals, react) = (arrivals.clone(), react.clone());
            receiver.behave(subscription.path, move |request| {
                let reaction = react(&mut dice);
                arrivals.add(Arrival::new(request, reaction));
                reaction.answer()
            });
        }
        drop(shop);
        Scene {
            cluster,
            subscriptions,
            endpoints,
            arrivals,
            seed,
            flush: Duration::from_millis(flush),
            begun,
            receiver,
        }
    }

    /// A session in the database.
    pub fn session(&self) -> Outbox<'_> {
        Outbox::join(&self.cluster, "shop")
    }

    /// A storm over this scene that has not begun.
    pub fn storm<'a>(
        &self,
        partners: &'a [&'a str],
        types: &'a [&'a str],
        subjects: u64,
        pause: Duration,
    ) -> Storm<'a> {
        Storm {
            connection: self.cluster.connection("shop"),
            partners,
            types,
            subjects,
            pause,
            stop: AtomicBool::new(false),
            emitted: AtomicUsize::new(0),
        }
    }

    /// Process id of the leader, once there is one.
    pub fn leader(&self) -> i32 {
        // The witness has all that is needed; the requests themselves would fill the memory of a long run.
        self.receiver.forget();
        wait_until("there is a leader", CATCH_UP, || {
            let mut sql = self.cluster.try_connect("shop").ok()?;
            let query = "select pid from pg_stat_activity
                          where backend_type = 'webhook_outbox leader' and datname = current_database()";
            let pid = sql.query_opt(query, &[]).ok()??.get(0);
            self.cluster.has_process(pid).then_some(pid)
        })
    }

    /// Every committed event of the storm.
    pub fn events(&self) -> Vec<Event> {
        let rows = self.session().rows(
            "select event_id, partner_id, type, correlation_id, subject_id from webhook.events
              where type not like 'webhook.%'",
        );
        rows.into_iter()
            .map(|row| {
                let mut values = row.into_iter().map(Option::unwrap_or_default);
                let mut next = || values.next().unwrap_or_default();
                Event {
                    id: next(),
                    partner: next(),
                    kind: next(),
                    mark: next(),
                    subject: next(),
                }
            })
            .collect()
    }

    /// Ids of the deliveries that these events must have, with the path of their endpoint.
    pub fn expected(&self, events: &[Event]) -> BTreeMap<String, &'static str> {
        let mut expected = BTreeMap::new();
        for event in events {
            for (subscription, endpoint) in self.subscriptions.iter().zip(&self.endpoints) {
                if subscription.wants(&event.partner, &event.kind) {
                    expected.insert(delivery_id(&event.id, *endpoint), subscription.path);
                }
            }
        }
        expected
    }

    /// Waits until the deliveries expected, and no others, are in one of these states (a list in SQL) and the leader
    /// has nothing to do. When that takes too long it shows what there is and returns: the reckoning will tell.
    pub fn wait_until_at_rest(
        &self,
        expected: &BTreeMap<String, &'static str>,
        states: &str,
        deadline: Duration,
    ) {
        let end = Instant::now() + deadline;
        let query = format!(
            "select (select count(*) from webhook._delivery where state in ({states})) = {}
                and not exists (select from webhook._delivery where state not in ({states}))
                and not exists (select from webhook._due)
                and (select in_flight = 0 and queued = 0 and open_batches = 0 from webhook.stat_worker)",
            expected.len()
        );
        let mut session = self.session();
        let mut calm = 0;
        // Twice: the leader publishes its counters once per round.
        while calm < 2 {
            calm = if session.text(&query) == "t" {
                calm + 1
            } else {
                0
            };
            if Instant::now() > end {
                self.show(expected.len());
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn show(&self, expected: usize) {
        let mut session = self.session();
        let states = session.rows(
            "select state, reason, count(*), min(next_attempt_at) - now(), max(attempt_count)
               from webhook._delivery group by 1, 2",
        );
        let due = session.rows(
            "select endpoint_id, class, hold, count(*), min(next_attempt_at) - now() from webhook._due group by 1, 2, 3",
        );
        let ledger = session.rows(
            "select n, incarnation, batch, kind, prev, cur, from_xid, from_id, to_xid, to_id
               from webhook._ledger order by n desc limit 20",
        );
        let worker = session.rows("select * from webhook.stat_worker");
        crate::say!(
            "not at rest: {expected} expected; {states:?}\n{due:#?}\n{worker:?}\n{ledger:#?}"
        );
    }
}

/// The id of the delivery of an event to an endpoint.
pub fn delivery_id(event: &str, endpoint: i64) -> String {
    format!("dlv_{}_{endpoint}", &event[4..])
}
