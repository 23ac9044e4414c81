//! What the order and the times of arrivals tell. A machine that is busy makes everything later: what is judged here
//! can only be too early.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::receiver::Request;

/// The body of a request.
///
/// # Panics
/// When it is not JSON.
#[track_caller]
pub fn json(request: &Request) -> Value {
    serde_json::from_slice(&request.body).expect("a body in JSON")
}

/// The payloads, which were numbers.
#[track_caller]
pub fn numbers(requests: &[Request]) -> Vec<i64> {
    requests
        .iter()
        .map(|request| json(request)["data"].as_i64().expect("a number as payload"))
        .collect()
}

/// The event types.
#[track_caller]
pub fn types(requests: &[Request]) -> Vec<String> {
    requests
        .iter()
        .map(|request| json(request)["type"].as_str().expect("a type").to_owned())
        .collect()
}

/// Asserts that at each arrival no more requests were under way than had been answered before, and one: so it is with a
/// window that begins at one request and is opened by nothing but success. Each answer took at least `service`.
#[track_caller]
pub fn assert_ramp(mut arrivals: Vec<Instant>, service: Duration) {
    arrivals.sort_unstable();
    for (earlier, at) in arrivals.iter().enumerate() {
        let answered = arrivals[..earlier]
            .iter()
            .filter(|before| **before + service <= *at)
            .count();
        let under_way = earlier + 1 - answered;
        assert!(
            under_way <= answered + 1,
            "request {} was one of {under_way} after {answered} answers",
            earlier + 1
        );
    }
}
