//! Carrying out replays of a range: the feed of the range is walked, a bounded number of rows in one transaction that
//! also writes how far the walk has come. A life that ends in the middle leaves nothing to be done twice.
//!
//! What is to be sent enters through the due table, in a class of its own behind the others, at the rate that was asked for; while endpoints
//! do not keep up with that, the walk waits. New events go first: a window that is open is read before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use super::Leader;
use super::configuration::Standing;
use super::dispatch::REPLAYS;
use super::judging::UNMATCHED;
use super::memory::Lane;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Belated, FeedRow, Only, Progress, ReplayRow, Request, Seen, hold};
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::matching::type_matches;

/// Rows of the feed looked at in one transaction, at most and at least.
const ROUND: usize = 250;
const FEW: usize = 10;
/// Deliveries that are worth a round whatever the rate.
const MOST: f64 = 250.0;
/// A queue whose first row has been due for so long is one that an endpoint does not keep up with, in microseconds.
const BEHIND: i64 = 2_000_000;
/// How often it is looked whether it does again; and how long passing trouble is left alone.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const REST: Duration = Duration::from_secs(2);

/// Replays that are under way, each in its turn.
#[derive(Default)]
pub struct Replays {
    queue: VecDeque<Replaying>,
    rest_until: Option<Instant>,
}

struct Replaying {
    row: ReplayRow,
    reached: (String, i64),
    /// Deliveries that may be made now; filled at the rate, and below zero after an event with many.
    tokens: f64,
    filled_at: Instant,
    /// Rows to be read next: about twice what the last round could use, so that a slow rate does not read the same rows
    /// again and again.
    reads: usize,
}

/// What one round reads.
struct Found {
    rows: Vec<FeedRow>,
    facts: HashMap<String, Seen>,
    states: HashMap<EventId, Vec<(EndpointId, String)>>,
    fenced: HashSet<String>,
}

/// What one round does.
#[derive(Default)]
struct Plan {
    make: Vec<Belated>,
    series: Vec<(Pair, i16)>,
    progress: Progress,
    /// Rows of the range that it covers.
    rows: usize,
}

impl Replays {
    /// Requests that are being carried out.
    pub fn requests(&self) -> impl Iterator<Item = i64> + '_ {
        self.queue.iter().map(|replaying| replaying.row.request)
    }
}

impl Replaying {
    fn new(row: ReplayRow, reached: (String, i64)) -> Replaying {
        Replaying {
            row,
            reached,
            tokens: 0.0,
            filled_at: Instant::now(),
            reads: ROUND,
        }
    }

    fn rate(&self) -> f64 {
        f64::from(self.row.rate.max(1))
    }

    /// What is worth a round: a fifth of a second, so that a slow rate does not make a transaction of each delivery.
    fn enough(&self) -> f64 {
        (self.rate() / 5.0).clamp(1.0, MOST)
    }

    fn tokens_at(&self, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.filled_at).as_secs_f64() * self.rate();
        (self.tokens + earned).min(self.enough() * 2.0)
    }

    fn wait(&self, now: Instant) -> Duration {
        let missing = self.enough() - self.tokens_at(now);
        Duration::from_secs_f64((missing / self.rate()).clamp(0.0, 3600.0))
    }
}

impl Leader {
    /// Somebody asked for a replay of a range, in this life or an earlier one.
    pub fn note_replay(&mut self, request: i64) -> Result<(), Trouble> {
        if self
            .replays
            .queue
            .iter()
            .any(|known| known.row.request == request)
        {
            return Ok(());
        }
        let own = self.origin;
        let found = transaction(
            self.owner,
            false,
            c"webhook leader: beginning a replay",
            || {
                let row = outbox::unfinished_replay(request, own)?;
                let reached = match row.reached.clone() {
                    Some(reached) => reached,
                    None => outbox::begin_replay(&row),
                };
                Some((row, reached))
            },
        )?;
        match found {
            Some((row, reached)) => self.replays.queue.push_back(Replaying::new(row, reached)),
            None => self.finish_request(request, "refused", 0, "the replay is gone")?,
        }
        Ok(())
    }

    /// Ends a replay: no more deliveries are made.
    pub fn cancel_replay(&mut self, request: &Request) -> Result<(), Trouble> {
        let target = request
            .target
            .as_deref()
            .and_then(|id| id.parse().ok())
            .unwrap_or(0);
        let id = request.id;
        transaction(
            self.owner,
            false,
            c"webhook leader: cancelling a replay",
            || match outbox::end_replay(target) {
                Some(progress) => {
                    let count = concerned(&progress);
                    let result = format!("cancelled: {}", summary(&progress));
                    outbox::finish_request(target, "done", count, &result);
                    outbox::finish_request(id, "done", count, &result);
                }
                None => outbox::finish_request(id, "done", 0, "the replay was finished already"),
            },
        )?;
        self.replays
            .queue
            .retain(|known| known.row.request != target);
        Ok(())
    }

    /// How long until a replay can go on; none = there is none, or something else comes first.
    pub fn replay_pause(&self) -> Option<Duration> {
        let first = || {
            let now = Instant::now();
            let waits = self.replays.queue.iter().map(|replaying| {
                if self.is_ahead(replaying) {
                    LOOK_AGAIN
                } else {
                    replaying.wait(now)
                }
            });
            let rest = self
                .replays
                .rest_until
                .map(|until| until.saturating_duration_since(now));
            waits.min().map(|wait| wait.max(rest.unwrap_or_default()))
        };
        let free = self.window.cur.is_none() && self.memory.has_room(Lane::Fresh);
        free.then(first).flatten()
    }

    /// One round of a replay whose turn it is.
    pub fn replay_ranges(&mut self) -> Result<(), Trouble> {
        let now = Instant::now();
        if self.replays.queue.is_empty()
            || self.window.cur.is_some()
            || self.reopening()
            || !self.memory.has_room(Lane::Fresh)
            || self.replays.rest_until.is_some_and(|until| now < until)
        {
            return Ok(());
        }
        self.replays.rest_until = None;
        let ready =
            |replaying: &Replaying| replaying.wait(now).is_zero() && !self.is_ahead(replaying);
        let Some(index) = self.replays.queue.iter().position(ready) else {
            return Ok(());
        };
        let Some(mut replaying) = self.replays.queue.remove(index) else {
            return Ok(());
        };
        replaying.tokens = replaying.tokens_at(now);
        replaying.filled_at = now;
        let result = self.replay_some(&mut replaying);
        if !matches!(result, Ok(true)) {
            self.replays.queue.push_back(replaying);
        }
        match result {
            // What is due to others must not wait for it.
            Err(Trouble::Passing(text)) => {
                self.replays.rest_until = Some(now + REST);
                self.slot.set_error(&text);
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Whether an endpoint does not keep up with what the replay has made for it. One that is shut, or held, is not
    /// waited for: it may be for days.
    fn is_ahead(&self, replaying: &Replaying) -> bool {
        let row = &replaying.row;
        let partner = row.partner.as_deref().unwrap_or(&replaying.reached.0);
        let long_ago = self.clock.now() - BEHIND;
        self.configuration
            .endpoints_of(partner)
            .filter(|id| row.endpoint.is_none_or(|only| only == *id))
            .any(|id| {
                self.due
                    .get(&(id, REPLAYS))
                    .is_some_and(|due| due.at < long_ago)
                    && self.standing(id) == Some(Standing::Sends)
                    && self.scheduler.opens_at(id).is_none()
            })
    }

    /// Looks at the next rows of the range; says whether they were the last.
    fn replay_some(&mut self, replaying: &mut Replaying) -> Result<bool, Trouble> {
        // A result on its way may change the very rows.
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let (row, after) = (&replaying.row, &replaying.reached);
        let found = transaction(self.owner, true, c"webhook leader: reading a range", || {
            find(row, after, replaying.reads)
        })?;
        let mut plan = self.plan_replay(row, &found, replaying.tokens);
        let all = plan.rows == found.rows.len();
        let done = all && plan.rows < replaying.reads;
        let last = found.rows.get(..plan.rows).and_then(<[FeedRow]>::last);
        let reached = last.map_or_else(|| after.clone(), |last| last.place.clone());
        // What a filter refused was not missed.
        let planned = plan.make.len();
        self.filter_missed(&mut plan.make)?;
        plan.progress.unwanted += count(planned - plan.make.len());
        let at = self.stamp(self.clock.now());
        let (incarnation, request) = (self.incarnation, row.request);
        let Plan {
            make,
            series,
            progress,
            rows,
        } = &mut plan;
        let written = transaction(
            self.owner,
            false,
            c"webhook leader: replaying a range",
            || {
                if outbox::highest_incarnation() != incarnation {
                    error!("another webhook leader has taken over");
                }
                let (free, made) = outbox::make_pairs(make, at);
                progress.made = count(made);
                if !series.is_empty() {
                    outbox::new_series(series, at, incarnation);
                }
                progress.again = count(series.len());
                let sums = outbox::advance_replay(request, &reached, progress, done)?;
                if done {
                    outbox::finish_request(request, "done", concerned(&sums), &summary(&sums));
                }
                Some(free)
            },
        )?;
        // Somebody changed the row behind the leader's back: nothing more is to be done.
        let Some(free) = written else {
            return Ok(true);
        };
        replaying.reached = reached;
        replaying.reads = if all { ROUND } else { *rows * 2 }.clamp(FEW, ROUND);
        // A replay may make some thousand in a round, far below what a float holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let spent = (progress.made + progress.again) as f64;
        replaying.tokens -= spent;
        for belated in make.iter() {
            if belated.hold & hold::ORDER != 0
                && let Some(subject) = &belated.subject
            {
                self.turns
                    .add((belated.pair.endpoint, std::sync::Arc::clone(subject)));
            }
        }
        // New pairs do not queue behind these: live traffic goes first.
        for next in free {
            self.note_due((next.endpoint, next.class), next.at);
        }
        for (pair, class) in series.iter() {
            self.note_due((pair.endpoint, *class), at);
        }
        Ok(done)
    }

    /// What is to be done for the rows in their order, up to the one that spends the last token: whatever costs no
    /// delivery costs no transaction of its own either.
    fn plan_replay(&self, row: &ReplayRow, found: &Found, tokens: f64) -> Plan {
        let mut plan = Plan::default();
        let oldest = self.first_with_deliveries();
        for feed in &found.rows {
            // Some thousand at most, far below what a float holds exactly.
            #[allow(clippy::cast_precision_loss)]
            let spent = (plan.make.len() + plan.series.len()) as f64;
            if spent > 0.0 && spent >= tokens {
                break;
            }
            plan.rows += 1;
            if !meant(row, feed) {
                continue;
            }
            plan.progress.looked_at += 1;
            let Some(event) = found
                .facts
                .get(&feed.event)
                .and_then(|seen| seen.row.as_ref())
            else {
                plan.progress.expunged += 1;
                continue;
            };
            if event.expunged {
                plan.progress.expunged += 1;
                continue;
            }
            if found.fenced.contains(&feed.event) || !self.admits_origin(event.origin) {
                plan.progress.fenced += 1;
                continue;
            }
            let id = event.event.id;
            let known = found.states.get(&id).map_or(&[][..], Vec::as_slice);
            for (endpoint, state) in known {
                if row.endpoint.is_some_and(|only| only != *endpoint) {
                    continue;
                }
                let pair = Pair {
                    event: id,
                    endpoint: *endpoint,
                };
                let wanted = match row.only {
                    Only::All => true,
                    Only::Failed => matches!(state.as_str(), "dead" | "cancelled" | "unmatched"),
                    Only::Missing => false,
                };
                if !wanted {
                    continue;
                }
                if self.memory.contains(pair) || matches!(state.as_str(), "pending" | "retrying") {
                    plan.progress.under_way += 1;
                } else if state == "unmatched" {
                    // Held by a filter that could not tell, and refused by a later one.
                    plan.progress.unwanted += 1;
                } else if matches!(self.standing(*endpoint), None | Some(Standing::Closed)) {
                    plan.progress.closed += 1;
                } else if !self.configuration.wants(&event.event, *endpoint) {
                    plan.progress.unwanted += 1;
                } else {
                    plan.series.push((pair, REPLAYS));
                }
            }
            if row.only == Only::Failed {
                continue;
            }
            for endpoint in self.configuration.endpoints_of(&event.event.partner_id) {
                let there = known.iter().any(|(other, _)| *other == endpoint);
                if there
                    || row.endpoint.is_some_and(|only| only != endpoint)
                    || !self.configuration.wants(&event.event, endpoint)
                {
                    continue;
                }
                let pair = Pair {
                    event: id,
                    endpoint,
                };
                if self.memory.contains(pair) {
                    plan.progress.under_way += 1;
                } else if id < oldest {
                    // What is not there may have been delivered.
                    plan.progress.expired += 1;
                } else {
                    plan.make.push(Belated {
                        class: REPLAYS,
                        ..self.waits_for_turn(pair, event)
                    });
                }
            }
        }
        plan
    }
}

/// Reads the next rows of the range and what is known of their events.
fn find(row: &ReplayRow, after: &(String, i64), limit: usize) -> Found {
    let rows = outbox::walk_feed(row, after, limit);
    let ids: Vec<&str> = rows
        .iter()
        .filter(|feed| meant(row, feed))
        .map(|feed| feed.event.as_str())
        .collect();
    let facts = outbox::facts_of(&ids);
    let states = outbox::states_of(&ids, UNMATCHED);
    let fenced = if ids.is_empty() {
        HashSet::new()
    } else {
        outbox::fenced_of(&ids)
    };
    Found {
        facts,
        states,
        fenced,
        rows,
    }
}

/// Whether an event of the range is one that was asked for.
fn meant(row: &ReplayRow, feed: &FeedRow) -> bool {
    feed.test == row.test
        && row.types.as_ref().is_none_or(|types| {
            types
                .iter()
                .any(|pattern| type_matches(pattern, &feed.kind))
        })
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn concerned(progress: &Progress) -> usize {
    usize::try_from(progress.made + progress.again).unwrap_or(0)
}

fn summary(progress: &Progress) -> String {
    let mut text = format!(
        "{} to be sent again, {} made",
        progress.again, progress.made
    );
    let left_out = [
        (progress.under_way, "being sent already"),
        (progress.unwanted, "not subscribed to any more"),
        (progress.closed, "left out because the endpoint is closed"),
        (progress.expunged, "events without payload"),
        (progress.fenced, "events fenced"),
        (
            progress.expired,
            "not made because deliveries of the event are not kept any more",
        ),
    ];
    for (count, why) in left_out {
        if count > 0 {
            text.push_str(&format!(", {count} {why}"));
        }
    }
    text
}
