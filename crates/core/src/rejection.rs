//! The error of an open circuit.

use std::fmt;
use std::time::Duration;

use crate::label::Label;

/// A circuit breaker refused the call: nothing was sent.
///
/// It lives in core so that every classifier knows it by type. It enters a stack by
/// `S::Error: From<CircuitOpen>`: a `#[from]` variant of your error enum, or
/// [`AnyError`](crate::AnyError), just work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitOpen {
    name: Label,
    retry_after: Duration,
}

impl CircuitOpen {
    /// The reason under which every classifier of ours reports it, whatever class it is given.
    pub const REASON: &'static str = "circuit_open";

    /// A rejection by the breaker `name`, which wants no call before `retry_after` has passed.
    #[must_use]
    pub const fn new(name: Label, retry_after: Duration) -> Self {
        Self { name, retry_after }
    }

    /// The breaker's name (for a keyed breaker: the key).
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    pub(crate) const fn label(&self) -> Label {
        self.name
    }

    /// What is left of the open period. Zero while a probe is in flight, and if the period ran out
    /// between readiness and call.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.retry_after
    }
}

impl fmt::Display for CircuitOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "circuit breaker `{}` is open", self.name)?;
        if self.retry_after.is_zero() {
            return f.write_str(", a probe is due or in flight");
        }
        write!(f, ", retry after {:?}", self.retry_after)
    }
}

impl std::error::Error for CircuitOpen {}
