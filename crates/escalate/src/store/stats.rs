//! How many letters there are, and of what kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::store::letter::{Letter, LetterState};
use crate::timestamp::Timestamp;

/// How many letters there are, and of what kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// All of them.
    pub total: u64,
    /// By where they stand; a state without letters is left out.
    pub by_state: BTreeMap<LetterState, u64>,
    /// Open and parked ones by class name.
    pub by_class: BTreeMap<String, u64>,
    /// Open and parked ones by operation.
    pub by_operation: BTreeMap<String, u64>,
    /// Those with a question that a call waits for.
    pub asking: u64,
    /// Those that somebody works on.
    pub leased: u64,
    /// When the oldest open one was stored.
    pub oldest_open: Option<Timestamp>,
    /// How many were dropped by retention while open or parked, since there is a store.
    pub dropped: u64,
}

impl Stats {
    /// How many letters are in `state`.
    #[must_use]
    pub fn of(&self, state: LetterState) -> u64 {
        self.by_state.get(&state).copied().unwrap_or(0)
    }

    /// Counts one letter.
    pub fn add(&mut self, letter: &Letter, now: Timestamp) {
        self.total += 1;
        *self.by_state.entry(letter.state).or_default() += 1;
        self.asking += u64::from(letter.asks(now));
        self.leased += u64::from(letter.is_leased(now));
        if letter.state.is_settled() {
            return;
        }
        *self.by_class.entry(letter.escalation.class.as_str().to_owned()).or_default() += 1;
        *self.by_operation.entry(letter.escalation.operation.clone()).or_default() += 1;
        if letter.state == LetterState::Open && self.oldest_open.is_none_or(|t| letter.stored < t) {
            self.oldest_open = Some(letter.stored);
        }
    }
}
