//! What the breakers do.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_circuit_breaker::{BreakerHandle, State};

use crate::page::{Cell, Draw, Page, Tone};
use crate::text::brief;
use crate::view::{Shown, View};

/// A table of breakers, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BreakerTable {
    /// In the order of the handles; the circuits of a keyed breaker by name.
    pub breakers: Vec<BreakerStatus>,
}

/// One breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BreakerStatus {
    /// Its name or key.
    pub name: String,
    /// Calls that say that the dependency works.
    pub succeeded: u64,
    /// These and those that say that it does not.
    pub judged: u64,
    /// Calls that it refused.
    pub rejected: u64,
    /// Its state.
    pub state: State,
    /// When a probe is due, if that is what it waits for.
    pub next_probe: Option<Duration>,
}

impl BreakerTable {
    /// Asks every breaker, and of a keyed one the circuit of every key.
    pub fn of<'a>(handles: impl IntoIterator<Item = &'a BreakerHandle>) -> Self {
        let mut breakers = Vec::new();
        for handle in handles {
            let mut keys: Vec<_> = handle.keys().iter().map(BreakerStatus::of).collect();
            if keys.is_empty() {
                breakers.push(BreakerStatus::of(handle));
            }
            keys.sort_by(|one, other| one.name.cmp(&other.name));
            breakers.extend(keys);
        }
        Self { breakers }
    }

    /// As it is shown in `view`.
    #[must_use]
    pub fn show(&self, view: View) -> Shown<'_> {
        Shown::new(self, view)
    }
}

impl BreakerStatus {
    fn of(handle: &BreakerHandle) -> Self {
        let counts = handle.counts();
        Self {
            name: handle.name().to_string(),
            succeeded: counts.successes,
            judged: counts.successes.saturating_add(counts.failures),
            rejected: counts.rejected,
            state: handle.state(),
            next_probe: handle.time_to_next_probe(),
        }
    }

    /// What it does now, as a sentence.
    #[must_use]
    pub fn doing(&self) -> String {
        match (self.state, self.next_probe) {
            (State::Closed, _) => "lets calls pass".to_owned(),
            (State::Open, Some(Duration::ZERO)) => "the next call is a probe".to_owned(),
            (State::Open, Some(left)) => format!("rejects calls, probe in {}", brief(left)),
            (State::Open | State::ForcedOpen, _) => "rejects calls until told otherwise".to_owned(),
            (State::HalfOpen, _) => "probes, and rejects other calls".to_owned(),
            (State::ForcedClosed, _) => "lets calls pass until told otherwise".to_owned(),
            (State::Disabled, _) => "lets calls pass and counts".to_owned(),
        }
    }
}

impl Draw for BreakerTable {
    fn draw(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let row = |status: &BreakerStatus| {
            let BreakerStatus { succeeded, judged, rejected, .. } = status;
            let tone = match status.state {
                State::Closed | State::ForcedClosed => Tone::Good,
                State::HalfOpen | State::Disabled => Tone::Doubtful,
                State::Open | State::ForcedOpen => Tone::Bad,
            };
            [
                Cell::new(&status.name),
                Cell::number(format_args!("{succeeded}/{judged}")),
                Cell::number(rejected),
                Cell::new(status.state.as_str()).tone(tone),
                Cell::new(status.doing()),
            ]
        };
        let rows: Vec<_> = self.breakers.iter().map(row).collect();
        page.table(["breaker", "success", "rejected", "state", "now"], &rows)
    }
}

impl fmt::Display for BreakerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown::plain(self, f)
    }
}
