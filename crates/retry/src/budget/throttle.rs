//! gRPC's retry throttling (proposal A6): while too much fails, nothing is repeated.

use tower_triage_core::ConfigError;

use crate::sync::{AtomicU32, Ordering};

/// Tokens, full at the start. Each failure that could be repeated takes one, each success gives
/// [`token_ratio`](Self::token_ratio), and a retry is allowed only while more than half are left.
/// A retry itself costs nothing. No clock.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ThrottleSettings {
    /// Tokens at the start and at most, from 1 to 1000. Default: 10.
    pub max_tokens: u32,
    /// Tokens that a success brings, above 0 and at most 1000; decimals after the third are
    /// ignored. Default: 0.1.
    pub token_ratio: f64,
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        Self { max_tokens: 10, token_ratio: 0.1 }
    }
}

/// A token, in the unit of the count.
const TOKEN: u32 = 1000;

/// The shared tokens, in thousandths.
#[derive(Debug)]
pub(super) struct Throttle {
    max: u32,
    ratio: u32,
    tokens: AtomicU32,
}

impl Throttle {
    pub(super) fn new(settings: &ThrottleSettings) -> Result<Self, ConfigError> {
        let ThrottleSettings { max_tokens, token_ratio } = *settings;
        if !(1..=1000).contains(&max_tokens) {
            return Err(ConfigError::new("max_tokens", max_tokens, "from 1 to 1000"));
        }
        if !(0.001..=1000.0).contains(&token_ratio) {
            return Err(ConfigError::new("token_ratio", token_ratio, "from 0.001 to 1000"));
        }
        // Cut after three decimals; the millionth keeps a value such as 0.29 from losing its last.
        let ratio = (token_ratio * f64::from(TOKEN) + 1e-6) as u32;
        let max = max_tokens * TOKEN;
        Ok(Self { max, ratio, tokens: AtomicU32::new(max) })
    }

    pub(super) fn failure(&self) {
        self.update(|tokens| tokens.saturating_sub(TOKEN));
    }

    pub(super) fn success(&self) {
        self.update(|tokens| (tokens + self.ratio).min(self.max));
    }

    /// An unchanged count is not written: that is every success of a healthy day.
    fn update(&self, change: impl Fn(u32) -> u32) {
        // Relaxed: the tokens order nothing else.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| {
            let changed = change(tokens);
            (changed != tokens).then_some(changed)
        });
    }

    pub(super) fn allows(&self) -> bool {
        self.tokens() > self.max / 2
    }

    pub(super) fn tokens(&self) -> u32 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// How many retries in a row would be allowed if each failed.
    pub(super) fn balance(&self) -> u64 {
        u64::from(self.tokens().saturating_sub(self.max / 2).div_ceil(TOKEN))
    }

    /// Tokens, for people.
    pub(super) fn level(&self) -> f64 {
        f64::from(self.tokens()) / f64::from(TOKEN)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn throttle(max_tokens: u32, token_ratio: f64) -> Throttle {
        Throttle::new(&ThrottleSettings { max_tokens, token_ratio }).expect("sound settings")
    }

    #[test]
    fn exactly_half_is_not_enough() {
        let throttle = throttle(3, 0.1);
        assert_eq!(throttle.balance(), 2);
        throttle.failure();
        assert!(throttle.allows());
        throttle.failure();
        assert!(!throttle.allows());
        (0..5).for_each(|_| throttle.success());
        assert!(!throttle.allows(), "1.5 of 3");
        throttle.success();
        assert!(throttle.allows(), "1.6 of 3");
    }

    #[test]
    fn every_ratio_of_three_decimals_is_exact() {
        for thousandths in 1..=1000_u32 {
            assert_eq!(throttle(1, f64::from(thousandths) / 1000.0).ratio, thousandths);
        }
        assert_eq!(throttle(1, 0.4999).ratio, 499);
    }

    #[test]
    fn wrong_settings_name_the_field() {
        let field = |max_tokens, token_ratio| {
            let settings = ThrottleSettings { max_tokens, token_ratio };
            Throttle::new(&settings).map(|_| ()).map_err(|error| error.field())
        };
        assert_eq!(field(0, 0.1), Err("max_tokens"));
        assert_eq!(field(1001, 0.1), Err("max_tokens"));
        assert_eq!(field(10, 0.0), Err("token_ratio"));
        assert_eq!(field(10, f64::NAN), Err("token_ratio"));
        assert_eq!(field(1000, 1000.0), Ok(()));
    }

    proptest! {
        #[test]
        fn equals_the_plain_reckoning(
            max_tokens in 1_u32..50,
            thousandths in 1_u32..3000,
            events in proptest::collection::vec(any::<bool>(), 0..300),
        ) {
            let throttle = throttle(max_tokens, f64::from(thousandths) / 1000.0);
            let max = i64::from(max_tokens) * 1000;
            let mut model = max;
            for success in events {
                if success {
                    throttle.success();
                    model = (model + i64::from(thousandths)).min(max);
                } else {
                    throttle.failure();
                    model = (model - 1000).max(0);
                }
                prop_assert_eq!(i64::from(throttle.tokens()), model);
                prop_assert_eq!(throttle.allows(), model * 2 > max);
                prop_assert_eq!(throttle.balance() > 0, throttle.allows());
            }
        }
    }
}
