//! The four layers together.

mod common;

use std::convert::Infallible;
use std::time::Duration;

use common::{attempts, classifier, desk, opens_at, reset, watched};
use http::{Request, Response};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_triage::http::{HttpReplay, HttpRulesExt, Unavailable, http};
use tower_triage::{
    AnyError, BoxError, CircuitBreakerLayer, CircuitOpen, ErrorClass, EscalateLayer, FallbackLayer,
    Resolution, RetryLayer, Step, StepKind,
};
use tower_triage_test_support::{Strict, scripted};

type Answer = fn() -> Result<u32, AnyError>;

const OK: Answer = || Ok(7);
const RESET: Answer = || Err(reset());

/// What is called is what was polled ready: second attempts, probes, replans and clones included.
#[tokio::test(start_paused = true)]
async fn kf01_readiness_survives_the_whole_stack() {
    let (classifier, _) = classifier();
    let inner = Strict::new(scripted::<u32, _, _, _>([RESET, OK, RESET, RESET, RESET, OK]));
    let (desk, _letters) = desk();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(FallbackLayer::new(classifier.clone()).or_replan(ErrorClass::Transient, |n, _| n))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(CircuitBreakerLayer::new(classifier).policy(opens_at(100)))
        .service(inner);
    let mut clones = [stack.clone(), stack];
    for _ in 0..5 {
        for service in &mut clones {
            service.ready().await.unwrap().call(1).await.unwrap();
        }
    }
}

/// Over services whose readiness is real: a permit, a queue place, a shed.
#[tokio::test(start_paused = true)]
async fn kf01_readiness_over_limits_buffers_and_shedders() {
    let (classifier, _) = classifier();
    macro_rules! stack_over {
        ($inner:expr) => {{
            let (desk, _letters) = desk();
            ServiceBuilder::new()
                .layer(EscalateLayer::new(classifier.clone(), desk))
                .layer(
                    FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Transient, |_| 0),
                )
                .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
                .layer(CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(100)))
                .service($inner)
        }};
    }
    let script = || scripted::<u32, _, _, _>([RESET, RESET, OK]);

    let limited = ServiceBuilder::new().concurrency_limit(1).service(script());
    let mut stack = stack_over!(limited);
    for _ in 0..3 {
        assert_eq!(stack.ready().await.unwrap().call(1).await.unwrap(), 7);
    }
    let buffered = ServiceBuilder::new().map_err(AnyError::from_boxed).buffer(1).service(script());
    let mut stack = stack_over!(buffered);
    for _ in 0..3 {
        assert_eq!(stack.ready().await.unwrap().call(1).await.unwrap(), 7);
    }
    let shed = ServiceBuilder::new()
        .map_err(AnyError::from_boxed)
        .load_shed()
        .concurrency_limit(1)
        .service(script());
    let mut stack = stack_over!(shed);
    for _ in 0..3 {
        assert_eq!(stack.ready().await.unwrap().call(1).await.unwrap(), 7);
    }
}

/// A router applies one layer value many times; its services share breaker and budget.
#[tokio::test(start_paused = true)]
async fn kf04_one_layer_value_one_state() {
    let (classifier, _) = classifier();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(5));
    let handle = breaker.handle();
    let layer = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(1)))
        .layer(breaker);
    let inner = scripted::<u32, _, _, _>([RESET]);
    let services: Vec<_> = (0..4).map(|_| layer.service(inner.clone())).collect();
    for n in 0..5_u32 {
        let service = services[n as usize % 4].clone();
        assert!(service.oneshot(n).await.unwrap_err().downcast_ref::<CircuitOpen>().is_none());
    }
    let error = services[1].clone().oneshot(6).await.unwrap_err();
    assert!(error.downcast_ref::<CircuitOpen>().is_some(), "the sixth is rejected");
    assert_eq!(inner.calls(), 5);

    let other = CircuitBreakerLayer::new(classifier).policy(opens_at(5));
    assert!(!other.handle().state().as_str().is_empty());
    let elsewhere = ServiceBuilder::new().layer(other).service(scripted::<u32, _, _, _>([OK]));
    elsewhere.oneshot(1).await.unwrap();
    assert_eq!(handle.counts().rejected, 1);
}

/// The classifier has the last word in every layer: here 404 is transient and 503 permanent.
#[tokio::test(start_paused = true)]
async fn kf08_one_verdict_for_all_layers() {
    type HttpAnswer = Result<Response<()>, Infallible>;
    fn status(code: u16) -> HttpAnswer {
        Ok(Response::builder().status(code).body(()).unwrap())
    }
    let rules = || http().status(404, ErrorClass::Transient).status(503, ErrorClass::Permanent);
    let run = |script: [fn() -> HttpAnswer; 3]| async move {
        let (classifier, seen) = watched(rules());
        let (desk, mut letters) = desk();
        let inner = scripted::<Request<()>, _, _, _>(script);
        let breaker = CircuitBreakerLayer::new(classifier.clone())
            .policy(opens_at(3))
            .reject_with(Unavailable);
        let handle = breaker.handle();
        let stack = ServiceBuilder::new()
            .layer(EscalateLayer::new(classifier.clone(), desk))
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_value(ErrorClass::Declined, |_| Response::new(())),
            )
            .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
            .layer(breaker)
            .service(inner.clone());
        let response = stack.oneshot(Request::new(())).await.unwrap();
        (response.status().as_u16(), inner.calls(), handle.counts(), letters.try_recv().ok(), seen)
    };

    let (code, calls, counts, letter, seen) = run([|| status(404); 3]).await;
    assert_eq!((code, calls), (404, 3), "retried");
    assert_eq!(counts.failures, 3, "counted by the breaker");
    assert_eq!(letter.expect("escalated").class, ErrorClass::Transient);
    assert_eq!(seen.last().attempts, 3);

    let (code, calls, counts, letter, seen) = run([|| status(503); 3]).await;
    assert_eq!((code, calls), (503, 1), "not retried");
    assert_eq!((counts.failures, counts.successes), (0, 1), "no failure of the service");
    assert!(letter.is_none(), "permanent failures are not escalated");
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Permanent);
}

/// An uninhabited error type: the response is the failure.
#[tokio::test(start_paused = true)]
async fn kf09_a_response_can_be_the_failure() {
    fn status(code: u16) -> Result<Response<&'static str>, Infallible> {
        Ok(Response::builder().status(code).body("x").unwrap())
    }
    let (classifier, seen) = watched(http());
    let (desk, _letters) = desk();
    let inner = scripted::<Request<()>, _, _, _>([|| status(503), || status(503), || status(200)]);
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(
            FallbackLayer::new(classifier.clone())
                .or_value(ErrorClass::Transient, |_| Response::new("never needed")),
        )
        .layer(RetryLayer::new(classifier.clone()))
        .layer(CircuitBreakerLayer::new(classifier.clone()).reject_with(Unavailable))
        .service(inner.clone());
    let response = stack.oneshot(Request::new(())).await.unwrap();
    assert_eq!((response.status().as_u16(), *response.body()), (200, "x"));
    assert_eq!(inner.calls(), 3);
    assert_eq!(classifier.count(ErrorClass::Transient), 2);
    assert_eq!(seen.last().resolution, Resolution::RecoveredByRetry);
}

/// Our own rejection: not retried, counted by no breaker, and a reason to fall back.
#[tokio::test(start_paused = true)]
async fn kf11_our_own_rejections_are_not_upstream_failures() {
    let (classifier, seen) = classifier();
    let inner = scripted::<u32, _, _, _>([RESET]);
    let outer = CircuitBreakerLayer::new(classifier.clone()).name("outer").policy(opens_at(2));
    let below = CircuitBreakerLayer::new(classifier.clone()).name("below").policy(opens_at(1));
    let (outer_handle, below_handle) = (outer.handle(), below.handle());
    let mut stack = ServiceBuilder::new()
        .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Rejected, |_| 99))
        .layer(outer)
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(below)
        .service(inner.clone());
    // The first failure opens the lower breaker; the second attempt is rejected by it.
    let error = stack.ready().await.unwrap().call(1).await.unwrap_err();
    assert!(error.downcast_ref::<std::io::Error>().is_some(), "the upstream's own error");
    for _ in 0..10 {
        assert_eq!(stack.ready().await.unwrap().call(1).await.unwrap(), 99);
    }
    assert_eq!(inner.calls(), 1);
    assert_eq!(outer_handle.counts().failures, 1, "only the upstream's own failure");
    assert_eq!(below_handle.counts().rejected, 11);
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
    assert_eq!(classifier.count(ErrorClass::Rejected), 11);
    assert!(!seen.outcomes().contains(&"waiting"), "a rejection is not retried");

    // A shedder's refusal is one of ours too.
    let shed = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(1)))
        .map_err(AnyError::from_boxed)
        .load_shed()
        .concurrency_limit(1)
        .service_fn(|_: u32| std::future::pending::<Result<u32, BoxError>>());
    let mut hanging = Box::pin(shed.clone().oneshot(1));
    assert!(pending_once(&mut hanging).await);
    for _ in 0..5 {
        let error = shed.clone().oneshot(2).await.unwrap_err();
        assert!(error.find::<tower::load_shed::error::Overloaded>().is_some(), "{error}");
    }
}

async fn pending_once<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
    })
    .await
}

/// Retry outside counts attempts, breaker outside counts calls.
#[tokio::test(start_paused = true)]
async fn kf47_order_of_retry_and_breaker() {
    let (classifier, seen) = classifier();
    let inner = scripted::<u32, _, _, _>([RESET]);
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(2));
    let handle = breaker.handle();
    let retry_outside = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(5)))
        .layer(breaker)
        .service(inner.clone());
    let begun = tokio::time::Instant::now();
    let error = retry_outside.clone().oneshot(1).await.unwrap_err();
    assert!(error.downcast_ref::<std::io::Error>().is_some(), "the last upstream error");
    assert_eq!(inner.calls(), 2, "opens at the second, and the retry stops there");
    assert_eq!(handle.counts().failures, 2);
    // This very call opened it, so it does not wait for a refusal that is certain.
    assert_eq!(begun.elapsed(), Duration::from_millis(10), "one wait, before the second attempt");
    let rejected = |step: &Step| matches!(step.kind, StepKind::Rejected { .. });
    assert!(seen.last().steps.iter().any(rejected), "{:?}", seen.last().steps);

    // Another call opens it during the wait: the rejection is a step, the kept error is returned.
    handle.reset();
    let waiting = tokio::spawn(retry_outside.clone().oneshot(1));
    tokio::task::yield_now().await;
    retry_outside.oneshot(2).await.unwrap_err();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.downcast_ref::<std::io::Error>().is_some(), "the last upstream error");
    assert!(seen.last().steps.iter().any(rejected), "{:?}", seen.last().steps);
    assert_eq!(inner.calls(), 4);

    let inner = scripted::<u32, _, _, _>([RESET]);
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(2));
    let handle = breaker.handle();
    let breaker_outside = ServiceBuilder::new()
        .layer(breaker)
        .layer(RetryLayer::new(classifier).policy(attempts(5)))
        .service(inner.clone());
    breaker_outside.oneshot(1).await.unwrap_err();
    assert_eq!(inner.calls(), 5);
    assert_eq!(handle.counts().failures, 1, "one failure per logical call");
}

/// One record per request, wherever the layer stands.
#[tokio::test(start_paused = true)]
async fn kf56_one_record_per_request_not_per_attempt() {
    // Outside of the retry.
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .service(scripted::<u32, _, _, _>([RESET]));
    stack.oneshot(1).await.unwrap_err();
    let letter = letters.try_recv().unwrap();
    assert_eq!(letter.id, seen.last().id);
    assert_eq!(letter.attempts.iter().filter(|attempt| attempt.class.is_some()).count(), 3);
    assert!(letters.try_recv().is_err(), "one record");

    // Inside of it: nothing for attempts that are repeated, one for the call.
    let (desk, mut letters) = common::desk();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .service(scripted::<u32, _, _, _>([RESET]));
    stack.oneshot(1).await.unwrap_err();
    desk.idle().await;
    assert_eq!(letters.try_recv().unwrap().id, seen.last().id);
    assert!(letters.try_recv().is_err(), "one record");

    // Inside, and the second attempt succeeds.
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .service(scripted::<u32, _, _, _>([RESET, OK]));
    stack.oneshot(1).await.unwrap();
    desk.idle().await;
    assert!(letters.try_recv().is_err(), "withdrawn");

    // A fallback rescues the call: recorded only if asked for.
    let rescued = |ask: bool| {
        let policy = tower_triage::EscalatePolicy::new();
        let policy = if ask { policy.record_recovered(true) } else { policy };
        ServiceBuilder::new()
            .layer(EscalateLayer::new(classifier.clone(), desk.clone()).policy(policy))
            .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Transient, |_| 0))
            .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
            .service(scripted::<u32, _, _, _>([RESET]))
    };
    rescued(false).oneshot(1).await.unwrap();
    assert!(letters.try_recv().is_err());
    rescued(true).oneshot(1).await.unwrap();
    assert_eq!(letters.try_recv().unwrap().outcome, tower_triage::escalate::Outcome::Recovered);
    assert!(letters.try_recv().is_err());
}

/// Two retries around one failing service make three calls, not nine; a handler that tolerates an
/// exhausted client call is still retried itself.
#[tokio::test(start_paused = true)]
async fn kf23_nested_retries_do_not_multiply_and_handlers_are_their_own_calls() {
    let (classifier, _) = classifier();
    let inner = scripted::<u32, _, _, _>([RESET]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .map_request(|n: u32| n)
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .service(inner.clone());
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(inner.calls(), 3);

    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let handler = {
        let (classifier, runs) = (classifier.clone(), runs.clone());
        tower::service_fn(move |n: u32| {
            let client = ServiceBuilder::new()
                .layer(RetryLayer::new(classifier.clone()).policy(attempts(2)))
                .service(scripted::<u32, _, _, _>([RESET]));
            let run = runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                client.oneshot(n).await.unwrap_err();
                if run == 0 { Err(reset()) } else { Ok(n) }
            }
        })
    };
    let server = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(attempts(3)))
        .service(handler);
    server.oneshot(1).await.unwrap();
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 2);
}

/// Over HTTP: the response of the call that opened the circuit is returned, whole; one that was
/// released before the wait cannot be, so the rejection is, and the incident names the 503.
#[tokio::test(start_paused = true)]
async fn kf47_with_responses() {
    let (classifier, seen) = watched(http());
    let inner = scripted::<Request<String>, Response<String>, Infallible, _>([|| {
        Ok(Response::builder().status(503).body("busy".to_owned()).unwrap())
    }]);
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(2));
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(attempts(5)).replay(HttpReplay::new()))
        .layer(breaker.reject_with(Unavailable))
        .service(inner.clone());
    let response = stack.clone().oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!((response.status().as_u16(), response.body().as_str()), (503, "busy"));
    assert_eq!(inner.calls(), 2);

    handle.reset();
    let waiting = tokio::spawn(stack.clone().oneshot(Request::new(String::new())));
    tokio::task::yield_now().await;
    stack.oneshot(Request::new(String::new())).await.unwrap();
    let response = waiting.await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"), "ours, not the upstream's");
    let outcomes: Vec<_> = seen.last().steps.iter().map(|step| step.kind.outcome()).collect();
    assert!(outcomes.contains(&"released") && outcomes.contains(&"rejected"), "{outcomes:?}");
}
