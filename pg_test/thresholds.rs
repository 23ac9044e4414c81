//! Thresholds under concurrency: whatever sessions observe at once, each true crossing is told exactly once.

use std::{sync::LazyLock, thread};

use webhook_outbox_test::{cluster::Cluster, dice::Dice, outbox::Outbox, say};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start_usual);

const SESSIONS: u64 = 8;
const OBSERVATIONS: usize = 10_000;

#[test]
fn each_crossing_is_told_exactly_once_whoever_observes() {
    let mut shop = Outbox::create(&CLUSTER, "crossings");
    shop.run(
        "select webhook.create_threshold('load', 'high', 50, 'load.high');
         select webhook.create_threshold('load', 'low', 50, 'load.low', direction => 'down');
         create table seen (observation bigint, value integer, event_ids text[])",
    );
    let each = OBSERVATIONS / usize::try_from(SESSIONS).expect("a number");
    thread::scope(|scope| {
        for session in 0..SESSIONS {
            let mut client = shop.another();
            scope.spawn(move || {
                let mut dice = Dice::new(session + 1);
                client.run("set synchronous_commit = off");
                for _ in 0..each {
                    let value = 45 + dice.below(11);
                    // A rollback in between takes its value with it.
                    let end = if dice.below(20) == 0 {
                        "rollback"
                    } else {
                        "commit"
                    };
                    client.run(&format!(
                        "begin; insert into seen select o.observation, {value}, o.event_ids
                           from webhook.observe('acme', 'host', 'h-1', 'load', {value}) as o; {end}"
                    ));
                }
            });
        }
    });
    let seen = shop.number("select count(*) from seen");
    // The values count in one order without gaps; the events follow from it, none more and none less.
    assert!(shop.is(&format!(
        "count(distinct observation) = {seen} and min(observation) = 1 and max(observation) = {seen} from seen"
    )));
    let wrong = shop.rows(
        "select *
           from (select s.observation, s.value, lag(s.value) over (order by s.observation) as previous, s.event_ids from seen s) as s
          where s.event_ids is distinct from coalesce((
                  select array_agg(e.event_id)
                    from webhook._event e
                   where (e.body::jsonb ->> 'observation')::bigint = s.observation), '{}')
             or cardinality(s.event_ids) <> case
                  when s.previous < 50 and s.value >= 50 then 1
                  when s.previous > 50 and s.value <= 50 then 1
                  else 0
                end
          limit 5",
    );
    assert!(wrong.is_empty(), "{wrong:?}");
    let told = shop.number("select count(*) from webhook.events");
    assert_eq!(
        told,
        shop.number("select sum(cardinality(event_ids)) from seen")
    );
    assert!(told > 100, "{told} crossings are too few to prove anything");
    say!("thresholds: {seen} values of {SESSIONS} sessions, {told} crossings, each told once");
}

#[test]
fn a_snapshot_that_cannot_see_the_last_value_fails_with_40001() {
    let mut one = Outbox::create(&CLUSTER, "serial");
    one.run("select webhook.create_threshold('load', 'high', 50, 'load.high')");
    let observe = |value: i32, subject: &str| {
        format!("select webhook.observe('acme', 'host', '{subject}', 'load', {value})")
    };
    let mut other = one.another();
    one.run(&observe(10, "known"));
    for subject in ["known", "new"] {
        other.run("begin isolation level repeatable read; select 1");
        one.run(&observe(20, subject));
        assert_eq!(other.refusal(&observe(60, subject)).0, "40001", "{subject}");
        other.run("rollback");
        other.run(&observe(60, subject));
    }
    assert_eq!(one.number("select count(*) from webhook.events"), 2);
}
