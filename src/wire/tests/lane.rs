//! The lane beside the threads: whatever a receiver does on a connection that was kept, both record the same.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::Linger};

use super::crew::{job, wait_for};
use super::server::{OK, Server, hold, read_request};
use super::*;
use crate::rules::ids::EndpointId;
use crate::wire::crew::Crew;
use crate::wire::job::Job;

/// The time of a request where the receiver lets it pass.
const SHORT: Duration = Duration::from_secs(2);

type Act = fn(&mut TcpStream);

/// Answers the first request of the first connection, and does this to the second; other connections behave.
fn acting(act: Act) -> Server {
    Server::start(move |mut stream, number| {
        if number == 0 {
            read_request(&mut stream);
            let _ = stream.write_all(OK.as_bytes());
            if read_request(&mut stream).is_some() {
                act(&mut stream);
            }
            return;
        }
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(OK.as_bytes());
        }
    })
}

fn say(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

fn stay(stream: &mut TcpStream) {
    if let Ok(stream) = stream.try_clone() {
        hold(stream);
    }
}

fn pause() {
    thread::sleep(Duration::from_millis(20));
}

fn reset(stream: &mut TcpStream) {
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let _ = setsockopt(&*stream, Linger, &linger);
}

/// What both say of the second request: by the client alone, and by a crew.
fn both(act: Act, time: Duration) -> (Outcome, Outcome, usize) {
    let blocking = {
        let server = acting(act);
        let client = Client::new(impatient(time)).unwrap();
        assert_status(&post(&client, &http(server.address)), 200);
        post(&client, &http(server.address))
    };
    let server = acting(act);
    let mut crew = Crew::new(4, arc(Client::new(impatient(time)).unwrap()), |_| true).unwrap();
    let target = arc(http(server.address));
    crew.submit([job(1, Arc::clone(&target))]);
    assert_status(&wait_for(&crew, 1)[0].outcome, 200);
    settled(&crew);
    crew.submit([job(2, target)]);
    let outcome = wait_for(&crew, 1).pop().unwrap().outcome;
    settled(&crew);
    assert_eq!(outcome.key_ids, [1]);
    (blocking, outcome, crew.by_lane())
}

/// Waits until nothing is in hand: an outcome is told before its place is free.
fn settled(crew: &Crew) {
    while crew.in_flight() > 0 {
        thread::yield_now();
    }
}

#[track_caller]
fn same(act: Act, time: Duration, by_lane: usize) -> Outcome {
    let (blocking, lane, count) = both(act, time);
    assert_eq!(lane.answer, blocking.answer);
    assert_eq!(lane.excerpt, blocking.excerpt);
    assert_eq!(lane.response_bytes, blocking.response_bytes);
    assert_eq!(count, by_lane);
    lane
}

#[test]
fn easy_answers_are_read_in_the_lane() {
    let acts: [Act; 8] = [
        |stream| say(stream, OK.as_bytes()),
        |stream| say(stream, b"HTTP/1.1 204 No Content\r\n\r\n"),
        |stream| {
            say(
                stream,
                b"HTTP/1.1 201 \r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n",
            );
        },
        // Head and body apart, as many servers write them.
        |stream| {
            say(
                stream,
                b"HTTP/1.1 202 Accepted\r\ncontent-length: 5\r\n\r\n",
            );
            pause();
            say(stream, b"later");
        },
        |stream| {
            for byte in b"HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 3\r\n\r\nabc" {
                say(stream, &[*byte]);
                thread::sleep(Duration::from_millis(1));
            }
        },
        |stream| {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 12000\r\n\r\n{}",
                "z".repeat(12_000)
            );
            say(stream, head.as_bytes());
        },
        |stream| {
            say(
                stream,
                b"HTTP/1.1 226 IM Used\r\ncontent-length: 4\r\n\r\na\0\xff\xfe",
            )
        },
        |stream| say(stream, b"\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ];
    for act in acts {
        let outcome = same(act, Duration::from_secs(20), 1);
        assert!(matches!(
            outcome.answer,
            Answer::Status {
                code: 200..=299,
                ..
            }
        ));
    }
}

#[test]
fn unusual_answers_are_read_by_a_thread_from_where_the_lane_stopped() {
    let acts: [Act; 18] = [
        |stream| {
            say(
                stream,
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            );
            pause();
            say(stream, b"2\r\nde\r\n0\r\n\r\n");
        },
        |stream| say(stream, b"HTTP/1.0 200 OK\r\n\r\nuntil the end"),
        |stream| {
            say(
                stream,
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
            )
        },
        |stream| say(stream, b"HTTP/1.1 200 OK\r\n\r\nof no length"),
        |stream| {
            say(
                stream,
                b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops",
            )
        },
        |stream| {
            say(
                stream,
                b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\nretry-after: x\r\ncontent-length: 0\r\n\r\n",
            );
        },
        |stream| {
            say(
                stream,
                b"HTTP/1.1 301 Moved\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n",
            )
        },
        |stream| say(stream, b"HTTP/1.1 304 Same\r\n\r\n"),
        |stream| {
            say(
                stream,
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n",
            );
            pause();
            say(stream, OK.as_bytes());
        },
        |stream| {
            say(
                stream,
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            )
        },
        |stream| say(stream, b"SSH-2.0-OpenSSH_9.6\r\n"),
        |stream| say(stream, b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"),
        |stream| {
            say(
                stream,
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
            )
        },
        |stream| say(stream, b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok"),
        |stream| {
            say(
                stream,
                format!(
                    "HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n",
                    "y".repeat(20_000)
                )
                .as_bytes(),
            );
        },
        |stream| {
            say(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 50000\r\n\r\n");
            say(stream, &[b'q'; 50_000]);
        },
        // Closed within the head, and within the body.
        |stream| say(stream, b"HTTP/1.1 2"),
        |stream| say(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
    ];
    for act in acts {
        same(act, Duration::from_secs(20), 0);
    }
}

#[test]
fn more_than_was_announced_costs_the_connection_and_not_the_answer() {
    let outcome = same(
        |stream| {
            say(
                stream,
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 500 No\r\n\r\n",
            );
            stay(stream);
        },
        Duration::from_secs(20),
        0,
    );
    assert_status(&outcome, 200);
}

#[test]
fn a_connection_that_closes_before_the_first_byte_costs_no_attempt() {
    let acts: [Act; 2] = [|_| {}, reset];
    for act in acts {
        assert_status(&same(act, Duration::from_secs(20), 0), 200);
    }
}

#[test]
fn a_reset_within_the_answer_is_the_failure_that_it_is() {
    let outcome = same(
        |stream| {
            say(stream, b"HTTP/1.1 200 OK\r\n");
            // The first piece has been read when the connection breaks.
            thread::sleep(Duration::from_secs(1));
            reset(stream);
        },
        Duration::from_secs(20),
        1,
    );
    assert_failure(&outcome, Category::Protocol, Some(Phase::Headers));
}

#[test]
fn silence_ends_in_the_lane_when_the_time_is_over() {
    let outcome = same(stay, SHORT, 1);
    assert_failure(&outcome, Category::Timeout, Some(Phase::Headers));
    assert!(outcome.latency_us >= u64::try_from(SHORT.as_micros()).unwrap());
    let outcome = same(
        |stream| {
            say(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
            stay(stream);
        },
        SHORT,
        1,
    );
    assert_failure(&outcome, Category::Timeout, Some(Phase::Body));
    assert_eq!(outcome.excerpt, b"half");
}

#[test]
fn an_answer_that_drips_past_the_lane_ends_by_the_same_deadline() {
    let (_, outcome, _) = both(
        |stream| {
            say(stream, b"HTTP/1.1 500 No\r\n");
            while stream.write_all(b"x: y\r\n").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        },
        SHORT,
    );
    assert_failure(&outcome, Category::Timeout, Some(Phase::Headers));
    // By the first deadline, not by one of its own; what is more is the machine's.
    assert!(Duration::from_micros(outcome.latency_us) < SHORT + Duration::from_secs(10));
}

#[test]
fn both_send_the_same_bytes() {
    for url in ["/hook", "/", "", "?a=b", "/a%20b?c=%ff&d"] {
        let server = Server::answering(OK);
        let target = arc(target(&format!("http://{}{url}", server.address)));
        let mut crew = Crew::new(2, arc(client()), |_| true).unwrap();
        for ticket in 0..2 {
            let mut job = job(7, Arc::clone(&target));
            job.ticket = ticket;
            job.extra = arc(vec![("X-Extra".to_owned(), "a  b\tc".to_owned())]);
            crew.submit([job]);
            wait_for(&crew, 1);
            settled(&crew);
        }
        assert_eq!(crew.by_lane(), 1);
        let [thread, lane] = &server.requests()[..] else {
            panic!("two requests");
        };
        assert_eq!(lane.body, thread.body);
        let without_time = |head: &str| -> Vec<String> {
            head.lines()
                .map(|line| match line.split_once(": ") {
                    Some((name @ ("webhook-timestamp" | "webhook-signature"), _)) => {
                        name.to_owned()
                    }
                    _ => line.to_owned(),
                })
                .collect()
        };
        assert_eq!(without_time(&lane.head), without_time(&thread.head));
        assert!(lane.head.lines().count() > 9);
    }
}

/// Answers after a pause; counts how many requests it has in hand at most.
fn counting(time: Duration) -> (Server, Arc<AtomicUsize>) {
    let now = arc(AtomicUsize::new(0));
    let most = arc(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let server = Server::start(move |mut stream, _| {
        while read_request(&mut stream).is_some() {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(time);
            now.fetch_sub(1, Ordering::SeqCst);
            if stream.write_all(OK.as_bytes()).is_err() {
                return;
            }
        }
    });
    (server, most)
}

#[test]
fn threads_and_lane_together_keep_to_the_limit() {
    let (quick, _) = counting(Duration::from_millis(1));
    let (slow, most) = counting(Duration::from_millis(5));
    let mut crew = Crew::new(6, arc(client()), |_| true).unwrap();
    let targets = [arc(http(quick.address)), arc(http(slow.address))];
    for ticket in 0..400 {
        let index = usize::try_from(ticket % 2).unwrap();
        let mut job = job(ticket, Arc::clone(&targets[index]));
        job.pair.endpoint = EndpointId(ticket.cast_signed() % 2);
        crew.submit([job]);
        assert!(crew.sending() <= 6);
    }
    for done in wait_for(&crew, 400) {
        assert_status(&done.outcome, 200);
    }
    settled(&crew);
    assert!(most.load(Ordering::SeqCst) <= 6);
    assert!(crew.by_lane() > 200, "{} in the lane", crew.by_lane());
}

#[test]
fn receivers_that_hang_leave_the_lane_to_the_others() {
    // Answers once there are four connections, so that each has one request, and never again.
    let together = Barrier::new(4);
    let hanging = Server::start(move |mut stream, _| {
        read_request(&mut stream);
        together.wait();
        let _ = stream.write_all(OK.as_bytes());
        read_request(&mut stream);
        hold(stream);
    });
    let server = Server::answering(OK);
    let mut crew = Crew::new(8, arc(client()), |_| true).unwrap();
    let of = |ticket: u64, endpoint: i64, server: &Server| {
        let mut job = job(ticket, arc(http(server.address)));
        job.pair.endpoint = EndpointId(endpoint);
        job
    };
    // Four connections that are kept, and then four requests that nobody answers.
    crew.submit((0..4).map(|ticket| of(ticket, 1, &hanging)));
    wait_for(&crew, 4);
    settled(&crew);
    crew.submit((4..8).map(|ticket| of(ticket, 1, &hanging)));
    crew.submit((8..108).map(|ticket| of(ticket, 2, &server)));
    let done = wait_for(&crew, 100);
    assert!(done.iter().all(|done| done.ticket >= 8));
    assert_eq!(crew.in_flight(), 4);
}

#[test]
fn long_body_goes_by_a_thread_and_arrives_whole() {
    let server = Server::answering(OK);
    let target = arc(http(server.address));
    let mut crew = Crew::new(2, arc(client()), |_| true).unwrap();
    for ticket in 0..3 {
        let mut job = job(ticket, Arc::clone(&target));
        job.body = "x".repeat(300_000).into();
        crew.submit([job]);
        assert_status(&wait_for(&crew, 1)[0].outcome, 200);
        settled(&crew);
    }
    assert_eq!(crew.by_lane(), 0);
    assert_eq!(server.connections(), 1);
    assert!(
        server
            .requests()
            .iter()
            .all(|one| one.body.len() == 300_000)
    );
}

#[test]
fn closed_gate_sends_back_what_the_lane_would_begin() {
    let open = arc(AtomicUsize::new(1));
    let gate = Arc::clone(&open);
    let server = Server::answering(OK);
    let target = arc(http(server.address));
    let by_gate = move |_: &Job| gate.load(Ordering::SeqCst) == 1;
    let mut crew = Crew::new(2, arc(client()), by_gate).unwrap();
    crew.submit([job(1, Arc::clone(&target))]);
    wait_for(&crew, 1);
    open.store(0, Ordering::SeqCst);
    crew.submit([job(2, target)]);
    let (mut done, mut returned) = (Vec::new(), Vec::new());
    while returned.is_empty() {
        crew.take_done(&mut done, &mut returned);
        thread::yield_now();
    }
    assert_eq!((done.len(), returned), (0, vec![2]));
    settled(&crew);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn receiver_that_answers_in_chunks_is_left_to_threads_for_a_while() {
    let server = Server::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    );
    let target = arc(http(server.address));
    let mut crew = Crew::new(2, arc(client()), |_| true).unwrap();
    for ticket in 0..100 {
        let mut job = job(ticket, Arc::clone(&target));
        job.room = 1;
        crew.submit([job]);
    }
    for done in wait_for(&crew, 100) {
        assert_status(&done.outcome, 200);
        assert_eq!(done.outcome.excerpt, b"ok");
    }
    assert_eq!(crew.by_lane(), 0);
    assert_eq!(server.connections(), 1);
}

#[test]
fn dropped_crew_lets_the_lane_finish() {
    let (server, _) = counting(Duration::from_millis(100));
    let target = arc(http(server.address));
    let mut crew = Crew::new(2, arc(client()), |_| true).unwrap();
    crew.submit([job(1, Arc::clone(&target))]);
    wait_for(&crew, 1);
    settled(&crew);
    crew.submit([job(2, target)]);
    let watch = crew.watch();
    drop(crew);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while watch.upgrade().is_some() {
        assert!(
            std::time::Instant::now() < deadline,
            "the lane ends with its crew"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn kept_connection_over_tls_is_used_by_the_lane() {
    let ca = super::tls::Ca::new();
    let server = ca.server("127.0.0.1", OK);
    let client = Client::new(ClientSettings {
        ca_pem: Some(ca.pem()),
        ..settings()
    });
    let target = arc(target(&format!("https://{}/hook", server.address)));
    let mut crew = Crew::new(2, arc(client.unwrap()), |_| true).unwrap();
    for ticket in 0..20 {
        let mut job = job(ticket, Arc::clone(&target));
        job.body = "x".repeat(16 * 1024).into();
        crew.submit([job]);
        let done = wait_for(&crew, 1);
        assert_status(&done[0].outcome, 200);
        assert_eq!(done[0].outcome.excerpt, b"ok");
        settled(&crew);
    }
    assert_eq!(crew.by_lane(), 19);
    assert_eq!(server.connections(), 1);
}

#[test]
fn tls_connection_that_turned_out_unusual_is_gone_on_with() {
    let ca = super::tls::Ca::new();
    for (response, lane) in [
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            0,
        ),
        ("HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno", 0),
        ("HTTP/1.1 204 No\r\n\r\n", 2),
    ] {
        let server = ca.server("127.0.0.1", response);
        let client = Client::new(ClientSettings {
            ca_pem: Some(ca.pem()),
            ..settings()
        });
        let target = arc(target(&format!("https://{}/hook", server.address)));
        let mut crew = Crew::new(2, arc(client.unwrap()), |_| true).unwrap();
        let outcomes: Vec<Answer> = (0..3)
            .map(|ticket| {
                crew.submit([job(ticket, Arc::clone(&target))]);
                let answer = wait_for(&crew, 1).pop().unwrap().outcome.answer;
                settled(&crew);
                answer
            })
            .collect();
        assert!(matches!(outcomes[0], Answer::Status { .. }));
        assert!(outcomes.iter().all(|answer| *answer == outcomes[0]));
        assert_eq!(crew.by_lane(), lane);
        assert_eq!(server.connections(), 1);
    }
}

#[test]
fn a_reader_that_never_reads_is_gone_on_with_and_ends_in_time() {
    // The receiver takes nothing of the second request: what the socket does not take at once, a thread waits for.
    let server = Server::start(|mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(OK.as_bytes());
        let _ = stream.read(&mut [0]);
        hold(stream);
    });
    let mut crew = Crew::new(2, arc(Client::new(impatient(SHORT)).unwrap()), |_| true).unwrap();
    let target = arc(http(server.address));
    crew.submit([job(1, Arc::clone(&target))]);
    wait_for(&crew, 1);
    settled(&crew);
    let mut long = job(2, target);
    long.body = "x".repeat(16 * 1024).into();
    crew.submit([long]);
    let outcome = wait_for(&crew, 1).pop().unwrap().outcome;
    assert!(matches!(
        outcome.answer,
        Answer::Failure {
            category: Category::Timeout,
            ..
        }
    ));
}
