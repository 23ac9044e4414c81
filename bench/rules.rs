//! The pure rooms, each rule by itself: `cargo bench -p webhook_outbox_bench`.
#![allow(
    missing_docs,
    reason = "the macros of the harness make undocumented functions"
)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use webhook_outbox::rules::{
    address::Boundary,
    envelope::{Event, body, seal},
    ids::{EndpointId, EventId},
    profile::{Outgoing, Profile},
    scheduler::{Caps, Limits, Scheduler},
    signing::{Secret, SigningKey},
};

fn event() -> Event {
    Event {
        id: EventId::new(1_700_000_000_000, 7),
        kind: "invoice.paid".to_owned(),
        partner_id: "acme".to_owned(),
        source: Some("billing".to_owned()),
        occurred_at: 1_700_000_000_000_000,
        subject_type: Some("invoice".to_owned()),
        subject_id: Some("i-1".to_owned()),
        subject_version: Some(3),
        scope: None,
        schema_version: Some("1".to_owned()),
        correlation_id: None,
        causation: None,
        traceparent: None,
        test: false,
        data: format!(r#"{{"text": "{}"}}"#, "x".repeat(588)),
    }
}

fn body_and_seal(criterion: &mut Criterion) {
    let event = event();
    criterion.bench_function("the body of an event of 600 B", |bencher| {
        bencher.iter(|| body(black_box(&event)));
    });
    criterion.bench_function("the seal of an event", |bencher| {
        bencher.iter(|| seal(&[7; 32], black_box(&event), 1, &[3; 32]));
    });
}

fn signature(criterion: &mut Criterion) {
    let body = body(&event());
    let keys = [SigningKey {
        id: 1,
        key: Secret::from_bytes(&[7; 32])
            .expect("a key of a good length")
            .into(),
    }];
    let outgoing = Outgoing {
        id: "evt_01HF7YAT00000000000000007",
        timestamp: 1_700_000_000,
        url: "https://receiver.example/hook",
        headers: &[],
        body: body.as_bytes(),
    };
    for (name, profile) in [
        ("v1", Profile::V1),
        ("github", Profile::Github),
        ("stripe", Profile::Stripe),
    ] {
        criterion.bench_function(&format!("a signature of profile {name}"), |bencher| {
            bencher.iter(|| profile.sign(black_box(&keys), black_box(&outgoing)));
        });
    }
}

fn callback_url(criterion: &mut Criterion) {
    let boundary = Boundary::default();
    criterion.bench_function("the guard judges a URL", |bencher| {
        bencher.iter(|| boundary.target(black_box("https://receiver.example:443/hook?a=1")));
    });
}

/// What a pair costs in the scheduler, from its coming to the answer, with so many endpoints that have something waiting.
fn turns(criterion: &mut Criterion) {
    let caps = Caps {
        total: 256,
        per_partner: 64,
        per_endpoint: 8,
    };
    for endpoints in [1_i64, 1_000, 100_000] {
        let mut scheduler: Scheduler<u64> = Scheduler::new(caps);
        for endpoint in 0..endpoints {
            let partner = format!("p{}", endpoint / 10);
            scheduler.set_endpoint(EndpointId(endpoint), &partner, Limits::default());
            scheduler.push(EndpointId(endpoint), 0, 0, 0);
        }
        let mut next = 0;
        criterion.bench_function(&format!("a turn among {endpoints} endpoints"), |bencher| {
            bencher.iter_batched(
                || {
                    next = (next + 1) % endpoints;
                    EndpointId(next)
                },
                |endpoint| {
                    scheduler.push(endpoint, 0, 0, 0);
                    if let Some(taken) = scheduler.take_next(0) {
                        scheduler.finished(taken.endpoint, 1_000, false);
                    }
                },
                BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(rules, body_and_seal, signature, callback_url, turns);
criterion_main!(rules);
