//! `tower-resilience`: its fallback, retry and breaker.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_resilience::circuitbreaker::{CircuitBreakerError, CircuitBreakerLayer, FnClassifier};
use tower_resilience::fallback::FallbackLayer;
use tower_resilience::retry::{RetryBudgetBuilder, RetryLayer};
use tower_service::Service;

use crate::case::{Case, Expect};
use crate::http::{self, ReadyHttp};
use crate::sizes::Size;
use crate::work::{FALLBACK, FIRST_FAILS, NOTHING_FAILS, OPEN, SHARES, Script, Work, WorkFailed};

type Rejectable = CircuitBreakerError<WorkFailed>;
type Counts<E> = FnClassifier<fn(&Result<u64, E>) -> bool>;

const THREE: &str = "tower-resilience 0.13, three";

fn fallback<Res: Clone + Send + Sync + 'static, Req, E: Send + Sync + 'static>(
    value: Res,
) -> FallbackLayer<Req, Res, E>
where
    Req: Send + Sync + 'static,
{
    FallbackLayer::value(value)
}

fn retry<Req: 'static, Res: 'static, E: Send + 'static>() -> RetryLayer<Req, Res, E> {
    let budget = RetryBudgetBuilder::new().token_bucket().build().expect("its defaults are valid");
    RetryLayer::builder().max_attempts(3).budget(budget).build()
}

/// Retries at once, as far as it can, with a budget that never says no.
fn eager_retry() -> RetryLayer<u64, u64, Rejectable> {
    let budget = RetryBudgetBuilder::new()
        .token_bucket()
        .tokens_per_second(1e9)
        .max_tokens(1_000_000)
        .build()
        .expect("it is valid");
    RetryLayer::builder()
        .max_attempts(3)
        .budget(budget)
        .fixed_backoff(Duration::ZERO)
        .retry_on(|error| matches!(error, CircuitBreakerError::Inner(WorkFailed::Transient)))
        .build()
}

fn breaker(threshold: f64) -> CircuitBreakerLayer<Counts<WorkFailed>> {
    let counts: fn(&Result<u64, WorkFailed>) -> bool =
        |outcome| matches!(outcome, Err(WorkFailed::Transient));
    CircuitBreakerLayer::builder()
        .failure_rate_threshold(threshold)
        .failure_classifier(counts)
        .wait_duration_in_open(Duration::from_secs(3600))
        .build()
        .expect("it is valid")
}

/// Three layers over work that fails; only a window full of failures trips.
fn failing(
    script: Script,
) -> impl Service<u64, Response = u64, Error: Send> + Clone + Send + 'static {
    ServiceBuilder::new()
        .layer(fallback::<u64, u64, Rejectable>(0))
        .layer(eager_retry())
        .layer(breaker(1.0))
        .service(Work(script))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = happy();
    cases.push(Case::tower(FIRST_FAILS, THREE, Expect::Answer, || {
        failing(Script::EverySecondFails)
    }));
    cases.push(Case::tower(FALLBACK, THREE, Expect::Answer, || failing(Script::Refuses)));
    cases.push(Case::tower(OPEN, "tower-resilience 0.13, breaker", Expect::Error, || {
        ServiceBuilder::new()
            .layer(
                CircuitBreakerLayer::builder()
                    .consecutive_failures(1)
                    .wait_duration_in_open(Duration::from_secs(3600))
                    .build()
                    .expect("it is valid"),
            )
            .service(Work(Script::Down))
    }));
    let mut cases: Vec<Case> = cases
        .into_iter()
        .map(|c| if c.group == NOTHING_FAILS { c } else { c.one_thread() })
        .collect();
    for (group, share) in SHARES {
        let script = Script::ShareFails(share);
        cases.push(Case::tower(group, THREE, Expect::Answer, move || failing(script)));
    }
    cases
}

fn happy() -> Vec<Case> {
    let work = Work(Script::Succeeds);
    let default_breaker =
        || CircuitBreakerLayer::builder().build().expect("its defaults are valid");
    vec![
        Case::tower(NOTHING_FAILS, "tower-resilience 0.13, fallback", Expect::Answer, move || {
            ServiceBuilder::new().layer(fallback::<u64, u64, WorkFailed>(0)).service(work)
        })
        .one_thread(),
        Case::tower(NOTHING_FAILS, "tower-resilience 0.13, retry", Expect::Answer, move || {
            ServiceBuilder::new().layer(retry::<u64, u64, WorkFailed>()).service(work)
        })
        .one_thread(),
        Case::tower(NOTHING_FAILS, "tower-resilience 0.13, breaker", Expect::Answer, move || {
            ServiceBuilder::new().layer(default_breaker()).service(work)
        })
        .one_thread(),
        Case::tower(NOTHING_FAILS, THREE, Expect::Answer, move || {
            ServiceBuilder::new()
                .layer(fallback::<u64, u64, Rejectable>(0))
                .layer(retry::<u64, u64, Rejectable>())
                .layer(default_breaker())
                .service(work)
        }),
    ]
}

pub(super) fn http_size() -> Size {
    type Error = CircuitBreakerError<http::Failed>;
    let mut service = ServiceBuilder::new()
        .layer(FallbackLayer::<_, _, Error>::value_fn(http::response))
        .layer(retry::<_, _, Error>())
        .layer(CircuitBreakerLayer::builder().build().expect("its defaults are valid"))
        .service(ReadyHttp);
    Size::of_call(THREE, &mut service, http::request())
}
