//! Deciding about pairs that filters hold: when a filter was changed, at the beginning of a life, and where a batch had
//! no time for it. One endpoint after the other, a piece at a time; and telling people of what cannot be decided.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Leader;
use super::configuration::Standing;
use super::filtering::{Candidate, Verdict};
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Change};
use crate::rules::filter::MOST_COST;
use crate::rules::ids::{EndpointId, EventId, Pair};

/// Held pairs looked at in one piece.
const ROWS: i32 = 32;
/// How often an endpoint's filter is complained about at most.
const SILENCE: Duration = Duration::from_secs(60);
/// Why a delivery was cancelled that was held by a filter.
/// Why a pair that a filter held is not sent.
pub const UNMATCHED: &str = "the filter of the endpoint does not match the event";

/// Held pairs of an endpoint that are to be decided about, from where on.
pub struct Judging {
    endpoint: EndpointId,
    after: String,
    /// Whether people are told of what still cannot be decided.
    tells: bool,
}

impl Leader {
    /// The filter of an endpoint was changed, or a life begins: what it held is decided about anew.
    pub fn judge_again(&mut self, endpoint: EndpointId, tells: bool) {
        self.filter_complaints.remove(&endpoint);
        self.to_judge.retain(|judging| judging.endpoint != endpoint);
        self.to_judge.push_back(Judging {
            endpoint,
            after: String::new(),
            tells,
        });
    }

    pub fn judge_later(&mut self, pair: Pair) {
        // Without its last character an id is before itself.
        let mut before = pair.event.to_string();
        before.pop();
        match self
            .to_judge
            .iter_mut()
            .find(|judging| judging.endpoint == pair.endpoint)
        {
            Some(judging) => {
                if before < judging.after {
                    judging.after = before;
                }
            }
            None => self.to_judge.push_back(Judging {
                endpoint: pair.endpoint,
                after: before,
                tells: true,
            }),
        }
    }

    /// Decides about some held pairs of one endpoint, one endpoint after the other.
    pub fn judge_held(&mut self) -> Result<(), Trouble> {
        let Some(judging) = self.to_judge.front() else {
            return Ok(());
        };
        let (id, after, tells) = (judging.endpoint, judging.after.clone(), judging.tells);
        let open = self
            .configuration
            .endpoint(id)
            .is_some_and(|endpoint| endpoint.standing != Standing::Closed);
        if !open {
            self.to_judge.pop_front();
            return Ok(());
        }
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let held = transaction(
            self.owner,
            false,
            c"webhook leader: reading what filters hold",
            || outbox::held_by_filter(id, &after, ROWS),
        )?;
        let ids: Vec<EventId> = held.iter().map(|held| held.pair.event).collect();
        let events = if ids.is_empty() {
            HashMap::new()
        } else {
            self.events(&ids)?
        };
        let filter = self
            .configuration
            .endpoint(id)
            .and_then(|endpoint| endpoint.filter_at(None));
        // What has no payload any more finds out when it is claimed.
        let candidates = held
            .iter()
            .filter_map(|held| {
                let row = events.get(&held.pair.event)?;
                Some(Candidate {
                    event: &row.event,
                    endpoint: id,
                    filter: filter?,
                })
            })
            .collect();
        let verdicts = self.weigh(candidates, MOST_COST, true)?;
        let later = held
            .iter()
            .position(|held| matches!(verdicts.0.get(&held.pair), Some(Verdict::Later)))
            .unwrap_or(held.len());
        let decided = held.get(..later).unwrap_or_default();
        let free: Vec<EventId> = decided
            .iter()
            .filter(|held| !verdicts.0.contains_key(&held.pair))
            .map(|held| held.pair.event)
            .collect();
        let at = self.stamp(self.clock.now());
        let released = transaction(
            self.owner,
            false,
            c"webhook leader: releasing what a filter held",
            || outbox::free_filter(id, &free, at),
        )?;
        self.note_released(&released);
        for held in decided {
            let subject: Option<Arc<str>> = held.subject.as_deref().map(Arc::from);
            match verdicts.0.get(&held.pair) {
                // It may be its turn.
                None => {
                    if let Some(subject) = subject {
                        self.turns.add((id, subject));
                    }
                }
                Some(Verdict::Undecided(why)) if tells => self.complain_of_filter(held.pair, why),
                Some(Verdict::Differs) => self.record(Change {
                    pair: held.pair,
                    batch: 0,
                    revision: 0,
                    class: held.class,
                    series_start: held.series_start,
                    state: "cancelled",
                    reason: Some(UNMATCHED.to_owned()),
                    attempt_count: held.attempt_count,
                    attempt: None,
                    category: None,
                    next_attempt_at: None,
                    hold: 0,
                    series_at: None,
                    deaths: 0,
                    subject,
                    due: Some(held.at),
                    on_wire: false,
                }),
                Some(_) => {}
            }
        }
        if let Some(mut judging) = self.to_judge.pop_front()
            && let Some(last) = decided.last()
        {
            judging.after = last.pair.event.to_string();
            self.to_judge.push_back(judging);
        }
        Ok(())
    }

    /// One alert for an endpoint in a while: a filter that fails for one event mostly fails for many.
    pub fn complain_of_filter(&mut self, pair: Pair, why: &str) {
        let now = Instant::now();
        let spoke = self
            .filter_complaints
            .insert(pair.endpoint, now)
            .filter(|at| now.duration_since(*at) < SILENCE);
        match spoke {
            Some(at) => {
                self.filter_complaints.insert(pair.endpoint, at);
            }
            None => self.tell_undecided(pair, why),
        }
    }
}
