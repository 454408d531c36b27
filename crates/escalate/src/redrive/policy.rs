//! How fast letters are driven again, and how often.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::{Backoff, ClassSet, ConfigError, ErrorClass, Jitter, duration_text};

use crate::store::Retention;

/// How fast letters are driven again, and how often. Plain data; in a file the spans are text
/// (`"30s"`).
///
/// | setting | default | refused |
/// |---|---|---|
/// | [`owner`](Self::owner) | `redrive` | |
/// | [`rate`](Self::rate) | 10 a second | 0, and what is no number |
/// | [`concurrency`](Self::concurrency) | 4 | 0 |
/// | [`call_timeout`](Self::call_timeout) | 30 s | 0 |
/// | [`lease`](Self::lease) | 60 s, extended while a call lasts | less than a second |
/// | [`backoff`](Self::backoff) | 30 s, doubling up to 1 h, ±20 % | what [`Backoff`] refuses |
/// | [`park_after`](Self::park_after) | 5 tries | 0 |
/// | [`park`](Self::park) | `Permanent`, `Declined` | |
/// | [`retention`](Self::retention) | left to somebody else | what [`Retention`] refuses |
/// | [`retain_every`](Self::retain_every) | 1 h | 0 |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedrivePolicy {
    pub(crate) owner: String,
    pub(crate) rate: f64,
    pub(crate) concurrency: usize,
    #[serde(with = "duration_text")]
    pub(crate) call_timeout: Duration,
    #[serde(with = "duration_text")]
    pub(crate) lease: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) park_after: u32,
    pub(crate) park: ClassSet,
    pub(crate) retention: Option<Retention>,
    #[serde(with = "duration_text")]
    pub(crate) retain_every: Duration,
}

impl Default for RedrivePolicy {
    fn default() -> Self {
        Self {
            owner: "redrive".to_owned(),
            rate: 10.0,
            concurrency: 4,
            call_timeout: Duration::from_secs(30),
            lease: Duration::from_secs(60),
            backoff: Backoff::exponential(Duration::from_secs(30), 2.0)
                .cap(Duration::from_secs(3600))
                .jitter(Jitter::Ratio(0.2)),
            park_after: 5,
            park: ClassSet::NONE.with(ErrorClass::Permanent).with(ErrorClass::Declined),
            retention: None,
            retain_every: Duration::from_secs(3600),
        }
    }
}

impl RedrivePolicy {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the worker is called in leases and histories, for people.
    #[must_use]
    pub fn owner(mut self, name: impl Into<String>) -> Self {
        self.owner = name.into();
        self
    }

    /// How many calls begin in a second, at most; `f64::INFINITY` for no limit (which a
    /// configuration file cannot say).
    #[must_use]
    pub const fn rate(mut self, per_second: f64) -> Self {
        self.rate = per_second;
        self
    }

    /// How many calls are under way at a time.
    #[must_use]
    pub const fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// How long a call may take, the wait for the service to be ready included.
    #[must_use]
    pub const fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// How long a letter stays with a worker that is not heard of any more. While a call lasts, its
    /// lease is extended each third of it.
    #[must_use]
    pub const fn lease(mut self, time: Duration) -> Self {
        self.lease = time;
        self
    }

    /// The waits between the tries of a letter.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// A letter that failed so often is parked.
    #[must_use]
    pub const fn park_after(mut self, tries: u32) -> Self {
        self.park_after = tries;
        self
    }

    /// A letter that fails with one of these classes is parked at once.
    #[must_use]
    pub fn park(mut self, classes: impl Into<ClassSet>) -> Self {
        self.park = classes.into();
        self
    }

    /// What the store forgets. [`Redrive::run`](crate::Redrive::run) sees to it.
    #[must_use]
    pub const fn retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// How often it sees to it.
    #[must_use]
    pub const fn retain_every(mut self, time: Duration) -> Self {
        self.retain_every = time;
        self
    }

    /// # Errors
    /// A setting that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        let zero = [
            ("concurrency", self.concurrency == 0),
            ("call_timeout", self.call_timeout.is_zero()),
            ("park_after", self.park_after == 0),
            ("retain_every", self.retain_every.is_zero()),
        ];
        if let Some((field, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(ConfigError::new(field, 0, "it must be more than nothing"));
        }
        if self.rate.is_nan() || self.rate <= 0.0 {
            return Err(ConfigError::new("rate", self.rate, "it must be more than nothing"));
        }
        if self.lease < Duration::from_secs(1) {
            let lease = format!("{:?}", self.lease);
            return Err(ConfigError::new("lease", lease, "it must be a second or more"));
        }
        self.retention.map_or(Ok(()), |retention| retention.check())?;
        self.backoff.check("backoff")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_plain_data_and_a_misspelt_field_is_an_error() {
        let text = r#"{"rate":2.5,"lease":"2m","park":["Permanent"],"retention":{"most":10}}"#;
        let policy: RedrivePolicy = serde_json::from_str(text).unwrap();
        let expected = RedrivePolicy::new()
            .rate(2.5)
            .lease(Duration::from_secs(120))
            .park(ErrorClass::Permanent)
            .retention(Retention::new().most(10));
        assert_eq!(policy, expected);
        let again = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<RedrivePolicy>(&again).unwrap(), policy);
        assert!(serde_json::from_str::<RedrivePolicy>(r#"{"rates":5}"#).is_err());
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_name() {
        let policy = RedrivePolicy::new;
        for (policy, field) in [
            (policy().rate(0.0), "rate"),
            (policy().rate(f64::NAN), "rate"),
            (policy().rate(-1.0), "rate"),
            (policy().concurrency(0), "concurrency"),
            (policy().call_timeout(Duration::ZERO), "call_timeout"),
            (policy().lease(Duration::from_millis(999)), "lease"),
            (policy().park_after(0), "park_after"),
            (policy().retain_every(Duration::ZERO), "retain_every"),
            (policy().retention(Retention::new().most(0)), "most"),
            (policy().backoff(Backoff::list([])), "backoff"),
        ] {
            assert_eq!(policy.check().unwrap_err().field(), field);
        }
        assert!(policy().rate(f64::INFINITY).check().is_ok());
    }
}
