//! How long to wait before the next try: a schedule as plain data, stepped with its randomness as
//! an argument.

use std::time::Duration;

use crate::config::ConfigError;

/// A schedule of delays. Plain data; every step is pure and total.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    base: Duration,
}

/// What is drawn around a delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// Nothing.
    None,
    /// From nothing to the whole delay.
    Full,
    /// Half kept, half drawn.
    Equal,
    /// `d * (1 - r) .. d * (1 + r)`.
    Ratio(f64),
    /// `d - span .. d + span`.
    Span(Duration),
    /// `d .. d * (1 + r)`.
    Additive(f64),
}

/// Where one request (or one open circuit) stands in a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delays {
    retry: u64,
    previous: Option<Duration>,
}

impl Backoff {
    /// No wait.
    #[must_use]
    pub const fn immediate() -> Self {
        Self { base: Duration::ZERO }
    }
    /// The same wait each time.
    #[must_use]
    pub const fn fixed(delay: Duration) -> Self {
        Self { base: delay }
    }
    /// `base + (n - 1) * step`.
    #[must_use]
    pub const fn linear(base: Duration, _step: Duration) -> Self {
        Self { base }
    }
    /// `base * factor^(n - 1)`.
    #[must_use]
    pub const fn exponential(base: Duration, _factor: f64) -> Self {
        Self { base }
    }
    /// Uniform between two bounds.
    #[must_use]
    pub const fn range(min: Duration, _max: Duration) -> Self {
        Self { base: min }
    }
    /// AWS's decorrelated jitter.
    #[must_use]
    pub const fn decorrelated(base: Duration) -> Self {
        Self { base }
    }
    /// The given delays; the last repeats.
    #[must_use]
    pub fn list(delays: impl Into<Vec<Duration>>) -> Self {
        Self { base: delays.into()[0] }
    }
    /// The first retry comes at once, then the schedule begins.
    #[must_use]
    pub const fn first_immediate(self) -> Self {
        self
    }
    /// No delay is longer, jitter included.
    #[must_use]
    pub const fn cap(self, _cap: Duration) -> Self {
        self
    }
    /// No delay is longer before the jitter; the jitter may go over it.
    #[must_use]
    pub const fn cap_before_jitter(self, _cap: Duration) -> Self {
        self
    }
    /// What is drawn around each delay.
    #[must_use]
    pub const fn jitter(self, _jitter: Jitter) -> Self {
        self
    }
    /// Checks every value, naming the field under `name`.
    pub fn check(&self, _name: &'static str) -> Result<(), ConfigError> {
        Ok(())
    }
    /// The next delay; `u` is uniform in [0, 1).
    pub fn next(&self, delays: &mut Delays, _u: f64) -> Duration {
        delays.retry += 1;
        delays.previous = Some(self.base);
        self.base
    }
}

impl Delays {
    /// Starts over.
    pub const fn restart(&mut self) {
        *self = Self { retry: 0, previous: None };
    }
}
