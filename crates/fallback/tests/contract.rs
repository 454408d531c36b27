//! The contract of `tower::Service`: what is called is what was polled ready.

mod common;

use common::{classifier, reply, reset, script};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio_test::{assert_pending, assert_ready, task};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};
use tower_test::mock;
use tower_triage_core::{AnyError, Classifier, ClassifyFn, ErrorClass, Failure, classify_fn};
use tower_triage_fallback::FallbackLayer;
use tower_triage_test_support::Strict;

use ErrorClass::{Timeout, Transient};

type Mocked = mock::Mock<u32, u32>;

/// Every error of a mock is `Transient`.
fn mock_rules()
-> Classifier<ClassifyFn<impl Fn(Result<&u32, &tower::BoxError>) -> tower_triage_core::Verdict>> {
    Classifier::new(classify_fn(|outcome: Result<&u32, &tower::BoxError>| match outcome {
        Ok(_) => tower_triage_core::Verdict::Success,
        Err(_) => Failure::new(Transient).into(),
    }))
}

#[tokio::test]
async fn kf01_five_calls_on_each_of_two_clones() {
    let (inner, mut handle): (Mocked, _) = mock::pair();
    let layer = FallbackLayer::new(mock_rules())
        .or_replan(Transient, |request: u32, _failed| request + 100);
    let service = layer.layer(inner);
    let server = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some((request, respond)) = handle.next_request().await {
            seen.push(request);
            if request < 100 {
                respond.send_error("first answer is always a failure");
            } else {
                respond.send_response(request);
            }
        }
        seen
    });
    let mut clones = [service.clone(), service];
    for (n, clone) in clones.iter_mut().enumerate() {
        for i in 0..5 {
            let request = 10 * n as u32 + i;
            assert_eq!(clone.ready().await.unwrap().call(request).await.unwrap(), request + 100);
        }
    }
    drop(clones);
    assert_eq!(server.await.unwrap().len(), 20);
}

#[tokio::test]
async fn kf01_a_replan_waits_for_readiness() {
    let (inner, mut handle): (Mocked, _) = mock::pair();
    let mut service = FallbackLayer::new(mock_rules())
        .or_replan(Transient, |request: u32, _| request + 1)
        .layer(inner);
    handle.allow(1);
    service.ready().await.unwrap();
    let mut call = task::spawn(service.call(1));
    assert_pending!(call.poll());
    handle.next_request().await.unwrap().1.send_error("down");
    assert_pending!(call.poll());
    assert_pending!(task::spawn(handle.next_request()).poll(), "not ready, so not called");
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!(request, 2);
    respond.send_response(7);
    assert_eq!(assert_ready!(call.poll()).unwrap(), 7);
}

#[tokio::test]
async fn kf01_a_backup_is_polled_ready_too() {
    let backup = Strict::new(script([|| Ok::<_, AnyError>(reply(200, "backup"))]));
    let primary = Strict::new(script([|| Err(reset("down"))]));
    let layer = FallbackLayer::new(classifier())
        .or_replan(Transient, |request: u32, _| request)
        .or_service(Transient, backup);
    let service = layer.layer(primary);
    for mut service in [service.clone(), service] {
        for request in 0..5 {
            assert_eq!(service.ready().await.unwrap().call(request).await.unwrap().body, "backup");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replan_fits_into_a_limit_of_one() {
    let primary = script([|| Err(reset("down")), || Ok(reply(200, "replanned"))]);
    let limited = ConcurrencyLimitLayer::new(1).layer(primary);
    let mut service = FallbackLayer::new(classifier())
        .or_replan(Transient, |request: u32, _| request)
        .layer(limited);
    let call = service.ready().await.unwrap().call(1);
    let answer = tokio::time::timeout(Duration::from_secs(1), call).await.expect("no deadlock");
    assert_eq!(answer.unwrap().body, "replanned");
}

#[tokio::test]
async fn works_around_and_inside_a_buffer() {
    let primary = script([|| Err(reset("down"))]);
    let layer = FallbackLayer::new(classifier()).or_value(Transient, |_| reply(200, "value"));
    let mut outside =
        layer.layer(BufferLayer::new(4).layer(primary.clone()).map_err(AnyError::from_boxed));
    assert_eq!(outside.ready().await.unwrap().call(1).await.unwrap().body, "value");
    let mut inside = BufferLayer::new(4).layer(layer.layer(primary));
    assert_eq!(inside.ready().await.unwrap().call(1).await.unwrap().body, "value");
}

/// A service whose readiness fails.
#[derive(Clone)]
struct NeverReady;

impl Service<u32> for NeverReady {
    type Response = common::Reply;
    type Error = AnyError;
    type Future = std::future::Ready<Result<common::Reply, AnyError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Err(reset("not ready")))
    }

    fn call(&mut self, _: u32) -> Self::Future {
        panic!("called although it was not ready")
    }
}

#[tokio::test]
async fn a_readiness_error_is_the_next_calls_outcome() {
    let classifier = classifier();
    let backup = script([|| Ok::<_, AnyError>(reply(200, "backup"))]);
    let layer = FallbackLayer::new(classifier.clone()).or_service(Transient, backup.clone());
    let mut service = layer.layer(NeverReady);
    let answer = service.ready().await.expect("held").call(7).await.unwrap();
    assert_eq!((answer.body.as_str(), answer.notes.fallback), ("backup", Some(Transient)));
    assert_eq!(backup.take_requests(), [7], "the request reaches the backup");
    assert_eq!(classifier.count(Transient), 1);
}

#[tokio::test]
async fn a_readiness_error_that_nothing_answers_is_returned() {
    let layer = FallbackLayer::new(classifier()).or_value(Timeout, |_| reply(200, ""));
    let mut service = layer.layer(NeverReady);
    let error = service.ready().await.expect("held").call(7).await.unwrap_err();
    assert_eq!(error.to_string(), "not ready");
}

#[tokio::test]
async fn a_clone_does_not_inherit_readiness() {
    let layer = FallbackLayer::new(classifier()).or_value(Timeout, |_| reply(200, ""));
    let mut service = layer.layer(Strict::new(script([|| Ok::<_, AnyError>(reply(200, ""))])));
    service.ready().await.unwrap();
    let mut clone = service.clone();
    let ready = poll_fn(|cx| Poll::Ready(clone.poll_ready(cx).is_ready())).await;
    assert!(!ready, "the clone must be polled ready itself");
    service.call(1).await.unwrap();
}
