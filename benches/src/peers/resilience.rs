//! `tower-resilience`: its fallback, retry and breaker.

use tower::ServiceBuilder;
use tower_resilience::circuitbreaker::{CircuitBreakerError, CircuitBreakerLayer};
use tower_resilience::fallback::FallbackLayer;
use tower_resilience::retry::{RetryBudgetBuilder, RetryLayer};

use crate::measure::Case;
use crate::work::{Work, WorkFailed, tower_case};

type Rejectable = CircuitBreakerError<WorkFailed>;

fn fallback<E: Send + Sync + 'static>() -> FallbackLayer<u64, u64, E> {
    FallbackLayer::value(0)
}

fn retry<E: Send + 'static>() -> RetryLayer<u64, u64, E> {
    let budget = RetryBudgetBuilder::new().token_bucket().build().expect("its defaults are valid");
    RetryLayer::builder().max_attempts(3).budget(budget).build()
}

pub(super) fn cases() -> Vec<Case> {
    let breaker = || CircuitBreakerLayer::builder().build().expect("its defaults are valid");
    let three = ServiceBuilder::new()
        .layer(fallback::<Rejectable>())
        .layer(retry::<Rejectable>())
        .layer(breaker())
        .service(Work);
    vec![
        tower_case(
            "tower-resilience 0.13 fallback",
            ServiceBuilder::new().layer(fallback::<WorkFailed>()).service(Work),
        ),
        tower_case(
            "tower-resilience 0.13 retry",
            ServiceBuilder::new().layer(retry::<WorkFailed>()).service(Work),
        ),
        tower_case(
            "tower-resilience 0.13 breaker",
            ServiceBuilder::new().layer(breaker()).service(Work),
        ),
        tower_case("tower-resilience 0.13 three", three),
    ]
}
