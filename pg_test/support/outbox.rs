//! A database with the extension in it, and the few sentences of SQL that most tests speak to it. It reads the
//! public views only, and refuses to look into private tables: what a test cannot see there, a user cannot either.

use std::time::{Duration, Instant};

use postgres::{Client, SimpleQueryMessage};

use crate::{cluster::Cluster, wait::wait_for};

/// How long anything may take that should happen at once. The machine may be busy with something else, and ten times
/// slower than the one on which a test was written: only a test that fails waits so long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// One session in a database that has the extension.
pub struct Outbox<'c> {
    /// The session.
    pub sql: Client,
    cluster: &'c Cluster,
    database: String,
}

/// An endpoint as `create_endpoint` returned it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its id.
    pub id: i64,
    /// Its signing secret, `whsec_...`.
    pub secret: String,
}

/// A row of `webhook.deliveries`; times are seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The id that is sent as webhook-delivery.
    pub id: String,
    /// The state.
    pub state: String,
    /// Why it is dead or cancelled.
    pub reason: Option<String>,
    /// Attempts so far.
    pub attempts: usize,
    /// The status of the latest attempt.
    pub status: Option<u16>,
    /// The error category of the latest attempt.
    pub category: Option<String>,
    /// When the next attempt is due.
    pub next_attempt_at: Option<f64>,
    /// When the first 2xx arrived.
    pub delivered_at: Option<f64>,
}

/// A row of `webhook.attempts`; times are seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: usize,
    /// When it began.
    pub started_at: f64,
    /// What followed.
    pub outcome: String,
    /// The status.
    pub status: Option<u16>,
    /// The error category.
    pub category: Option<String>,
    /// Where it failed.
    pub phase: Option<String>,
    /// What happened, in the sender's own words.
    pub detail: Option<String>,
    /// When the next attempt was planned.
    pub next_attempt_at: Option<f64>,
    /// Milliseconds it took.
    pub latency_ms: Option<f64>,
}

impl<'c> Outbox<'c> {
    /// Creates a database with the extension and waits until its leader runs.
    pub fn create(cluster: &'c Cluster, database: &str) -> Outbox<'c> {
        cluster.create_database(database);
        let mut outbox = Self::join(cluster, database);
        outbox.run("create extension webhook_outbox");
        outbox.wait_for_worker("running");
        outbox
    }

    /// A session in a database that is there already.
    pub fn join(cluster: &'c Cluster, database: &str) -> Outbox<'c> {
        Outbox {
            sql: cluster.connect(database),
            cluster,
            database: database.to_owned(),
        }
    }

    /// Another session in the same database.
    pub fn another(&self) -> Outbox<'c> {
        Self::join(self.cluster, &self.database)
    }

    /// Runs statements.
    #[track_caller]
    pub fn run(&mut self, statements: &str) {
        if let Err(error) = self.sql.batch_execute(statements) {
            panic!("{}: {}", shortened(statements), described(&error));
        }
    }

    /// Runs statements that are to fail, and returns SQLSTATE and message.
    #[track_caller]
    pub fn refusal(&mut self, statements: &str) -> (String, String) {
        match self.sql.batch_execute(statements) {
            Ok(()) => panic!("{} did not fail", shortened(statements)),
            Err(error) => {
                let code = error.code().map(|code| code.code().to_owned());
                (code.unwrap_or_default(), described(&error))
            }
        }
    }

    /// The rows of a query, as text.
    #[track_caller]
    pub fn rows(&mut self, query: &str) -> Vec<Vec<Option<String>>> {
        let messages = match self.sql.simple_query(query) {
            Ok(messages) => messages,
            Err(error) => panic!("{}: {}", shortened(query), described(&error)),
        };
        messages
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(
                    (0..row.len())
                        .map(|i| row.get(i).map(str::to_owned))
                        .collect(),
                ),
                _ => None,
            })
            .collect()
    }

    /// The first column of a query, as text; null becomes empty.
    #[track_caller]
    pub fn column(&mut self, query: &str) -> Vec<String> {
        let rows = self.rows(query);
        rows.into_iter()
            .map(|row| row.into_iter().next().flatten().unwrap_or_default())
            .collect()
    }

    /// The one value of a query, as text; null becomes empty.
    #[track_caller]
    pub fn text(&mut self, query: &str) -> String {
        let column = self.column(query);
        assert_eq!(column.len(), 1, "rows of {}", shortened(query));
        column.into_iter().next().unwrap_or_default()
    }

    /// The one value of a query, as a number.
    #[track_caller]
    pub fn number(&mut self, query: &str) -> i64 {
        let text = self.text(query);
        text.parse()
            .unwrap_or_else(|_| panic!("{} is \"{text}\", which is no number", shortened(query)))
    }

    /// Whether a condition holds; null is no.
    #[track_caller]
    pub fn is(&mut self, condition: &str) -> bool {
        self.text(&format!("select {condition}")) == "t"
    }

    /// Waits until a condition holds.
    #[track_caller]
    pub fn wait_until(&mut self, condition: &str) {
        wait_for(condition, PATIENCE, || self.is(condition));
    }

    /// An endpoint that gets every live event of the partner.
    #[track_caller]
    pub fn endpoint(&mut self, partner: &str, url: &str) -> Endpoint {
        self.endpoint_with(partner, url, "")
    }

    /// An endpoint with further arguments, such as `, test => true`; in use at once, unless they say how control
    /// of the URL is to be proven.
    #[track_caller]
    pub fn endpoint_with(&mut self, partner: &str, url: &str, more: &str) -> Endpoint {
        let (partner, url) = (quoted(partner), quoted(url));
        let unproven = if more.contains("verify =>") {
            ""
        } else {
            ", verify => 'none'"
        };
        let rows = self.rows(&format!(
            "select endpoint_id, secret from webhook.create_endpoint({partner}, {url}{more}{unproven})"
        ));
        let of = |column: usize| rows[0][column].clone().unwrap_or_default();
        Endpoint {
            id: of(0).parse().expect("an endpoint id"),
            secret: of(1),
        }
    }

    /// Emits an event and returns its id.
    #[track_caller]
    pub fn emit(&mut self, kind: &str, partner: &str, data: &str) -> String {
        self.emit_with(kind, partner, data, "")
    }

    /// Emits an event with further arguments, such as `, test => true`.
    #[track_caller]
    pub fn emit_with(&mut self, kind: &str, partner: &str, data: &str, more: &str) -> String {
        let (kind, partner, data) = (quoted(kind), quoted(partner), quoted(data));
        self.text(&format!(
            "select webhook.emit({kind}, {partner}, {data}{more})"
        ))
    }

    /// The delivery of an event to an endpoint, once it has a row.
    #[track_caller]
    pub fn delivery(&mut self, event: &str, endpoint: &Endpoint) -> Option<Delivery> {
        let rows = self.rows(&format!(
            "select delivery_id, state, reason, attempt_count, last_status, last_error_category,
                    extract(epoch from next_attempt_at), extract(epoch from delivered_at)
               from webhook.deliveries
              where event_id = '{event}' and endpoint_id = {}",
            endpoint.id
        ));
        assert!(rows.len() < 2, "{event} has several rows");
        let row = rows.into_iter().next()?;
        Some(Delivery {
            id: needed(&row, 0),
            state: needed(&row, 1),
            reason: row[2].clone(),
            attempts: needed(&row, 3),
            status: parsed(&row, 4),
            category: row[5].clone(),
            next_attempt_at: parsed(&row, 6),
            delivered_at: parsed(&row, 7),
        })
    }

    /// Waits until the delivery is in a state.
    #[track_caller]
    pub fn wait_for_state(&mut self, event: &str, endpoint: &Endpoint, state: &str) -> Delivery {
        self.wait_for_delivery(event, endpoint, state, |delivery| delivery.state == state)
    }

    /// Waits until the delivery has had so many attempts.
    #[track_caller]
    pub fn wait_for_attempts(&mut self, event: &str, endpoint: &Endpoint, n: usize) -> Delivery {
        let what = format!("tried {n} times");
        self.wait_for_delivery(event, endpoint, &what, |delivery| delivery.attempts >= n)
    }

    #[track_caller]
    fn wait_for_delivery(
        &mut self,
        event: &str,
        endpoint: &Endpoint,
        what: &str,
        fits: impl Fn(&Delivery) -> bool,
    ) -> Delivery {
        let end = Instant::now() + PATIENCE;
        loop {
            let delivery = self.delivery(event, endpoint);
            match delivery {
                Some(delivery) if fits(&delivery) => return delivery,
                _ => assert!(
                    Instant::now() < end,
                    "waited {PATIENCE:?} in vain: {event} is {what}; it is {delivery:?}"
                ),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The attempts of a delivery in order. They must be numbered from 1 without gaps.
    #[track_caller]
    pub fn attempts(&mut self, event: &str, endpoint: &Endpoint) -> Vec<Attempt> {
        let rows = self.rows(&format!(
            "select attempt_no, extract(epoch from started_at), outcome, status, error_category, phase, detail,
                    extract(epoch from next_attempt_at), latency_ms
               from webhook.attempts
              where event_id = '{event}' and endpoint_id = {}
              order by attempt_no",
            endpoint.id
        ));
        let attempts: Vec<Attempt> = rows
            .iter()
            .map(|row| Attempt {
                number: needed(row, 0),
                started_at: needed(row, 1),
                outcome: needed(row, 2),
                status: parsed(row, 3),
                category: row[4].clone(),
                phase: row[5].clone(),
                detail: row[6].clone(),
                next_attempt_at: parsed(row, 7),
                latency_ms: parsed(row, 8),
            })
            .collect();
        for (position, attempt) in attempts.iter().enumerate() {
            assert_eq!(attempt.number, position + 1, "gaps in {attempts:?}");
        }
        attempts
    }

    /// Waits until the leader of this database is in a state of `stat_worker`.
    #[track_caller]
    pub fn wait_for_worker(&mut self, state: &str) {
        self.wait_until(&format!(
            "(select state = {} from webhook.stat_worker)",
            quoted(state)
        ));
    }

    /// The process id of the leader; 0 when there is none.
    #[track_caller]
    pub fn leader(&mut self) -> i32 {
        let pid = self.number("select coalesce(pid, 0) from webhook.stat_worker");
        i32::try_from(pid).expect("a process id")
    }
}

impl Drop for Outbox<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "database \"{}\", the end of the server log:\n{}",
                self.database,
                self.cluster.log_tail(30)
            );
        }
    }
}

/// A text as a literal of SQL.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn parsed<T: std::str::FromStr>(row: &[Option<String>], column: usize) -> Option<T> {
    row[column].as_ref()?.parse().ok()
}

fn needed<T: std::str::FromStr>(row: &[Option<String>], column: usize) -> T {
    parsed(row, column).unwrap_or_else(|| panic!("column {column} of {row:?}"))
}

fn described(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!(
            "{} {} {}",
            error.message(),
            error.detail().unwrap_or_default(),
            error.hint().unwrap_or_default()
        ),
        None => error.to_string(),
    }
}

fn shortened(statements: &str) -> String {
    statements.chars().take(200).collect()
}
