//! When to trip, for how long, and how to come back: plain data, checked once.

use std::time::Duration;

use tower_triage_core::{Backoff, ConfigError, Jitter};

use crate::state::Sample;

/// When a breaker trips, how long it stays open, and what closes it again. Plain data; checked by
/// [`BreakerPolicy::build`].
///
/// Trip rules are alternatives: any of them opens the circuit. Deserialized (feature `serde`), what
/// is left out is as in [`BreakerPolicy::default`].
///
/// ```
/// use std::time::Duration;
/// use tower_triage_circuit_breaker::BreakerPolicy;
/// use tower_triage_core::Backoff;
///
/// let policy = BreakerPolicy::new()
///     .consecutive_failures(5)
///     .time_window(Duration::from_secs(60))
///     .minimum_calls(50)
///     .failure_rate(0.2)
///     .open_for(Backoff::fixed(Duration::from_secs(10)))
///     .build()?;
/// # let _ = policy;
/// let error = BreakerPolicy::default().failure_rate(20.0).build().unwrap_err();
/// assert_eq!(error.field(), "failure_rate");
/// # Ok::<_, tower_triage_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct BreakerPolicy {
    pub(crate) consecutive_failures: Option<u32>,
    pub(crate) consecutive_within: Option<Duration>,
    pub(crate) window: Option<Span>,
    pub(crate) minimum_calls: u32,
    pub(crate) failure_rate: Option<f64>,
    pub(crate) failures: Option<u32>,
    pub(crate) slow_call: Option<Duration>,
    pub(crate) slow_rate: Option<f64>,
    pub(crate) open_for: Backoff,
    pub(crate) retry_after_cap: Duration,
    pub(crate) probes: u32,
    pub(crate) half_open: ProbeRule,
    pub(crate) reprobe: bool,
}

/// What a window spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub(crate) enum Span {
    /// The last so many recorded calls.
    Calls(u32),
    /// The last so much time.
    Time(Duration),
}

/// What decides in half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub(crate) enum ProbeRule {
    /// So many successes close, so many failures reopen; whichever is first.
    Count { successes_to_close: u32, failures_to_open: u32 },
    /// Once all probes are recorded, the trip rules of the window judge them.
    Rate,
}

impl BreakerPolicy {
    /// No trip rule yet; everything else as in the defaults. Add at least one rule.
    #[must_use]
    pub fn new() -> Self {
        Self {
            consecutive_failures: None,
            consecutive_within: None,
            window: None,
            minimum_calls: 1,
            failure_rate: None,
            failures: None,
            slow_call: None,
            slow_rate: None,
            // Short at first, so that a service is found to be back soon after it is; see
            // docs/retry-storms.md. The cap comes before the jitter, so that long open periods spread
            // too; 250 s and 20 % make 5 minutes.
            open_for: Backoff::exponential(Duration::from_secs(5), 2.0)
                .cap_before_jitter(Duration::from_secs(250))
                .jitter(Jitter::Ratio(0.2)),
            retry_after_cap: Duration::from_secs(300),
            probes: 1,
            half_open: ProbeRule::Count { successes_to_close: 1, failures_to_open: 1 },
            reprobe: false,
        }
    }

    /// Trips at `failures` failures in a row. Ignored and abandoned calls do not break the row.
    #[must_use]
    pub const fn consecutive_failures(mut self, failures: u32) -> Self {
        self.consecutive_failures = Some(failures);
        self
    }

    /// Asks in addition that the first and the last failure of the row lie at most this far apart;
    /// more than zero. The time of each failure that may still count is remembered.
    #[must_use]
    pub const fn consecutive_within(mut self, within: Duration) -> Self {
        self.consecutive_within = Some(within);
        self
    }

    /// Rates and numbers are taken over the last `calls` recorded calls. Each failed or slow one
    /// among them is remembered.
    #[must_use]
    pub const fn count_window(mut self, calls: u32) -> Self {
        self.window = Some(Span::Calls(calls));
        self
    }

    /// Rates and numbers are taken over the last `time`, in ten slices that each start with their
    /// first call: what counts is between nine tenths of `time` and `time` old at most.
    #[must_use]
    pub const fn time_window(mut self, time: Duration) -> Self {
        self.window = Some(Span::Time(time));
        self
    }

    /// No window trips before it holds this many recorded calls; of a count window at most its
    /// length. Default: 1 in [`BreakerPolicy::new`], 20 in [`BreakerPolicy::default`].
    #[must_use]
    pub const fn minimum_calls(mut self, calls: u32) -> Self {
        self.minimum_calls = calls;
        self
    }

    /// Trips when at least this share of the window's calls failed; above 0, at most 1.
    #[must_use]
    pub const fn failure_rate(mut self, rate: f64) -> Self {
        self.failure_rate = Some(rate);
        self
    }

    /// Trips when at least this many of the window's calls failed.
    #[must_use]
    pub const fn failures(mut self, failures: u32) -> Self {
        self.failures = Some(failures);
        self
    }

    /// A call that takes longer than this is slow, whatever its outcome. A slow success is a failed
    /// probe.
    #[must_use]
    pub const fn slow_call(mut self, longer_than: Duration) -> Self {
        self.slow_call = Some(longer_than);
        self
    }

    /// Trips when at least this share of the window's calls was slow; above 0, at most 1.
    #[must_use]
    pub const fn slow_rate(mut self, rate: f64) -> Self {
        self.slow_rate = Some(rate);
        self
    }

    /// How long the circuit stays open: the first delay at the first trip, the next one at each
    /// reopening without a close between. Default: 5 s, doubling, ±20 %, at most 5 min.
    #[must_use]
    pub fn open_for(mut self, schedule: Backoff) -> Self {
        self.open_for = schedule;
        self
    }

    /// A `Retry-After` on a failure that counts makes the open time at least that long, but never
    /// more than `cap`; zero ignores it. Default: 5 min.
    #[must_use]
    pub const fn retry_after_cap(mut self, cap: Duration) -> Self {
        self.retry_after_cap = cap;
        self
    }

    /// How many probes may be in flight while half-open. Default: 1.
    #[must_use]
    pub const fn probes(mut self, in_flight: u32) -> Self {
        self.probes = in_flight;
        self
    }

    /// Half-open: so many successes close, so many failures reopen. Default: 1 and 1.
    #[must_use]
    pub const fn decide_by_count(mut self, successes_to_close: u32, failures_to_open: u32) -> Self {
        self.half_open = ProbeRule::Count { successes_to_close, failures_to_open };
        self
    }

    /// Half-open: once as many probes are recorded as may be in flight, the rates (and the number
    /// of failures) that trip the window decide.
    #[must_use]
    pub const fn decide_by_rate(mut self) -> Self {
        self.half_open = ProbeRule::Rate;
        self
    }

    /// While every probe slot is held (by a probe that hangs, perhaps), lets one more probe in each
    /// time an open period has passed since the last one. Default: a hung probe holds its slot.
    #[must_use]
    pub const fn reprobe(mut self) -> Self {
        self.reprobe = true;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first field that cannot work, by the name of its setter.
    pub fn build(self) -> Result<BreakerPlan, ConfigError> {
        const ZERO: &str = "must be at least 1";
        if self.consecutive_failures.is_none() && self.window.is_none() {
            return Err(ConfigError::new(
                "consecutive_failures",
                "not set",
                "a breaker needs a trip rule: this one, or a window with a rate",
            ));
        }
        for (field, value) in [
            ("consecutive_failures", self.consecutive_failures),
            ("minimum_calls", Some(self.minimum_calls)),
            ("failures", self.failures),
            ("probes", Some(self.probes)),
        ] {
            if value == Some(0) {
                return Err(ConfigError::new(field, 0, ZERO));
            }
        }
        match self.window {
            Some(Span::Calls(0)) => return Err(ConfigError::new("count_window", 0, ZERO)),
            Some(Span::Time(time)) if time < Duration::from_millis(1) => {
                let value = format!("{time:?}");
                return Err(ConfigError::new("time_window", value, "must be at least 1 ms"));
            }
            _ => {}
        }
        for (field, rate) in [("failure_rate", self.failure_rate), ("slow_rate", self.slow_rate)] {
            if rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1.0)) {
                let value = rate.unwrap_or_default();
                return Err(ConfigError::new(field, value, "must be above 0 and at most 1"));
            }
        }
        if self.slow_rate.is_some() && self.slow_call.is_none() {
            return Err(ConfigError::new("slow_call", "not set", "a slow rate needs it"));
        }
        if self.consecutive_within == Some(Duration::ZERO) {
            return Err(ConfigError::new("consecutive_within", "0s", "must be longer than zero"));
        }
        if self.consecutive_within.is_some() && self.consecutive_failures.is_none() {
            let problem = "a limit on the row's time needs it";
            return Err(ConfigError::new("consecutive_failures", "not set", problem));
        }
        let no_rule =
            self.failure_rate.is_none() && self.failures.is_none() && self.slow_rate.is_none();
        let judges_by_rule = self.window.is_some() || self.half_open == ProbeRule::Rate;
        if no_rule && judges_by_rule {
            let problem = "a window and `decide_by_rate` need it, or `failures`, or `slow_rate`";
            return Err(ConfigError::new("failure_rate", "not set", problem));
        }
        if !no_rule && !judges_by_rule {
            let problem = "`failure_rate`, `failures` and `slow_rate` need it, or a `count_window`";
            return Err(ConfigError::new("time_window", "not set", problem));
        }
        if let ProbeRule::Count { successes_to_close, failures_to_open } = self.half_open {
            if successes_to_close == 0 || failures_to_open == 0 {
                let value = format!("{successes_to_close}, {failures_to_open}");
                return Err(ConfigError::new("decide_by_count", value, "both must be at least 1"));
            }
        }
        self.open_for.check("open_for")?;
        Ok(BreakerPlan(self))
    }
}

/// 50 % failures of at least 20 calls within 10 s.
impl Default for BreakerPolicy {
    fn default() -> Self {
        Self::new().time_window(Duration::from_secs(10)).minimum_calls(20).failure_rate(0.5)
    }
}

/// A [`BreakerPolicy`] that can work.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerPlan(BreakerPolicy);

impl BreakerPlan {
    /// The policy, to read or to change and build again.
    #[must_use]
    pub fn into_inner(self) -> BreakerPolicy {
        self.0
    }

    /// So many recorded calls the window must hold; a count window can hold no more than its length.
    fn minimum(&self) -> u64 {
        match self.window {
            Some(Span::Calls(calls)) => self.minimum_calls.min(calls).into(),
            Some(Span::Time(_)) | None => self.minimum_calls.into(),
        }
    }

    /// Does what the window holds trip the circuit?
    pub(crate) fn trips(&self, sample: Sample) -> bool {
        self.window.is_some() && sample.recorded >= self.minimum() && self.exceeded(sample)
    }

    /// Could one more success make the window trip? It never makes a sample worse, so only one that
    /// is over a limit already: below the minimum, or because good calls have left it and no outcome
    /// came since.
    pub(crate) fn may_trip_on_success(&self, sample: Sample) -> bool {
        self.exceeded(sample)
    }

    /// Is any of the rules over a sample reached, however small the sample is?
    pub(crate) fn exceeded(&self, sample: Sample) -> bool {
        self.rate_exceeded(sample)
            || self.failures.is_some_and(|limit| sample.failures >= u64::from(limit))
    }

    /// Do the probes say that it is still down? By the rates; by the number of failures only where
    /// that is all the rule there is.
    pub(crate) fn probes_exceed(&self, sample: Sample) -> bool {
        match (self.failure_rate, self.slow_rate) {
            (None, None) => self.exceeded(sample),
            _ => self.rate_exceeded(sample),
        }
    }

    fn rate_exceeded(&self, sample: Sample) -> bool {
        self.failure_rate.is_some_and(|limit| sample.failure_rate() >= limit)
            || self.slow_rate.is_some_and(|limit| sample.slow_rate() >= limit)
    }

    /// Is a call that took `elapsed` a slow one?
    pub(crate) fn is_slow(&self, elapsed: Duration) -> bool {
        self.slow_call.is_some_and(|limit| elapsed > limit)
    }
}

/// The defaults; they can work.
impl Default for BreakerPlan {
    fn default() -> Self {
        Self(BreakerPolicy::default())
    }
}

impl std::ops::Deref for BreakerPlan {
    type Target = BreakerPolicy;

    fn deref(&self) -> &BreakerPolicy {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_does_not_build_and_names_its_field() {
        let new = BreakerPolicy::new;
        let row = || new().consecutive_failures(5);
        let cases = [
            (new(), "consecutive_failures"),
            (new().consecutive_failures(0), "consecutive_failures"),
            (new().consecutive_within(Duration::from_secs(1)), "consecutive_failures"),
            (BreakerPolicy::default().minimum_calls(0), "minimum_calls"),
            (BreakerPolicy::default().failures(0), "failures"),
            (new().count_window(0).failures(1), "count_window"),
            (new().time_window(Duration::ZERO).failures(1), "time_window"),
            (new().count_window(10), "failure_rate"),
            (BreakerPolicy::default().failure_rate(0.0), "failure_rate"),
            (BreakerPolicy::default().failure_rate(f64::NAN), "failure_rate"),
            (row().failure_rate(0.5), "time_window"),
            (row().decide_by_rate(), "failure_rate"),
            (BreakerPolicy::default().slow_rate(0.5), "slow_call"),
            (row().probes(0), "probes"),
            (row().consecutive_within(Duration::ZERO), "consecutive_within"),
            (row().decide_by_count(1, 0), "decide_by_count"),
            (row().open_for(Backoff::list([])), "open_for"),
        ];
        for (policy, field) in cases {
            let error = policy.clone().build().expect_err(&format!("{policy:?}"));
            assert_eq!(error.field(), field, "{error}");
        }
        assert!(row().build().is_ok());
        assert!(new().time_window(Duration::from_millis(1)).failures(1).build().is_ok());
        assert!(BreakerPolicy::default().failure_rate(1.0).build().is_ok());
        assert_eq!(BreakerPolicy::default().build().unwrap(), BreakerPlan::default());
    }
}
