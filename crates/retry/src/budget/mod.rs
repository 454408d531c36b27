//! Retry budgets: how much of the traffic may be retries.

use std::time::Duration;

use tower_triage_core::{ConfigError, Failure, Verdict};

/// A retry budget: a cheap handle, which several layers may share.
#[derive(Clone, Debug, Default)]
pub struct Budget {}

/// What one logical request took from its budget. Dropped, it gives back its place in flight.
#[derive(Debug)]
pub struct Spending {}

/// Why a retry was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The budget is used up.
    UsedUp,
    /// The request has taken the share of the budget that one request may take.
    RequestLimit,
}

/// A capped bucket, filled per request. Exact without a clock.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSettings {
    /// Retries gained per request.
    pub gain: f64,
    /// Retries held at most.
    pub capacity: u32,
    /// Retries at the start.
    pub initial: u32,
}

impl Default for BucketSettings {
    fn default() -> Self {
        Self { gain: 0.1, capacity: 100, initial: 10 }
    }
}

/// A share of the requests of a window of time, and a reserve.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowSettings {
    /// The window.
    pub ttl: Duration,
    /// The reserve, per second of the window.
    pub min_retries_per_sec: u32,
    /// Retries per request.
    pub ratio: f64,
}

impl Default for WindowSettings {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), min_retries_per_sec: 10, ratio: 0.2 }
    }
}

impl Budget {
    /// A bucket.
    pub fn bucket(_settings: BucketSettings) -> Result<Self, ConfigError> {
        Ok(Self {})
    }
    /// A window.
    pub fn window(_settings: WindowSettings) -> Result<Self, ConfigError> {
        Ok(Self {})
    }
    /// No limit.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self {}
    }
    /// A share of the balance as one request's limit.
    pub fn per_request_fraction(self, _fraction: f64) -> Result<Self, ConfigError> {
        Ok(self)
    }
    /// Must `now` be the time, or may it be zero?
    #[must_use]
    pub fn needs_clock(&self) -> bool {
        false
    }
    /// A logical request begins.
    #[must_use]
    pub fn begin(&self, _now: Duration) -> Spending {
        Spending {}
    }
    /// May the request try again after `failure`?
    pub fn ask(
        &self,
        _spending: &mut Spending,
        _failure: &Failure,
        _now: Duration,
    ) -> Result<(), Denied> {
        Ok(())
    }
    /// An attempt has ended. Called before [`Budget::ask`].
    pub fn observe(&self, _spending: &mut Spending, _verdict: &Verdict, _retryable: bool) {}
    /// Whole retries possible now.
    #[must_use]
    pub fn balance(&self, _now: Duration) -> u64 {
        u64::MAX
    }
}
