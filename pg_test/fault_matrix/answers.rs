//! What a receiver may say instead of an answer, or within one: heads that are no HTTP, heads and bodies without an
//! end, bytes that are no text.

use std::time::Duration;

use webhook_outbox_test::receiver::Answer;

use crate::matrix::{Expected, Matrix};

/// What is kept of a longer body.
const EXCERPT: usize = 4096;
const AT_ONCE: Duration = Duration::ZERO;

#[test]
fn what_is_not_http_is_a_protocol_failure_and_tried_again() {
    let mut matrix = Matrix::of("babble");
    for (name, said) in [
        ("hm", "hm\r\n\r\n"),
        ("SSH", "SSH-2.0-OpenSSH_9.6\r\n"),
        ("SMTP", "220 mail.partner.net ESMTP\r\n"),
        ("a page without a head", "<html>200 OK</html>\r\n\r\n"),
        (
            "another version",
            "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        ("another protocol", "ICY 200 OK\r\n\r\n"),
        ("NUL", "\0\0\0\0\0\0\0\0"),
        ("an alert of TLS", "\u{15}\u{3}\u{1}\0\u{2}\u{2}F"),
        (
            "a status below 100",
            "HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "a status of 000",
            "HTTP/1.1 000 None\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "a status of one digit",
            "HTTP/1.1 2 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "a status of four digits",
            "HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "a negative status",
            "HTTP/1.1 -20 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        ("no status", "HTTP/1.1 OK\r\ncontent-length: 0\r\n\r\n"),
        (
            "a line without a colon",
            "HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
        ),
        ("a name with a space", "HTTP/1.1 200 OK\r\nx y: z\r\n\r\n"),
        ("NUL in a value", "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n"),
        ("NUL in a name", "HTTP/1.1 200 OK\r\nx\0: a\r\n\r\n"),
        ("a bare CR in a value", "HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n"),
        ("a name that is no ASCII", "HTTP/1.1 200 OK\r\né: a\r\n\r\n"),
        (
            "a length that is no number",
            "HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nno",
        ),
        (
            "a negative length",
            "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nno",
        ),
        (
            "a length of 30 digits",
            "HTTP/1.1 200 OK\r\ncontent-length: 999999999999999999999999999999\r\n\r\nno",
        ),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nno",
        ),
    ] {
        matrix.answer(
            name,
            Answer::raw(said),
            Expected::failed("protocol", "headers"),
        );
    }
    matrix.check("{}");
}

#[test]
fn head_that_is_too_large_or_never_ends_is_cut_off() {
    let mut matrix = Matrix::of("heads");
    let line = format!("x-filler: {}\r\n", "y".repeat(1_000));
    let hint = format!(
        "HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n",
        "z".repeat(1_000)
    );
    let ok = "HTTP/1.1 200 OK\r\n";
    for (name, answer) in [
        (
            "many long lines",
            Answer::raw(format!("{ok}{}content-length: 0\r\n\r\n", line.repeat(40))),
        ),
        (
            "many lines",
            Answer::raw(format!(
                "{ok}{}content-length: 0\r\n\r\n",
                "a: b\r\n".repeat(500)
            )),
        ),
        (
            "one long line",
            Answer::raw(format!("{ok}x: {}\r\n\r\n", "y".repeat(100_000))),
        ),
        ("lines without an end", Answer::repeating(ok, line, AT_ONCE)),
        (
            "a line without an end",
            Answer::repeating(format!("{ok}x: "), "y".repeat(1_000), AT_ONCE),
        ),
        (
            "a status line without an end",
            Answer::repeating("HTTP/1.1 200 ", "O".repeat(1_000), AT_ONCE),
        ),
        (
            "a flood of informational responses",
            Answer::repeating("", hint.clone(), AT_ONCE),
        ),
        (
            "a paced flood of informational responses",
            Answer::repeating("", hint, Duration::from_millis(5)),
        ),
    ] {
        matrix.answer(name, answer, Expected::failed("protocol", "headers"));
    }
    matrix.check("{}");
}

#[test]
fn head_that_is_odd_and_still_http_counts() {
    let mut matrix = Matrix::of("oddities");
    let end = "content-length: 4\r\n\r\nfine";
    for (name, head) in [
        ("no reason", "HTTP/1.1 200\r\n".into()),
        ("a reason that is no text", b"HTTP/1.1 200 \xff\xfe\r\n".to_vec()),
        ("values that are no text", b"HTTP/1.1 200 OK\r\nx: \xff\xfe\xc3\r\n".to_vec()),
        ("an empty value", "HTTP/1.1 200 OK\r\nx:\r\n".into()),
        ("empty lines before it", "\r\n\r\nHTTP/1.1 200 OK\r\n".into()),
        ("lines without CR", "HTTP/1.1 200 OK\nx: y\n".into()),
        ("the older version", "HTTP/1.0 200 OK\r\n".into()),
        ("the length twice", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n".into()),
        (
            "a few informational responses",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n"
                .into(),
        ),
        (
            // RFC 9110, 15.2: any informational response may have header lines.
            "an informational response with a line",
            "HTTP/1.1 100 Continue\r\nserver: x\r\n\r\nHTTP/1.1 200 OK\r\n".into(),
        ),
        ("an encoding nobody asked for", "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n".into()),
    ] {
        let head: Vec<u8> = head;
        let answer = Answer::raw([head.as_slice(), end.as_bytes()].concat());
        matrix.answer(name, answer, Expected::delivered(200).excerpt("fine"));
    }
    matrix.answer(
        "no length",
        Answer::raw("HTTP/1.1 200 OK\r\n\r\nto the end"),
        Expected::delivered(200).excerpt("to the end"),
    );
    matrix.answer(
        "chunks, and a length that is not theirs",
        Answer::raw(
            "HTTP/1.1 200 OK\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\n\r\n4;x=y\r\nfine\r\n0\r\nx: y\r\n\r\n",
        ),
        Expected::delivered(200).excerpt("fine"),
    );
    // Neither of them has a body, whatever it says (RFC 9112, 6.3).
    matrix.answer(
        "204",
        Answer::raw("HTTP/1.1 204 No Content\r\n\r\n"),
        Expected::delivered(204),
    );
    matrix.answer(
        "204 with a body",
        Answer::raw("HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nmore"),
        Expected::delivered(204),
    );
    matrix.answer(
        "304 with a length",
        Answer::raw("HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\n"),
        Expected::dead(304, "redirect"),
    );
    matrix.answer(
        "what belongs to no request",
        Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfineHTTP/1.1 500 No\r\n\r\n"),
        Expected::delivered(200).excerpt("fine"),
    );
    matrix.check("{}");
}

#[test]
fn body_that_is_broken_is_a_protocol_failure_and_what_came_of_it_is_kept() {
    let mut matrix = Matrix::of("bodies");
    let broken = || Expected::failed("protocol", "body");
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    // What comes in one piece with the fault may be lost with it.
    for (name, rest) in [
        ("a size that is no number", "zz\r\nmore\r\n0\r\n\r\n"),
        ("a negative size", "-4\r\nmore\r\n0\r\n\r\n"),
        ("a size of 20 digits", "ffffffffffffffffffff\r\nmore"),
        ("a size that is no text", "\0\0\r\nmore\r\n0\r\n\r\n"),
        ("no size", "\r\nmore\r\n0\r\n\r\n"),
        ("a size beyond what comes", "9\r\n"),
        ("no last chunk", ""),
    ] {
        let answer = Answer::parts([head, "4\r\nhalf\r\n", rest]);
        matrix.answer(name, answer, broken().excerpt("half").or_nothing());
    }
    matrix.answer(
        "a size short of what comes",
        Answer::parts([head, "4\r\nhalf", " and more\r\n0\r\n\r\n"]),
        broken().excerpt("half").or_nothing(),
    );
    matrix.answer(
        "no chunk at all",
        Answer::parts([head, "this is no chunk\r\n"]),
        broken(),
    );
    matrix.answer("no body at all", Answer::raw(head), broken());
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\nhalf";
    matrix.answer(
        "shorter than it says",
        Answer::raw(short),
        broken().excerpt("half"),
    );
    matrix.answer(
        "an error that is shorter than it says",
        Answer::raw(short.replace("200 OK", "500 No")),
        broken().excerpt("half"),
    );
    matrix.answer(
        "a line of a size without an end",
        Answer::repeating(format!("{head}4\r\nhalf\r\n"), "0".repeat(100), AT_ONCE),
        broken().excerpt("half"),
    );
    matrix.check("{}");
}

#[test]
fn body_without_an_end_is_cut_and_the_status_counts() {
    let mut matrix = Matrix::of("endless");
    let kept = "x".repeat(EXCERPT);
    let piece = "x".repeat(64 << 10);
    let gigabyte = |status: &str| {
        Answer::repeating(
            format!("HTTP/1.1 {status}\r\ncontent-length: 1073741824\r\n\r\n"),
            piece.clone(),
            AT_ONCE,
        )
    };
    matrix.answer(
        "200 and a gigabyte",
        gigabyte("200 OK"),
        Expected::delivered(200).excerpt(&kept),
    );
    matrix.answer(
        "500 and a gigabyte",
        gigabyte("500 No"),
        Expected::retrying(500, "server_error").excerpt(&kept),
    );
    matrix.secure_answer(
        "a gigabyte over TLS",
        gigabyte("200 OK"),
        Expected::delivered(200).excerpt(&kept),
    );
    matrix.answer(
        "chunks",
        Answer::status(404).endless_body(1_000, AT_ONCE),
        Expected::dead(404, "client_error").excerpt(&kept),
    );
    matrix.answer(
        "chunks of one byte",
        Answer::status(503).endless_body(1, AT_ONCE),
        Expected::retrying(503, "server_error").excerpt(&kept),
    );
    matrix.answer(
        "neither length nor chunks",
        Answer::repeating(
            "HTTP/1.1 302 Found\r\nlocation: /\r\n\r\n",
            piece.clone(),
            AT_ONCE,
        ),
        Expected::dead(302, "redirect").excerpt(&kept),
    );
    matrix.check("{}");
}

#[test]
fn an_excerpt_of_the_answer_is_kept_whatever_its_bytes_are() {
    let mut matrix = Matrix::of("excerpts");
    let odd = b"<p>a\0b\xff\xfe\x1b[31m \xc3\xa9\r\n\xf0\x9f\x90".to_vec();
    let failed = || Expected::retrying(500, "server_error");
    matrix.answer(
        "odd bytes",
        Answer::status(500).body(odd.clone()),
        failed().excerpt("<p>a?b\u{fffd}\u{fffd}?[31m é?\n\u{fffd}"),
    );
    matrix.answer(
        "NUL",
        Answer::status(500).body([0; 3]),
        failed().excerpt("???"),
    );
    let long = "0123456789abcde\n".repeat(10_000);
    matrix.answer(
        "long",
        Answer::status(400).body(long.clone()),
        Expected::dead(400, "client_error").excerpt(&long[..EXCERPT]),
    );
    matrix.answer("empty", Answer::status(500), failed());
    // A character of two bytes that the cut goes through.
    let cut = format!("{}é", "x".repeat(EXCERPT - 1));
    matrix.answer(
        "cut through a character",
        Answer::status(500).body(cut),
        failed().excerpt(format!("{}\u{fffd}", "x".repeat(EXCERPT - 1))),
    );
    matrix.answer(
        "of a success",
        Answer::status(201).body("stored"),
        Expected::delivered(201).excerpt("stored"),
    );
    matrix.check("{}");
}
