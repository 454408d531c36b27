//! What has come of it so far.

use serde::Serialize;
use tower_triage_core::incident::IncidentId;

/// How many letters were tried, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Driven again with success.
    pub redriven: u64,
    /// Tried in vain; due again later, or parked by the number of its tries.
    pub failed: u64,
    /// Parked at once: no try can help.
    pub parked: u64,
    /// Given back untried: refused by our own protection, or the worker was stopped.
    pub released: u64,
    /// Somebody else has them now, or the store could not be told what came of them.
    pub lost: u64,
    /// Named, but not to be had: settled, leased by somebody, waiting for an answer, or gone.
    pub skipped: u64,
    /// In the worker's hands, or named and not yet asked for.
    pub left: u64,
}

/// What came of one letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Driven {
    /// The letter.
    pub id: IncidentId,
    /// What came of it.
    pub fate: Fate,
}

/// What came of one letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", content = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fate {
    /// Driven again with success, and settled.
    Redriven,
    /// Tried in vain.
    Failed(String),
    /// Parked at once.
    Parked(String),
    /// Given back untried.
    Released(String),
    /// Not settled by this worker.
    Lost(String),
    /// Named, but not to be had.
    Skipped,
}

impl Progress {
    /// How many letters were dealt with.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.redriven + self.failed + self.parked + self.released + self.lost + self.skipped
    }

    pub(super) const fn add(&mut self, fate: &Fate) {
        let count = match fate {
            Fate::Redriven => &mut self.redriven,
            Fate::Failed(_) => &mut self.failed,
            Fate::Parked(_) => &mut self.parked,
            Fate::Released(_) => &mut self.released,
            Fate::Lost(_) => &mut self.lost,
            Fate::Skipped => &mut self.skipped,
        };
        *count += 1;
    }
}
