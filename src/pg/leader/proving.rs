//! Proofs of control and expiry: sends challenges, puts proven endpoints into service, warns owners whose time
//! ends and closes what is over or was never confirmed.
//!
//! A challenge is no attempt: it moves no window, counts for no health and has no delivery. Its value is made
//! here, goes to one thread and is kept nowhere, so an answer can only be to the challenge it belongs to.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Leader;
use super::configuration::Standing;
use super::transaction::{Trouble, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Request, Tried, Written};
use crate::rules::challenge::{Challenge, Method};
use crate::rules::delivery::Answer;
use crate::rules::ids::EndpointId;
use crate::rules::policy::category_of;
use crate::rules::term::{A_MINUTE, next_challenge, not_too_often, warn_at};
use crate::rules::time::rfc3339;
use crate::wire::challenge::ChallengeJob;
use crate::wire::job::Done;

/// Challenges on the wire at a time: they must not keep events from being sent.
const AT_A_TIME: usize = 8;
/// How long what found no room, or a locked row, waits.
const SOON: i64 = 250_000;

/// What is under way about proofs.
#[derive(Default)]
pub struct Proving {
    progress: HashMap<EndpointId, Progress>,
    /// When something is to be done about an endpoint, and the same ordered by time.
    when: HashMap<EndpointId, i64>,
    timers: BTreeSet<(i64, EndpointId)>,
    flights: HashMap<u64, Flight>,
    /// What is to be written, and not before which time.
    results: Vec<Tried>,
    abandoned: Vec<(EndpointId, i64)>,
    write_at: Option<Instant>,
    /// Endpoints whose owner was warned, and of which end.
    warned: HashMap<EndpointId, i64>,
}

/// How far a proof has come.
#[derive(Default)]
struct Progress {
    /// The demand that the tries were for.
    generation: i64,
    tries: usize,
    last: i64,
    /// When the last challenges were sent, whatever they were for.
    recent: Vec<i64>,
    /// Somebody asked for one more.
    asked: bool,
    on_wire: bool,
    /// It was answered rightly; what is left is to write it.
    proven: bool,
}

struct Flight {
    endpoint: EndpointId,
    generation: i64,
    id: i64,
    method: Method,
    host: String,
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
    fn progress_of(&mut self, id: EndpointId, generation: i64) -> &mut Progress {
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

    fn write_soon(&mut self, after: Duration) {
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
    fn plan_proof(&mut self, id: EndpointId) {
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

    /// Sends a challenge; false = it could not be made.
    fn send_challenge(&mut self, id: EndpointId, now: i64) -> bool {
        let Some(endpoint) = self.configuration.endpoint(id) else {
            return false;
        };
        let proof = &endpoint.proof;
        let Some(method) = Method::parse(&proof.method) else {
            return false;
        };
        let (mut random, mut id_bits) = ([0; 32], [0; 4]);
        if getrandom::fill(&mut random).is_err() || getrandom::fill(&mut id_bits).is_err() {
            return false;
        }
        let value = URL_SAFE_NO_PAD.encode(random);
        let unix_ms = u64::try_from(now_micros() / 1000).unwrap_or(0);
        let verification = EndpointId::new(unix_ms, u32::from_le_bytes(id_bits)).0;
        let url = proof.pending_url.as_deref().unwrap_or(endpoint.url());
        let target = self.configuration.target(&method.url(url, &value));
        let host = match &target {
            Ok(target) => target.authority(),
            Err(_) => host_of(url),
        };
        let (generation, keys) = (proof.generation, Arc::clone(&endpoint.keys));
        self.last_ticket += 1;
        self.proving.flights.insert(
            self.last_ticket,
            Flight {
                endpoint: id,
                generation,
                id: verification,
                method,
                host,
            },
        );
        let progress = self.proving.progress.entry(id).or_default();
        progress.generation = generation;
        progress.tries += 1;
        progress.last = now;
        progress.asked = false;
        progress.on_wire = true;
        progress.recent.push(now);
        let spare = progress.recent.len().saturating_sub(A_MINUTE);
        progress.recent.drain(..spare);
        self.crew.submit_challenge(ChallengeJob {
            ticket: self.last_ticket,
            target: target.map(Arc::new),
            message_id: format!("chl_{verification}"),
            challenge: Challenge {
                method,
                value,
                endpoint: id.0.to_string(),
            },
            keys,
        });
        true
    }

    /// A challenge came back; false = it was none.
    pub fn take_proof(&mut self, done: &Done) -> bool {
        let Some(flight) = self.proving.flights.remove(&done.ticket) else {
            return false;
        };
        let proof = done.proof.unwrap_or(Err("nothing was sent"));
        let (status, category, said) = match &done.outcome.answer {
            Answer::Status { code, .. } => (Some(*code), category_of(*code), None),
            Answer::Failure {
                category, detail, ..
            } => (None, Some(*category), Some(detail.replace('\0', ""))),
        };
        if let Some(progress) = self.proving.progress.get_mut(&flight.endpoint) {
            progress.on_wire = false;
            progress.proven = proof.is_ok() && progress.generation == flight.generation;
        }
        self.proving.results.push(Tried {
            id: flight.id,
            endpoint: flight.endpoint,
            generation: flight.generation,
            method: flight.method.as_str(),
            host: flight.host,
            started_at: done.outcome.started_at,
            latency_ms: status
                .is_some()
                .then(|| i32::try_from(done.outcome.latency_us / 1000).unwrap_or(i32::MAX)),
            status: status.and_then(|code| i16::try_from(code).ok()),
            category: category.map(|category| category.as_str()),
            proven: proof.is_ok(),
            detail: proof
                .err()
                .map(|why| said.unwrap_or_else(|| why.to_owned())),
        });
        self.proving.write_soon(Duration::ZERO);
        self.plan_proof(flight.endpoint);
        true
    }

    /// Writes what came of challenges, and drops new URLs that nobody proved.
    pub fn write_proofs(&mut self) -> Result<(), Trouble> {
        if self.proving.write_at.is_none_or(|at| Instant::now() < at) {
            return Ok(());
        }
        // What was found about the endpoints comes first: a proof must not undo it.
        if self.unwritten_since.is_some() {
            self.write()?;
        }
        self.proving.write_at = None;
        let results = std::mem::take(&mut self.proving.results);
        let abandoned = std::mem::take(&mut self.proving.abandoned);
        let written = transaction(
            self.owner,
            false,
            c"webhook leader: recording proofs of control",
            || {
                let tried: Vec<Written> = results.iter().map(outbox::record_try).collect();
                let dropped: Vec<Written> = abandoned
                    .iter()
                    .map(|(id, generation)| outbox::drop_pending(*id, *generation))
                    .collect();
                (tried, dropped)
            },
        );
        let (tried, dropped) = match written {
            Ok(written) => written,
            Err(trouble) => {
                self.proving.results = results;
                self.proving.abandoned = abandoned;
                self.proving.write_soon(Duration::ZERO);
                return Err(trouble);
            }
        };
        let later = Duration::from_micros(SOON.unsigned_abs());
        for (tried, written) in results.into_iter().zip(tried) {
            match written {
                Written::Locked => {
                    self.proving.results.push(tried);
                    self.proving.write_soon(later);
                }
                _ if tried.proven => self.look_soon = true,
                _ => {}
            }
        }
        for ((id, generation), written) in abandoned.into_iter().zip(dropped) {
            match written {
                Written::Locked => {
                    self.proving.abandoned.push((id, generation));
                    self.proving.write_soon(later);
                }
                // The change that made it void is about to be read.
                Written::Void => self.look_soon = true,
                Written::Done => {
                    self.look_soon = true;
                    self.tell_unconfirmed(id);
                }
            }
        }
        Ok(())
    }

    /// Somebody asks for a challenge now.
    pub fn ask_challenge(&mut self, request: &Request) -> Result<(), Trouble> {
        let endpoint = request.endpoint.and_then(|id| {
            let endpoint = self.configuration.endpoint(id)?;
            Some((id, endpoint.state.clone(), endpoint.proof.generation))
        });
        let Some((id, state, generation)) = endpoint else {
            return self.finish_request(
                request.id,
                "refused",
                0,
                "the endpoint is not of this database",
            );
        };
        if matches!(state.as_str(), "expired" | "deleted") {
            return self.finish_request(
                request.id,
                "refused",
                0,
                &format!("the endpoint is {state}"),
            );
        }
        let now = self.clock.now();
        let progress = self.proving.progress_of(id, generation);
        // One that is on the wire was asked for with the change itself.
        progress.asked = !progress.on_wire;
        let at = not_too_often(now, &progress.recent);
        let result = if !progress.asked {
            "a challenge is on its way".to_owned()
        } else if at <= now {
            "a challenge is sent now".to_owned()
        } else {
            format!(
                "a challenge is sent at {}: three a minute is the limit",
                rfc3339(at).unwrap_or_default()
            )
        };
        self.finish_request(request.id, "done", 0, &result)?;
        self.plan_proof(id);
        Ok(())
    }
}

/// Host of a URL that the boundary refuses: enough for the evidence, and no path, which may hold a token.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#'])
        .next()
        .unwrap_or_default()
        .to_owned()
}
