//! Isolation: what endpoints that hang, or are slow, cost those that are well. Pairs of runs, without and with the sick
//! ones, interleaved; the median of the ratios counts, and should stay below 1.1.
//!
//! What is compared: the same healthy endpoints get the same number of deliveries (9,000 in all; WEBHOOK_DELIVERIES)
//! in both runs of a pair, emitted in one transaction, and each request takes them 20 ms. The clock runs from the answer
//! to that commit to the arrival of the last healthy request. Without: the sick endpoints get nothing. With: the same
//! transaction holds as many events for each of them as its share of 9,000 would be, in turn with those of the others.
//! So the ratio holds everything that sick endpoints cost: reading, parking and retrying what is theirs, their
//! connections and time-outs. Were they well in the run without, that run had more to send, and the ratio flattered.
//! Every endpoint was well before: windows are open and connections are made when the sick ones fall ill. Each run has
//! a server of its own, so that nothing is left of the run before. The first case, with nobody sick, shows the noise.
//!
//! WEBHOOK_ROUNDS: pairs of each case, 5.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use crate::report::{Report, Target};
use postgres::Client;
use webhook_outbox_test::{
    cluster::Cluster,
    meter::{median, number},
    receiver::{Answer, Receiver},
    wait::wait_for,
};

const SERVICE: Duration = Duration::from_millis(20);
/// Events to each endpoint before it counts: enough to open its window.
const WARM_UP: usize = 30;
const DEADLINE: Duration = Duration::from_secs(120);
const BODY: usize = 600;

struct Case {
    name: &'static str,
    endpoints: usize,
    sick: usize,
    /// How long the sick ones take for an answer; the time-out of a request is 20 s.
    takes: Duration,
    /// Sick endpoints belong to one partner; all others have a partner each.
    one_partner: bool,
}

const HANGS: Duration = Duration::from_secs(30);
const CASES: [Case; 6] = [
    case("10 endpoints, none sick", 10, 0, HANGS, false),
    case("10 endpoints, one hangs", 10, 1, HANGS, false),
    case("10 endpoints, five hang", 10, 5, HANGS, false),
    case("10 endpoints, nine hang", 10, 9, HANGS, false),
    case(
        "200 endpoints, 100 of one partner hang",
        200,
        100,
        HANGS,
        true,
    ),
    case(
        "10 endpoints, one answers in 1.5 s",
        10,
        1,
        Duration::from_millis(1_500),
        false,
    ),
];

const fn case(
    name: &'static str,
    endpoints: usize,
    sick: usize,
    takes: Duration,
    one_partner: bool,
) -> Case {
    Case {
        name,
        endpoints,
        sick,
        takes,
        one_partner,
    }
}

/// Prints it.
pub fn report(report: &mut Report) {
    let (rounds, deliveries) = (
        number("WEBHOOK_ROUNDS", 5),
        number("WEBHOOK_DELIVERIES", 9_000),
    );
    report.part(
        "isolation",
        &format!("{deliveries} deliveries to healthy endpoints that take {SERVICE:?}, seconds to the last of them"),
    );
    let mut worst: f64 = 0.0;
    for case in &CASES {
        println!("{}", case.name);
        let mut ratios = Vec::new();
        for round in 1..=rounds {
            let without = case.run(deliveries, false);
            let with = case.run(deliveries, true);
            let ratio = with.as_secs_f64() / without.as_secs_f64();
            println!(
                "  {round}: without {:6.2}, with {:6.2}, ratio {ratio:5.2}",
                without.as_secs_f64(),
                with.as_secs_f64()
            );
            ratios.push(ratio);
        }
        let ratio = median(&mut ratios);
        worst = worst.max(ratio);
        let measure = format!("{}: with / without", case.name);
        report.judged(&measure, ratio, "", Target::AtMost(1.1));
    }
    report.key("hang_ratio", worst);
}

impl Case {
    /// One run on a server of its own; the time to the last healthy arrival.
    fn run(&self, deliveries: usize, with: bool) -> Duration {
        let cluster = Cluster::plan()
            .setting("webhook.max_endpoints_per_partner", "1000")
            .start();
        let mut sql = cluster.create_database("bench");
        sql.batch_execute("create extension webhook_outbox")
            .expect("the extension is installed");
        let (healthy, sick) = (Receiver::http(), Receiver::http());
        let ill = Arc::new(AtomicBool::new(false));
        let well = self.endpoints - self.sick;
        // The sick ones have the places after those that are well.
        sql.batch_execute("create table target (n integer, partner text, type text, sick boolean)")
            .expect("a table");
        for n in 0..self.endpoints {
            let (path, is_sick) = (format!("/{n}"), n >= well);
            let receiver = if is_sick { &sick } else { &healthy };
            let (ill, takes) = (Arc::clone(&ill), self.takes);
            receiver.behave(&path, move |_| {
                let falls_ill = is_sick && ill.load(Ordering::SeqCst);
                Answer::status(200).after(if falls_ill { takes } else { SERVICE })
            });
            let partner = if is_sick && self.one_partner {
                "sick".to_owned()
            } else {
                format!("partner-{n}")
            };
            let (url, kind) = (receiver.url(&path), format!("bench.e{n}"));
            sql.execute(
                "select webhook.create_endpoint($1, $2, event_types => array[$3], verify => 'none')",
                &[&partner, &url, &kind],
            )
            .expect("the endpoint is accepted");
            sql.execute(
                "insert into target values ($1::bigint, $2, $3, $4)",
                &[&(n as i64), &partner, &kind, &is_sick],
            )
            .expect("a row");
        }
        emit(&mut sql, WARM_UP, WARM_UP);
        wait_for("all endpoints are well", DEADLINE, || {
            healthy.count() >= well * WARM_UP && sick.count() >= self.sick * WARM_UP
        });
        wait_for("all of that is recorded", DEADLINE, || {
            let idle = "select in_flight = 0 and open_batches = 0 from webhook.stat_worker";
            sql.query_one(idle, &[]).expect("one row").get(0)
        });
        sleep(Duration::from_millis(300));
        healthy.forget();
        ill.store(true, Ordering::SeqCst);

        let share = deliveries / well;
        let of_sick = if with { deliveries / self.endpoints } else { 0 };
        let begun = emit(&mut sql, share, of_sick);
        while healthy.count() < share * well {
            if begun.elapsed() > DEADLINE {
                show(&mut sql);
                panic!("{} of {} arrived", healthy.count(), share * well);
            }
            sleep(Duration::from_millis(5));
        }
        let requests = healthy.requests();
        let last = requests.iter().map(|request| request.at).max();
        last.expect("something arrived")
            .saturating_duration_since(begun)
    }
}

/// What there is to see when something does not arrive.
fn show(sql: &mut Client) {
    for query in [
        "select row_to_json(w)::text from webhook.stat_worker as w",
        "select row_to_json(q)::text from webhook.stat_queue as q",
        "select row_to_json(h)::text from webhook.endpoint_health as h order by endpoint_id limit 20",
    ] {
        for row in sql.query(query, &[]).expect("a view") {
            println!("{}", row.get::<_, String>(0));
        }
    }
}

/// Emits so many events for each endpoint, evenly mixed, in one transaction. Returns when its commit was confirmed.
fn emit(sql: &mut Client, of_each: usize, of_each_sick: usize) -> Instant {
    let data = format!("{{\"text\": \"{}\"}}", "x".repeat(BODY - 20));
    sql.execute(
        "select count(webhook.emit(type, partner, $1::text::jsonb))
           from (select t.type, t.partner
                   from target as t
                  cross join lateral (select case when t.sick then $3::bigint else $2::bigint end as count) as c
                  cross join lateral generate_series(1, c.count) as i
                  order by i / c.count::float8, t.n) as mixed",
        &[&data, &(of_each as i64), &(of_each_sick as i64)],
    )
    .expect("emit succeeds");
    Instant::now()
}
