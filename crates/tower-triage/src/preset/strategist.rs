//! Repeat with care, then another way, and lose nothing: the numbers of [`strategist()`], each to be
//! taken alone and changed.
//!
//! | what | how |
//! |---|---|
//! | attempts, the first included | 3; for an `Unknown` failure 2, if the request may be repeated |
//! | waits | 1 s, 2 s, 4 s, 8 s, .. up to 60 s, ±50 %; longer if the server says so |
//! | rate | lower while the dependency throttles, by [`AdaptiveLayer`] |
//! | breaker | 5 failures in a row; after 30 s one probe |
//! | somebody is told | as the class says |

use std::time::Duration;

use tower_layer::Identity;
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{AnyError, Backoff, Classifier, ErrorClass, Jitter};
use tower_triage_escalate::{Desk, EscalateLayer, KeepFailure};
use tower_triage_retry::{AdaptiveLayer, ClassRule, RetryLayer, RetryPolicy};

use crate::triage::Triage;

/// What [`strategist()`] makes. The retry slot holds two layers: `.retry(|(retry, rate)|
/// (retry.policy(plan), rate))`.
pub type Strategist<R, E = AnyError> = Triage<
    EscalateLayer<R, KeepFailure, E>,
    Identity,
    (RetryLayer<R>, AdaptiveLayer<R>),
    CircuitBreakerLayer<R>,
>;

/// For work that is repeated with changes rather than as it was: put a
/// [nudge](RetryLayer::nudge) into the retry slot, a chain into the fallback's, and a desk with a
/// [store](tower_triage_escalate::store) behind it. [The module](mod@crate::preset::strategist) has its
/// numbers.
///
/// Errors must hold an open circuit, as for [`service`](super::service()).
///
/// # Panics
/// Never: the numbers are fixed, and a test builds them.
pub fn strategist<R, E>(classifier: Classifier<R>, desk: Desk) -> Strategist<R, E> {
    let retry = retry_policy().build().expect("fixed numbers");
    let breaker = breaker_policy().build().expect("fixed numbers");
    Triage {
        escalate: EscalateLayer::new(classifier.clone(), desk),
        fallback: Identity::new(),
        retry: (
            RetryLayer::new(classifier.clone()).policy(retry),
            AdaptiveLayer::new(classifier.clone()),
        ),
        breaker: CircuitBreakerLayer::new(classifier).policy(breaker).name("strategist"),
    }
}

/// Which classes are repeated, how often, and when.
#[must_use]
pub fn retry_policy() -> RetryPolicy {
    use ErrorClass::{Contention, Throttled, Timeout, Transient, Unknown};
    let rule = || ClassRule::new(backoff());
    [Transient, Timeout, Throttled, Contention]
        .into_iter()
        .fold(RetryPolicy::default().attempts(3), |policy, class| policy.retry(class, rule()))
        .retry(Unknown, rule().attempts(2))
}

/// 1 s, doubling up to 60 s, ±50 %.
#[must_use]
pub fn backoff() -> Backoff {
    Backoff::exponential(Duration::from_secs(1), 2.0)
        .cap(Duration::from_secs(60))
        .jitter(Jitter::Ratio(0.5))
}

/// When the dependency is left alone, and for how long.
#[must_use]
pub fn breaker_policy() -> BreakerPolicy {
    BreakerPolicy::new()
        .consecutive_failures(5)
        .open_for(Backoff::fixed(Duration::from_secs(30)))
        .probes(1)
}
