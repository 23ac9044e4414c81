//! Schema versions of the endpoints: the stored payload that one wants, or why it has to wait. Nothing is converted here:
//! no user's code runs in the leader.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::Leader;
use super::pair::Message;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Claimed, Row, Stored, Versions};
use crate::rules::envelope::{self, Event};
use crate::rules::ids::{EventId, Pair};
use crate::rules::revision::Wanted;
use crate::rules::snapshot::Snapshot;

/// How long nobody is told again that events of a type wait for a version at an endpoint.
const SILENCE: Duration = Duration::from_secs(3600);

/// What is sent of an event, or why nothing can be.
pub type Made = Result<Arc<Message>, Unmade>;

/// Why nothing can be sent of an event in the version that is wanted.
#[derive(Clone)]
pub struct Unmade {
    pub why: String,
    /// There was a payload, which is erased: so is the event, as whoever reads it again finds.
    pub erased: bool,
}

impl Unmade {
    fn because(why: String) -> Unmade {
        Unmade { why, erased: false }
    }
}

impl Leader {
    /// The versions that the endpoints of these events of a window want.
    pub fn read_versions(
        &self,
        rows: &[&Row],
        cur: Option<&Snapshot>,
    ) -> Result<Versions, Trouble> {
        let wanted: Vec<(EventId, String)> = rows
            .iter()
            .flat_map(|row| {
                let versions = self.configuration.other_versions(&row.event, row.xid, cur);
                versions.into_iter().map(|version| (row.event.id, version))
            })
            .collect();
        if wanted.is_empty() {
            return Ok(Versions::new());
        }
        transaction(
            self.owner,
            false,
            c"webhook leader: reading versions",
            || outbox::event_versions(&wanted),
        )
    }

    /// The message that an endpoint gets of an event.
    pub fn message(&self, row: &Row, class: i16, wanted: &Wanted, versions: &Versions) -> Made {
        // Of an erased one the ids leave, whatever version was wanted.
        if row.expunged {
            return Ok(Message::new(&row.event, class, wanted));
        }
        match self.converted(row, wanted, versions)? {
            None => Ok(Message::new(&row.event, class, wanted)),
            Some((version, body)) => {
                let event = Event {
                    data: body.to_owned(),
                    schema_version: Some(version.to_owned()),
                    ..row.event.clone()
                };
                Ok(Message::new(&event, class, wanted))
            }
        }
    }

    /// The stored payload of the version that is wanted; none = it is that of the event itself.
    pub fn converted<'v>(
        &self,
        row: &Row,
        wanted: &'v Wanted,
        versions: &'v Versions,
    ) -> Result<Option<(&'v str, &'v str)>, Unmade> {
        let Some(version) = wanted.other_version(&row.event) else {
            return Ok(None);
        };
        let Some(stored) = versions.get(&(row.event.id, version.to_string())) else {
            return Err(Unmade::because(format!(
                "The event is not stored in schema version \"{version}\", which the endpoint wants."
            )));
        };
        if !self.version_sealed(row, version, stored) {
            return Err(Unmade::because(format!(
                "What is stored of the event in schema version \"{version}\" does not match its seal."
            )));
        }
        if let Some(failure) = &stored.failure {
            return Err(Unmade::because(failure.clone()));
        }
        match &stored.body {
            Some(body) => Ok(Some((&**version, body.as_str()))),
            None => Err(Unmade {
                why: format!("The payload in schema version \"{version}\" was expunged."),
                erased: true,
            }),
        }
    }

    fn version_sealed(&self, row: &Row, version: &str, stored: &Stored) -> bool {
        let Some(key) = self.seal_keys.get(&row.seal_key) else {
            return false;
        };
        let Ok(digest) = <[u8; 32]>::try_from(stored.digest.as_slice()) else {
            return false;
        };
        let expunged = stored.body.is_none() && stored.failure.is_none();
        let text = stored.body.as_deref().unwrap_or_default();
        let bytes_match = expunged || <[u8; 32]>::from(Sha256::digest(text.as_bytes())) == digest;
        let failure = stored.failure.as_deref();
        let seal = envelope::version_seal(key, &row.event, row.origin, version, failure, &digest);
        bytes_match && seal.as_slice() == stored.seal
    }

    /// A pair waits because there is nothing to send; says so, but not of every event.
    pub fn note_unconverted(&mut self, pair: Pair, kind: &str, why: &str) {
        let about = (pair.endpoint, kind.to_owned());
        let told = self.unconverted.get(&about);
        if told.is_some_and(|at| at.elapsed() < SILENCE) {
            return;
        }
        self.unconverted.insert(about, Instant::now());
        self.tell_unconverted(pair, kind, why);
    }
}

/// The versions that claimed pairs want of their events.
pub fn wanted_versions(claimed: &[Claimed], events: &[Row]) -> Vec<(EventId, String)> {
    if !claimed.iter().any(|row| row.shape.pins_any()) {
        return Vec::new();
    }
    let events: HashMap<EventId, &Row> = events.iter().map(|row| (row.event.id, row)).collect();
    claimed
        .iter()
        .filter_map(|row| {
            let event = &events.get(&row.pair.event)?.event;
            let wanted = row.shape.wanted(&event.kind);
            let version = wanted.other_version(event)?;
            Some((row.pair.event, version.to_string()))
        })
        .collect()
}
