//! Where somebody stands in a schedule.

use std::time::Duration;

use super::Backoff;

/// Where one request (or one open circuit) stands in a schedule. It belongs to that request: the
/// schedule is shared, this is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Delays taken.
    pub(super) taken: u64,
    /// The last delay of the schedule.
    pub(super) previous: Option<Duration>,
}

impl Delays {
    /// At the start: the next delay is the one before the first retry.
    #[must_use]
    pub const fn new() -> Self {
        Self { taken: 0, previous: None }
    }

    /// Enters anywhere: the next delay is the one before retry number `retry`, counted from 1.
    #[must_use]
    pub const fn at(retry: u64) -> Self {
        Self { taken: retry.saturating_sub(1), previous: None }
    }

    /// The same place, with `previous` as the delay before: a decorrelated schedule goes on from it.
    #[must_use]
    pub const fn after(mut self, previous: Duration) -> Self {
        self.previous = Some(previous);
        self
    }

    /// Starts over.
    pub const fn restart(&mut self) {
        *self = Self::new();
    }
}

/// The delays of a schedule from the first on, without end; see [`Backoff::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a, F> {
    pub(super) backoff: &'a Backoff,
    pub(super) delays: Delays,
    pub(super) uniform: F,
}

impl<F: FnMut() -> f64> Iterator for Iter<'_, F> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.backoff.next(&mut self.delays, (self.uniform)()))
    }
}
