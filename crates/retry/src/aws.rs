//! The retry of the AWS SDKs, as a preset.

use std::time::Duration;

use tower_triage_core::{Backoff, ErrorClass, HintMode, Jitter};

use crate::budget::{TokenCostSettings, TokenCosts};
use crate::policy::{ClassRule, RetryPolicy};

/// The standard mode of the AWS SDKs, 2.0 or 2.1: a policy, and the tokens that all clients of one
/// service share. Plain data; what it makes is changed further with the setters of policy and tokens.
///
/// | | [2.0](Self::v2_0) | [2.1](Self::v2_1) |
/// |---|---|---|
/// | attempts, the first call included | 3 | 3 ([DynamoDB](Self::dynamodb): 4) |
/// | n-th retry waits | u · min(1 s · 2ⁿ⁻¹, 20 s) | u · min(50 ms · 2ⁿ⁻¹, 20 s) (DynamoDB: 25 ms) |
/// | after throttling | the same | u · min(1 s · 2ⁿ⁻¹, 20 s) |
/// | the server's hint | replaces the wait, at most 20 s | at least the wait, at most 5 s more |
/// | tokens | 500 | 500 |
/// | a retry after a transient failure or a timeout costs | 10 | 14 |
/// | after throttling | 5 | 5 |
/// | after another failure | 5 | 14 |
/// | a success gives back | what its last retry cost; 1 if it needed none | the same |
///
/// u is uniform in [0, 1), and n counts the retries of the call, whatever they follow. `Transient`
/// and `Timeout` are AWS's transient errors (timeouts, connection errors, 500, 502, 503, 504),
/// `Throttled` its throttling errors; `Contention` stands for what a service models as retryable.
/// Unlike the SDKs, the layer repeats only what is safe to repeat: mark the operations of an SDK. Their
/// adaptive mode is this with an [`AdaptiveLayer`](crate::AdaptiveLayer) directly below.
///
/// ```
/// use tower_triage_core::{AnyOk, Chain, Classifier, Halves};
/// use tower_triage_retry::{AwsStandard, RetryLayer, budget::Budget};
///
/// # fn main() -> Result<(), tower_triage_core::ConfigError> {
/// let aws = AwsStandard::v2_1();
/// let tokens = Budget::token_cost(aws.tokens())?; // its clones are one bucket
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let layer = RetryLayer::new(classifier).policy(aws.policy().build()?).budget(tokens.clone());
/// # let _ = layer;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AwsStandard {
    attempts: u32,
    base: Duration,
    throttled_base: Duration,
    max_backoff: Duration,
    hints: HintMode,
    tokens: TokenCostSettings,
    long_polling: bool,
}

impl AwsStandard {
    /// Standard mode 2.0.
    #[must_use]
    pub fn v2_0() -> Self {
        Self {
            attempts: 3,
            base: Duration::from_secs(1),
            throttled_base: Duration::from_secs(1),
            max_backoff: Duration::from_secs(20),
            hints: HintMode::Cap,
            tokens: priced(TokenCosts { transient: 10, timeout: 10, throttled: 5, other: 5 }),
            long_polling: false,
        }
    }

    /// Standard mode 2.1, the SDKs' default from November 2026 on.
    #[must_use]
    pub fn v2_1() -> Self {
        Self {
            base: Duration::from_millis(50),
            hints: HintMode::ClampToOwnPlus(LONGER),
            tokens: priced(TokenCosts { transient: 14, timeout: 14, throttled: 5, other: 14 }),
            ..Self::v2_0()
        }
    }

    /// Standard mode 2.1 as the client of DynamoDB has it: 4 attempts from a base of 25 ms.
    #[must_use]
    pub fn dynamodb() -> Self {
        Self { attempts: 4, base: Duration::from_millis(25), ..Self::v2_1() }
    }

    /// At most this many attempts, the first call included.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// The longest first wait, but after throttling.
    #[must_use]
    pub const fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The longest first wait after throttling.
    #[must_use]
    pub const fn throttled_base(mut self, base: Duration) -> Self {
        self.throttled_base = base;
        self
    }

    /// No wait of our own is longer; in 2.0 no hint of the server either. Default: 20 s.
    #[must_use]
    pub const fn max_backoff(mut self, max: Duration) -> Self {
        self.max_backoff = max;
        self
    }

    /// The operation is called in a loop that waits for something (long polling): a failure that only
    /// the tokens keep from being repeated is returned after the wait, so that the loop does not spin
    /// ([`RetryPolicy::wait_when_denied`]). Default: no.
    #[must_use]
    pub const fn long_polling(mut self) -> Self {
        self.long_polling = true;
        self
    }

    /// When to repeat. It is checked when it is built.
    #[must_use]
    pub fn policy(&self) -> RetryPolicy {
        let rule = |base| {
            let backoff = Backoff::exponential(base, 2.0).cap(self.max_backoff);
            ClassRule::new(backoff.jitter(Jitter::Full))
        };
        let usual = rule(self.base);
        RetryPolicy::default()
            .attempts(self.attempts)
            .retry(ErrorClass::Transient, usual.clone())
            .retry(ErrorClass::Timeout, usual.clone())
            .retry(ErrorClass::Contention, usual)
            .retry(ErrorClass::Throttled, rule(self.throttled_base))
            .hint_mode(self.hints)
            // The mode cuts a hint by itself; what it leaves is waited for.
            .hint_cap(self.max_backoff.saturating_add(LONGER))
            .count_all_waits(true)
            .wait_when_denied(self.long_polling)
    }

    /// What retries cost, for [`Budget::token_cost`](crate::Budget::token_cost).
    #[must_use]
    pub fn tokens(&self) -> TokenCostSettings {
        self.tokens.clone()
    }
}

/// By how much a hint may prolong a wait of 2.1.
const LONGER: Duration = Duration::from_secs(5);

fn priced(costs: TokenCosts) -> TokenCostSettings {
    TokenCostSettings { costs, ..TokenCostSettings::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_build() {
        for aws in [AwsStandard::v2_0(), AwsStandard::v2_1(), AwsStandard::dynamodb()] {
            assert!(aws.clone().long_polling().policy().build().is_ok());
            assert!(crate::Budget::token_cost(aws.tokens()).is_ok());
        }
        assert_eq!(
            AwsStandard::v2_1().attempts(0).policy().build().unwrap_err().field(),
            "attempts"
        );
    }
}
