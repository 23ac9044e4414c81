//! Ceilings: what clients reach that do nothing but post the same bytes to the same receiver, over as many connections
//! as threads. One knows nothing but sockets; one is ureq with the product's resolver and ureq's own pool; one is the
//! client of the product itself, with its pool and its classifying of answers.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};
use ureq::{Agent, config::Config, unversioned::transport::DefaultConnector};
use webhook_outbox::{
    rules::{
        address::{Boundary, Ports},
        delivery::Answer,
    },
    wire::{
        client::{Client, ClientSettings},
        resolver::GuardedResolver,
    },
};
use webhook_outbox_test::meter::median;

use crate::{report::Report, setup::payload, sink::Sink};

/// What a client reached.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// Requests per second.
    pub rate: f64,
    /// CPU seconds of the client per 1,000 requests.
    pub cpu: f64,
}

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Plain sockets.
    Sockets,
    /// One ureq agent for all threads, with the resolver of the product.
    Ureq,
    /// The client of the product.
    Own,
}

impl Kind {
    /// How it is called in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sockets => "plain sockets",
            Kind::Ureq => "ureq",
            Kind::Own => "the product's client",
        }
    }
}

/// Posts a body `count` times over `threads` connections.
pub fn run(kind: Kind, sink: &Sink, threads: usize, count: usize, body: &str) -> Reached {
    let poster = Poster::new(kind, sink.address(), body);
    let begun = Instant::now();
    let cpu: f64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| poster.post(count / threads)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("the client posts"))
            .sum()
    });
    let sent = (count / threads * threads) as f64;
    Reached {
        rate: sent / begun.elapsed().as_secs_f64(),
        cpu: cpu * 1000.0 / sent,
    }
}

/// The better of the two clients over ureq, each the median of three rounds: what deliveries are compared with.
pub fn ureq_ceiling(sink: &Sink, threads: usize) -> Reached {
    let body = payload(600);
    let best = [Kind::Ureq, Kind::Own].map(|kind| {
        let mut rounds: Vec<Reached> = (0..3)
            .map(|_| run(kind, sink, threads, 20_000, &body))
            .collect();
        rounds.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        rounds[1]
    });
    if best[0].rate > best[1].rate {
        best[0]
    } else {
        best[1]
    }
}

/// Prints the ceilings.
pub fn report(report: &mut Report, rounds: usize) {
    report.part("ceiling", "clients that only post, 600 B, keep-alive");
    let sink = Sink::start();
    let body = payload(600);
    for threads in [16, 64] {
        for kind in [Kind::Sockets, Kind::Ureq, Kind::Own] {
            let reached: Vec<Reached> = (0..rounds)
                .map(|_| run(kind, &sink, threads, 40_000, &body))
                .collect();
            let mut rates: Vec<f64> = reached.iter().map(|reached| reached.rate).collect();
            let mut cpu: Vec<f64> = reached.iter().map(|reached| reached.cpu).collect();
            let name = format!("{}, {threads} threads", kind.name());
            report.figure(&name, median(&mut rates), "req/s");
            report.figure(&format!("{name}, CPU"), median(&mut cpu), "s/1000");
        }
    }
}

enum Poster {
    Sockets(SocketAddr, Vec<u8>),
    Ureq(Agent, String, String),
    Own(Arc<Client>, String, String),
}

impl Poster {
    fn new(kind: Kind, address: SocketAddr, body: &str) -> Poster {
        let url = format!("http://{address}/bare");
        let time = Duration::from_secs(20);
        match kind {
            Kind::Sockets => Poster::Sockets(
                address,
                format!(
                    "POST /bare HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .into_bytes(),
            ),
            Kind::Ureq => {
                let config = Config::builder()
                    .proxy(None)
                    .http_status_as_error(false)
                    .no_delay(true)
                    .max_idle_connections(256)
                    .max_idle_connections_per_host(256)
                    .timeout_global(Some(time))
                    .build();
                let resolver = GuardedResolver::new(boundary(), time);
                let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
                Poster::Ureq(agent, url, body.to_owned())
            }
            Kind::Own => {
                let client = Client::new(ClientSettings {
                    boundary: boundary(),
                    proxy: None,
                    connect_timeout: Duration::from_secs(5),
                    request_timeout: time,
                    max_excerpt: 4096,
                    user_agent: "webhook_outbox".to_owned(),
                    ca_pem: None,
                    max_idle_per_host: 256,
                    max_idle: 256,
                });
                let client = client.expect("its settings are valid");
                Poster::Own(Arc::new(client), url, body.to_owned())
            }
        }
    }

    /// Posts `count` times and says how many CPU seconds that took.
    fn post(&self, count: usize) -> f64 {
        let before = thread_seconds();
        match self {
            Poster::Sockets(address, request) => {
                let mut stream = TcpStream::connect(address).expect("the receiver listens");
                stream.set_nodelay(true).expect("a TCP socket");
                let mut answer = [0; 512];
                for _ in 0..count {
                    stream.write_all(request).expect("the receiver reads");
                    let mut have = 0;
                    while !answer[..have].ends_with(b"\r\n\r\n") {
                        match stream.read(&mut answer[have..]) {
                            Ok(n) if n > 0 => have += n,
                            other => panic!("the receiver answers: {other:?}"),
                        }
                    }
                }
            }
            Poster::Ureq(agent, url, body) => {
                for _ in 0..count {
                    let answer = agent.post(url).content_type("application/json").send(body);
                    let mut answer = answer.expect("the receiver answers");
                    assert_eq!(answer.status(), 204);
                    // The connection goes back to the pool when the body is read to its end.
                    answer.body_mut().read_to_vec().expect("an empty body");
                }
            }
            Poster::Own(client, url, body) => {
                let target = boundary().target(url).expect("an allowed URL");
                for _ in 0..count {
                    let outcome = client.post(&target, &[], body.as_bytes(), 0);
                    assert!(
                        matches!(outcome.answer, Answer::Status { code: 204, .. }),
                        "{outcome:?}"
                    );
                }
            }
        }
        thread_seconds() - before
    }
}

fn boundary() -> Boundary {
    Boundary {
        allow_http: true,
        ports: Ports::AnyAllowed,
        allow_networks: vec!["127.0.0.0/8".parse().expect("a network")],
        ..Boundary::default()
    }
}

/// CPU seconds of this thread.
fn thread_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("Linux tells");
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
