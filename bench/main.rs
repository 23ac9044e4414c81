//! Measures the product beside clients that do nothing else: `make bench` in about ten minutes, `make bench-full` as long
//! as it takes, each part alone by its name. Machines are noisy: what counts is the ratio to what was measured beside it.
//!
//! Prints a table and writes `bench/out/results.json`. WEBHOOK_ROUNDS: repetitions, of which the median counts (3).
//! WEBHOOK_ROWS: the largest backlog (1,000,000). WEBHOOK_JUDGE=1: fails when a target was missed.

mod ceiling;
mod drain;
mod emit;
mod fairness;
mod growth;
mod idle;
mod isolation;
mod latency;
mod outage;
mod plot;
mod range;
mod receiver;
mod report;
mod setup;
mod sink;
mod views;
mod writes;

use std::process::ExitCode;

use webhook_outbox_test::meter::number;

use crate::report::Report;

const PARTS: [&str; 12] = [
    "ceiling",
    "drain",
    "latency",
    "emit",
    "growth",
    "writes",
    "views",
    "idle",
    "isolation",
    "fairness",
    "range",
    "outage",
];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if asked == [sink::RECEIVER] {
        receiver::run().expect("a port, a session, and somebody who asks");
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = asked.iter().find(|name| !PARTS.contains(&name.as_str())) {
        eprintln!(
            "there is no part \"{unknown}\"; there are: {}",
            PARTS.join(" ")
        );
        return ExitCode::FAILURE;
    }
    let mut report = Report::default();
    let rounds = number("WEBHOOK_ROUNDS", 3);
    let most = number("WEBHOOK_ROWS", 1_000_000);
    for part in PARTS {
        if !asked.is_empty() && !asked.iter().any(|name| name == part) {
            continue;
        }
        match part {
            "ceiling" => ceiling::report(&mut report, rounds),
            "drain" => drain::report(&mut report, rounds),
            "latency" => {
                // Half of what the drain reached, where it was measured before.
                let half = report
                    .keyed("drain_per_s")
                    .map_or(5_000.0, |rate| rate / 2.0);
                let half = number("WEBHOOK_RATE", half as usize) as f64;
                latency::report(&mut report, half);
            }
            "emit" => emit::report(&mut report),
            "growth" => growth::report(&mut report, rounds, most),
            "writes" => writes::report(&mut report),
            "views" => views::report(&mut report, most),
            "idle" => idle::report(&mut report),
            "isolation" => isolation::report(&mut report),
            "fairness" => fairness::report(&mut report),
            "range" => range::report(&mut report),
            _ => outage::report(&mut report),
        }
    }
    match report.write() {
        Ok(path) => {
            println!("\nwritten to {}", path.display());
            let missed = report.missed();
            if missed.is_empty() || number("WEBHOOK_JUDGE", 0) == 0 {
                return ExitCode::SUCCESS;
            }
            eprintln!("missed: {}", missed.join("; "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the results cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}
