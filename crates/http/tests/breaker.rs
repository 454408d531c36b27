//! The HTTP rules under a circuit breaker.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, State};
use tower_triage_core::{Classifier, ErrorClass};
use tower_triage_http::{Unavailable, http};
use tower_triage_retry::RetryLayer;

fn status(code: u16) -> Result<Response<()>, Infallible> {
    Ok(Response::builder().status(code).body(()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn kf36_client_mistakes_do_not_open_the_circuit() {
    let calls = AtomicUsize::new(0);
    let service = service_fn(|_: Request<()>| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(status([400, 404, 422][call % 3]))
    });
    let policy = BreakerPolicy::new().consecutive_failures(5).build().unwrap();
    let layer =
        CircuitBreakerLayer::new(Classifier::new(http())).reject_with(Unavailable).policy(policy);
    let handle = layer.handle();
    let mut breaker = layer.layer(service);
    for _ in 0..100 {
        breaker.ready().await.unwrap().call(Request::new(())).await.unwrap();
    }
    assert_eq!(handle.state(), State::Closed);
    assert_eq!(calls.load(Ordering::Relaxed), 100);
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_answers_for_an_infallible_service_and_is_not_taken_for_it() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let service = service_fn(move |_: Request<()>| {
        calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(status(503))
    });
    let classifier = Classifier::new(http());
    let breaker = CircuitBreakerLayer::new(classifier.clone())
        .reject_with(Unavailable)
        .policy(BreakerPolicy::new().consecutive_failures(1).build().unwrap());
    let outer = CircuitBreakerLayer::new(classifier.clone()).reject_with(Unavailable);
    let handle = outer.handle();
    let stack = outer.layer(RetryLayer::new(classifier.clone()).layer(breaker.layer(service)));

    // The first failure opens the circuit and is returned; the next requests are rejected.
    let response = stack.clone().oneshot(Request::new(())).await.unwrap();
    assert!(!response.headers().contains_key("retry-after"), "the upstream's own");
    for _ in 0..2 {
        let response = stack.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status().as_u16(), 503);
        let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((4..=6).contains(&wait), "5 s with 20 % jitter: {wait}");
    }
    assert_eq!(seen.load(Ordering::Relaxed), 1, "a rejection is not repeated");
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
    // The open circuit is asked once more by the retry of the first request.
    assert_eq!(classifier.count(ErrorClass::Rejected), 3);
    assert_eq!(handle.window().failures, 1, "a rejection is no failure to an outer breaker");
}
