//! Partners with very many events are set aside: from where they stand a stream of their own reads them, and
//! everybody's stream passes over them, so that the flood of one keeps nobody's event from being read.
//!
//! A window is read in the order of commits; without this, one event would wait for the million that somebody
//! committed just before it. A stream follows everybody's one window after the other. Once it has caught
//! up it joins it again. Both places are in the ledger, so that no life of the leader reads an event twice
//! or not at all.

use std::collections::{HashMap, HashSet};

use super::Leader;
use super::memory::Lane;
use super::transaction::{Trouble, transaction};
use super::window::Window;
use crate::pg::emit::now_micros;
use crate::pg::outbox::{self, Opening, Position, Whose};
use crate::rules::id_hash::IdMap;
use crate::rules::ids::EndpointId;
use crate::rules::snapshot::Snapshot;

/// Streams beside everybody's at most. A flood beyond that slows everybody down, and loses nothing.
const MAX_STREAMS: usize = 4;
/// Events of one partner in one window, not read to its end, from which on it is set aside.
const FLOOD: usize = 500;
/// What is no less than this part of the pairs or bytes in memory is a flood, when memory is full.
const LARGE_PART: usize = 8;

/// A stream of its own.
pub struct Aside {
    /// Its number in the ledger.
    pub stream: i64,
    pub whose: Whose,
    pub window: Window,
    /// Ledger row that holds its position.
    pub position_n: i64,
    /// Some of its pairs may be there already: a new endpoint was given what everybody's stream has passed.
    pub doubtful: bool,
}

impl Leader {
    /// Whose events everybody's stream reads: all but those of other streams.
    pub fn everybody(&self) -> Whose {
        Whose {
            partners: self
                .asides
                .iter()
                .flat_map(|aside| aside.whose.partners.iter().cloned())
                .collect(),
            only: false,
        }
    }

    /// Up to where the events of a partner are read, and whether a window of it is being read just now.
    pub fn read_up_to(&self, partner: &str) -> (Option<&Snapshot>, bool) {
        let window = self
            .asides
            .iter()
            .find(|aside| aside.whose.partners.iter().any(|name| name == partner))
            .map_or(&self.window, |aside| &aside.window);
        (window.prev.as_ref(), window.cur.is_some())
    }

    /// The endpoints whose events are being read just now: what was read is not all of a window.
    pub fn amid_window(&self, id: EndpointId) -> bool {
        self.configuration
            .endpoint(id)
            .is_some_and(|endpoint| self.read_up_to(&endpoint.partner_id).1)
    }

    /// Whether a stream that was set aside has something to read and room for it.
    pub fn asides_to_read(&self) -> bool {
        self.memory.has_room(Lane::Aside)
            && self
                .asides
                .iter()
                .any(|aside| aside.window.cur.is_some() || self.is_behind(aside))
    }

    /// Whether everybody's stream has read a window that this one has not. It may be ahead as well: it reads on
    /// while everybody's is still in the window in which it was set aside, and must not go back then.
    fn is_behind(&self, aside: &Aside) -> bool {
        match (&self.window.prev, &aside.window.prev) {
            (Some(everybody), Some(own)) => everybody.is_after(own),
            _ => false,
        }
    }

    /// One batch of each stream that was set aside; those that have caught up join everybody's.
    pub fn look_aside(&mut self) -> Result<(), Trouble> {
        for index in (0..self.asides.len()).rev() {
            if !self.memory.has_room(Lane::Aside) {
                break;
            }
            let Some(aside) = self.asides.get(index) else {
                break;
            };
            let opens = aside.window.cur.is_none() && self.is_behind(aside);
            let reads = opens || aside.window.cur.is_some();
            if opens {
                let next = self.window.prev.clone();
                self.window_of(Some(index)).open(next);
            }
            if reads {
                let Some(read) = self.read_stretch(Some(index))? else {
                    continue;
                };
                self.take_rows(Some(index), &read)?;
            }
            self.join(index)?;
        }
        Ok(())
    }

    /// Ends a stream that stands where everybody's stands.
    fn join(&mut self, index: usize) -> Result<(), Trouble> {
        let Some(aside) = self.asides.get(index) else {
            return Ok(());
        };
        let level = aside.window.cur.is_none()
            && self.window.cur.is_none()
            && aside.window.prev == self.window.prev;
        let Some(read) = self.window.prev.as_ref().filter(|_| level) else {
            return Ok(());
        };
        let (n, batch, incarnation) = (self.last_n + 1, self.last_batch + 1, self.incarnation);
        let (stream, pos) = (aside.stream, self.last_pos);
        transaction(
            self.owner,
            false,
            c"webhook leader: ending a stream",
            || {
                outbox::join_stream(n, incarnation, batch, stream);
                outbox::place_everybody(n + 1, incarnation, batch + 1, read, pos);
            },
        )?;
        (self.last_n, self.last_batch, self.position_n) = (n + 1, batch + 1, n + 1);
        self.window.placed = true;
        self.asides.remove(index);
        Ok(())
    }

    /// Sets aside who keeps the others waiting: many events in the window that is being read.
    pub fn set_flood_aside(&mut self) -> Result<(), Trouble> {
        if self.window.cur.is_none() {
            return Ok(());
        }
        let partners = self
            .window
            .seen
            .iter()
            .filter(|(_, events)| **events >= FLOOD)
            .map(|(partner, _)| partner.clone())
            .collect();
        self.set_aside(partners)
    }

    /// Sets aside those whose pairs fill the memory.
    pub fn make_room(&mut self) -> Result<(), Trouble> {
        let mut by_endpoint: IdMap<EndpointId, (usize, usize)> = IdMap::default();
        for (id, bytes) in self.memory.fresh() {
            let share = by_endpoint.entry(id).or_default();
            *share = (share.0 + 1, share.1 + bytes);
        }
        let mut all = (0, 0);
        let mut by_partner: HashMap<&str, (usize, usize)> = HashMap::new();
        for (id, (pairs, bytes)) in by_endpoint {
            if let Some(endpoint) = self.configuration.endpoint(id) {
                let share = by_partner.entry(&endpoint.partner_id).or_default();
                *share = (share.0 + pairs, share.1 + bytes);
                all = (all.0 + pairs, all.1 + bytes);
            }
        }
        let partners = by_partner
            .into_iter()
            .filter(|(_, share)| share.0 * LARGE_PART >= all.0 || share.1 * LARGE_PART >= all.1)
            .map(|(partner, _)| partner.to_owned())
            .collect();
        self.set_aside(partners)
    }

    fn set_aside(&mut self, mut partners: Vec<String>) -> Result<(), Trouble> {
        let taken = self.everybody();
        partners.retain(|partner| !taken.partners.contains(partner));
        let Some(prev) = self.window.prev.clone() else {
            return Ok(());
        };
        if partners.is_empty() || self.asides.len() >= MAX_STREAMS {
            return Ok(());
        }
        partners.sort_unstable();
        let (n, batch) = (self.last_n + 1, self.last_batch + 1);
        let whose = Whose {
            partners,
            only: true,
        };
        let opening = Opening {
            n,
            incarnation: self.incarnation,
            batch,
            prev: &prev,
            // With nothing under way the stream begins with the next window.
            cur: self.window.cur.as_ref().unwrap_or(&prev),
            from: &self.window.after,
            to: &self.window.after,
            pos: self.last_pos,
            now: now_micros(),
            stream: n,
            whose: &whose,
        };
        transaction(
            self.owner,
            false,
            c"webhook leader: setting a stream aside",
            || outbox::set_stream_aside(&opening),
        )?;
        (self.last_n, self.last_batch) = (n, batch);
        let names: HashSet<&str> = whose.partners.iter().map(String::as_str).collect();
        let configuration = &self.configuration;
        self.memory.set_aside(|id| {
            configuration
                .endpoint(id)
                .is_some_and(|endpoint| names.contains(endpoint.partner_id.as_str()))
        });
        self.window
            .seen
            .retain(|partner, _| !names.contains(partner.as_str()));
        self.asides.push(Aside {
            stream: n,
            window: Window {
                prev: Some(prev),
                cur: self.window.cur.clone(),
                after: self.window.after.clone(),
                ..Window::default()
            },
            whose,
            position_n: n,
            doubtful: false,
        });
        Ok(())
    }

    /// The streams that the last life had set aside.
    pub fn place_asides(&mut self, ledger: &[Position]) {
        let joined: HashSet<i64> = ledger
            .iter()
            .filter(|row| row.kind == "joined")
            .map(|row| row.stream)
            .collect();
        let mut newest: HashMap<i64, &Position> = HashMap::new();
        for row in ledger {
            if row.stream != 0 && row.cur.is_some() && !joined.contains(&row.stream) {
                newest.insert(row.stream, row);
            }
        }
        self.asides = newest
            .into_values()
            .map(|row| Aside {
                stream: row.stream,
                whose: row.whose.clone(),
                window: Window {
                    prev: row.prev.clone(),
                    cur: row.cur.clone(),
                    after: row.to.clone(),
                    ..Window::default()
                },
                position_n: row.n,
                doubtful: true,
            })
            .collect();
    }
}
