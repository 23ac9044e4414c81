//! Vetting and remembering of addresses, with look-ups that answer what the test wants.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::server::{OK, Server};
use super::*;
use crate::wire::classify::Fault;
use crate::wire::lookup::Lookups;
use crate::wire::resolver::{GuardedResolver, KEEP};

const PATIENCE: Duration = Duration::from_secs(5);

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn resolver(
    keep: Duration,
    lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>> + Send + Sync + 'static,
) -> GuardedResolver {
    let lookups = Lookups::new(Box::new(lookup));
    GuardedResolver::with_lookups(Boundary::default(), PATIENCE, lookups, keep)
}

fn answering(texts: &'static [&'static str]) -> GuardedResolver {
    resolver(KEEP, move |_| Ok(addresses(texts)))
}

#[test]
fn one_bad_address_refuses_the_whole_answer() {
    for answer in [
        &["93.184.215.14", "fd00::1"][..],
        &["fd00::1", "93.184.215.14"],
        &["8.8.8.8", "127.0.0.1"],
        &["8.8.8.8", "1.1.1.1", "::ffff:10.0.0.1"],
        &["169.254.169.254"],
    ] {
        let refused = answering(answer).addresses("hooks.example.com", PATIENCE);
        assert!(matches!(refused, Err(Fault::Blocked { .. })), "{answer:?}");
    }
}

#[test]
fn bad_address_behind_many_good_ones_is_seen() {
    let resolver = resolver(KEEP, |_| {
        let mut many = addresses(&["8.8.8.8"]).repeat(50);
        many.extend(addresses(&["10.0.0.1"]));
        Ok(many)
    });
    let refused = resolver.addresses("hooks.example.com", PATIENCE);
    assert!(matches!(refused, Err(Fault::Blocked { .. })));
}

#[test]
fn good_addresses_pass_in_their_order() {
    let passed = answering(&["2606:4700::1", "1.1.1.1"])
        .addresses("hooks.example.com", PATIENCE)
        .unwrap();
    assert_eq!(*passed, *addresses(&["2606:4700::1", "1.1.1.1"]));
}

#[test]
fn literal_is_vetted_and_never_looked_up() {
    let resolver = resolver(KEEP, |_| panic!("a literal was looked up"));
    assert!(resolver.addresses("1.1.1.1", PATIENCE).is_ok());
    assert!(resolver.addresses("[2606:4700::1]", PATIENCE).is_ok());
    for literal in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1"] {
        let refused = resolver.addresses(literal, PATIENCE);
        assert!(matches!(refused, Err(Fault::Blocked { .. })), "{literal}");
    }
}

#[test]
fn name_is_looked_up_as_absolute() {
    let seen = arc(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let resolver = resolver(KEEP, move |name| {
        log.lock().unwrap().push(name.to_owned());
        Ok(addresses(&["1.1.1.1"]))
    });
    resolver.addresses("hooks.example.com", PATIENCE).unwrap();
    resolver.addresses("other.example.com.", PATIENCE).unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        ["hooks.example.com.", "other.example.com."]
    );
}

#[test]
fn vetted_answer_serves_for_a_while_and_is_then_asked_for_again() {
    let asked = arc(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let resolver = resolver(Duration::from_millis(200), move |_| {
        // The second answer has been rebound to the inside.
        Ok(match counter.fetch_add(1, Ordering::SeqCst) {
            0 => addresses(&["1.1.1.1"]),
            _ => addresses(&["127.0.0.1"]),
        })
    });
    for _ in 0..10 {
        assert!(resolver.addresses("hooks.example.com", PATIENCE).is_ok());
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    thread::sleep(Duration::from_millis(250));
    let refused = resolver.addresses("hooks.example.com", PATIENCE);
    assert!(matches!(refused, Err(Fault::Blocked { .. })));
    // What was refused is not remembered.
    let refused = resolver.addresses("hooks.example.com", PATIENCE);
    assert!(matches!(refused, Err(Fault::Blocked { .. })));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn name_that_flips_between_two_look_ups_never_gives_a_bad_address() {
    // Nothing is kept (as with a time to live of 0): each look-up may be answered otherwise.
    let asked = arc(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let resolver = resolver(Duration::ZERO, move |_| {
        Ok(match counter.fetch_add(1, Ordering::SeqCst) % 4 {
            0 => addresses(&["93.184.215.14"]),
            1 => addresses(&["127.0.0.1"]),
            2 => addresses(&["8.8.8.8", "127.0.0.1"]),
            _ => addresses(&["93.184.215.14", "fd00::1"]),
        })
    });
    let mut passed = 0;
    for number in 0..1000 {
        match resolver.sockets("hooks.example.com", 443, PATIENCE) {
            Ok(sockets) => {
                assert_eq!(sockets, [SocketAddr::from(([93, 184, 215, 14], 443))]);
                passed += 1;
            }
            Err(Fault::Blocked { .. }) => assert_ne!(number % 4, 0),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((passed, asked.load(Ordering::SeqCst)), (250, 1000));
}

#[test]
fn connection_goes_to_what_was_vetted_however_often_the_name_flips() {
    let server = Server::answering(OK);
    let port = server.address.port();
    // It would be reached by a second look-up, or by the other address of an answer.
    let trap = std::net::TcpListener::bind(("127.0.0.2", port)).unwrap();
    trap.set_nonblocking(true).unwrap();
    let asked = AtomicUsize::new(0);
    let lookup = move |_: &str| {
        Ok(match asked.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => addresses(&["127.0.0.1"]),
            1 => addresses(&["127.0.0.2"]),
            _ => addresses(&["127.0.0.1", "127.0.0.2"]),
        })
    };
    let strict = ClientSettings {
        boundary: Boundary {
            allow_networks: vec!["127.0.0.1/32".parse().unwrap()],
            ..boundary()
        },
        ..settings()
    };
    let client = Client::with_lookups(strict, Lookups::new(Box::new(lookup))).unwrap();
    let mut good = 0;
    for number in 0..999 {
        // A name of its own each time: an answer is kept for seconds.
        let url = format!("http://n{number}.example.com:{port}/");
        match post(&client, &target(&url)).answer {
            Answer::Status { code: 200, .. } => good += 1,
            Answer::Failure {
                category: Category::Blocked,
                ..
            } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(good, 333);
    assert!(trap.accept().is_err());
}

#[test]
fn connection_that_leads_elsewhere_than_to_the_vetted_address_is_given_up() {
    let server = Server::answering(OK);
    // Linux takes 0.0.0.0 for the local host.
    let open = ClientSettings {
        boundary: Boundary {
            allow_networks: vec!["0.0.0.0/32".parse().unwrap()],
            ..boundary()
        },
        ..settings()
    };
    let url = format!("http://0.0.0.0:{}/", server.address.port());
    let target = open.boundary.target(&url).unwrap();
    let outcome = post(&Client::new(open).unwrap(), &target);
    assert_failure(&outcome, Category::Blocked, Some(Phase::Connect));
    assert!(server.requests().is_empty());
}

#[test]
fn port_of_the_database_server_is_blocked_on_its_own_host_behind_any_name() {
    let open = Boundary {
        own_port: 5432,
        ..boundary()
    };
    let lookups = Lookups::new(Box::new(|_: &str| Ok(addresses(&["127.0.0.1"]))));
    let resolver = GuardedResolver::with_lookups(open, PATIENCE, lookups, KEEP);
    for host in ["hooks.example.com", "127.0.0.1"] {
        // The answer of the first is remembered: it is judged with each port all the same.
        assert!(resolver.sockets(host, 5433, PATIENCE).is_ok(), "{host}");
        match resolver.sockets(host, 5432, PATIENCE) {
            Err(Fault::Blocked { denied, .. }) => assert_eq!(denied.block, "own_port"),
            other => panic!("{host}: {other:?}"),
        }
    }
}

#[test]
fn own_addresses_are_read_again_and_those_given_stay() {
    let given = Boundary {
        own_addresses: addresses(&["93.184.215.14"]),
        ..Boundary::default()
    };
    let lookups = Lookups::new(Box::new(|_: &str| Ok(Vec::new())));
    let resolver = GuardedResolver::with_lookups(given, PATIENCE, lookups, KEEP);
    let blocked = |resolver: &GuardedResolver| match resolver.addresses("127.0.0.1", PATIENCE) {
        Err(Fault::Blocked { denied, .. }) => denied.block,
        other => panic!("{other:?}"),
    };
    assert_eq!(blocked(&resolver), "127.0.0.0/8");
    thread::sleep(KEEP + Duration::from_millis(50));
    assert_eq!(blocked(&resolver), "own_addresses");
    assert!(resolver.addresses("93.184.215.14", PATIENCE).is_err());
}

#[test]
fn new_boundary_forgets_what_the_old_one_let_pass() {
    let lookups = Lookups::new(Box::new(|_: &str| Ok(addresses(&["127.0.0.1"]))));
    let with = |boundary| {
        GuardedResolver::with_lookups(boundary, PATIENCE, Arc::clone(&lookups), KEEP)
            .addresses("hooks.example.com", PATIENCE)
    };
    assert!(with(boundary()).is_ok());
    assert!(matches!(
        with(Boundary::default()),
        Err(Fault::Blocked { .. })
    ));
}

#[test]
fn failed_or_empty_answer_is_not_found() {
    let failing = resolver(KEEP, |_| Err(std::io::Error::other("NXDOMAIN")));
    let failed = failing.addresses("hooks.example.com", PATIENCE);
    assert_eq!(failed, Err(Fault::NotFound));
    let failed = answering(&[]).addresses("hooks.example.com", PATIENCE);
    assert_eq!(failed, Err(Fault::NotFound));
}

#[test]
fn hanging_look_up_ends_at_the_deadline() {
    let resolver = resolver(KEEP, |_| {
        thread::sleep(Duration::from_secs(30));
        Ok(addresses(&["1.1.1.1"]))
    });
    let started = Instant::now();
    let late = resolver.addresses("hooks.example.com", Duration::from_millis(100));
    assert_eq!(late, Err(Fault::LookupLate));
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn hanging_look_up_does_not_hold_up_another() {
    let resolver = resolver(KEEP, |name| {
        if name.starts_with("slow") {
            thread::sleep(Duration::from_secs(30));
        }
        Ok(addresses(&["1.1.1.1"]))
    });
    let soon = Duration::from_millis(50);
    assert!(resolver.addresses("slow.example.com", soon).is_err());
    assert!(resolver.addresses("fast.example.com", PATIENCE).is_ok());
}

#[test]
fn many_ask_for_one_name_and_one_look_up_answers() {
    let asked = arc(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let resolver = arc(resolver(Duration::ZERO, move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
        Ok(addresses(&["1.1.1.1"]))
    }));
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let resolver = Arc::clone(&resolver);
            thread::spawn(move || resolver.addresses("hooks.example.com", PATIENCE).is_ok())
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    assert!(asked.load(Ordering::SeqCst) < 5);
}

#[test]
fn panicking_look_up_is_our_own_fault_and_the_next_one_works() {
    let asked = arc(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let resolver = resolver(KEEP, move |_| {
        if counter.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("injected");
        }
        Ok(addresses(&["1.1.1.1"]))
    });
    let failed = resolver.addresses("hooks.example.com", PATIENCE);
    assert_eq!(failed, Err(Fault::LookupOurs));
    assert!(resolver.addresses("hooks.example.com", PATIENCE).is_ok());
}

#[test]
fn unknown_name_is_a_dns_failure() {
    let lookups = Lookups::new(Box::new(|_: &str| Err(std::io::Error::other("no"))));
    let client = Client::with_lookups(settings(), lookups).unwrap();
    let outcome = post(&client, &target("https://hooks.example.com/"));
    assert_failure(&outcome, Category::Dns, Some(Phase::Resolve));
}

#[test]
fn name_with_a_trailing_dot_is_the_same_host() {
    let server = super::server::Server::answering(super::server::OK);
    let port = server.address.port();
    let client = client_with_names(settings());
    let outcome = post(
        &client,
        &target(&format!("http://hooks.example.com.:{port}/")),
    );
    assert_status(&outcome, 200);
    let seen = server.requests();
    assert_eq!(
        seen[0].header("host").unwrap(),
        format!("hooks.example.com:{port}")
    );
}

#[test]
fn hanging_names_leave_threads_to_names_that_resolve() {
    let gate = std::sync::Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let held = std::sync::Arc::clone(&gate);
    // Nothing is kept: every question is a look-up.
    let resolver = std::sync::Arc::new(resolver(Duration::ZERO, move |name| {
        if name.starts_with("hangs") {
            let mut open = held.0.lock().unwrap();
            while !*open {
                open = held.1.wait(open).unwrap();
            }
        }
        Ok(addresses(&["8.8.8.8"]))
    }));
    resolver.addresses("good.example.com", PATIENCE).unwrap();
    let askers: Vec<_> = (0..40)
        .map(|n| {
            let resolver = std::sync::Arc::clone(&resolver);
            thread::spawn(move || {
                let name = format!("hangs{n}.example.com");
                let _ = resolver.addresses(&name, Duration::from_millis(500));
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(100));
    for _ in 0..10 {
        resolver
            .addresses("good.example.com", PATIENCE)
            .expect("a name that resolves is not held up");
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    for asker in askers {
        asker.join().unwrap();
    }
    resolver
        .addresses("hangs1.example.com", PATIENCE)
        .expect("a name that hung is looked up again");
}
