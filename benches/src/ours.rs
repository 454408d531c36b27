//! Our layers: each alone, three like the peers', all four.

use tower::ServiceBuilder;
use tower_triage_circuit_breaker::CircuitBreakerLayer;
use tower_triage_core::{
    AnyOk, CircuitOpen, Classifier, ErrorClass, Failure, Halves, OwnError, ToFailure,
};
use tower_triage_escalate::{Desk, EscalateLayer, KeepFailure, LogSink, Receiver, Route, Routes};
use tower_triage_fallback::chain::{End, Then};
use tower_triage_fallback::keep::Nothing;
use tower_triage_fallback::steps::ValueStep;
use tower_triage_fallback::{Failed, FallbackLayer};
use tower_triage_retry::RetryLayer;

use crate::measure::Case;
use crate::work::{Work, WorkFailed, tower_case};

type Rules = Halves<AnyOk, OwnError>;
type Value = ValueStep<fn(Failed<'_, u64, WorkFailed>) -> u64>;

impl ToFailure for WorkFailed {
    fn to_failure(&self) -> Failure {
        ErrorClass::Transient.into()
    }
}

impl From<CircuitOpen> for WorkFailed {
    fn from(_: CircuitOpen) -> Self {
        Self
    }
}

fn classifier() -> Classifier<Rules> {
    Classifier::new(Halves { response: AnyOk, error: OwnError })
}

fn fallback(
    classifier: &Classifier<Rules>,
) -> FallbackLayer<Rules, Then<End, Value>, Nothing<WorkFailed>> {
    FallbackLayer::new(classifier.clone())
        .or_value([ErrorClass::Transient, ErrorClass::Rejected], |_| 0)
}

fn retry(classifier: &Classifier<Rules>) -> RetryLayer<Rules> {
    RetryLayer::new(classifier.clone())
}

fn breaker(classifier: &Classifier<Rules>) -> CircuitBreakerLayer<Rules> {
    CircuitBreakerLayer::new(classifier.clone())
}

fn escalate(classifier: &Classifier<Rules>) -> EscalateLayer<Rules, KeepFailure, WorkFailed> {
    let routes = Routes::new(Route::new(["log"], "failure"));
    let desk =
        Desk::new(routes, [Receiver::new("log").record(LogSink)]).expect("one receiver, one route");
    EscalateLayer::new(classifier.clone(), desk)
}

/// Everything at its defaults; the fallback is a value, escalations go to the log. The layers of
/// one case share one classifier.
#[must_use]
pub fn cases() -> Vec<Case> {
    let c = &classifier();
    let three =
        ServiceBuilder::new().layer(fallback(c)).layer(retry(c)).layer(breaker(c)).service(Work);
    let four = ServiceBuilder::new()
        .layer(escalate(c))
        .layer(fallback(c))
        .layer(retry(c))
        .layer(breaker(c))
        .service(Work);
    vec![
        tower_case("ours: fallback", ServiceBuilder::new().layer(fallback(c)).service(Work)),
        tower_case("ours: retry", ServiceBuilder::new().layer(retry(c)).service(Work)),
        tower_case("ours: circuit breaker", ServiceBuilder::new().layer(breaker(c)).service(Work)),
        tower_case("ours: escalate", ServiceBuilder::new().layer(escalate(c)).service(Work)),
        tower_case("ours: three", three),
        tower_case("ours: four", four),
    ]
}
