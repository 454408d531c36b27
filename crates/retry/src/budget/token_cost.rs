//! Tokens with a price per kind of failure, as the AWS SDKs' standard mode has them.

use std::time::Duration;

use tower_triage_core::{ConfigError, ErrorClass};

use super::fixed::{ONE, units};
use crate::sync::{AtomicU64, Ordering};

/// A bucket of tokens, full at the start. A retry pays the cost of the failure it answers; a
/// success gives tokens back. No clock, unless it refills with time.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TokenCostSettings {
    /// Tokens at most; at least 1. Default: 500.
    pub capacity: u32,
    /// Tokens at the start; at most the capacity. Default: as many.
    pub initial: Option<u32>,
    /// Tokens gained per second, from 0 to a million. Default: 0.
    pub refill_per_second: f64,
    /// What a retry costs.
    pub costs: TokenCosts,
    /// What a success gives back.
    pub refunds: TokenRefunds,
}

/// What a retry costs, by the class of the failure before it; each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TokenCosts {
    /// After [`ErrorClass::Transient`]. Default: 5.
    pub transient: u32,
    /// After [`ErrorClass::Timeout`]. Default: 10.
    pub timeout: u32,
    /// After [`ErrorClass::Throttled`]. Default: 5.
    pub throttled: u32,
    /// After any other class. Default: 5.
    pub other: u32,
}

/// What a success gives back.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TokenRefunds {
    /// To a request that never retried. Default: 1.
    pub first_try: u32,
    /// To a request that did. Default: what its last retry cost.
    pub retried: RetriedRefund,
    /// To each of them on top, from 0 to 1000; fractions add up. Default: 0.
    pub reward: f64,
}

/// What the success of a retry gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RetriedRefund {
    /// What the last retry cost; the cost of the earlier ones is gone.
    #[default]
    LastCost,
    /// This many tokens.
    Tokens(u32),
}

impl Default for TokenCostSettings {
    fn default() -> Self {
        Self {
            capacity: 500,
            initial: None,
            refill_per_second: 0.0,
            costs: TokenCosts::default(),
            refunds: TokenRefunds::default(),
        }
    }
}

impl Default for TokenCosts {
    fn default() -> Self {
        Self { transient: 5, timeout: 10, throttled: 5, other: 5 }
    }
}

impl Default for TokenRefunds {
    fn default() -> Self {
        Self { first_try: 1, retried: RetriedRefund::LastCost, reward: 0.0 }
    }
}

impl TokenCosts {
    const fn of(self, class: ErrorClass) -> u32 {
        match class {
            ErrorClass::Transient => self.transient,
            ErrorClass::Timeout => self.timeout,
            ErrorClass::Throttled => self.throttled,
            ErrorClass::Contention
            | ErrorClass::Auth
            | ErrorClass::Quota
            | ErrorClass::Internal
            | ErrorClass::Permanent
            | ErrorClass::Declined
            | ErrorClass::Cancelled
            | ErrorClass::Rejected
            | ErrorClass::Unknown => self.other,
        }
    }
}

/// The shared tokens, in units.
#[derive(Debug)]
pub(super) struct TokenCost {
    costs: TokenCosts,
    refunds: TokenRefunds,
    reward: u64,
    capacity: u64,
    /// Units per second.
    refill: u64,
    tokens: AtomicU64,
    /// What time has brought so far, whether it found room or not.
    refilled: AtomicU64,
}

impl TokenCost {
    pub(super) fn new(settings: TokenCostSettings) -> Result<Self, ConfigError> {
        let TokenCostSettings { capacity, initial, refill_per_second, costs, refunds } = settings;
        let TokenCosts { transient, timeout, throttled, other } = costs;
        let fields = [
            ("capacity", capacity),
            ("costs.transient", transient),
            ("costs.timeout", timeout),
            ("costs.throttled", throttled),
            ("costs.other", other),
        ];
        if let Some((field, value)) = fields.into_iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::new(field, value, "at least 1"));
        }
        let initial = initial.unwrap_or(capacity);
        if initial > capacity {
            return Err(ConfigError::new("initial", initial, "at most the capacity"));
        }
        let rate = "tokens per second, from 0 to a million";
        Ok(Self {
            costs,
            refunds,
            reward: units("refunds.reward", refunds.reward, 1000.0, "tokens, from 0 to 1000")?,
            capacity: u64::from(capacity) * ONE,
            refill: units("refill_per_second", refill_per_second, 1e6, rate)?,
            tokens: AtomicU64::new(u64::from(initial) * ONE),
            refilled: AtomicU64::new(0),
        })
    }

    /// Does time matter?
    pub(super) const fn refills(&self) -> bool {
        self.refill > 0
    }

    /// Pays for a retry after a failure of `class` and tells the price, or takes nothing.
    pub(super) fn pay(&self, class: ErrorClass, now: Duration) -> Option<u32> {
        self.refill(now);
        let cost = self.costs.of(class);
        let price = u64::from(cost) * ONE;
        // Relaxed, here and below: the tokens order nothing else.
        self.tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| tokens.checked_sub(price))
            .ok()
            .map(|_| cost)
    }

    /// Gives back what a success brings; `last_cost` is what the request's last retry cost.
    pub(super) fn refund(&self, last_cost: Option<u32>) {
        let refund = match (last_cost, self.refunds.retried) {
            (None, _) => self.refunds.first_try,
            (Some(cost), RetriedRefund::LastCost) => cost,
            (Some(_), RetriedRefund::Tokens(tokens)) => tokens,
        };
        self.add(u64::from(refund) * ONE + self.reward);
    }

    /// Adds what time has brought since somebody looked last. Between two payments there are only
    /// gains, so it makes no difference when each of them is added.
    fn refill(&self, now: Duration) {
        if !self.refills() {
            return;
        }
        let due = u128::from(self.refill) * now.as_nanos() / u128::from(ONE);
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let before = self.refilled.fetch_max(due, Ordering::Relaxed);
        if due > before {
            self.add(due - before);
        }
    }

    fn add(&self, gain: u64) {
        let capacity = self.capacity;
        // A full bucket is not written to: that is every success of a healthy day.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| {
            (tokens < capacity).then(|| tokens.saturating_add(gain).min(capacity))
        });
    }

    pub(super) fn units(&self, now: Duration) -> u64 {
        self.refill(now);
        self.tokens.load(Ordering::Relaxed)
    }

    /// How many retries after failures of no special class the tokens would pay.
    pub(super) fn balance(&self, now: Duration) -> u64 {
        self.units(now) / (u64::from(self.costs.other) * ONE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn each_class_has_its_price() {
        let bucket = TokenCost::new(TokenCostSettings {
            costs: TokenCosts { transient: 14, timeout: 10, throttled: 3, other: 7 },
            ..TokenCostSettings::default()
        })
        .expect("sound settings");
        assert_eq!(bucket.pay(ErrorClass::Timeout, NOW), Some(10));
        assert_eq!(bucket.pay(ErrorClass::Throttled, NOW), Some(3));
        assert_eq!(bucket.pay(ErrorClass::Transient, NOW), Some(14));
        assert_eq!(bucket.pay(ErrorClass::Contention, NOW), Some(7));
        assert_eq!(bucket.units(NOW), 466 * ONE);
    }

    #[test]
    fn time_fills_it_up_and_no_further() {
        let bucket = TokenCost::new(TokenCostSettings {
            capacity: 10,
            initial: Some(1),
            refill_per_second: 0.5,
            ..TokenCostSettings::default()
        })
        .expect("sound settings");
        let at = Duration::from_secs;
        assert_eq!(bucket.pay(ErrorClass::Transient, at(7)), None);
        assert_eq!(bucket.pay(ErrorClass::Transient, at(8)), Some(5));
        assert_eq!(bucket.units(at(8)), 0);
        // A clock that is behind brings nothing, and takes nothing.
        assert_eq!(bucket.units(at(3)), 0);
        assert_eq!(bucket.units(at(11)), ONE * 3 / 2);
        bucket.refund(None);
        assert_eq!(bucket.units(Duration::MAX), 10 * ONE);
        assert_eq!(bucket.units(Duration::MAX), 10 * ONE);
    }

    #[test]
    fn wrong_settings_name_the_field() {
        let costs = TokenCosts { throttled: 0, ..TokenCosts::default() };
        let refunds = TokenRefunds { reward: f64::NAN, ..TokenRefunds::default() };
        let wrong = [
            (TokenCostSettings { capacity: 0, ..Default::default() }, "capacity"),
            (TokenCostSettings { costs, ..Default::default() }, "costs.throttled"),
            (TokenCostSettings { initial: Some(501), ..Default::default() }, "initial"),
            (
                TokenCostSettings { refill_per_second: -5.0, ..Default::default() },
                "refill_per_second",
            ),
            (TokenCostSettings { refunds, ..Default::default() }, "refunds.reward"),
        ];
        for (settings, field) in wrong {
            assert_eq!(TokenCost::new(settings).map(|_| ()).map_err(|e| e.field()), Err(field));
        }
    }

    proptest! {
        #[test]
        fn tokens_stay_between_nothing_and_the_capacity(
            capacity in 1_u32..40,
            events in proptest::collection::vec(
                prop_oneof![
                    Just(Ok(ErrorClass::Timeout)),
                    Just(Ok(ErrorClass::Transient)),
                    Just(Err(None)),
                    Just(Err(Some(5))),
                ],
                0..200,
            ),
        ) {
            let settings = TokenCostSettings { capacity, ..Default::default() };
            let bucket = TokenCost::new(settings).expect("sound settings");
            let mut model = i64::from(capacity);
            for event in events {
                match event {
                    Ok(class) => {
                        let cost = if class == ErrorClass::Timeout { 10 } else { 5 };
                        let paid = model >= cost;
                        prop_assert_eq!(bucket.pay(class, NOW).is_some(), paid);
                        model -= if paid { cost } else { 0 };
                    }
                    Err(last_cost) => {
                        bucket.refund(last_cost);
                        model = (model + i64::from(last_cost.unwrap_or(1))).min(i64::from(capacity));
                    }
                }
                prop_assert_eq!(bucket.units(NOW), model as u64 * ONE);
            }
        }
    }
}
