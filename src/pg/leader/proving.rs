//! Proofs of control and terms: when the next challenge is due, when an owner is warned, when an endpoint, or a
//! new URL, is over. The challenges themselves are in `challenging`.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::Leader;
use super::configuration::Standing;
use super::transaction::Trouble;
use crate::pg::emit::now_micros;
use crate::pg::outbox::Tried;
use crate::rules::challenge::Method;
use crate::rules::ids::EndpointId;
use crate::rules::term::{next_challenge, not_too_often, warn_at};
use crate::rules::time::rfc3339;

/// Challenges on the wire at a time: they must not keep events from being sent.
const AT_A_TIME: usize = 8;
/// How long what found no room, or a locked row, waits.
pub const SOON: i64 = 250_000;
/// How long a challenge waits that no key can sign.
const UNLOCKED: i64 = 2_000_000;

/// What is under way about proofs.
#[derive(Default)]
pub struct Proving {
    pub progress: HashMap<EndpointId, Progress>,
    /// When something is to be done about an endpoint, and the same ordered by time.
    pub when: HashMap<EndpointId, i64>,
    pub timers: BTreeSet<(i64, EndpointId)>,
    pub flights: HashMap<u64, Flight>,
    /// What is to be written, and not before which time.
    pub results: Vec<Tried>,
    pub abandoned: Vec<(EndpointId, i64)>,
    pub write_at: Option<Instant>,
    /// Endpoints whose owner was warned, and of which end.
    pub warned: HashMap<EndpointId, i64>,
}

/// How far a proof has come.
#[derive(Default)]
pub struct Progress {
    /// The demand that the tries were for.
    pub generation: i64,
    pub tries: usize,
    pub last: i64,
    /// When the last challenges were sent, whatever they were for.
    pub recent: Vec<i64>,
    /// Somebody asked for one more.
    pub asked: bool,
    pub on_wire: bool,
    /// It was answered rightly; what is left is to write it.
    pub proven: bool,
}

/// A challenge on the wire.
pub struct Flight {
    pub endpoint: EndpointId,
    pub generation: i64,
    pub id: i64,
    pub method: Method,
    pub host: String,
}

impl Proving {
    /// How long nothing is to be done about proofs.
    pub fn pause(&self, now: i64) -> Option<Duration> {
        let timer = self.timers.first().map(|(at, _)| {
            Duration::from_micros(u64::try_from(at.saturating_sub(now)).unwrap_or(0))
        });
        let write = self
            .write_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        match (timer, write) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn set(&mut self, id: EndpointId, at: Option<i64>) {
        if let Some(old) = self.when.remove(&id) {
            self.timers.remove(&(old, id));
        }
        if let Some(at) = at {
            self.when.insert(id, at);
            self.timers.insert((at, id));
        }
    }

    /// How far the proof has come that is demanded now; nothing, when the last one was about another demand.
    pub fn progress_of(&mut self, id: EndpointId, generation: i64) -> &mut Progress {
        let progress = self.progress.entry(id).or_default();
        if progress.generation != generation {
            *progress = Progress {
                generation,
                recent: std::mem::take(&mut progress.recent),
                on_wire: progress.on_wire,
                ..Progress::default()
            };
        }
        progress
    }

    pub fn write_soon(&mut self, after: Duration) {
        self.write_at.get_or_insert(Instant::now() + after);
    }
}

impl Leader {
    /// At the beginning of a life: what the lives before tried and said.
    pub fn restore_proofs(&mut self, tries: Vec<(EndpointId, i64, bool)>, warned: Vec<EndpointId>) {
        for (id, at, current) in tries {
            // A clock that was wrong must not keep an endpoint from being proven.
            let at = at.min(self.clock.now());
            let progress = self.proving.progress.entry(id).or_default();
            progress.recent.push(at);
            if current {
                progress.tries += 1;
                progress.last = at;
            }
        }
        let ids: Vec<EndpointId> = self.configuration.endpoints().map(|(id, _)| id).collect();
        for id in ids {
            if let (Some(progress), Some(endpoint)) = (
                self.proving.progress.get_mut(&id),
                self.configuration.endpoint(id),
            ) {
                progress.generation = endpoint.proof.generation;
            }
        }
        for id in warned {
            if let Some((_, end)) = self.end_of(id) {
                self.proving.warned.insert(id, end);
            }
        }
        let ids: Vec<EndpointId> = self.configuration.endpoints().map(|(id, _)| id).collect();
        for id in ids {
            self.plan_proof(id);
        }
    }

    /// Endpoints that are new or changed.
    pub fn follow_proofs(&mut self, changed: &[EndpointId]) {
        for id in changed {
            if let (Some(progress), Some(endpoint)) = (
                self.proving.progress.get_mut(id),
                self.configuration.endpoint(*id),
            ) && endpoint.proof.asked_at.is_none()
            {
                // What was proven is in force; it may be asked for again.
                progress.proven = false;
            }
            self.plan_proof(*id);
        }
    }

    /// When something is next to be done about an endpoint.
    pub fn plan_proof(&mut self, id: EndpointId) {
        let at = self.next_of_proof(id);
        self.proving.set(id, at);
    }

    fn next_of_proof(&mut self, id: EndpointId) -> Option<i64> {
        let endpoint = self.configuration.endpoint(id)?;
        if matches!(endpoint.state.as_str(), "expired" | "deleted") {
            self.proving.progress.remove(&id);
            return None;
        }
        let proof = &endpoint.proof;
        let end = self.end_of(id);
        let mut next = end.map(|(begin, end)| {
            if self.proving.warned.get(&id) == Some(&end) {
                end
            } else {
                warn_at(begin, end)
            }
        });
        let mut sooner = |at: i64| next = Some(next.map_or(at, |next| next.min(at)));
        if proof.asked_at.is_none() && !self.proving.progress.contains_key(&id) {
            return next;
        }
        let progress = self.proving.progress_of(id, proof.generation);
        if !progress.on_wire && !progress.proven && Method::parse(&proof.method).is_some() {
            let wanted = if progress.asked {
                Some(not_too_often(0, &progress.recent))
            } else if proof.asked_at.is_none() {
                None
            } else if progress.tries == 0 {
                Some(not_too_often(0, &progress.recent))
            } else {
                next_challenge(progress.tries, progress.last)
            };
            if let Some(at) = wanted {
                sooner(at);
            }
        }
        next
    }

    /// Since when and until when the endpoint, or its new URL, lives if nobody does anything.
    fn end_of(&self, id: EndpointId) -> Option<(i64, i64)> {
        let endpoint = self.configuration.endpoint(id)?;
        let patience =
            i64::try_from(self.settings.verification_timeout.as_micros()).unwrap_or(i64::MAX);
        let proof = &endpoint.proof;
        // Out of service it closes no further: one that is disabled expires when it is enabled.
        let open = endpoint.standing != Standing::Closed;
        let lease = proof
            .expires_at
            .filter(|_| open)
            .map(|at| (proof.renewed_at, at));
        // Nobody is blamed for challenges that were not sent.
        let tried = self
            .proving
            .progress
            .get(&id)
            .is_some_and(|progress| progress.tries > 0 && !progress.proven);
        let confirm = proof
            .asked_at
            .filter(|_| tried && (open || proof.pending_url.is_some()))
            .map(|at| (at, at.saturating_add(patience)));
        match (lease, confirm) {
            (Some(lease), Some(confirm)) if confirm.1 < lease.1 => Some(confirm),
            (Some(lease), _) => Some(lease),
            (None, confirm) => confirm,
        }
    }

    /// One round: what was found is written, what is due is done.
    pub fn prove(&mut self) -> Result<(), Trouble> {
        self.write_proofs()?;
        let now = self.clock.now();
        while let Some((at, id)) = self.proving.timers.first().copied() {
            if at > now {
                break;
            }
            self.proving.set(id, None);
            self.act_on_proof(id, now);
        }
        Ok(())
    }

    fn act_on_proof(&mut self, id: EndpointId, now: i64) {
        if let Some((begin, end)) = self.end_of(id) {
            if end <= now {
                self.end_of_term(id, now);
                return;
            }
            if warn_at(begin, end) <= now && self.proving.warned.insert(id, end) != Some(end) {
                self.tell_expiring(id, end);
            }
        }
        match self.next_of_proof(id) {
            Some(at) if at <= now => {
                if self.proving.flights.len() >= AT_A_TIME.min(self.settings.max_in_flight) {
                    self.proving.set(id, Some(now + SOON));
                    return;
                }
                // Its keys could not be decrypted: nobody is blamed for challenges that were not sent.
                let unsigned = self
                    .configuration
                    .endpoint(id)
                    .is_some_and(|endpoint| endpoint.keys.at(now_micros()).is_empty());
                if unsigned {
                    self.proving.set(id, Some(now + UNLOCKED));
                    return;
                }
                if self.send_challenge(id, now) {
                    self.plan_proof(id);
                } else {
                    self.proving.set(id, Some(now + SOON));
                }
            }
            at => self.proving.set(id, at),
        }
    }

    /// The endpoint's time is over, or that of its new URL.
    fn end_of_term(&mut self, id: EndpointId, now: i64) {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return;
        };
        let (generation, proof) = (endpoint.generation, &endpoint.proof);
        let open = endpoint.standing != Standing::Closed;
        if let Some(at) = proof.expires_at.filter(|at| *at <= now && open) {
            let reason = format!("its term ended at {}", rfc3339(at).unwrap_or_default());
            self.expire_now(id, generation, &reason);
            return;
        }
        if proof.pending_url.is_some() {
            self.proving.abandoned.push((id, proof.generation));
            self.proving.write_soon(Duration::ZERO);
            return;
        }
        self.expire_now(id, generation, "control of its URL was not proven in time");
    }
}
