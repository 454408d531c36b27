//! Tower's contract: what is called was polled ready, the second attempt included.

mod common;

use std::pin::pin;
use std::time::Duration;

use common::{Ask, Reply, Rules, ask, at_once, classifier, every, ms, oops, plan, reply, script};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_test::mock;
use tower_triage_core::{AnyError, BoxError, Chain, Classifier, ErrorClass, Halves};
use tower_triage_retry::{ByClone, NoNudge, NoRefresh, Retry, RetryLayer, RetryPolicy};
use tower_triage_test_support::Strict;

type Boxed = Halves<Rules, Chain>;
type MockRetry = Retry<mock::Mock<Ask, Reply>, Boxed, ByClone, NoNudge, NoRefresh>;

fn over_mock(policy: RetryPolicy) -> (mock::Spawn<MockRetry>, mock::Handle<Ask, Reply>) {
    let classifier = Classifier::new(Halves { response: Rules, error: Chain });
    let layer = RetryLayer::new(classifier).policy(plan(policy));
    mock::spawn_layer(layer)
}

fn reset() -> BoxError {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

#[tokio::test(start_paused = true)]
async fn kf01_readiness_is_the_inner_services() {
    let (mut service, mut handle) = over_mock(at_once());
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(ask()));
    assert_pending!(call.poll());
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!(request, ask());
    respond.send_response(reply(200));
    assert_eq!(assert_ready_ok!(call.poll()), reply(200));
}

#[tokio::test(start_paused = true)]
async fn kf02_readiness_is_awaited_before_every_further_attempt() {
    let (mut service, mut handle) = over_mock(at_once());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(ask()));
    for attempt in 1..=3 {
        assert_pending!(call.poll());
        let (request, respond) = handle.next_request().await.unwrap();
        assert_eq!(request, ask());
        if attempt == 3 {
            respond.send_response(reply(200));
            break;
        }
        respond.send_error(reset());
        // The clone is not ready yet: nothing is sent until it is.
        assert!(call.is_woken());
        assert_pending!(call.poll());
        let mut next = task::spawn(async { handle.next_request().await });
        assert_pending!(next.poll());
        drop(next);
        handle.allow(1);
        assert!(call.is_woken());
    }
    assert_eq!(assert_ready_ok!(call.poll()), reply(200));
}

#[tokio::test(start_paused = true)]
async fn kf02_a_readiness_error_comes_through() {
    let (mut service, mut handle) = over_mock(at_once());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(ask()));
    assert_pending!(call.poll());
    let (_, respond) = handle.next_request().await.unwrap();
    respond.send_error(reset());
    assert_pending!(call.poll());
    handle.send_error("gone");
    let error = assert_ready!(call.poll()).unwrap_err();
    assert_eq!(error.to_string(), "gone");
}

/// Ready-then-call, five times on each of two clones, with failures in between.
#[tokio::test(start_paused = true)]
async fn kf01_over_a_service_that_insists() {
    let (classifier, _) = classifier();
    let layer = RetryLayer::new(classifier).policy(plan(every(ms(10))));
    let service = script([
        || Err(oops(ErrorClass::Transient)),
        || Ok(reply(503)),
        || Ok(reply(200)),
        || Err(oops(ErrorClass::Transient)),
        || Ok(reply(200)),
    ]);
    let mut one = layer.layer(Strict::new(service.clone()));
    let mut two = one.clone();
    for _ in 0..5 {
        for retry in [&mut one, &mut two] {
            assert_eq!(retry.ready().await.unwrap().call(ask()).await.unwrap(), reply(200));
        }
    }
    assert_eq!(service.calls(), 10 + 3);
}

/// The failed attempt's permit is free when the next attempt asks for one.
#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_of_one_below() {
    let (classifier, _) = classifier();
    let service =
        script([|| Ok(reply(503)), || Err(oops(ErrorClass::Transient)), || Ok(reply(200))]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(plan(every(ms(10)))))
        .concurrency_limit(1)
        .service(service);
    let other = stack.clone();
    let both = async { tokio::join!(stack.oneshot(ask()), other.oneshot(ask())) };
    let (one, two) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    assert_eq!(one.unwrap(), reply(200));
    assert_eq!(two.unwrap(), reply(200));
}

#[tokio::test(start_paused = true)]
async fn a_buffer_below_and_one_above() {
    let classifier = Classifier::new(Halves { response: Rules, error: Chain });
    let service = script([|| Ok(reply(503)), || Ok(reply(503)), || Ok(reply(200))]);
    let stack = ServiceBuilder::new()
        .buffer(4)
        .layer(RetryLayer::new(classifier).policy(plan(every(ms(10)))))
        .map_err(AnyError::from_boxed)
        .buffer(1)
        .service(service.clone());
    assert_eq!(stack.oneshot(ask()).await.unwrap(), reply(200));
    assert_eq!(service.calls(), 3);
}

/// A dropped call gives its place back, in flight, in the wait and while not ready.
#[tokio::test(start_paused = true)]
async fn kf37_dropped_calls_leave_nothing_behind() {
    let (mut service, mut handle) = over_mock(every(ms(100)));
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let call = task::spawn(service.call(ask()));
    let (_, respond) = handle.next_request().await.unwrap();
    drop(call);
    // The mock's receiver is gone with the call.
    respond.send_response(reply(200));

    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(ask()));
    assert_pending!(call.poll());
    let (_, respond) = handle.next_request().await.unwrap();
    respond.send_error(reset());
    assert_pending!(call.poll());
    drop(call);
    tokio::time::advance(ms(200)).await;
    let mut next = pin!(handle.next_request());
    assert_pending!(task::spawn(next.as_mut()).poll());
}

#[tokio::test]
async fn a_stack_is_spawned_unboxed() {
    let classifier = Classifier::new(Halves { response: Rules, error: Chain });
    let service = script([|| Ok(reply(503)), || Ok(reply(200))]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(plan(at_once())))
        .map_err(AnyError::from_boxed)
        .timeout(Duration::from_secs(1))
        .service(service);
    let answer = tokio::spawn(async move { stack.oneshot(ask()).await });
    assert_eq!(answer.await.unwrap().unwrap(), reply(200));
}

#[test]
fn the_stack_boxes_as_a_cloneable_sync_service() {
    let (classifier, _) = classifier();
    let layer = RetryLayer::new(classifier);
    let boxed = tower::util::BoxCloneSyncService::new(layer.layer(script([|| Ok(reply(200))])));
    drop(boxed.clone());
}
