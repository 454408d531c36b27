//! Time, as the pure cores see it.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Tokio's clock, read as the time since this clock was made. The pure cores (windows, budgets,
/// open periods) take such a `Duration` as their `now`, so a test steps it and nothing overflows.
///
/// A paused runtime (`tokio::time::pause`) drives it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Time since the clock was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// The calendar's time, for records that people read and for dates in headers. Never used to
/// measure: it may jump.
#[must_use]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}
