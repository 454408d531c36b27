//! What can be said of a circuit.

use std::fmt;
use std::time::Duration;

use tower_triage_core::Label;

/// The state of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum State {
    /// Calls pass and are judged.
    Closed,
    /// Calls are rejected until the open time is over. It stays open until then a call is admitted.
    Open,
    /// A few probes pass; they decide.
    HalfOpen,
    /// Calls are rejected, whatever the time, because somebody said so.
    ForcedOpen,
    /// Calls pass and nothing is recorded, because somebody said so.
    ForcedClosed,
    /// Calls pass and are counted, but no rule is applied.
    Disabled,
}

impl State {
    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::ForcedOpen => "forced_open",
            Self::ForcedClosed => "forced_closed",
            Self::Disabled => "disabled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A change of state, as told to subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// The breaker's name (for a keyed breaker: the key).
    pub breaker: Label,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// For how long, if it opened by itself.
    pub open_for: Option<Duration>,
}

/// Lifetime counts of one circuit; they survive every change of state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Counts {
    /// Calls that say that the dependency works, slow ones included.
    pub successes: u64,
    /// Calls that say that it does not.
    pub failures: u64,
    /// Successes and failures that took longer than the slow limit.
    pub slow: u64,
    /// Calls that say nothing about it.
    pub ignored: u64,
    /// Calls whose future was dropped.
    pub abandoned: u64,
    /// Calls that ended after the state they were admitted in: dropped.
    pub late: u64,
    /// Calls that were refused.
    pub rejected: u64,
}

impl Counts {
    /// Share of successes among successes and failures; 1 if there was neither.
    #[must_use]
    pub fn success_rate(&self) -> f64 {
        1.0 - rate(self.failures, self.successes.saturating_add(self.failures))
    }
}

/// What the window of a closed circuit holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Sample {
    /// Recorded calls.
    pub recorded: u64,
    /// Failures among them.
    pub failures: u64,
    /// Slow ones among them.
    pub slow: u64,
}

impl Sample {
    /// Share of failures; 0 without traffic.
    #[must_use]
    pub fn failure_rate(&self) -> f64 {
        rate(self.failures, self.recorded)
    }

    /// Share of slow calls; 0 without traffic.
    #[must_use]
    pub fn slow_rate(&self) -> f64 {
        rate(self.slow, self.recorded)
    }
}

fn rate(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dashboards and alerts know states by these names.
    #[test]
    fn states_keep_their_names() {
        use State::{Closed, Disabled, ForcedClosed, ForcedOpen, HalfOpen, Open};
        let names = [
            (Closed, "closed"),
            (Open, "open"),
            (HalfOpen, "half_open"),
            (ForcedOpen, "forced_open"),
            (ForcedClosed, "forced_closed"),
            (Disabled, "disabled"),
        ];
        for (state, name) in names {
            assert_eq!((state.as_str(), state.to_string().as_str()), (name, name));
            #[cfg(feature = "serde")]
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("{name:?}"));
        }
    }

    #[test]
    fn rates_are_shares_and_of_nothing_all_is_well() {
        assert_eq!(Counts::default().success_rate(), 1.0);
        let counts = Counts { successes: 3, failures: 1, ..Counts::default() };
        assert_eq!(counts.success_rate(), 0.75);
        let sample = Sample { recorded: 4, failures: 1, slow: 2 };
        assert_eq!((sample.failure_rate(), sample.slow_rate()), (0.25, 0.5));
    }
}
