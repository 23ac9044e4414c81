//! Turns of the two priority classes, and of partners within a class: round robin, and of five takes one
//! for the second class.
//!
//! The same count is kept for the database, for each partner and for each endpoint: with one count for the
//! database alone, the second class of an endpoint could starve behind its own first class whenever the
//! endpoint happened to be busy at the turns of its second class.

use std::collections::VecDeque;

/// Priority classes: 0 before 1.
pub(super) const CLASSES: [usize; 2] = [0, 1];

/// The queue a pair of this class waits in.
pub(super) fn queue_of(class: i16) -> usize {
    usize::from(class > 0)
}

/// Counts takes of the first class since the last of the second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns(u8);

impl Turns {
    /// The class whose turn it is, if it has a taker.
    pub(super) fn preferred(self) -> usize {
        usize::from(self.0 >= FIRST_IN_A_ROW)
    }

    pub(super) fn took(&mut self, class: usize) {
        self.0 = if class == 0 {
            self.0.saturating_add(1)
        } else {
            0
        };
    }
}

/// Who stands in line for each class; nobody stands in one twice.
#[derive(Debug)]
pub(super) struct Rings<I>(pub(super) [VecDeque<I>; 2]);

impl<I> Rings<I> {
    pub(super) fn new() -> Self {
        Rings([VecDeque::new(), VecDeque::new()])
    }

    pub(super) fn join(&mut self, class: usize, who: I) {
        self.0[class].push_back(who);
    }

    pub(super) fn next(&mut self, class: usize) -> Option<I> {
        self.0[class].pop_front()
    }

    pub(super) fn all_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }

    pub(super) fn is_empty(&self, class: usize) -> bool {
        self.0[class].is_empty()
    }
}

impl<I: PartialEq> Rings<I> {
    /// Whether nobody but this one stands in a line.
    pub(super) fn only(&self, who: &I) -> bool {
        self.0.iter().flatten().all(|other| other == who)
    }

    /// Somebody leaves for good. Walks the rings: for rare occasions.
    pub(super) fn leave(&mut self, who: &I) {
        for ring in &mut self.0 {
            ring.retain(|other| other != who);
        }
    }
}

/// Takes of the first class before one of the second.
const FIRST_IN_A_ROW: u8 = 4;
