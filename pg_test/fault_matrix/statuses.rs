//! What follows from a status, and from what the receiver asks for with it.

use std::time::{SystemTime, UNIX_EPOCH};

use webhook_outbox_test::receiver::{Answer, Receiver};

use crate::matrix::{Expected, FIRST_WAIT, Matrix};

#[test]
fn each_status_has_its_verdict() {
    let mut matrix = Matrix::of("statuses");
    let receiver = Receiver::http();
    let ranges = [
        (200..=209, "delivered", ""),
        (226..=226, "delivered", ""),
        (299..=299, "delivered", ""),
        (300..=399, "dead", "redirect"),
        (400..=407, "dead", "client_error"),
        (408..=408, "retrying", "request_timeout"),
        (409..=409, "dead", "client_error"),
        (410..=410, "dead", "gone"),
        (411..=424, "dead", "client_error"),
        (425..=425, "retrying", "too_early"),
        (426..=428, "dead", "client_error"),
        (429..=429, "retrying", "rate_limited"),
        (430..=431, "dead", "client_error"),
        (451..=451, "dead", "client_error"),
        (499..=499, "dead", "client_error"),
        (500..=511, "retrying", "server_error"),
        (520..=530, "retrying", "server_error"),
        (599..=599, "retrying", "server_error"),
        // None of these is a final status of HTTP.
        (101..=101, "retrying", "protocol"),
        (600..=600, "retrying", "protocol"),
        (799..=799, "retrying", "protocol"),
        (999..=999, "retrying", "protocol"),
    ];
    for (range, state, category) in ranges {
        for status in range {
            let path = format!("/{status}");
            let expected = match state {
                "delivered" => Expected::delivered(status),
                "dead" => Expected::dead(status, category),
                _ => Expected::retrying(status, category),
            };
            // These have no body.
            let bare = matches!(status, 101 | 204 | 304);
            let (answer, expected) = if bare {
                (Answer::status(status), expected)
            } else {
                let text = format!("this is {status}");
                (
                    Answer::status(status).body(&*text),
                    expected.excerpt(&*text),
                )
            };
            receiver.script(&path, vec![answer.and_close()]);
            matrix.url(&status.to_string(), &receiver.url(&path), expected);
        }
    }
    let rows = matrix.len();
    matrix.check("{}");
    assert_eq!(receiver.count(), rows, "one request for each");
}

#[test]
fn retry_after_is_honoured_where_it_has_a_meaning_and_never_shortens_the_wait() {
    let mut matrix = Matrix::of("retry-after");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_secs();
    let soon = now + 500;
    let mut date = |at: u64, form: &str| {
        matrix.shop.text(&format!(
            "select to_char(to_timestamp({at}) at time zone 'UTC', '{form}')"
        ))
    };
    let usual = "FMDy, DD Mon YYYY HH24:MI:SS \"GMT\"";
    let (future, past, far) = (
        date(soon, usual),
        date(now - 500, usual),
        date(now + 40 * 86_400, usual),
    );
    let older = date(soon, "FMDay, DD-Mon-YY HH24:MI:SS \"GMT\"");
    // Its day has a space instead of a zero.
    let day = date(soon, "FMDD");
    let oldest = format!(
        "{}{day:>2} {}",
        date(soon, "Dy Mon "),
        date(soon, "HH24:MI:SS YYYY")
    );
    let other_zone = date(soon, "Dy, DD Mon YYYY HH24:MI:SS \"CET\"");
    let asked = (200.0, 250.0);
    // By the receiver's clock: the start of this test plus 500 s.
    let dated = (440.0, 502.0);
    let longest = (3600.0, 3650.0);
    let table: &[(u16, &[&str], (f64, f64))] = &[
        (429, &["200"], asked),
        (503, &["200"], asked),
        (500, &["200"], asked),
        (408, &["200"], asked),
        (425, &["200"], asked),
        (599, &["200"], asked),
        (429, &[" \t200\t "], asked),
        (429, &["000200"], asked),
        (429, &["5"], FIRST_WAIT),
        (429, &["0"], FIRST_WAIT),
        (429, &[&future], dated),
        (503, &[&future], dated),
        (503, &[&older], dated),
        (503, &[&oldest], dated),
        (429, &[&past], FIRST_WAIT),
        (429, &[&far], longest),
        (429, &["100000"], longest),
        (429, &["2147483648"], longest),
        (429, &["18446744073709551616"], longest),
        (429, &["99999999999999999999999"], longest),
        (429, &["soon"], FIRST_WAIT),
        (429, &[""], FIRST_WAIT),
        (429, &["-5"], FIRST_WAIT),
        (429, &["-200"], FIRST_WAIT),
        (429, &["+200"], FIRST_WAIT),
        (429, &["200.5"], FIRST_WAIT),
        (429, &["2e2"], FIRST_WAIT),
        (429, &["0x200"], FIRST_WAIT),
        (429, &["200 s"], FIRST_WAIT),
        (429, &["200, 300"], FIRST_WAIT),
        (429, &["200", "300"], FIRST_WAIT),
        (429, &["200", "200"], FIRST_WAIT),
        (503, &["soon", "200"], FIRST_WAIT),
        (429, &["2024-02-30T00:00:00Z"], FIRST_WAIT),
        (429, &["Thu, 99 Foo 2099 25:61:61 GMT"], FIRST_WAIT),
        (429, &[&other_zone], FIRST_WAIT),
        (600, &["200"], FIRST_WAIT),
    ];
    for (status, lines, wait) in table {
        let category = match status {
            408 => "request_timeout",
            425 => "too_early",
            429 => "rate_limited",
            600 => "protocol",
            _ => "server_error",
        };
        let answer = lines.iter().fold(Answer::status(*status), |answer, line| {
            answer.header("Retry-After", line)
        });
        let expected = Expected::retrying(*status, category).wait(*wait);
        matrix.answer(&format!("{status} {lines:?}"), answer, expected);
    }
    let not_text =
        b"HTTP/1.1 429 Slow\r\nretry-after: 2\xff00\r\ncontent-length: 0\r\n\r\n".to_vec();
    matrix.answer(
        "no text",
        Answer::raw(not_text),
        Expected::retrying(429, "rate_limited"),
    );
    // Here it means something else or promises nothing; a success needs no other attempt.
    for (status, expected) in [
        (200, Expected::delivered(200)),
        (202, Expected::delivered(202)),
        (301, Expected::dead(301, "redirect")),
        (302, Expected::dead(302, "redirect")),
        (404, Expected::dead(404, "client_error")),
        (413, Expected::dead(413, "client_error")),
        (410, Expected::dead(410, "gone")),
    ] {
        let answer = Answer::status(status).header("Retry-After", "200");
        matrix.answer(&format!("{status} and 200 s"), answer, expected);
    }
    matrix.check("{}");
}
