//! Challenges: sent, asked for, and what comes of them written down; a right answer puts an endpoint into service.
//!
//! A challenge is no attempt: it moves no window, counts for no health and has no delivery. Its value is made
//! here, goes to one thread and is kept nowhere, so an answer can only be to the challenge it belongs to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Leader;
use super::proving::{Flight, SOON};
use super::transaction::{Trouble, transaction};
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Request, Tried, Written};
use crate::rules::challenge::{Challenge, Method};
use crate::rules::delivery::Answer;
use crate::rules::ids::EndpointId;
use crate::rules::policy::category_of;
use crate::rules::term::{A_MINUTE, not_too_often};
use crate::rules::time::rfc3339;
use crate::wire::challenge::ChallengeJob;
use crate::wire::job::Done;

impl Leader {
    /// Sends a challenge; false = it could not be made.
    pub fn send_challenge(&mut self, id: EndpointId, now: i64) -> bool {
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
        let (generation, keys) = (proof.generation, endpoint.keys.at(now_micros()));
        let (profile, extra) = (endpoint.profile, Arc::clone(&endpoint.extra));
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
            profile,
            extra,
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
