//! Carrying out what users asked for: reading requests, and replays. What is asked of deliveries one by
//! one is in `verbs`.
//!
//! A request is looked at after the events of its own snapshot were read, so an event that was not
//! fanned out yet is not sent twice: its first pass is the sending that was asked for.

use super::Leader;
use super::configuration::Standing;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Request, Row};
use crate::rules::ids::{EndpointId, Pair};

/// Requests carried out in one round.
const ROUND: i32 = 100;
/// Pairs after which no further one is begun in the same round.
const PAIRS_OF_ROUND: usize = 2_000;

/// What becomes of a replay.
struct Plan {
    request: i64,
    state: &'static str,
    result: String,
    count: usize,
    /// Pairs that get a new series, with their class.
    series: Vec<(Pair, i16)>,
    /// Pairs that fan-out had not made, with their revision.
    fresh: Vec<(Pair, i32)>,
}

impl Leader {
    /// Carries out waiting requests once the window they were made in is read to its end.
    pub fn carry_out_requests(&mut self) -> Result<(), Trouble> {
        if !self.requests_waiting || self.window.cur.is_some() || self.reopening() {
            return Ok(());
        }
        if !self.outcomes.changes.is_empty() {
            self.write()?;
        }
        let origin = self.origin;
        // Those that wait keep nobody else's from being looked at.
        let waits: Vec<i64> = self
            .settling
            .keys()
            .chain(&self.unread)
            .copied()
            .chain(self.replays.requests())
            .collect();
        let requests = transaction(
            self.owner,
            true,
            c"webhook leader: reading requests",
            || {
                outbox::pending_requests(origin, waits, ROUND)
                    .into_iter()
                    .map(|request| {
                        let (pairs, event) = match request.event {
                            Some(id) => (
                                outbox::pairs_of_event(id),
                                outbox::events_by_id(&[id]).into_iter().next(),
                            ),
                            None => (Vec::new(), None),
                        };
                        (request, pairs, event)
                    })
                    .collect::<Vec<_>>()
            },
        )?;
        if !requests.is_empty() {
            self.take_back();
        }
        let mut again = requests.len() == usize::try_from(ROUND).unwrap_or(0);
        let mut left = PAIRS_OF_ROUND;
        for (request, pairs, event) in requests {
            // What is on its way must not wait for a hundred requests of ten thousand deliveries each.
            if left == 0 {
                again = true;
                break;
            }
            left = left.saturating_sub(request.pairs.len());
            // Committed after the window was taken: an event's first pass is still to come, and what was
            // set along with the request is not in force yet.
            let prev = self.window.prev.as_ref();
            if prev.is_some_and(|prev| !prev.sees(request.xid)) {
                again = true;
                self.look_soon = true;
                continue;
            }
            // The end of the stream's window comes back to it.
            let unread = event.as_ref().is_some_and(|event| {
                let (read, _) = self.read_up_to(&event.event.partner_id);
                event.origin == origin && read.is_some_and(|read| !read.sees(event.xid))
            });
            if unread {
                let behind = self
                    .asides
                    .iter()
                    .all(|aside| aside.window.prev == self.window.prev);
                if !behind {
                    self.unread.insert(request.id);
                }
                again |= behind;
                self.look_soon |= behind;
                continue;
            }
            if !request.is_whole {
                let why = "the request does not say what it is about";
                self.finish_request(request.id, "refused", 0, why)?;
                continue;
            }
            match request.verb.as_str() {
                "replay"
                    if event
                        .as_ref()
                        .is_some_and(|row| !self.admits_origin(row.origin)) =>
                {
                    self.refuse_foreign(&request, event.as_ref())?;
                }
                "replay" => {
                    let plan = self.plan(&request, &pairs, event.as_ref());
                    self.carry_out(&plan)?;
                }
                "retry" => self.retry_pairs(&request)?,
                "skip" | "close" => again |= self.settle_pairs(&request)?,
                "pause" | "resume" => self.confirm(&request)?,
                "repair" => self.mend(&request, event.as_ref())?,
                "verify_endpoint" => self.ask_challenge(&request)?,
                // Finished by the step that carries it on.
                "adopt" => self.note_adoption()?,
                "replay_range" => self.note_replay(request.id)?,
                "cancel_replay" => self.cancel_replay(&request)?,
                _ => {
                    let why = "this version of the library cannot carry out the request";
                    self.finish_request(request.id, "refused", 0, why)?;
                }
            }
        }
        self.requests_waiting = again;
        Ok(())
    }

    /// An event whose origin is not admitted, although the verb found it to be: adopted elsewhere by now, or
    /// changed behind the extension's back.
    fn refuse_foreign(&mut self, request: &Request, event: Option<&Row>) -> Result<(), Trouble> {
        let why = match event {
            Some(row) if !self.sealed(row) => {
                self.outcomes.fenced.push(row.event.id.to_string());
                self.tell_fenced(Some(row.event.id));
                "the event is fenced: its row does not match its seal"
            }
            _ => "the event is of another database, which is not adopted",
        };
        self.finish_request(request.id, "refused", 0, why)
    }

    fn plan(&self, request: &Request, pairs: &[Pair], event: Option<&Row>) -> Plan {
        let mut plan = Plan {
            request: request.id,
            state: "done",
            result: String::new(),
            count: 0,
            series: Vec::new(),
            fresh: Vec::new(),
        };
        let refuse = |mut plan: Plan, why: &str| {
            plan.state = "refused";
            plan.result = why.to_owned();
            plan
        };
        let Some(row) = event else {
            return refuse(plan, "the event is gone");
        };
        if row.expunged {
            return refuse(plan, "the payload was expunged");
        }
        let class = self.configuration.class(&row.event.kind);
        let mut under_way = 0;
        let mut closed = 0;
        for known in pairs {
            if request.endpoint.is_some_and(|id| id != known.endpoint) {
                continue;
            }
            // A pair that is on the wire or waits in memory is being sent anyway.
            if self.memory.contains(*known) {
                under_way += 1;
                continue;
            }
            match self.standing(known.endpoint) {
                None | Some(Standing::Closed) => closed += 1,
                Some(_) => plan.series.push((*known, class)),
            }
        }
        if let Some(endpoint) = request.endpoint {
            let pair = Pair {
                event: row.event.id,
                endpoint,
            };
            let known = pairs.contains(&pair);
            if !known && self.memory.contains(pair) {
                under_way += 1;
            } else if !known {
                if !self.configuration.admits(&row.event, endpoint) {
                    return refuse(plan, "the endpoint cannot receive the event");
                }
                let revision = self
                    .configuration
                    .endpoint(endpoint)
                    .map_or(1, |endpoint| endpoint.revision);
                plan.fresh.push((pair, revision));
                plan.series.push((pair, class));
            }
        } else {
            // First-pass pairs have no row yet, but they are being sent.
            let unrecorded = self
                .memory
                .of_event(row.event.id)
                .filter(|pair| !pairs.contains(pair))
                .count();
            under_way += unrecorded;
        }
        plan.count = plan.series.len();
        plan.result = summary(plan.count, under_way, closed);
        plan
    }

    pub fn standing(&self, id: EndpointId) -> Option<Standing> {
        self.configuration
            .endpoint(id)
            .map(|endpoint| endpoint.standing)
    }

    fn carry_out(&mut self, plan: &Plan) -> Result<(), Trouble> {
        let at = self.stamp(self.clock.now());
        let incarnation = self.incarnation;
        transaction(
            self.owner,
            false,
            c"webhook leader: carrying out a request",
            || {
                for (pair, revision) in &plan.fresh {
                    outbox::new_pair(*pair, *revision, at);
                }
                if !plan.series.is_empty() {
                    outbox::new_series(&plan.series, at, incarnation);
                }
                outbox::finish_request(plan.request, plan.state, plan.count, &plan.result);
            },
        )?;
        for (pair, class) in &plan.series {
            self.note_due((pair.endpoint, *class), at);
        }
        Ok(())
    }
}

fn summary(replayed: usize, under_way: usize, closed: usize) -> String {
    let mut parts = vec![format!("{replayed} to be sent again")];
    if under_way > 0 {
        parts.push(format!("{under_way} being sent already"));
    }
    if closed > 0 {
        parts.push(format!("{closed} left out because the endpoint is closed"));
    }
    parts.join(", ")
}
