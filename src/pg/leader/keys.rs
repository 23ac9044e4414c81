//! Signing keys that could not be decrypted: said once, tried again, and never a reason to stop the others.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Leader;
use super::configuration::Applied;
use super::transaction::{Trouble, transaction};
use crate::pg::outbox;
use crate::rules::ids::EndpointId;

/// How long until locked keys are tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// Endpoints with keys that could not be decrypted.
#[derive(Default)]
pub struct LockedKeys {
    endpoints: HashSet<EndpointId>,
    tried_at: Option<Instant>,
    /// What was said last, so that it is not said over and over.
    said: Option<String>,
}

impl LockedKeys {
    /// The file may have been mended.
    pub fn try_soon(&mut self) {
        self.tried_at = None;
    }
}

impl Leader {
    /// Takes note of endpoints whose keys were read.
    pub fn note_keys(&mut self, applied: &Applied) {
        for id in &applied.changed {
            self.locked.endpoints.remove(id);
        }
        let mut last = None;
        for (id, why) in &applied.locked {
            self.locked.endpoints.insert(*id);
            last = Some(why);
        }
        if let Some(why) = last {
            self.locked.tried_at = Some(Instant::now());
            self.say_locked(why.clone());
        }
    }

    /// Tries again to decrypt what could not be decrypted.
    pub fn unlock_keys(&mut self) -> Result<(), Trouble> {
        let tried_lately = self.locked.tried_at.is_some_and(|at| at.elapsed() < AGAIN);
        if self.locked.endpoints.is_empty() || tried_lately {
            return Ok(());
        }
        self.locked.tried_at = Some(Instant::now());
        let ids: Vec<i64> = self.locked.endpoints.iter().map(|id| id.0).collect();
        let mut keys = transaction(
            self.owner,
            false,
            c"webhook leader: reading keys again",
            move || outbox::signing_keys(ids),
        )?;
        let mut last = None;
        let mut still = HashSet::new();
        for id in std::mem::take(&mut self.locked.endpoints) {
            let rows = keys.remove(&id.0).unwrap_or_default();
            if let Some(why) = self.configuration.set_keys(id, rows) {
                still.insert(id);
                last = Some(why);
            }
        }
        self.locked.endpoints = still;
        match last {
            Some(why) => self.say_locked(why),
            None => self.locked.said = None,
        }
        Ok(())
    }

    fn say_locked(&mut self, why: String) {
        if self.locked.said.as_ref() != Some(&why) {
            self.complain("goes on without a key", &why);
            self.locked.said = Some(why);
        }
    }
}
