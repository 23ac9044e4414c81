//! Endless streams: nothing starves behind them, and no rate is exceeded.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn nothing_starves_behind_endless_streams(
        caps in (1_usize..6, 1_usize..4, 1_usize..4),
        streams in proptest::collection::vec((0_u8..4, proptest::array::uniform2(any::<bool>()), 1_i64..4), 2..9),
        late in proptest::collection::vec(0_usize..4, 64),
    ) {
        let (total, per_partner, per_endpoint) = caps;
        let mut scheduler = Scheduler::new(Caps { total, per_partner, per_endpoint });
        let mut items = 0_u32;
        let mut fill = |scheduler: &mut Scheduler<u32>| for (id, (_, classes, _)) in (0..).zip(&streams) {
            for class in [0, 1] {
                while classes[usize::from(class > 0)] && scheduler.waiting_for(EndpointId(id)) < 8 {
                    items += 1;
                    scheduler.push(EndpointId(id), class, items, 0);
                }
            }
        };
        for (id, (partner, _, _)) in (0..).zip(&streams) {
            scheduler.set_endpoint(EndpointId(id), &partner.to_string(), Limits::default());
        }
        fill(&mut scheduler);
        // One that nobody would miss: of the second class of the last endpoint, behind all the streams.
        let last = EndpointId(i64::try_from(streams.len()).unwrap() - 1);
        scheduler.take_all(last);
        scheduler.push(last, 1, u32::MAX, 0);
        if streams[streams.len() - 1].1[0] {
            for item in 0..4_000 {
                scheduler.push(last, 0, item, 0);
            }
        }
        let mut running: VecDeque<EndpointId> = VecDeque::new();
        for round in 0..4_000 {
            while let Some(taken) = scheduler.take_next(round) {
                if taken.waiting.item == u32::MAX {
                    return Ok(());
                }
                running.push_back(taken.endpoint);
            }
            // Not always the oldest first, but none runs for ever.
            let which = late[usize::try_from(round).unwrap() % late.len()].min(running.len() - 1);
            let which = if round % 4 == 0 { 0 } else { which };
            let endpoint = running.remove(which).unwrap();
            scheduler.answered(endpoint, Push::Up, round, round, NONE, 0.0);
            scheduler.finished(endpoint, 1, false);
            fill(&mut scheduler);
        }
        prop_assert!(false, "a pair starves");
    }

    #[test]
    fn no_interval_sees_more_starts_than_the_rate_allows(
        per_second in 0.5..50.0f64, burst in 1.0..6.0f64,
        steps in proptest::collection::vec((0_i64..400_000, 0_u8..8), 1..120),
    ) {
        let mut scheduler = Scheduler::new(Caps { total: 500, per_partner: 500, per_endpoint: 500 });
        let rate = Some(Rate { per_second, burst });
        let endpoint = EndpointId(1);
        scheduler.set_endpoint(endpoint, "a", Limits { cap: None, rate });
        scheduler.set_window(endpoint, AdaptiveWindow::restored(500.0, None, NONE));
        let (mut now, mut starts) = (0_i64, Vec::new());
        for (step, kind) in steps {
            now += step;
            for item in 0..4 {
                scheduler.push(endpoint, (item % 2) as i16, item, now);
            }
            while scheduler.take_next(now).is_some() {
                if kind == 0 {
                    scheduler.not_sent(endpoint);
                    break;
                }
                starts.push(now);
                scheduler.finished(endpoint, 1, false);
            }
            if kind == 1 {
                scheduler.set_endpoint(endpoint, "a", Limits { cap: None, rate });
            }
        }
        for (first, from) in starts.iter().enumerate() {
            for (last, to) in starts.iter().enumerate().skip(first) {
                let seconds = (to - from) as f64 / 1e6;
                prop_assert!((last - first + 1) as f64 <= burst + per_second * seconds + 1e-6);
            }
        }
    }
}
