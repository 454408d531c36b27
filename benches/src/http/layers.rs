//! Our four layers as an HTTP client has them.

use tower_triage::Triage;
use tower_triage_circuit_breaker::CircuitBreakerLayer;
use tower_triage_core::{Classifier, ErrorClass};
use tower_triage_escalate::{Desk, EscalateLayer, KeepFailure};
use tower_triage_fallback::chain::{End, Then};
use tower_triage_fallback::keep::Nothing;
use tower_triage_fallback::steps::ValueStep;
use tower_triage_fallback::{Failed, FallbackLayer};
use tower_triage_http::{HttpReplay, HttpRules};
use tower_triage_retry::RetryLayer;

/// The fallback's value for answers `Res` and errors `E`.
pub type Value<Res, E> = fn(Failed<'_, Res, E>) -> Res;

/// The layers for a service with answers `Res` and errors `E`.
pub type Four<Res, E> = Triage<
    EscalateLayer<HttpRules, KeepFailure, E>,
    FallbackLayer<HttpRules, Then<End, ValueStep<Value<Res, E>>>, Nothing<E>>,
    RetryLayer<HttpRules, HttpReplay>,
    CircuitBreakerLayer<HttpRules>,
>;

/// What the fallback answers.
const CLASSES: [ErrorClass; 2] = [ErrorClass::Transient, ErrorClass::Rejected];

/// The layers at their defaults; they share `classifier`.
pub fn four<Res, E>(classifier: &Classifier<HttpRules>, value: Value<Res, E>) -> Four<Res, E> {
    Triage {
        escalate: EscalateLayer::new(classifier.clone(), Desk::log()),
        fallback: FallbackLayer::new(classifier.clone()).or_value(CLASSES, value),
        retry: RetryLayer::new(classifier.clone()).replay(HttpReplay::new()),
        breaker: CircuitBreakerLayer::new(classifier.clone()),
    }
}
