//! What goes wrong before there is an answer: names, TCP, TLS, sending, and connections that end in the middle.

use std::time::Duration;

use webhook_outbox_test::{
    dns::{Kind, Reply},
    receiver::{Answer, ClosedPort, Receiver},
    tls::Authority,
};

use crate::{
    matrix::{Expected, Matrix, SCENE},
    peer,
};

#[test]
fn connection_that_fails_or_ends_early_is_told_by_its_phase_and_tried_again() {
    let mut matrix = Matrix::of("connections");
    let closed = ClosedPort::take();
    matrix.url(
        "refused",
        &format!("http://{}/hook", closed.address()),
        Expected::failed("connect_refused", "connect").says("refused"),
    );
    matrix.url(
        "unreachable",
        "http://255.255.255.255:8080/hook",
        Expected::failed("connect_failed", "connect").says("unreachable"),
    );
    let full = peer::full();
    matrix.url(
        "full",
        &format!("http://{}/hook", full.address),
        Expected::failed("connect_timeout", "connect").says("in time"),
    );
    let at_headers = || Expected::failed("protocol", "headers").says("closed");
    let at_body = || {
        Expected::failed("protocol", "body")
            .says("closed")
            .excerpt("half")
    };
    let (head, all) = (
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    );
    matrix.answer("closed before the headers", Answer::close(), at_headers());
    matrix.answer("reset before the headers", Answer::reset(), at_headers());
    matrix.answer("closed within the headers", Answer::raw(head), at_headers());
    matrix.answer(
        "reset within the headers",
        Answer::broken(head),
        at_headers(),
    );
    matrix.answer("closed within the body", Answer::raw(all), at_body());
    matrix.answer("reset within the body", Answer::broken(all), at_body());
    matrix.secure_answer(
        "TLS closed before the headers",
        Answer::close(),
        at_headers(),
    );
    matrix.secure_answer(
        "TLS reset before the headers",
        Answer::reset(),
        at_headers(),
    );
    // Without close_notify: anybody on the way can do that.
    matrix.secure_answer(
        "TLS cut within the headers",
        Answer::raw(head),
        at_headers(),
    );
    matrix.secure_answer("TLS cut within the body", Answer::raw(all), at_body());
    matrix.secure_answer("TLS reset within the body", Answer::broken(all), at_body());
    // A body without a length is complete "unless an error was indicated by the underlying connection (e.g., an
    // incomplete close in TLS would leave the response incomplete)" (RFC 9112, 8).
    let open = "HTTP/1.1 200 OK\r\n\r\nhalf";
    matrix.answer("reset without a length", Answer::broken(open), at_body());
    matrix.secure_answer(
        "TLS reset without a length",
        Answer::broken(open),
        at_body(),
    );
    matrix.secure_answer("TLS cut without a length", Answer::raw(open), at_body());
    matrix.secure_answer(
        "TLS and nothing wrong",
        Answer::status(200).body("fine"),
        Expected::delivered(200).excerpt("fine"),
    );
    matrix.check("{}");
}

#[test]
fn handshake_of_tls_that_fails_is_told_by_its_cause_and_tried_again() {
    let mut matrix = Matrix::of("handshakes");
    let tls = |says| Expected::failed("tls", "tls").says(says);
    let authority = &SCENE.authority;
    let receivers = [
        (
            "issuer",
            Receiver::https(Authority::named("stranger").receiver(&["127.0.0.1"])),
            tls("not from a trusted issuer"),
        ),
        (
            // It bears the name of the trusted one.
            "forged issuer",
            Receiver::https(Authority::new().receiver(&["127.0.0.1"])),
            tls("not valid"),
        ),
        (
            "name",
            Receiver::https(authority.receiver(&["other.partner.net"])),
            tls("name"),
        ),
        (
            "expired",
            Receiver::https(authority.expired_receiver(&["127.0.0.1"])),
            tls("expired"),
        ),
        (
            "early",
            Receiver::https(authority.early_receiver(&["127.0.0.1"])),
            tls("not valid yet"),
        ),
        (
            "a certificate of ours is demanded",
            Receiver::https(authority.demanding_receiver(&["127.0.0.1"])),
            tls(""),
        ),
        (
            "old and good",
            Receiver::https(authority.old_receiver(&["127.0.0.1"])),
            Expected::delivered(200),
        ),
    ];
    for (name, receiver, expected) in &receivers {
        matrix.url(name, &receiver.url("/hook"), expected.clone());
    }
    let plain = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let none = "peer has no TLS version";
    let rows = [
        (
            "plain HTTP",
            peer::saying("https", plain),
            tls("does not speak TLS"),
        ),
        (
            "TLS 1.0",
            peer::saying("https", peer::hello_of_tls_1_0()),
            tls(none),
        ),
        (
            "alert",
            peer::saying("https", peer::VERSION_ALERT),
            tls("refused"),
        ),
        (
            "zeros",
            peer::saying("https", [0; 64]),
            tls("does not speak TLS"),
        ),
        ("closed", peer::peer("https", |_| ()), tls("closed")),
        ("reset", peer::resetting("https"), tls("closed")),
        (
            "silent",
            peer::saying("https", ""),
            Expected::failed("timeout", "tls").says("in time"),
        ),
        (
            "a record byte by byte",
            peer::dripping_handshake(),
            Expected::failed("timeout", "tls").says("in time"),
        ),
        (
            "plain text after the handshake",
            peer::breaking_tls(authority.receiver(&["127.0.0.1"])),
            Expected::failed("tls", "headers"),
        ),
    ];
    for (name, url, expected) in rows {
        matrix.url(name, &url, expected);
    }
    matrix.check("{}");
    for (name, receiver, _) in receivers {
        // Nobody gets the event who is not who they should be.
        assert_eq!(
            receiver.count(),
            usize::from(name == "old and good"),
            "{name}"
        );
    }
}

#[test]
fn name_that_leads_nowhere_or_inside_is_told_and_tried_again() {
    let mut matrix = Matrix::of("names");
    let dns = &SCENE.dns;
    let receiver = Receiver::http();
    let missing = Expected::failed("dns", "resolve").says("could not resolve");
    let inside = Expected::failed("blocked", "resolve").says("10.1.2.3");
    let names = [
        ("missing", vec![Reply::NoSuchName], &missing),
        ("broken", vec![Reply::Failure], &missing),
        ("silent", vec![Reply::Silence], &missing),
        ("empty", vec![Reply::Records(0, Vec::new())], &missing),
        ("inside", vec![Reply::addresses([[10, 1, 2, 3]])], &inside),
    ];
    for (name, replies, expected) in names {
        let host = format!("{name}.fault.net");
        // Registered while nobody knows the name, so that only the delivery can notice.
        matrix.url(name, &receiver.url_at(&host, "/hook"), expected.clone());
        dns.answer(&host, Kind::A, replies);
    }
    matrix.check("{}");
    assert_eq!(receiver.connections(), 0);
}

#[test]
fn request_that_nobody_reads_is_a_timeout_of_sending() {
    let mut matrix = Matrix::of("unread");
    let unread = peer::unread();
    matrix.url(
        "unread",
        &format!("http://{}/hook", unread.address),
        Expected::failed("timeout", "send").says("in time"),
    );
    // More than the buffers of the loopback network hold.
    let line = "0123456789abcde ".repeat(500_000);
    matrix.check(&format!(r#"{{"long": "{line}"}}"#));
}

#[test]
fn request_that_is_never_answered_is_a_timeout_that_names_where_it_waited() {
    let mut matrix = Matrix::of("silence");
    // So slow that the time is over before the lines are too many.
    let often = Duration::from_millis(150);
    let at_headers = Expected::failed("timeout", "headers").says("in time");
    let at_body = Expected::failed("timeout", "body").says("in time");
    matrix.answer("silent", Answer::hang(), at_headers.clone());
    matrix.secure_answer("silent over TLS", Answer::hang(), at_headers.clone());
    matrix.url(
        "a record of TLS byte by byte",
        &peer::dripping_tls(SCENE.authority.receiver(&["127.0.0.1"])),
        at_headers.clone(),
    );
    matrix.answer(
        "one header line after the other",
        Answer::repeating("HTTP/1.1 200 OK\r\n", "x: y\r\n", often),
        at_headers.clone(),
    );
    matrix.answer(
        "byte by byte",
        Answer::repeating("HTTP/1.1 200 OK\r\nx: ", "y", often),
        at_headers.clone(),
    );
    matrix.answer(
        "one informational response after the other",
        Answer::repeating("", "HTTP/1.1 102 Processing\r\n\r\n", often),
        at_headers,
    );
    matrix.answer(
        "a body that stands still",
        Answer::status(200).slow_body("abc", 1, Duration::from_secs(60)),
        at_body.clone(),
    );
    matrix.answer(
        "a body that stands still after a while",
        Answer::repeating(
            "HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nhalf",
            "",
            often,
        ),
        at_body.clone().excerpt("half"),
    );
    matrix.answer(
        "trailers without an end",
        Answer::repeating(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n",
            "x: y\r\n",
            often,
        ),
        at_body.excerpt("body"),
    );
    matrix.check("{}");
}
