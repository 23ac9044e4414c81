//! Which events of its types an endpoint gets: the one place where the leader asks filters.
//!
//! A filter decides when a pair is made, by the version that the window of the event saw: asked again after a crash, or
//! by a stream that lags behind, it says the same. What it does not match has no pair. Where it cannot say (a payload
//! that jsonb cannot hold, values of different kinds) the pair is made and held, and people are told: nothing is dropped
//! because of an error. What would take longer than a window may be kept from the others is held, too, and decided about
//! piece by piece (`judging`). A replay to a named endpoint asks no filter, and what a filter let through stays when it is changed.
//! Events about webhooks themselves (`webhook.*`) are nobody's payload: no filter concerns them.

use std::collections::{BTreeMap, HashMap};

use super::Leader;
use super::adopted::{Found, Plan};
use super::transaction::{Trouble, transaction};
use crate::pg::outbox::{self, Belated, EndpointRow, FilterRow, Row, Said, hold};
use crate::rules::envelope::Event;
use crate::rules::filter::{MOST_COST, values};
use crate::rules::ids::{EndpointId, EventId, Pair};
use crate::rules::snapshot::Snapshot;

/// What one batch may cost: some 0.2 s at worst. The cheap ones are asked first, so that a costly filter of one partner
/// is the one that waits.
const BATCH_COST: u64 = 4 * MOST_COST;
/// Events read at once for new endpoints; what is beyond is decided about piece by piece.
const BELATED_EVENTS: usize = 200;

/// An event and an endpoint that a filter stands between.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    pub event: &'a Event,
    pub endpoint: EndpointId,
    pub filter: &'a FilterRow,
}

/// What a filter says that does not let an event through.
pub enum Verdict {
    Differs,
    /// It could not be decided, and why.
    Undecided(String),
    /// It was not asked yet.
    Later,
}

/// What filters say; a pair that is not among them passes.
#[derive(Default)]
pub struct Verdicts(pub HashMap<Pair, Verdict>);

struct Question<'a> {
    pair: Pair,
    event: &'a Event,
    filter: &'a str,
    cost: u64,
}

impl Candidate<'_> {
    pub fn pair(&self) -> Pair {
        Pair {
            event: self.event.id,
            endpoint: self.endpoint,
        }
    }

    /// There was a payload to ask about, and it is erased.
    pub fn cannot_be_asked(&self) -> bool {
        self.event.data.is_empty() && by_itself(self.event, self.filter).is_none()
    }
}

impl Leader {
    /// What filters say about the events of a batch, whose window is `cur`.
    pub fn filter_batch(&self, rows: &[&Row], cur: Option<&Snapshot>) -> Result<Verdicts, Trouble> {
        let mut candidates = Vec::new();
        for row in rows {
            if !self.configuration.filters(&row.event.partner_id) {
                continue;
            }
            let endpoints = self.configuration.matches(&row.event, row.xid);
            candidates.extend(endpoints.into_iter().filter_map(|id| {
                let filter = self.configuration.endpoint(id)?.filter_at(cur)?;
                Some(Candidate {
                    event: &row.event,
                    endpoint: id,
                    filter,
                })
            }));
        }
        self.weigh(candidates, BATCH_COST, false)
    }

    /// What filters say about pairs that may have been sent: all that they say. What was not asked yet cannot be told
    /// from what was sent, so nothing is left for later; a piece at a time, so that the leader can be ended meanwhile.
    pub fn filter_doubtful(&self, mut left: Vec<Candidate<'_>>) -> Result<Verdicts, Trouble> {
        let mut verdicts = Verdicts::default();
        while !left.is_empty() {
            let said = self.weigh(left.clone(), BATCH_COST, false)?;
            let is_later = |pair| matches!(said.0.get(&pair), Some(Verdict::Later));
            left.retain(|candidate| is_later(candidate.pair()));
            let decided = said.0.into_iter();
            verdicts
                .0
                .extend(decided.filter(|(_, verdict)| !matches!(verdict, Verdict::Later)));
        }
        Ok(verdicts)
    }

    /// Whether a pair is made, and what holds it; tells people, or sees to it that it is asked later.
    pub fn filtered(&mut self, verdicts: &Verdicts, pair: Pair) -> Option<i32> {
        match verdicts.0.get(&pair) {
            None => Some(0),
            Some(Verdict::Differs) => None,
            Some(Verdict::Undecided(why)) => {
                self.complain_of_filter(pair, why);
                Some(hold::FILTER)
            }
            Some(Verdict::Later) => {
                self.judge_later(pair);
                Some(hold::FILTER)
            }
        }
    }

    /// The same for events that new endpoints missed. Their endpoints are not known yet but by their rows.
    pub fn filter_belated(
        &mut self,
        belated: &mut Vec<Belated>,
        endpoints: &[EndpointRow],
    ) -> Result<(), Trouble> {
        let filters: HashMap<EndpointId, FilterRow> = endpoints
            .iter()
            .filter_map(|row| Some((row.id, row.filters.last()?.clone())))
            .collect();
        self.filter_pairs(belated, &filters)
    }

    /// The same for pairs that a range of the feed has none of, by the filters of today.
    pub fn filter_missed(&mut self, make: &mut Vec<Belated>) -> Result<(), Trouble> {
        let filters = self.filters_of_today(make);
        self.filter_pairs(make, &filters)
    }

    /// The same for pairs whose events are at hand.
    pub fn filter_at_hand(
        &mut self,
        make: &mut Vec<Belated>,
        rows: &HashMap<EventId, Row>,
    ) -> Result<(), Trouble> {
        let filters = self.filters_of_today(make);
        self.ask_pairs(make, &filters, |id| rows.get(&id))
    }

    fn filters_of_today(&self, make: &[Belated]) -> HashMap<EndpointId, FilterRow> {
        make.iter()
            .filter_map(|belated| {
                let id = belated.pair.endpoint;
                let endpoint = self.configuration.endpoint(id)?;
                Some((id, endpoint.filter_at(None)?.clone()))
            })
            .collect()
    }

    /// Reads the events of pairs and asks these filters about them.
    fn filter_pairs(
        &mut self,
        belated: &mut Vec<Belated>,
        filters: &HashMap<EndpointId, FilterRow>,
    ) -> Result<(), Trouble> {
        if filters.is_empty() {
            return Ok(());
        }
        let asked: Vec<EventId> = belated
            .iter()
            .filter(|belated| filters.contains_key(&belated.pair.endpoint))
            .map(|belated| belated.pair.event)
            .take(BELATED_EVENTS)
            .collect();
        let events = self.events(&asked)?;
        self.ask_pairs(belated, filters, |id| events.get(&id))
    }

    /// Asks these filters about pairs whose events are at hand; about the others later.
    fn ask_pairs<'r>(
        &mut self,
        belated: &mut Vec<Belated>,
        filters: &HashMap<EndpointId, FilterRow>,
        row: impl Fn(EventId) -> Option<&'r Row>,
    ) -> Result<(), Trouble> {
        let mut unread = Vec::new();
        let mut candidates = Vec::new();
        for Belated { pair, .. } in belated.iter() {
            let Some(filter) = filters.get(&pair.endpoint) else {
                continue;
            };
            match row(pair.event) {
                Some(row) => candidates.push(Candidate {
                    event: &row.event,
                    endpoint: pair.endpoint,
                    filter,
                }),
                None => unread.push(*pair),
            }
        }
        let mut verdicts = self.weigh(candidates, BATCH_COST, false)?;
        let later = unread.into_iter().map(|pair| (pair, Verdict::Later));
        verdicts.0.extend(later);
        self.apply(&verdicts, belated);
        Ok(())
    }

    /// The same for an adoption; what the origin's filters held is decided about anew.
    pub fn filter_adopted(&mut self, plan: &mut Plan<'_>, found: &Found) -> Result<(), Trouble> {
        let has_filter = |pair: Pair| {
            let endpoint = self.configuration.endpoint(pair.endpoint)?;
            endpoint.filter_at(None)
        };
        let resumed: Vec<Pair> = plan
            .resume
            .iter()
            .map(|belated| belated.pair)
            .filter(|pair| has_filter(*pair).is_some())
            .collect();
        let rows = found.rows.iter().filter_map(|seen| seen.row.as_ref());
        let rows: HashMap<EventId, &Row> = rows.map(|row| (row.event.id, row)).collect();
        let filters = self.filters_of_today(&plan.make);
        self.ask_pairs(&mut plan.make, &filters, |id| rows.get(&id).copied())?;
        let held = if resumed.is_empty() {
            Vec::new()
        } else {
            transaction(
                self.owner,
                false,
                c"webhook leader: reading deliveries",
                || outbox::held_before(&resumed),
            )?
        };
        self.hold_for_filters(held, &mut plan.resume);
        Ok(())
    }

    /// What filters held is decided about anew.
    pub fn hold_for_filters(&mut self, held: Vec<Pair>, belated: &mut Vec<Belated>) {
        let later = held.into_iter().map(|pair| (pair, Verdict::Later));
        let later = Verdicts(later.collect());
        self.apply(&later, belated);
    }

    fn apply(&mut self, verdicts: &Verdicts, belated: &mut Vec<Belated>) {
        belated.retain_mut(|belated| match self.filtered(verdicts, belated.pair) {
            Some(bits) => {
                belated.hold |= bits;
                true
            }
            None => false,
        });
    }

    /// Asks filters, within a budget: the cheap ones first, or in the order given as far as it goes.
    pub fn weigh(
        &self,
        candidates: Vec<Candidate<'_>>,
        budget: u64,
        in_order: bool,
    ) -> Result<Verdicts, Trouble> {
        let mut verdicts = Verdicts::default();
        let mut questions: Vec<Question<'_>> = Vec::new();
        for candidate in candidates {
            let pair = candidate.pair();
            let Candidate { event, filter, .. } = candidate;
            let passes = by_itself(event, filter);
            if passes == Some(false) {
                verdicts.0.insert(pair, Verdict::Differs);
            }
            // Of an erased event the ids leave: there is nothing that a condition could be asked about.
            if passes.is_none()
                && !event.is_erased()
                && let Some((filter, known)) = &filter.condition
            {
                // What is beyond the bound is refused without being evaluated.
                let cost = known.map_or(1, |known| known.cost(values(&event.data)));
                questions.push(Question {
                    pair,
                    event,
                    filter,
                    cost: if cost > MOST_COST { 1 } else { cost },
                });
            }
        }
        if questions.is_empty() {
            return Ok(verdicts);
        }
        if !in_order {
            questions.sort_by_key(|question| question.cost);
        }
        let mut left = budget;
        let mut groups: BTreeMap<EventId, Vec<Question<'_>>> = BTreeMap::new();
        for question in questions {
            if question.cost > left {
                left = 0;
                verdicts.0.insert(question.pair, Verdict::Later);
                continue;
            }
            left -= question.cost;
            groups
                .entry(question.pair.event)
                .or_default()
                .push(question);
        }
        let groups: Vec<Vec<Question<'_>>> = groups.into_values().collect();
        for (group, said) in groups.iter().zip(self.ask_all(&groups)?) {
            for (question, said) in group.iter().zip(said) {
                match said {
                    Ok(true) => None,
                    Ok(false) => verdicts.0.insert(question.pair, Verdict::Differs),
                    Err(why) => verdicts.0.insert(question.pair, Verdict::Undecided(why)),
                };
            }
        }
        Ok(verdicts)
    }

    /// Asks in one transaction; should that fail for good, event by event, so that one keeps no other from being sent.
    fn ask_all(&self, groups: &[Vec<Question<'_>>]) -> Result<Vec<Vec<Said>>, Trouble> {
        match self.ask(groups) {
            Err(Trouble::Lasting(_)) => groups
                .iter()
                .map(|group| match self.ask(std::slice::from_ref(group)) {
                    Ok(mut said) => Ok(said.pop().unwrap_or_default()),
                    Err(Trouble::Lasting(_)) => Ok(group
                        .iter()
                        .map(|_| Err("the filter could not be evaluated".to_owned()))
                        .collect()),
                    Err(trouble) => Err(trouble),
                })
                .collect(),
            other => other,
        }
    }

    fn ask(&self, groups: &[Vec<Question<'_>>]) -> Result<Vec<Vec<Said>>, Trouble> {
        transaction(self.owner, true, c"webhook leader: asking filters", || {
            groups
                .iter()
                .map(|group| {
                    let data = group.first().map_or("", |question| &question.event.data);
                    let filters = group.iter().map(|question| question.filter).collect();
                    outbox::try_filters(data, filters)
                })
                .collect()
        })
    }

    pub fn events(&self, ids: &[EventId]) -> Result<HashMap<EventId, Row>, Trouble> {
        let rows = transaction(self.owner, true, c"webhook leader: reading events", || {
            outbox::events_by_id(ids)
        })?;
        Ok(rows.into_iter().map(|row| (row.event.id, row)).collect())
    }
}

/// Whether an event passes, where that needs no look at its payload.
pub fn by_itself(event: &Event, filter: &FilterRow) -> Option<bool> {
    if event.kind.starts_with("webhook.") {
        return Some(true);
    }
    if let Some(types) = &filter.subject_types {
        let fits = |kind: &String| types.contains(kind);
        if !event.subject_type.as_ref().is_some_and(fits) {
            return Some(false);
        }
    }
    filter.condition.is_none().then_some(true)
}

/// The filter that holds for events of a window: the last one that it saw. An endpoint that the window does not see yet
/// has what it was made with.
pub fn filter_in<'f>(
    filters: &'f [FilterRow],
    created_xid: u64,
    cur: Option<&Snapshot>,
) -> Option<&'f FilterRow> {
    let Some(cur) = cur else {
        return filters.last();
    };
    let seen = filters.iter().rev().find(|filter| cur.sees(filter.xid));
    seen.or_else(|| {
        let first = filters.first()?;
        (first.xid == created_xid || filters.len() >= outbox::FILTER_VERSIONS).then_some(first)
    })
}
