//! What holds for every course of events: the scheduler beside a model that looks at everything each time.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::rules::scheduler::rate::Bucket;

const ENDPOINTS: i64 = 6;
const PUSHES: &[Push] = &[
    Push::Up,
    Push::Up,
    Push::Slow,
    Push::Down,
    Push::Down,
    Push::Neutral,
    Push::Nothing,
];

/// One thing that happens; numbers pick an endpoint or a running request.
#[derive(Clone, Debug)]
enum Step {
    Push(i64, i16),
    Take(usize),
    End(usize, Push, u64),
    NotSent(usize),
    Outlast(usize),
    Wait(i64),
    Sleep,
    Limit(i64, Option<usize>, Option<(f64, f64)>),
    Move(i64, bool),
    Caps(usize, usize, usize),
    Window(i64, f64),
    Older(i64),
    All(i64),
    Forget(i64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let endpoint = || 0..ENDPOINTS;
    let rate = proptest::option::of((0.2..20.0f64, 1.0..4.0f64));
    prop_oneof![
        10 => (endpoint(), 0_i16..2).prop_map(|(id, class)| Step::Push(id, class)),
        8 => (1_usize..6).prop_map(Step::Take),
        8 => (any::<usize>(), proptest::sample::select(PUSHES), 0_u64..5)
            .prop_map(|(which, push, asked)| Step::End(which, push, asked)),
        1 => any::<usize>().prop_map(Step::NotSent),
        2 => any::<usize>().prop_map(Step::Outlast),
        3 => (0_i64..2_000_000).prop_map(Step::Wait),
        3 => Just(Step::Sleep),
        1 => (endpoint(), proptest::option::of(0_usize..5), rate)
            .prop_map(|(id, cap, rate)| Step::Limit(id, cap, rate)),
        1 => (endpoint(), any::<bool>()).prop_map(|(id, odd)| Step::Move(id, odd)),
        1 => (0_usize..9, 0_usize..6, 0_usize..5).prop_map(|(all, one, end)| Step::Caps(all, one, end)),
        1 => (endpoint(), 0.0..9.0f64).prop_map(|(id, size)| Step::Window(id, size)),
        1 => (0_i64..3_000_000).prop_map(Step::Older),
        1 => endpoint().prop_map(Step::All),
        1 => endpoint().prop_map(Step::Forget),
    ]
}

/// What the model knows of an endpoint. Windows and buckets have models of their own in their tests.
struct Known {
    partner: bool,
    limits: Limits,
    window: AdaptiveWindow,
    bucket: Option<Bucket>,
    /// (item, since) by class.
    waiting: [VecDeque<(u32, i64)>; 2],
    last_overdue: bool,
}

struct Running {
    endpoint: i64,
    began: i64,
    overdue: bool,
}

struct Model {
    caps: Caps,
    known: Vec<Known>,
    running: Vec<Running>,
    now: i64,
}

impl Model {
    fn count(&self, of: impl Fn(&Running) -> bool) -> usize {
        self.running.iter().filter(|running| of(running)).count()
    }

    fn of(&self, endpoint: i64) -> &Known {
        &self.known[usize::try_from(endpoint).unwrap()]
    }

    fn of_mut(&mut self, endpoint: i64) -> &mut Known {
        &mut self.known[usize::try_from(endpoint).unwrap()]
    }

    fn cap(&self, endpoint: i64) -> usize {
        let own = self.of(endpoint).limits.cap;
        own.unwrap_or(self.caps.per_endpoint).min(self.caps.total)
    }

    /// When an endpoint's next pair may be taken, if no other event is needed: by every rule, in its words.
    fn takeable_at(&self, endpoint: i64) -> Option<i64> {
        let known = self.of(endpoint);
        let running = self.count(|running| running.endpoint == endpoint);
        let cap = self.cap(endpoint);
        let slow = known.last_overdue
            || self.count(|running| running.endpoint == endpoint && running.overdue) > 0;
        let crowded = 2 * self.count(|running| running.overdue) >= self.caps.total;
        let of_partner = self.count(|running| self.of(running.endpoint).partner == known.partner);
        let window = if known.window.is_shut() {
            1
        } else {
            known.window.size().floor() as usize
        };
        let free = known.waiting.iter().any(|queue| !queue.is_empty())
            && self.running.len() < self.caps.total
            && of_partner < self.caps.per_partner
            && running < cap.min(window)
            && !(crowded && slow);
        let probe_at = known.window.probe_at().unwrap_or(self.now);
        let token_at = known
            .bucket
            .as_ref()
            .map_or(self.now, |bucket| bucket.ready_at(self.now));
        free.then_some(probe_at.max(token_at).max(self.now))
    }
}

fn name(partner: bool) -> &'static str {
    if partner { "odd" } else { "even" }
}

/// Takes one pair from both and compares. False = there was none.
fn take_one(scheduler: &mut Scheduler<u32>, model: &mut Model) -> Result<bool, TestCaseError> {
    let now = model.now;
    let times: Vec<i64> = (0..ENDPOINTS)
        .filter_map(|id| model.takeable_at(id))
        .collect();
    let Some(taken) = scheduler.take_next(now) else {
        prop_assert!(times.iter().all(|at| *at > now), "something may be taken");
        let timer = scheduler.next_timer();
        prop_assert!(timer.is_none_or(|at| at > now), "a deadline in the past");
        let full = model.running.len() >= model.caps.total;
        prop_assert!(!full || timer.is_none(), "time alone frees no place");
        if let Some(earliest) = times.iter().min() {
            prop_assert!(timer.is_some_and(|at| at <= *earliest), "nobody would wake");
        }
        return Ok(false);
    };
    let id = taken.endpoint.0;
    prop_assert_eq!(model.takeable_at(id), Some(now), "a limit is broken");
    let known = model.of_mut(id);
    prop_assert_eq!(taken.probe, known.window.is_shut());
    let queue = &mut known.waiting[usize::from(taken.waiting.class > 0)];
    prop_assert_eq!(
        queue.pop_front(),
        Some((taken.waiting.item, taken.waiting.since))
    );
    if let Some(bucket) = &mut known.bucket {
        prop_assert!(bucket.take(now));
    }
    model.running.push(Running {
        endpoint: id,
        began: now,
        overdue: false,
    });
    Ok(true)
}

fn apply(
    scheduler: &mut Scheduler<u32>,
    model: &mut Model,
    step: Step,
    item: u32,
) -> Result<(), TestCaseError> {
    let now = model.now;
    let pick = |model: &Model, which: usize| {
        (!model.running.is_empty()).then(|| which % model.running.len())
    };
    match step {
        Step::Push(id, class) => {
            // No two at the same time, so that items are numbered by age.
            model.now += 1;
            let now = model.now;
            scheduler.push(EndpointId(id), class, item, now);
            model.of_mut(id).waiting[usize::from(class > 0)].push_back((item, now));
        }
        Step::Take(times) => {
            for _ in 0..times {
                take_one(scheduler, model)?;
            }
        }
        Step::End(which, push, asked) => {
            if let Some(which) = pick(model, which) {
                let ended = model.running.remove(which);
                let cap = model.cap(ended.endpoint);
                let asked = Duration::from_secs(asked);
                let known = model.of_mut(ended.endpoint);
                known.last_overdue = ended.overdue;
                let turned = known.window.moved(push, ended.began, now, cap, asked, 0.5);
                let endpoint = EndpointId(ended.endpoint);
                // In whichever order.
                if asked.is_zero() {
                    scheduler.finished(endpoint, now - ended.began, ended.overdue);
                }
                prop_assert_eq!(
                    scheduler.answered(endpoint, push, ended.began, now, asked, 0.5),
                    turned
                );
                if !asked.is_zero() {
                    scheduler.finished(endpoint, now - ended.began, ended.overdue);
                }
            }
        }
        Step::NotSent(which) => {
            if let Some(which) = pick(model, which)
                && !model.running[which].overdue
            {
                let id = model.running.remove(which).endpoint;
                if let Some(bucket) = &mut model.of_mut(id).bucket {
                    bucket.give_back();
                }
                scheduler.not_sent(EndpointId(id));
            }
        }
        Step::Outlast(which) => {
            if let Some(which) = pick(model, which)
                && !std::mem::replace(&mut model.running[which].overdue, true)
            {
                scheduler.outlasted(EndpointId(model.running[which].endpoint));
            }
        }
        Step::Wait(time) => model.now += time,
        Step::Sleep => {
            // To the next timer, as the caller does: each one is passed but once.
            while take_one(scheduler, model)? {}
            if let Some(at) = scheduler.next_timer() {
                model.now = at;
                take_one(scheduler, model)?;
            }
        }
        Step::Limit(id, cap, rate) => {
            let rate = rate.map(|(per_second, burst)| Rate { per_second, burst });
            let known = model.of_mut(id);
            known.limits = Limits { cap, rate };
            match (&mut known.bucket, rate) {
                (Some(bucket), Some(rate)) => bucket.set_rate(rate),
                (bucket, rate) => *bucket = rate.map(Bucket::new),
            }
            scheduler.set_endpoint(EndpointId(id), name(known.partner), known.limits);
        }
        Step::Move(id, partner) => {
            let known = model.of_mut(id);
            known.partner = partner;
            scheduler.set_endpoint(EndpointId(id), name(partner), known.limits);
        }
        Step::Caps(total, per_partner, per_endpoint) => {
            model.caps = Caps {
                total,
                per_partner,
                per_endpoint,
            };
            scheduler.set_caps(model.caps);
        }
        Step::Window(id, size) => {
            model.of_mut(id).window = AdaptiveWindow::restored(size, Some(now + 500_000), NONE);
            scheduler.set_window(EndpointId(id), model.of(id).window.clone());
        }
        Step::Older(ago) => {
            let since = now - ago;
            let mut expected = HashMap::new();
            for id in 0..ENDPOINTS {
                for queue in &mut model.of_mut(id).waiting {
                    while let Some((item, at)) = queue.pop_front_if(|(_, at)| *at < since) {
                        expected.insert((EndpointId(id), item), at);
                    }
                }
            }
            let taken = scheduler.take_older(since);
            for id in 0..ENDPOINTS {
                let age = |pair: &(EndpointId, u32)| {
                    (pair.0.0 == id).then(|| expected.get(pair).copied())
                };
                prop_assert!(
                    taken.iter().filter_map(age).is_sorted(),
                    "the oldest come first"
                );
            }
            prop_assert_eq!(taken.len(), expected.len());
            prop_assert!(taken.iter().all(|pair| expected.contains_key(pair)));
        }
        Step::All(id) => {
            let known = model.of_mut(id);
            let mut expected: Vec<u32> = known
                .waiting
                .iter_mut()
                .flat_map(|queue| queue.drain(..))
                .map(|(item, _)| item)
                .collect();
            expected.sort_unstable();
            let mut taken = scheduler.take_all(EndpointId(id));
            taken.sort_unstable();
            prop_assert_eq!(taken, expected);
        }
        Step::Forget(id) => {
            scheduler.forget(EndpointId(id));
            let runs = model.count(|running| running.endpoint == id) > 0;
            let known = model.of_mut(id);
            if !runs && known.waiting.iter().all(VecDeque::is_empty) {
                prop_assert!(scheduler.window(EndpointId(id)).is_none());
                known.window = AdaptiveWindow::new();
                known.bucket = known.limits.rate.map(Bucket::new);
                known.last_overdue = false;
                scheduler.set_endpoint(EndpointId(id), name(known.partner), known.limits);
            } else {
                prop_assert!(scheduler.window(EndpointId(id)).is_some());
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_pair_is_taken_exactly_when_every_limit_allows_it_and_none_is_lost(
        steps in proptest::collection::vec(any_step(), 1..150),
    ) {
        let caps = Caps { total: 8, per_partner: 5, per_endpoint: 3 };
        let mut scheduler = Scheduler::new(caps);
        let known = (0..ENDPOINTS).map(|id| {
            let partner = id % 2 == 1;
            scheduler.set_endpoint(EndpointId(id), name(partner), Limits::default());
            Known {
                partner,
                limits: Limits::default(),
                window: AdaptiveWindow::new(),
                bucket: None,
                waiting: [VecDeque::new(), VecDeque::new()],
                last_overdue: false,
            }
        }).collect();
        let mut model = Model { caps, known, running: Vec::new(), now: 0 };
        for (item, step) in (0..).zip(steps) {
            apply(&mut scheduler, &mut model, step, item)?;
            prop_assert_eq!(scheduler.in_flight(), model.running.len());
            let mut waiting = 0;
            for id in 0..ENDPOINTS {
                let (endpoint, known) = (EndpointId(id), model.of(id));
                let of = known.waiting.iter().map(VecDeque::len).sum::<usize>();
                let running = model.count(|running| running.endpoint == id);
                prop_assert_eq!(scheduler.waiting_for(endpoint), of);
                prop_assert_eq!(scheduler.in_flight_to(endpoint), running);
                prop_assert_eq!(scheduler.opens_at(endpoint), known.window.probe_at());
                prop_assert!(scheduler.expected_wait(endpoint, model.now) >= 0);
                let most = if known.window.is_shut() { 1 } else { 2 * model.cap(id) };
                prop_assert!(scheduler.room_for(endpoint, model.now) <= most.saturating_sub(of + running));
                waiting += of;
            }
            prop_assert_eq!(scheduler.waiting(), waiting);
        }
        // What is left gets its turn as requests end and time goes on.
        apply(&mut scheduler, &mut model, Step::Caps(8, 5, 3), 0)?;
        for id in 0..ENDPOINTS {
            let rate = model.of(id).limits.rate.map(|rate| (rate.per_second, rate.burst));
            apply(&mut scheduler, &mut model, Step::Limit(id, None, rate), 0)?;
        }
        for _ in 0..2_000 {
            apply(&mut scheduler, &mut model, Step::End(0, Push::Up, 0), 0)?;
            apply(&mut scheduler, &mut model, Step::Sleep, 0)?;
        }
        prop_assert_eq!((scheduler.waiting(), scheduler.in_flight()), (0, 0), "a pair starves");
    }
}
