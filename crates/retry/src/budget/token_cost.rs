//! Tokens with a price per kind of failure, as the AWS SDKs' standard mode has them.

use tower_triage_core::{ConfigError, ErrorClass};

use crate::sync::{AtomicU32, Ordering};

/// A bucket of tokens, full at the start. A retry pays the cost of the failure it answers; a
/// success gives tokens back. No clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TokenCostSettings {
    /// Tokens at the start and at most; at least 1. Default: 500.
    pub capacity: u32,
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
    /// After [`ErrorClass::Timeout`]. Default: 10.
    pub timeout: u32,
    /// After [`ErrorClass::Throttled`]. Default: 5.
    pub throttled: u32,
    /// After any other class. Default: 5.
    pub other: u32,
}

/// What a success gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TokenRefunds {
    /// To a request that never retried. Default: 1.
    pub first_try: u32,
    /// To a request that did. Default: what its last retry cost.
    pub retried: RetriedRefund,
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
        Self { capacity: 500, costs: TokenCosts::default(), refunds: TokenRefunds::default() }
    }
}

impl Default for TokenCosts {
    fn default() -> Self {
        Self { timeout: 10, throttled: 5, other: 5 }
    }
}

impl Default for TokenRefunds {
    fn default() -> Self {
        Self { first_try: 1, retried: RetriedRefund::LastCost }
    }
}

impl TokenCosts {
    const fn of(self, class: ErrorClass) -> u32 {
        match class {
            ErrorClass::Timeout => self.timeout,
            ErrorClass::Throttled => self.throttled,
            ErrorClass::Transient
            | ErrorClass::Contention
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

/// The shared tokens.
#[derive(Debug)]
pub(super) struct TokenCost {
    settings: TokenCostSettings,
    tokens: AtomicU32,
}

impl TokenCost {
    pub(super) fn new(settings: TokenCostSettings) -> Result<Self, ConfigError> {
        let TokenCosts { timeout, throttled, other } = settings.costs;
        let fields = [
            ("capacity", settings.capacity),
            ("costs.timeout", timeout),
            ("costs.throttled", throttled),
            ("costs.other", other),
        ];
        match fields.into_iter().find(|(_, value)| *value == 0) {
            Some((field, value)) => Err(ConfigError::new(field, value, "at least 1")),
            None => Ok(Self { tokens: AtomicU32::new(settings.capacity), settings }),
        }
    }

    /// Pays for a retry after a failure of `class` and tells the price, or takes nothing.
    pub(super) fn pay(&self, class: ErrorClass) -> Option<u32> {
        let cost = self.settings.costs.of(class);
        // Relaxed, here and below: the tokens order nothing else.
        self.tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| tokens.checked_sub(cost))
            .ok()
            .map(|_| cost)
    }

    /// Gives back what a success brings; `last_cost` is what the request's last retry cost.
    pub(super) fn refund(&self, last_cost: Option<u32>) {
        let TokenRefunds { first_try, retried } = self.settings.refunds;
        let refund = match (last_cost, retried) {
            (None, _) => first_try,
            (Some(cost), RetriedRefund::LastCost) => cost,
            (Some(_), RetriedRefund::Tokens(tokens)) => tokens,
        };
        let capacity = self.settings.capacity;
        // A full bucket is not written to: that is every success of a healthy day.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| {
            (tokens < capacity).then(|| tokens.saturating_add(refund).min(capacity))
        });
    }

    pub(super) fn tokens(&self) -> u32 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// How many retries after failures of no special class the tokens would pay.
    pub(super) fn balance(&self) -> u64 {
        u64::from(self.tokens() / self.settings.costs.other)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_class_has_its_price() {
        let bucket = TokenCost::new(TokenCostSettings {
            costs: TokenCosts { timeout: 10, throttled: 3, other: 14 },
            ..TokenCostSettings::default()
        })
        .expect("sound settings");
        assert_eq!(bucket.pay(ErrorClass::Timeout), Some(10));
        assert_eq!(bucket.pay(ErrorClass::Throttled), Some(3));
        assert_eq!(bucket.pay(ErrorClass::Transient), Some(14));
        assert_eq!(bucket.tokens(), 473);
    }

    #[test]
    fn wrong_settings_name_the_field() {
        let costs = TokenCosts { throttled: 0, ..TokenCosts::default() };
        let wrong = [
            (TokenCostSettings { capacity: 0, ..Default::default() }, "capacity"),
            (TokenCostSettings { costs, ..Default::default() }, "costs.throttled"),
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
                        prop_assert_eq!(bucket.pay(class).is_some(), paid);
                        model -= if paid { cost } else { 0 };
                    }
                    Err(last_cost) => {
                        bucket.refund(last_cost);
                        model = (model + i64::from(last_cost.unwrap_or(1))).min(i64::from(capacity));
                    }
                }
                prop_assert_eq!(i64::from(bucket.tokens()), model);
            }
        }
    }
}
