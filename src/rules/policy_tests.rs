//! Tests of the policy: the table of verdicts row by row, then what holds for every policy.

use proptest::prelude::*;

use super::*;
use crate::rules::delivery::Phase;

const NOW: i64 = 1_785_585_600;
const DEFAULT_SCHEDULE: &str = "5s,5m,30m,2h,5h,10h,14h,20h,24h";

fn policy(schedule: &str) -> RetryPolicy {
    RetryPolicy {
        schedule: parse_schedule(schedule).unwrap(),
        client_error_attempts: 1,
        retry_after_max: Duration::from_secs(86_400),
    }
}

fn status(code: u16) -> Answer {
    Answer::Status {
        code,
        retry_after: Vec::new(),
    }
}

fn asking(code: u16, retry_after: &str) -> Answer {
    Answer::Status {
        code,
        retry_after: vec![retry_after.to_string()],
    }
}

fn failure(category: Category) -> Answer {
    Answer::Failure {
        category,
        phase: Some(Phase::Connect),
        detail: String::new(),
    }
}

/// A try that is no probe.
fn nth(in_series: u32) -> Try {
    Try {
        in_series,
        probe: false,
        since_first: Duration::ZERO,
    }
}

fn retry(seconds: u64) -> Next {
    Next::Retry {
        after: Duration::from_secs(seconds),
    }
}

#[test]
fn every_row_of_the_verdict_table_holds() {
    use Category::*;
    // (answer, category, after the first attempt, after the last one of the schedule)
    let rows = [
        (status(200), None, Next::Delivered, Next::Delivered),
        (status(299), None, Next::Delivered, Next::Delivered),
        (failure(Dns), Some(Dns), retry(5), Next::Dead),
        (
            failure(ConnectRefused),
            Some(ConnectRefused),
            retry(5),
            Next::Dead,
        ),
        (
            failure(ConnectTimeout),
            Some(ConnectTimeout),
            retry(5),
            Next::Dead,
        ),
        (
            failure(ConnectFailed),
            Some(ConnectFailed),
            retry(5),
            Next::Dead,
        ),
        (failure(Tls), Some(Tls), retry(5), Next::Dead),
        (failure(Timeout), Some(Timeout), retry(5), Next::Dead),
        (failure(Protocol), Some(Protocol), retry(5), Next::Dead),
        (status(500), Some(ServerError), retry(5), Next::Dead),
        (status(503), Some(ServerError), retry(5), Next::Dead),
        (status(599), Some(ServerError), retry(5), Next::Dead),
        (status(429), Some(RateLimited), retry(5), Next::Dead),
        (status(408), Some(RequestTimeout), retry(5), Next::Dead),
        (status(425), Some(TooEarly), retry(5), Next::Dead),
        (status(400), Some(ClientError), Next::Dead, Next::Dead),
        (status(401), Some(ClientError), Next::Dead, Next::Dead),
        (status(404), Some(ClientError), Next::Dead, Next::Dead),
        (status(499), Some(ClientError), Next::Dead, Next::Dead),
        (status(301), Some(Redirect), Next::Dead, Next::Dead),
        (status(304), Some(Redirect), Next::Dead, Next::Dead),
        (status(308), Some(Redirect), Next::Dead, Next::Dead),
        (
            status(410),
            Some(Gone),
            Next::DeadAndDisable,
            Next::DeadAndDisable,
        ),
        (failure(Blocked), Some(Blocked), retry(5), Next::Dead),
        (failure(Filter), Some(Filter), Next::Hold, Next::Hold),
        (
            failure(Conversion),
            Some(Conversion),
            Next::Hold,
            Next::Hold,
        ),
        (failure(Lost), Some(Lost), retry(0), retry(0)),
        (failure(Expired), Some(Expired), Next::Dead, Next::Dead),
        (failure(Internal), Some(Internal), retry(5), Next::Dead),
        // Any other status is judged by its class, and what has none is not HTTP.
        (status(0), Some(Protocol), retry(5), Next::Dead),
        (status(99), Some(Protocol), retry(5), Next::Dead),
        (status(100), Some(Protocol), retry(5), Next::Dead),
        (status(101), Some(Protocol), retry(5), Next::Dead),
        (status(600), Some(Protocol), retry(5), Next::Dead),
        (status(999), Some(Protocol), retry(5), Next::Dead),
    ];
    let policy = policy(DEFAULT_SCHEDULE);
    for (answer, category, first, last) in &rows {
        for (attempt, next) in [(1, *first), (10, *last)] {
            let expected = Verdict {
                category: *category,
                next,
                retry_after: Duration::ZERO,
            };
            assert_eq!(
                judge(answer, nth(attempt), &policy, NOW, 0.0),
                expected,
                "{answer:?} {attempt}"
            );
        }
    }
    for category in Category::ALL {
        assert!(
            rows.iter().any(|row| row.1 == Some(*category)),
            "no row for {category}"
        );
    }
}

#[test]
fn the_default_schedule_makes_ten_attempts_over_75_h_35_m() {
    let policy = policy(DEFAULT_SCHEDULE);
    assert_eq!(policy.schedule.len(), 9);
    let total: Duration = policy.schedule.iter().sum();
    assert_eq!(total, Duration::from_secs(75 * 3600 + 35 * 60 + 5));
}

#[test]
fn other_client_errors_and_redirects_die_after_the_attempts_they_are_given() {
    let mut policy = policy(DEFAULT_SCHEDULE);
    policy.client_error_attempts = 3;
    for code in [302, 404] {
        let next = |attempt| judge(&status(code), nth(attempt), &policy, NOW, 0.0).next;
        assert_eq!(
            [next(1), next(2), next(3)],
            [retry(5), retry(300), Next::Dead]
        );
    }
    policy.client_error_attempts = 100;
    assert_eq!(
        judge(&status(404), nth(10), &policy, NOW, 0.0).next,
        Next::Dead
    );
    policy.client_error_attempts = 0;
    assert_eq!(
        judge(&status(404), nth(1), &policy, NOW, 0.0).next,
        Next::Dead
    );
}

#[test]
fn retry_after_is_honoured_for_408_425_429_and_5xx_only() {
    let mut policy = policy(DEFAULT_SCHEDULE);
    policy.client_error_attempts = 5;
    for code in [408, 425, 429, 500, 502, 503, 504, 599] {
        assert_eq!(
            judge(&asking(code, "60"), nth(1), &policy, NOW, 0.0).next,
            retry(60),
            "{code}"
        );
    }
    for code in [301, 307, 404, 413, 100, 600] {
        assert_eq!(
            judge(&asking(code, "60"), nth(1), &policy, NOW, 0.0).next,
            retry(5),
            "{code}"
        );
    }
}

#[test]
fn retry_after_lengthens_the_wait_up_to_its_limit_and_never_shortens_it() {
    let policy = policy(DEFAULT_SCHEDULE);
    for (asked, attempt, seconds) in [
        ("1", 1, 5),
        ("0", 1, 5),
        ("600", 1, 600),
        ("600", 3, 1_800),
        ("86400", 1, 86_400),
        ("86401", 1, 86_400),
        ("2147483647", 1, 86_400),
        ("99999999999999999999999", 1, 86_400),
        ("Sat, 01 Aug 2026 12:05:00 GMT", 1, 300),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 1, 5),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 1, 86_400),
        ("soon", 1, 5),
        ("-1", 1, 5),
        ("", 1, 5),
    ] {
        let next = judge(&asking(503, asked), nth(attempt), &policy, NOW, 0.0).next;
        assert_eq!(next, retry(seconds), "{asked}");
    }
    assert_eq!(
        judge(&asking(503, "60"), nth(10), &policy, NOW, 0.0).next,
        Next::Dead
    );
}

#[test]
fn an_empty_schedule_means_one_attempt() {
    let policy = policy("");
    assert_eq!(
        judge(&status(500), nth(1), &policy, NOW, 0.5).next,
        Next::Dead
    );
    assert_eq!(
        judge(&status(200), nth(1), &policy, NOW, 0.5).next,
        Next::Delivered
    );
}

#[test]
fn dice_that_are_no_dice_add_nothing_unsafe() {
    let policy = policy("10s");
    for (dice, millis) in [
        (f64::NAN, 10_000),
        (f64::INFINITY, 10_000),
        (-1.0, 10_000),
        (0.5, 11_000),
        (7.0, 12_000),
    ] {
        let after = Duration::from_millis(millis);
        let verdict = judge(&status(500), nth(1), &policy, NOW, dice);
        assert_eq!(verdict.next, Next::Retry { after }, "{dice}");
    }
}

#[test]
fn schedules_are_read_in_all_units() {
    let waits = parse_schedule(" 250ms, 1s ,2m,3h,30d").unwrap();
    let millis: Vec<u128> = waits.iter().map(Duration::as_millis).collect();
    assert_eq!(millis, [250, 1_000, 120_000, 10_800_000, 2_592_000_000]);
    assert_eq!(parse_schedule(""), Ok(Vec::new()));
    assert_eq!(parse_schedule("  "), Ok(Vec::new()));
    assert_eq!(parse_schedule(&["1s"; 50].join(",")).unwrap().len(), 50);
}

#[test]
fn schedules_that_are_not_clear_are_refused() {
    for text in [
        ",",
        "5s,",
        ",5s",
        "5",
        "s",
        "5 s",
        "5S",
        "5w",
        "-5s",
        "+5s",
        "1.5s",
        "0s",
        "0ms",
        "31d",
        "2592000001ms",
        "99999999999999999999d",
        "18446744073709551615d",
        "5s;5m",
        "5s 5m",
        "٥s",
    ] {
        assert!(parse_schedule(text).is_err(), "{text}");
    }
    assert!(parse_schedule(&["1s"; 51].join(",")).is_err());
    assert_eq!(
        parse_schedule("5s,soon").unwrap_err(),
        "retry schedule entry \"soon\" is not a whole number with a unit of ms, s, m, h or d"
    );
    assert!(parse_schedule(&"x".repeat(100_000)).unwrap_err().len() < 200);
}

#[test]
fn what_is_wrong_with_a_schedule_is_told_in_one_line() {
    for text in ["1s\nx", "\r\u{1b}[31m", "5s,0s\u{0}"] {
        let message = parse_schedule(text).unwrap_err();
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    (
        proptest::collection::vec(1u64..2_592_000_000, 0..12),
        0u32..5,
        0u64..200_000,
    )
        .prop_map(|(waits, client_error_attempts, cap)| RetryPolicy {
            schedule: waits.into_iter().map(Duration::from_millis).collect(),
            client_error_attempts,
            retry_after_max: Duration::from_secs(cap),
        })
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let lines = proptest::collection::vec("([0-9]{1,12}|[ -~]{0,30})", 0..3);
    prop_oneof![
        (0u16..1000, lines).prop_map(|(code, retry_after)| Answer::Status { code, retry_after }),
        proptest::sample::select(Category::ALL).prop_map(failure),
    ]
}

proptest! {
    #[test]
    fn a_receiver_that_is_down_gets_one_attempt_more_than_the_schedule_has_waits(
        policy in any_policy(), dice in 0.0..1.0f64,
    ) {
        let mut attempts = 1;
        while let Next::Retry { .. } = judge(&status(503), nth(attempts), &policy, NOW, dice).next {
            attempts += 1;
        }
        prop_assert_eq!(attempts as usize, policy.schedule.len() + 1);
    }

    #[test]
    fn jitter_adds_up_to_a_fifth_and_never_subtracts(
        policy in any_policy(), attempt in 1u32..13, dice in 0.0..1.0f64,
    ) {
        if let Next::Retry { after } = judge(&status(503), nth(attempt), &policy, NOW, dice).next {
            let scheduled = policy.schedule[attempt as usize - 1];
            prop_assert!(after >= scheduled);
            prop_assert!(after <= scheduled + scheduled / 5);
        }
    }

    #[test]
    fn retry_after_never_goes_below_the_schedule_nor_beyond_the_limit(
        policy in any_policy(), attempt in 1u32..13, dice in 0.0..1.0f64, asked: u64,
    ) {
        let without = judge(&status(429), nth(attempt), &policy, NOW, dice).next;
        let with = judge(&asking(429, &asked.to_string()), nth(attempt), &policy, NOW, dice).next;
        if let (Next::Retry { after: without }, Next::Retry { after: with }) = (without, with) {
            prop_assert!(with >= without);
            prop_assert!(with <= without.max(policy.retry_after_max));
            prop_assert!(with >= Duration::from_secs(asked).min(policy.retry_after_max));
        } else {
            prop_assert_eq!(without, with);
        }
    }

    #[test]
    fn every_answer_has_a_verdict_at_any_time(
        answer in any_answer(), policy in any_policy(), attempt: u32, now: i64, dice: f64,
    ) {
        let verdict = judge(&answer, nth(attempt), &policy, now, dice);
        prop_assert_eq!(verdict.category.is_none(), verdict.next == Next::Delivered);
    }

    #[test]
    fn the_greatest_waits_do_not_overflow(seconds: u64, dice in 0.0..=1.0f64) {
        let policy = RetryPolicy {
            schedule: vec![Duration::new(seconds, 999_999_999)],
            client_error_attempts: 1,
            retry_after_max: Duration::MAX,
        };
        let waits = matches!(judge(&status(500), nth(1), &policy, NOW, dice).next, Next::Retry { .. });
        prop_assert!(waits);
    }

    #[test]
    fn no_text_makes_the_schedule_parser_panic(text in "([0-9]{0,22}[a-z]{0,2},?| .{0,5})*") {
        let _ = parse_schedule(&text);
    }
}
