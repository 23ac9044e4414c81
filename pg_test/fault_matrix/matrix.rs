//! The matrix itself: rows of what a receiver does and what has to follow from its first attempt. Each row has an
//! endpoint of its own, so that no row's failures reach another one, and all of them are tried at once. It judges
//! nothing but first attempts: the schedule is so long that there is no second one.

use std::{sync::LazyLock, time::Duration};

use webhook_outbox_test::{
    cluster::Cluster,
    dns::DnsServer,
    outbox::{Attempt, Endpoint, Outbox},
    receiver::{Answer, Receiver},
    tls::Authority,
};

/// What the requests of the matrix may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// What connecting may take, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// The first wait of the schedule with its jitter, and what a busy machine may add to it.
pub const FIRST_WAIT: (f64, f64) = (100.0, 150.0);
/// How much later than its deadline an attempt may end on a busy machine, in milliseconds.
const GRACE: f64 = 10_000.0;

/// The one server of the matrix, its name server, and the authority it trusts.
pub struct Scene {
    pub dns: DnsServer,
    pub authority: Authority,
    pub cluster: Cluster,
}

pub static SCENE: LazyLock<Scene> = LazyLock::new(|| {
    let dns = DnsServer::start();
    let mut cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "100s,200s,300s")
        .setting("webhook.retry_after_max", "3600")
        .setting("webhook.request_timeout", &in_ms(REQUEST_TIMEOUT))
        .setting("webhook.connect_timeout", &in_ms(CONNECT_TIMEOUT))
        .setting("webhook.max_endpoints_per_partner", "1000")
        .setting("webhook.max_payload", "16MB")
        // A broadcast address: no TCP connection leads there, whatever the routes of the machine are.
        .setting("webhook.allow_networks", "127.0.0.0/8,255.255.255.255/32")
        .name_server(dns.address())
        .start();
    let authority = Authority::new();
    let file = cluster.folder().join("authority.pem");
    authority.write_pem(&file);
    cluster.reload(&[("webhook.ca_file", &file.display().to_string())]);
    Outbox::create(&cluster, "shop");
    Scene {
        dns,
        authority,
        cluster,
    }
});

/// What has to follow from an attempt.
#[derive(Clone, Debug)]
pub struct Expected {
    state: &'static str,
    category: Option<&'static str>,
    phase: Option<&'static str>,
    status: Option<u16>,
    excerpt: Option<String>,
    /// What came of the body may be lost with what is wrong with it, when both come at once.
    may_be_lost: bool,
    /// A part of the sender's own words.
    says: &'static str,
    wait: (f64, f64),
}

impl Expected {
    /// A 2xx.
    pub fn delivered(status: u16) -> Expected {
        Expected {
            state: "delivered",
            category: None,
            phase: None,
            status: Some(status),
            excerpt: None,
            may_be_lost: false,
            says: "",
            wait: FIRST_WAIT,
        }
    }

    /// No usable answer; it broke in `phase`.
    pub fn failed(category: &'static str, phase: &'static str) -> Expected {
        Expected {
            state: "retrying",
            category: Some(category),
            phase: Some(phase),
            status: None,
            ..Expected::delivered(0)
        }
    }

    /// A status that is tried again.
    pub fn retrying(status: u16, category: &'static str) -> Expected {
        Expected {
            state: "retrying",
            category: Some(category),
            ..Expected::delivered(status)
        }
    }

    /// A status that ends it.
    pub fn dead(status: u16, category: &'static str) -> Expected {
        Expected {
            state: "dead",
            ..Expected::retrying(status, category)
        }
    }

    /// Whatever of the body came before the fault may be kept or not.
    pub fn or_nothing(mut self) -> Expected {
        self.may_be_lost = true;
        self
    }

    /// What is kept of the answer's body.
    pub fn excerpt(mut self, text: impl Into<String>) -> Expected {
        self.excerpt = Some(text.into());
        self
    }

    /// A part of the detail of the attempt.
    pub fn says(mut self, text: &'static str) -> Expected {
        self.says = text;
        self
    }

    /// The bounds of the wait before the next attempt, in seconds from the end of this one.
    pub fn wait(mut self, bounds: (f64, f64)) -> Expected {
        self.wait = bounds;
        self
    }

    /// The outcome that is recorded with the attempt.
    fn outcome(&self) -> &'static str {
        match self.state {
            "retrying" => "retry",
            other => other,
        }
    }

    fn reason(&self) -> Option<&'static str> {
        match (self.state, self.category) {
            ("dead", Some("gone")) => Some("the receiver answered 410 Gone"),
            ("dead", _) => Some("the receiver refuses the request"),
            _ => None,
        }
    }

    /// The shortest and the longest time the attempt may take, in milliseconds.
    fn latency(&self) -> (f64, f64) {
        let whole = REQUEST_TIMEOUT.as_secs_f64() * 1000.0;
        let connect = CONNECT_TIMEOUT.as_secs_f64() * 1000.0;
        match (self.category, self.phase) {
            // A time-out comes when it should; the clocks of both sides are rounded.
            (Some("timeout" | "connect_timeout"), Some("connect" | "tls")) => {
                (connect - 50.0, connect + GRACE)
            }
            (Some("timeout"), _) => (whole - 50.0, whole + GRACE),
            _ => (0.0, whole + GRACE),
        }
    }
}

struct Row {
    name: String,
    endpoint: Endpoint,
    expected: Expected,
    /// The one that answers, where it speaks HTTP: it has to get the request once, on one connection.
    receiver: Option<Receiver>,
}

/// The rows of one test, all of one partner.
pub struct Matrix {
    partner: &'static str,
    pub shop: Outbox<'static>,
    rows: Vec<Row>,
}

impl Matrix {
    pub fn of(partner: &'static str) -> Matrix {
        Matrix {
            partner,
            shop: Outbox::join(&SCENE.cluster, "shop"),
            rows: Vec::new(),
        }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Something that is no receiver of ours, or one that the test watches itself.
    pub fn url(&mut self, name: &str, url: &str, expected: Expected) {
        let endpoint = self.shop.endpoint(self.partner, url);
        self.rows.push(Row {
            name: name.to_owned(),
            endpoint,
            expected,
            receiver: None,
        });
    }

    /// A receiver of its own that answers in plain HTTP.
    pub fn answer(&mut self, name: &str, answer: Answer, expected: Expected) {
        self.answer_of(Receiver::http(), name, answer, expected);
    }

    /// The same over TLS, with a good certificate.
    pub fn secure_answer(&mut self, name: &str, answer: Answer, expected: Expected) {
        let receiver = Receiver::https(SCENE.authority.receiver(&["127.0.0.1"]));
        self.answer_of(receiver, name, answer, expected);
    }

    fn answer_of(&mut self, receiver: Receiver, name: &str, answer: Answer, expected: Expected) {
        receiver.script("/hook", vec![answer]);
        self.url(name, &receiver.url("/hook"), expected);
        if let Some(row) = self.rows.last_mut() {
            row.receiver = Some(receiver);
        }
    }

    /// Emits one event to all of them and holds what follows against the rows.
    #[track_caller]
    pub fn check(self, data: &str) {
        let Matrix {
            partner,
            mut shop,
            rows,
        } = self;
        let event = shop.emit("order.paid", partner, data);
        let objections: Vec<String> = rows
            .iter()
            .flat_map(|row| row.objections(&mut shop, &event))
            .collect();
        assert!(
            objections.is_empty(),
            "{} objections to {} rows:\n{}",
            objections.len(),
            rows.len(),
            objections.join("\n")
        );
    }
}

impl Row {
    fn objections(&self, shop: &mut Outbox, event: &str) -> Vec<String> {
        let expected = &self.expected;
        let delivery = shop.wait_for_attempts(event, &self.endpoint, 1);
        let attempts = shop.attempts(event, &self.endpoint);
        let excerpt = shop.rows(&format!(
            "select webhook.read_excerpt('{}', 1)",
            delivery.id
        ));
        let attempt = &attempts[0];
        let mut found = Vec::new();
        let mut compare = |what: &str, is: String, should: String| {
            if is != should {
                found.push(format!("{}: {what} {is} instead of {should}", self.name));
            }
        };
        compare(
            "attempts",
            format!("{}, {}", delivery.attempts, attempts.len()),
            "1, 1".to_owned(),
        );
        compare("state", delivery.state, expected.state.to_owned());
        compare(
            "outcome",
            attempt.outcome.clone(),
            expected.outcome().to_owned(),
        );
        compare(
            "category",
            format!("{:?}, {:?}", delivery.category, attempt.category),
            format!("{:?}, {:?}", expected.category, expected.category),
        );
        compare(
            "status",
            format!("{:?}, {:?}", delivery.status, attempt.status),
            format!("{:?}, {:?}", expected.status, expected.status),
        );
        compare(
            "phase",
            format!("{:?}", attempt.phase),
            format!("{:?}", expected.phase),
        );
        compare(
            "excerpt",
            format!(
                "{:?}",
                excerpt[0][0]
                    .as_ref()
                    .or(expected.excerpt.as_ref().filter(|_| expected.may_be_lost))
            ),
            format!("{:?}", expected.excerpt),
        );
        compare(
            "reason",
            format!("{:?}", delivery.reason),
            format!("{:?}", expected.reason()),
        );
        // The view and the attempt tell the same plan.
        compare(
            "next attempt",
            format!("{:?}", delivery.next_attempt_at),
            format!("{:?}", attempt.next_attempt_at),
        );
        let detail = attempt.detail.clone().unwrap_or_default();
        if !detail.contains(expected.says) || detail.is_empty() != expected.phase.is_none() {
            found.push(format!(
                "{}: detail \"{detail}\" instead of \"{}\"",
                self.name, expected.says
            ));
        }
        found.extend(self.wait_and_latency(attempt));
        if let Some(receiver) = &self.receiver {
            let seen = (receiver.count(), receiver.connections());
            if seen != (1, 1) {
                found.push(format!("{}: requests and connections {seen:?}", self.name));
            }
        }
        found
    }

    fn wait_and_latency(&self, attempt: &Attempt) -> Vec<String> {
        let latency = attempt.latency_ms.unwrap_or(-1.0);
        let end = attempt.started_at + latency / 1000.0;
        let wait = attempt.next_attempt_at.map(|at| at - end);
        let wait_fits = match wait {
            Some(wait) => {
                self.expected.state == "retrying"
                    && (self.expected.wait.0..self.expected.wait.1).contains(&wait)
            }
            None => self.expected.state != "retrying",
        };
        let (least, most) = self.expected.latency();
        let mut found = Vec::new();
        if !wait_fits {
            found.push(format!(
                "{}: the next attempt is in {wait:?} s instead of {:?}",
                self.name, self.expected.wait
            ));
        }
        if !(least..most).contains(&latency) {
            found.push(format!(
                "{}: it took {latency} ms instead of {least} to {most}",
                self.name
            ));
        }
        found
    }
}

fn in_ms(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}
