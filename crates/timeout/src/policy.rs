//! How much time an attempt gets: plain data.

use std::time::Duration;

use tower_triage_core::ConfigError;

/// The time that one attempt gets. Plain data; checked by [`TimeoutPolicy::build`].
///
/// At the limit the attempt is told ([`soft_limit`](crate::soft_limit())); once the grace has passed
/// too it is dropped. There is no limit by default: nobody but you knows what is long.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_timeout::TimeoutPolicy;
///
/// let policy = TimeoutPolicy::new(Duration::from_secs(30));
/// assert_eq!(policy.grace_time(), Duration::from_secs(3));
/// assert_eq!(policy.grace(Duration::ZERO).grace_time(), Duration::ZERO);
///
/// let error = TimeoutPolicy::new(Duration::ZERO).build().unwrap_err();
/// assert_eq!(error.field(), "limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TimeoutPolicy {
    #[cfg_attr(feature = "serde", serde(with = "tower_triage_core::duration_text"))]
    limit: Duration,
    #[cfg_attr(feature = "serde", serde(default, with = "optional_duration"))]
    grace: Option<Duration>,
}

impl TimeoutPolicy {
    /// The longest grace that is given unasked.
    pub const MAX_DEFAULT_GRACE: Duration = Duration::from_secs(10);

    /// A soft limit, with the default grace after it.
    #[must_use]
    pub const fn new(limit: Duration) -> Self {
        Self { limit, grace: None }
    }

    /// The soft limit: when the attempt is told to come to an end. More than zero.
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// How long an attempt that was told may go on. Zero: it is not told but dropped at the limit.
    /// Default: a tenth of the limit, at most 10 s.
    #[must_use]
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// The soft limit.
    #[must_use]
    pub const fn soft(&self) -> Duration {
        self.limit
    }

    /// The grace after it, the default one worked out.
    #[must_use]
    pub fn grace_time(&self) -> Duration {
        self.grace.unwrap_or_else(|| (self.limit / 10).min(Self::MAX_DEFAULT_GRACE))
    }

    /// The hard limit: limit and grace.
    #[must_use]
    pub fn hard(&self) -> Duration {
        self.limit.saturating_add(self.grace_time())
    }

    /// Checks the values.
    ///
    /// # Errors
    /// If the limit is zero, which is often written where no limit is meant: leave the layer out.
    pub fn build(self) -> Result<TimeoutPlan, ConfigError> {
        if self.limit.is_zero() {
            return Err(ConfigError::new("limit", "0s", "must be longer than zero"));
        }
        Ok(TimeoutPlan(self))
    }
}

/// A [`TimeoutPolicy`] that can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutPlan(TimeoutPolicy);

impl TimeoutPlan {
    /// The policy, to read or to change and build again.
    #[must_use]
    pub const fn into_inner(self) -> TimeoutPolicy {
        self.0
    }

    /// The limits of one attempt of a request that has so much time `left`, soft and hard. If the
    /// time left is less than the plan gives, the grace is shortened first, down to an eleventh of
    /// it (the share that the default grace has), so that the attempt is still told before its end.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_triage_timeout::TimeoutPolicy;
    ///
    /// let secs = Duration::from_secs_f64;
    /// let plan = TimeoutPolicy::new(secs(4.0)).grace(secs(1.0)).build()?;
    /// assert_eq!(plan.limits(None), (secs(4.0), secs(5.0)));
    /// assert_eq!(plan.limits(Some(secs(60.0))), (secs(4.0), secs(5.0)));
    /// assert_eq!(plan.limits(Some(secs(4.5))), (secs(4.0), secs(4.5)));
    /// assert_eq!(plan.limits(Some(secs(2.2))), (secs(2.0), secs(2.2)));
    /// # Ok::<_, tower_triage_core::ConfigError>(())
    /// ```
    #[must_use]
    pub fn limits(&self, left: Option<Duration>) -> (Duration, Duration) {
        match left {
            Some(left) if left < self.hard() => {
                let grace = self.grace_time().min(left / 11);
                (self.soft().min(left - grace), left)
            }
            _ => (self.soft(), self.hard()),
        }
    }
}

impl std::ops::Deref for TimeoutPlan {
    type Target = TimeoutPolicy;

    fn deref(&self) -> &TimeoutPolicy {
        &self.0
    }
}

impl TryFrom<TimeoutPolicy> for TimeoutPlan {
    type Error = ConfigError;

    fn try_from(policy: TimeoutPolicy) -> Result<Self, ConfigError> {
        policy.build()
    }
}

#[cfg(feature = "serde")]
mod optional_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tower_triage_core::duration_text::DurationText;

    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(DurationText).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<DurationText>::deserialize(deserializer)?;
        Ok(text.map(|text| text.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// O2: soft at 100 % of the limit, hard at 110 %, at most 10 s later.
    #[test]
    fn the_default_grace_is_a_tenth_and_at_most_ten_seconds() {
        let limits = |limit| TimeoutPolicy::new(limit).build().unwrap().limits(None);
        assert_eq!(limits(secs(30)), (secs(30), secs(33)));
        assert_eq!(limits(secs(100)), (secs(100), secs(110)));
        assert_eq!(limits(secs(600)), (secs(600), secs(610)));
    }

    #[test]
    fn a_limit_of_zero_does_not_build() {
        assert_eq!(TimeoutPolicy::new(Duration::ZERO).build().unwrap_err().field(), "limit");
        assert_eq!(
            TimeoutPolicy::new(secs(1)).limit(secs(0)).build().unwrap_err().field(),
            "limit"
        );
    }

    /// Any length, the short and the extreme ones often.
    fn duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0..10_000_000_000_u64).prop_map(Duration::from_nanos),
            (any::<u64>(), 0..1_000_000_000_u32)
                .prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
            Just(Duration::MAX),
            Just(Duration::ZERO),
        ]
    }

    proptest! {
        #[test]
        fn no_attempt_gets_more_than_its_limit_or_the_time_left(
            limit in duration(),
            grace in proptest::option::of(duration()),
            left in proptest::option::of(duration()),
        ) {
            let policy = TimeoutPolicy { limit, grace };
            let Ok(plan) = policy.build() else {
                prop_assert!(limit.is_zero());
                return Ok(());
            };
            let (soft, hard) = plan.limits(left);
            prop_assert!(soft <= hard);
            prop_assert!(soft <= limit);
            prop_assert_eq!(hard, left.map_or(plan.hard(), |left| left.min(plan.hard())));
            if plan.grace_time().is_zero() {
                prop_assert_eq!(soft, hard);
            }
            prop_assert!(hard - soft <= plan.grace_time());
            // With more time left no limit comes earlier.
            let (more_soft, more_hard) = plan.limits(left.map(|left| left.saturating_mul(2)));
            prop_assert!(more_soft >= soft && more_hard >= hard);
        }
    }
}
