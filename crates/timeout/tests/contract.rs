//! Tower's contract: what is called was polled ready, the second attempt included.

mod common;

use std::time::Duration;

use common::{Ask, Slow, ask, rules, secs};
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::mock;
use tower_triage_core::{
    AnyError, AnyOk, Backoff, BoxError, Chain, Classifier, Elapsed, ErrorClass, Halves,
    RequestFacts, RulesExt,
};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPlan, RetryPolicy};
use tower_triage_test_support::Strict;
use tower_triage_timeout::TimeoutLayer;

type Handle = mock::Handle<Ask, u32>;

/// Over boxed errors, as the mock has them.
fn layer(
    limit: Duration,
) -> TimeoutLayer<impl tower_triage_core::Classify<u32, BoxError> + tower_triage_core::Describe<Ask>>
{
    let rules = Halves { response: AnyOk, error: Chain }.describe(|ask: &Ask| {
        let facts = RequestFacts::new("ask");
        ask.deadline.map_or(facts, |deadline| facts.deadline(deadline))
    });
    TimeoutLayer::new(Classifier::new(rules), limit).unwrap()
}

fn at_once() -> RetryPlan {
    let rule = ClassRule::new(Backoff::immediate());
    RetryPolicy::default().retry(ErrorClass::Timeout, rule).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn kf01_readiness_is_the_inner_services_and_its_time_does_not_count() {
    let (mut service, mut handle): (_, Handle) = mock::spawn_layer(layer(secs(1)));
    handle.allow(0);
    assert_pending!(service.poll_ready());
    tokio::time::advance(secs(60)).await;
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    tokio::time::advance(secs(60)).await;
    let mut call = task::spawn(service.call(ask(secs(0))));
    assert_pending!(call.poll());
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!(request, ask(secs(0)));
    respond.send_response(7);
    assert_eq!(assert_ready_ok!(call.poll()), 7);
}

#[tokio::test(start_paused = true)]
async fn kf02_a_readiness_error_comes_through() {
    let (mut service, mut handle): (_, Handle) = mock::spawn_layer(layer(secs(1)));
    handle.send_error("gone");
    assert_eq!(assert_ready_err!(service.poll_ready()).to_string(), "gone");
}

/// What was readied stays so when a call is refused before it.
#[tokio::test(start_paused = true)]
async fn a_call_past_its_deadline_leaves_the_inner_service_ready() {
    let (mut service, mut handle): (_, Handle) = mock::spawn_layer(layer(secs(1)));
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut late = task::spawn(service.call(ask(secs(0)).by(Instant::now())));
    assert_eq!(assert_ready_err!(late.poll()).downcast_ref(), Some(&Elapsed::not_sent()));
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(ask(secs(0))));
    assert_pending!(call.poll());
    let (_, respond) = handle.next_request().await.unwrap();
    respond.send_response(1);
    assert_ready_ok!(call.poll());
}

#[tokio::test(start_paused = true)]
async fn kf02_the_attempt_after_one_that_was_cut_off_is_readied_first() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(at_once()))
        .layer(TimeoutLayer::new(classifier, secs(1)).unwrap());
    let (mut service, mut handle): (_, Handle) = mock::spawn_layer(stack);
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(ask(secs(0))));
    assert_pending!(call.poll());
    let (_, first) = handle.next_request().await.unwrap();
    tokio::time::advance(secs(2)).await;
    assert!(call.is_woken());
    assert_pending!(call.poll());
    // Dropped: nobody waits for the first answer. The second attempt waits for readiness.
    first.send_response(1);
    assert_pending!(task::spawn(handle.next_request()).poll());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (_, second) = handle.next_request().await.unwrap();
    second.send_response(2);
    assert_eq!(assert_ready!(call.poll()).unwrap(), 2);
}

/// Ready-then-call on each of two clones, with attempts that are cut off in between.
#[tokio::test(start_paused = true)]
async fn kf01_over_a_service_that_insists() {
    let layer = TimeoutLayer::new(Classifier::new(rules()), secs(1)).unwrap();
    let mut one = layer.layer(Strict::new(Slow::default()));
    let mut two = one.clone();
    for takes in [secs(0), secs(9), secs(0), secs(9)] {
        for service in [&mut one, &mut two] {
            let outcome = service.ready().await.unwrap().call(ask(takes)).await;
            assert_eq!(outcome.is_ok(), takes.is_zero());
        }
    }
}

/// What an attempt holds is free once it was cut off.
#[tokio::test(start_paused = true)]
async fn a_permit_of_an_attempt_that_was_cut_off_is_given_back() {
    let mut stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(Classifier::new(rules()), secs(1)).unwrap())
        .concurrency_limit(1)
        .service(Slow::default());
    for takes in [secs(9), secs(9), secs(0)] {
        let ready = tokio::time::timeout(secs(1), stack.ready()).await.unwrap().unwrap();
        assert_eq!(ready.call(ask(takes)).await.is_ok(), takes.is_zero());
    }
}

/// Neither the service nor requests and responses need be `Clone`.
#[tokio::test(start_paused = true)]
async fn nothing_need_be_cloneable() {
    struct Once;
    let mut sent = None;
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = TimeoutLayer::new(classifier, secs(1)).unwrap().layer(service_fn(|once: Once| {
        assert!(sent.replace(()).is_none());
        std::future::ready(Ok::<_, AnyError>(once))
    }));
    let Once = stack.oneshot(Once).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_buffer_below_and_one_above() {
    let classifier = Classifier::new(rules());
    let stack = ServiceBuilder::new()
        .buffer(4)
        .layer(TimeoutLayer::new(classifier, secs(1)).unwrap())
        .map_err(AnyError::from_boxed)
        .buffer(1)
        .service(Slow::default());
    assert_eq!(stack.clone().oneshot(ask(secs(0))).await.unwrap(), 1);
    stack.oneshot(ask(secs(9))).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_stack_is_spawned_unboxed() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(at_once()))
        .layer(
            TimeoutLayer::new(classifier, secs(1))
                .unwrap()
                .tell(|ask: &mut Ask, _| ask.repeatable = true),
        )
        .map_err(AnyError::from)
        .service(Slow::default());
    let answer = tokio::spawn(async move { stack.oneshot(ask(secs(0))).await });
    assert_eq!(answer.await.unwrap().unwrap(), 1);
}

#[test]
fn the_stack_boxes_as_a_cloneable_sync_service() {
    let layer = TimeoutLayer::new(Classifier::new(rules()), secs(1)).unwrap();
    drop(tower::util::BoxCloneSyncService::new(layer.layer(Slow::default())).clone());
}
