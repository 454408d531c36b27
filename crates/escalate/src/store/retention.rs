//! What a store forgets, and when.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::{ConfigError, duration_text, duration_text::DurationText};

use crate::store::letter::{Letter, LetterState};
use crate::timestamp::Timestamp;

/// What a store forgets. A letter that somebody works on, or whose call waits for an answer, stays.
///
/// | setting | default |
/// |---|---|
/// | settled letters are kept for | 30 days |
/// | open and parked letters are kept for | ever |
/// | letters at most | 1,000,000 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Retention {
    /// Counted from when they were settled.
    #[serde(with = "duration_text")]
    pub settled_for: Duration,
    /// Counted from when they were stored. Those dropped are counted and logged at error: they are
    /// losses.
    pub open_for: Option<DurationText>,
    /// Beyond this number the oldest are dropped: settled ones first, then parked ones, then open
    /// ones.
    pub most: u64,
}

/// What retention dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// Settled letters.
    pub settled: u64,
    /// Open and parked letters: losses.
    pub open: u64,
}

impl Default for Retention {
    fn default() -> Self {
        let settled_for = Duration::from_secs(30 * 24 * 3600);
        Self { settled_for, open_for: None, most: 1_000_000 }
    }
}

impl Retention {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long settled letters are kept.
    #[must_use]
    pub const fn settled_for(mut self, time: Duration) -> Self {
        self.settled_for = time;
        self
    }

    /// How long open and parked letters are kept.
    #[must_use]
    pub const fn open_for(mut self, time: Duration) -> Self {
        self.open_for = Some(DurationText(time));
        self
    }

    /// How many letters are kept.
    #[must_use]
    pub const fn most(mut self, letters: u64) -> Self {
        self.most = letters;
        self
    }

    /// # Errors
    /// No letter at all may be kept.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.most {
            0 => Err(ConfigError::new("most", 0, "it must be more than nothing")),
            _ => Ok(()),
        }
    }

    /// Is the letter too old?
    #[must_use]
    pub fn outlived(&self, letter: &Letter, now: Timestamp) -> bool {
        match letter.settled {
            _ if !Self::may_drop(letter, now) => false,
            Some(settled) => now.since(settled) > self.settled_for,
            None => self.open_for.is_some_and(|time| now.since(letter.stored) > time.0),
        }
    }

    /// May it be dropped at all?
    #[must_use]
    pub fn may_drop(letter: &Letter, now: Timestamp) -> bool {
        !letter.is_leased(now) && !letter.asks(now)
    }

    /// The order in which letters go when there are too many: smallest first.
    #[must_use]
    pub const fn rank(letter: &Letter) -> (u8, u64) {
        let state = match letter.state {
            LetterState::Open => 2,
            LetterState::Parked => 1,
            LetterState::Delivered
            | LetterState::Redriven
            | LetterState::Decided
            | LetterState::Discarded => 0,
        };
        (state, letter.seq)
    }
}

impl Dropped {
    /// Counts one letter.
    pub const fn add(&mut self, letter: &Letter) {
        match letter.state.is_settled() {
            true => self.settled += 1,
            false => self.open += 1,
        }
    }

    /// Says so if there were losses; for stores, when they are through.
    pub fn log(&self) {
        if self.open > 0 {
            let dropped = self.open;
            tracing::error!(dropped, "tower-triage: open letters were dropped by retention");
        }
    }
}
