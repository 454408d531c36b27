//! What a user of the layer would miss.

mod common;

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{
    Ask, Oops, Reply, Rules, Script, ask, at_once, classifier, every, ms, oops, plan, reply, script,
};
use tokio::sync::watch;
use tokio::time::{Instant, advance};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::incident::{self, Resolution};
use tower_triage_core::{
    AnyError, Backoff, Chain, CircuitOpen, Classifier, ClassifyError, ClassifyResponse, Describe,
    ErrorClass, Failure, Halves, Label, Random, Refusal, RetryAfter, ServerWord, StepKind, Verdict,
};
use tower_triage_retry::budget::{BucketSettings, Budget, ThrottleSettings, WindowSettings};
use tower_triage_retry::{
    Attempt, ClassRule, Never, Release, Replay, RetryLayer, RetryPolicy, replay_fn,
};
use tower_triage_test_support::Seen;

fn failing() -> Script {
    script([|| Err(oops(ErrorClass::Transient))])
}

/// Why the call of the last incident was not repeated.
fn refusal(incident: &tower_triage_core::Incident) -> Refusal {
    incident
        .steps
        .iter()
        .find_map(|step| match step.kind {
            StepKind::NotRetried { why } => Some(why),
            _ => None,
        })
        .expect("a refusal")
}

/// A service that has the outcome ready at once, made by a closure from the number of the call.
fn numbered<Res, E>(
    answer: impl Fn(usize) -> Result<Res, E> + Clone,
) -> (
    impl Service<Ask, Response = Res, Error = E, Future = Ready<Result<Res, E>>> + Clone,
    Arc<AtomicUsize>,
) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let service =
        service_fn(move |_: Ask| ready(answer(counter.fetch_add(1, Ordering::SeqCst) + 1)));
    (service, calls)
}

#[tokio::test(start_paused = true)]
async fn a_response_can_be_the_failure() {
    let (classifier, seen) = classifier();
    let service = script([|| Ok(reply(503)), || Ok(reply(503)), || Ok(reply(200))]);
    let retry = RetryLayer::new(classifier).layer(service.clone());
    assert_eq!(retry.oneshot(ask()).await.unwrap(), reply(200));
    assert_eq!(service.calls(), 3);
    let incident = seen.last();
    assert_eq!(incident.resolution, Resolution::RecoveredByRetry);
    assert_eq!(incident.attempts, 3);
    assert_eq!(
        seen.outcomes(),
        ["failed", "released", "waiting", "failed", "released", "waiting", "succeeded"]
    );
}

/// Whether an attempt answers at once or after a while, its success is told.
#[tokio::test(start_paused = true)]
async fn a_retry_that_takes_its_time_is_told_too() {
    let (classifier, seen) = classifier();
    let calls = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |_: Ask| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(ms(10)).await;
            if call == 0 { Err(oops(ErrorClass::Transient)) } else { Ok(reply(200)) }
        }
    });
    let layer = RetryLayer::new(classifier).policy(plan(every(ms(100))));
    layer.layer(service).oneshot(ask()).await.unwrap();
    assert_eq!(seen.outcomes(), ["failed", "waiting", "succeeded"]);
    let incident = seen.last();
    assert_eq!((incident.resolution, incident.attempts), (Resolution::RecoveredByRetry, 2));
}

/// KF-02: see also `contract.rs`, where the inner service insists on it.
#[tokio::test(start_paused = true)]
async fn kf02_a_readiness_error_ends_the_call_unchanged() {
    /// Fails its second readiness poll, and every call.
    #[derive(Clone)]
    struct Unready(Arc<AtomicUsize>);
    impl Service<Ask> for Unready {
        type Response = Reply;
        type Error = Oops;
        type Future = Ready<Result<Reply, Oops>>;
        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Oops>> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Poll::Ready(Ok(())),
                _ => Poll::Ready(Err(Oops(ErrorClass::Internal.into(), "not ready"))),
            }
        }
        fn call(&mut self, _ask: Ask) -> Self::Future {
            ready(Err(oops(ErrorClass::Transient)))
        }
    }
    let (classifier, seen) = classifier();
    let polls = Arc::new(AtomicUsize::new(0));
    let retry = RetryLayer::new(classifier).layer(Unready(Arc::clone(&polls)));
    let error = retry.oneshot(ask()).await.unwrap_err();
    assert_eq!(error.1, "not ready");
    assert_eq!(polls.load(Ordering::SeqCst), 2);
    let incident = seen.last();
    assert_eq!(incident.failure.unwrap().class, ErrorClass::Internal);
    assert_eq!(incident.resolution, Resolution::Failed);
    assert_eq!(seen.outcomes(), ["failed", "waiting", "failed"]);
}

#[tokio::test(start_paused = true)]
async fn kf04_one_layer_value_shares_one_budget() {
    let (classifier, _) = classifier();
    let budget =
        |initial| Budget::bucket(BucketSettings { gain: 0.0, capacity: 10, initial }).unwrap();
    let service = failing();
    let layer = RetryLayer::new(classifier).policy(plan(at_once())).budget(budget(3));
    let many: Vec<_> = (0..4).map(|_| layer.layer(service.clone())).collect();
    for retry in many {
        retry.clone().oneshot(ask()).await.unwrap_err();
        retry.oneshot(ask()).await.unwrap_err();
    }
    assert_eq!(service.calls(), 8 + 3);

    // A policy alone does not part it from a budget that was given, and gets a fresh one if none was.
    let other = layer.clone().policy(plan(at_once().attempts(2)));
    other.layer(service.clone()).oneshot(ask()).await.unwrap_err();
    assert_eq!(service.calls(), 12);
}

/// KF-18 over mock facts.
#[tokio::test(start_paused = true)]
async fn kf18_unsafe_requests_are_not_repeated() {
    let (classifier, seen) = classifier();
    let post = Ask { repeatable: false, ..ask() };
    let service = failing();
    let layer = RetryLayer::new(classifier).policy(plan(at_once()));
    let error = layer.layer(service.clone()).oneshot(post.clone()).await.unwrap_err();
    assert_eq!(error, oops(ErrorClass::Transient));
    assert_eq!(service.calls(), 1);
    assert_eq!(refusal(&seen.last()), Refusal::NotIdempotent);
    assert!(seen.last().steps[1].kind.to_string().contains("outcome is unknown"));

    // Where the peer vouches that it did nothing, it is.
    let service = script([|| Ok(reply(429)), || Ok(reply(200))]);
    assert_eq!(layer.layer(service.clone()).oneshot(post).await.unwrap(), reply(200));
    layer.layer(failing()).oneshot(ask()).await.unwrap_err();
    assert_eq!(seen.last().attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn kf20_attempt_counters_belong_to_one_request() {
    let (classifier, seen) = classifier();
    let layer = RetryLayer::new(classifier)
        .policy(plan(RetryPolicy::default().backoff(&Backoff::exponential(ms(100), 2.0))))
        .budget(Budget::unlimited());
    let made = Arc::new(Mutex::new(std::collections::HashMap::<String, usize>::new()));
    let service = service_fn(move |ask: Ask| {
        let mut made = made.lock().unwrap();
        let count = made.entry(ask.text).or_default();
        *count += 1;
        ready(if *count < 3 { Err(oops(ErrorClass::Transient)) } else { Ok(reply(200)) })
    });
    let retry = layer.layer(service);
    let began = Instant::now();
    let calls: Vec<_> = (0..100)
        .map(|n| tokio::spawn(retry.clone().oneshot(Ask { text: n.to_string(), ..ask() })))
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), reply(200));
    }
    assert_eq!(began.elapsed(), ms(300));
    let incidents = seen.incidents();
    assert_eq!(incidents.len(), 100);
    for incident in incidents {
        assert_eq!(incident.attempts, 3);
        let waits: Vec<_> = incident
            .steps
            .iter()
            .filter_map(|step| match step.kind {
                StepKind::Waiting { delay, .. } => Some(delay),
                _ => None,
            })
            .collect();
        assert_eq!(waits, [ms(100), ms(200)]);
    }
}

#[tokio::test(start_paused = true)]
async fn kf21_the_first_call_counts_and_zero_is_refused() {
    for max in [1, 3, 7] {
        let (classifier, seen) = classifier();
        let service = failing();
        let layer = RetryLayer::new(classifier).policy(plan(at_once().attempts(max)));
        layer.layer(service.clone()).oneshot(ask()).await.unwrap_err();
        assert_eq!(service.calls(), max as usize);
        assert_eq!(refusal(&seen.last()), Refusal::AttemptsUsedUp);
    }
    assert_eq!(RetryPolicy::default().attempts(0).build().unwrap_err().field(), "attempts");

    // Unlimited, by name: only something else ends it.
    let (classifier, _) = classifier();
    let (service, calls) = numbered(|n| match n {
        50 => Ok(reply(200)),
        _ => Err(oops(ErrorClass::Transient)),
    });
    let layer = RetryLayer::new(classifier)
        .policy(plan(at_once().unlimited_attempts()))
        .budget(Budget::unlimited());
    layer.layer(service).oneshot(ask()).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 50);
}

#[tokio::test(start_paused = true)]
async fn kf22_a_retry_budget_that_holds() {
    let (classifier, seen) = classifier();
    let service = failing();
    let retry =
        RetryLayer::new(classifier).policy(plan(at_once().attempts(4))).layer(service.clone());
    let clones: Vec<_> = (0..4).map(|_| retry.clone()).collect();
    for n in 0..1000 {
        let error = clones[n % 4].clone().oneshot(ask()).await.unwrap_err();
        assert_eq!(error, oops(ErrorClass::Transient));
    }
    assert!((1100..=1110).contains(&service.calls()), "{} calls", service.calls());
    assert_eq!(refusal(&seen.last()), Refusal::BudgetExhausted);
}

#[tokio::test(start_paused = true)]
async fn kf23_nested_retries_do_not_multiply() {
    let (classifier, seen) = classifier();
    let layer = RetryLayer::new(classifier.clone()).policy(plan(at_once()));
    let service = failing();
    layer.layer(layer.layer(service.clone())).oneshot(ask()).await.unwrap_err();
    assert_eq!(service.calls(), 3);
    let whys: Vec<_> = seen
        .steps()
        .iter()
        .filter_map(|(labels, _)| (labels.outcome == "not_retried").then_some(labels.reason))
        .collect();
    assert_eq!(whys, ["attempts_used_up", "exhausted_below"]);
    assert_eq!(classifier.count(ErrorClass::Transient), 3);

    // Three of them, and a budget that is used up below, are no different.
    let service = failing();
    layer.layer(layer.layer(layer.layer(service.clone()))).oneshot(ask()).await.unwrap_err();
    assert_eq!(service.calls(), 3);
    let empty = BucketSettings { gain: 0.0, capacity: 1, initial: 0 };
    let inner = layer.clone().budget(Budget::bucket(empty).unwrap());
    let service = failing();
    layer.layer(inner.layer(service.clone())).oneshot(ask()).await.unwrap_err();
    assert_eq!(service.calls(), 1);

    // Multiplying is asked for by name.
    let service = failing();
    let outer = layer.clone().policy(plan(at_once().honour_exhausted(false)));
    let before = seen.incidents().len();
    outer.layer(layer.layer(service.clone())).oneshot(ask()).await.unwrap_err();
    assert_eq!(service.calls(), 9);
    // Both belong to one call, in further attempts too.
    assert_eq!(seen.incidents().len(), before + 1);
    assert_eq!(seen.last().attempts, 9);
}

/// What the inner layer does not repeat, the outer one may: only what is used up is marked.
#[tokio::test(start_paused = true)]
async fn an_outer_rule_of_its_own_still_works() {
    let (classifier, _) = classifier();
    let inner = RetryLayer::new(classifier.clone()).policy(plan(at_once()));
    let unknown = at_once().retry(ErrorClass::Unknown, ClassRule::new(Backoff::immediate()));
    let outer = RetryLayer::new(classifier).policy(plan(unknown));
    let service = script([|| Err(oops(ErrorClass::Unknown)), || Ok(reply(200))]);
    outer.layer(inner.layer(service.clone())).oneshot(ask()).await.unwrap();
    assert_eq!(service.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn kf24_exhaustion_keeps_the_real_error() {
    let classifier = Classifier::new(Halves { response: Rules, error: Chain });
    let (service, _) = numbered(|n| -> Result<Reply, AnyError> {
        Err(match n {
            1 => AnyError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)),
            2 => AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
            _ => AnyError::from(Oops(ErrorClass::Permanent.into(), "sold out")),
        })
    });
    let layer = RetryLayer::new(classifier).policy(plan(every(ms(100))));
    let (outcome, incident) = incident::scope(layer.layer(service).oneshot(ask())).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.downcast_ref::<Oops>().unwrap().1, "sold out");
    let incident = incident.unwrap();
    assert_eq!(incident.attempts, 3);
    assert_eq!(incident.failure.unwrap().class, ErrorClass::Unknown);
    assert_eq!(incident.elapsed, ms(200));
    let classes: Vec<_> = incident
        .steps
        .iter()
        .filter_map(|step| match &step.kind {
            StepKind::Failed { failure, .. } => Some(failure.class),
            _ => None,
        })
        .collect();
    assert_eq!(classes, [ErrorClass::Timeout, ErrorClass::Transient, ErrorClass::Unknown]);
    // The error carries it too, since its type can.
    assert_eq!(error.incident().unwrap().attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn kf29_no_sleep_past_the_deadline() {
    let slow = || {
        service_fn(|_: Ask| async {
            tokio::time::sleep(ms(900)).await;
            Err::<Reply, _>(oops(ErrorClass::Transient))
        })
    };
    let (classifier, seen) = classifier();
    // The policy's deadline, the request's own, and the earlier of both.
    for (own, of_request) in [(1000, None), (60_000, Some(1000)), (1000, Some(60_000))] {
        let began = Instant::now();
        let layer =
            RetryLayer::new(classifier.clone()).policy(plan(every(ms(500)).deadline(ms(own))));
        let ask = Ask { deadline: of_request.map(|left| began + ms(left)), ..ask() };
        let error = layer.layer(slow()).oneshot(ask).await.unwrap_err();
        assert_eq!(error, oops(ErrorClass::Transient));
        assert_eq!(began.elapsed(), ms(900));
        assert_eq!(refusal(&seen.last()), Refusal::WaitOverDeadline);
    }
    // The overall deadline has passed: a timeout is not repeated even without a wait.
    let began = Instant::now();
    let late = || {
        service_fn(|_: Ask| async {
            tokio::time::sleep(ms(1500)).await;
            Err::<Reply, _>(oops(ErrorClass::Timeout))
        })
    };
    let layer = RetryLayer::new(classifier).policy(plan(at_once().deadline(ms(1000))));
    layer.layer(late()).oneshot(ask()).await.unwrap_err();
    assert_eq!(began.elapsed(), ms(1500));
    assert_eq!(refusal(&seen.last()), Refusal::DeadlinePassed);
}

/// A service that is not ready again in time does not hold the call beyond its deadline.
#[tokio::test(start_paused = true)]
async fn kf29_nor_wait_for_readiness_past_it() {
    /// Ready once in all.
    #[derive(Clone)]
    struct Once(Arc<AtomicUsize>);
    impl Service<Ask> for Once {
        type Response = Reply;
        type Error = Oops;
        type Future = Ready<Result<Reply, Oops>>;
        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Oops>> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Poll::Ready(Ok(())),
                _ => Poll::Pending,
            }
        }
        fn call(&mut self, _ask: Ask) -> Self::Future {
            ready(Err(oops(ErrorClass::Transient)))
        }
    }
    let (classifier, seen) = classifier();
    let layer = RetryLayer::new(classifier).policy(plan(every(ms(100)).deadline(ms(1000))));
    let began = Instant::now();
    let call = layer.layer(Once(Arc::default())).oneshot(ask());
    let error = tokio::time::timeout(ms(5000), call).await.expect("it ends").unwrap_err();
    assert_eq!(error, oops(ErrorClass::Transient));
    assert_eq!(began.elapsed(), ms(1000));
    assert_eq!(refusal(&seen.last()), Refusal::DeadlinePassed);
    assert_eq!(seen.last().attempts, 1);
}

/// Nor is an attempt begun after it, where the wait took longer than it should have (a busy thread).
#[tokio::test(start_paused = true)]
async fn kf29_nor_begin_an_attempt_past_it() {
    let (classifier, seen) = classifier();
    let service = failing();
    let layer = RetryLayer::new(classifier).policy(plan(every(ms(100)).deadline(ms(1000))));
    for (late, calls, why) in
        [(999, 2, Refusal::WaitOverDeadline), (1000, 3, Refusal::DeadlinePassed)]
    {
        let mut call = tokio_test::task::spawn(layer.layer(service.clone()).oneshot(ask()));
        assert!(call.poll().is_pending());
        advance(ms(late)).await;
        assert_eq!(call.poll(), Poll::Ready(Err(oops(ErrorClass::Transient))));
        assert_eq!((service.calls(), refusal(&seen.last())), (calls, why));
    }
}

#[tokio::test(start_paused = true)]
async fn kf31_retry_after_is_honoured() {
    for status in [429, 503] {
        let seen = Seen::default();
        let (service, _) = numbered(move |n| {
            Ok::<_, Infallible>(match n {
                1 => Reply { status, retry_after: Some(Duration::from_secs(3)) },
                _ => reply(200),
            })
        });
        let classifier = Classifier::new(Halves { response: Rules, error: Chain });
        classifier.observe(seen.clone());
        let layer = RetryLayer::new(classifier)
            .policy(plan(every(ms(100))))
            .random(Random::seeded(u64::from(status)));
        let began = Instant::now();
        assert_eq!(layer.layer(service).oneshot(ask()).await.unwrap(), reply(200));
        let slept = began.elapsed();
        assert!((ms(3000)..=ms(3301)).contains(&slept), "{slept:?}");
        assert!(seen.last().steps.iter().any(|step| matches!(
            step.kind,
            StepKind::Waiting { hinted: true, delay } if delay >= ms(3000) && delay <= slept
        )));
    }
}

#[tokio::test(start_paused = true)]
async fn kf33_a_hint_over_the_cap_returns_the_response_at_once() {
    let (classifier, seen) = classifier();
    let service =
        script([|| Ok(Reply { status: 429, retry_after: Some(Duration::from_secs(86_400)) })]);
    let began = Instant::now();
    let layer = RetryLayer::new(classifier).policy(plan(every(ms(100))));
    let answer = layer.layer(service.clone()).oneshot(ask()).await.unwrap();
    assert_eq!(answer.status, 429);
    assert_eq!(began.elapsed(), Duration::ZERO);
    let incident = seen.last();
    assert_eq!(refusal(&incident), Refusal::HintOverCap);
    let hint = incident.failure.unwrap().retry_after;
    assert_eq!(hint, Some(RetryAfter::AtLeast(Duration::from_secs(86_400))));

    let layer = layer.policy(plan(every(ms(100)).attempts(2).retry_at_hint_cap(true)));
    layer.layer(service.clone()).oneshot(ask()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    assert_eq!(service.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn kf34_virtual_time_drives_the_waits() {
    let (classifier, _) = classifier();
    let service = script([|| Ok(reply(503)), || Ok(reply(200))]);
    let layer = RetryLayer::new(classifier).policy(plan(every(Duration::from_secs(3600))));
    let mut call = tokio_test::task::spawn(layer.layer(service.clone()).oneshot(ask()));
    assert!(call.poll().is_pending());
    advance(Duration::from_secs(3599)).await;
    assert!(call.poll().is_pending());
    assert_eq!(service.calls(), 1);
    advance(Duration::from_secs(2)).await;
    assert!(call.is_woken());
    assert!(call.poll().is_ready());
    assert_eq!(service.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn kf35_a_dropped_call_makes_no_further_attempt() {
    let (classifier, seen) = classifier();
    let service = failing();
    let layer = RetryLayer::new(classifier).policy(plan(every(Duration::from_secs(10))));
    let mut call = tokio_test::task::spawn(layer.layer(service.clone()).oneshot(ask()));
    assert!(call.poll().is_pending());
    advance(ms(50)).await;
    assert!(call.poll().is_pending());
    drop(call);
    assert_eq!(seen.last().resolution, Resolution::Abandoned);
    // No task and no timer: nothing is spawned, and paused time finds nothing to jump to but ours.
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    assert_eq!(service.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn kf35_shutdown_ends_the_wait_with_the_last_outcome() {
    let lines: [fn() -> Result<Reply, Oops>; 2] =
        [|| Err(oops(ErrorClass::Transient)), || Ok(reply(503))];
    for line in lines {
        let (classifier, seen) = classifier();
        let (down, signal) = watch::channel(false);
        let service = script([line]);
        let layer = RetryLayer::new(classifier)
            .policy(plan(every(Duration::from_secs(10))))
            .shutdown(signal);
        let retry = layer.layer(service.clone());
        let began = Instant::now();
        let mut call = tokio_test::task::spawn(retry.clone().oneshot(ask()));
        assert!(call.poll().is_pending());
        advance(ms(50)).await;
        assert!(call.poll().is_pending());
        down.send(true).unwrap();
        assert!(call.is_woken());
        let Poll::Ready(outcome) = call.poll() else { panic!("still waiting") };
        assert_eq!(outcome, line());
        assert_eq!(began.elapsed(), ms(50));
        assert_eq!(refusal(&seen.last()), Refusal::Shutdown);
        assert!(!seen.outcomes().contains(&"released"));
        // After it, no wait is begun at all.
        assert_eq!(retry.oneshot(ask()).await, line());
        assert_eq!(began.elapsed(), ms(50));
        assert_eq!(service.calls(), 2);
        assert_eq!(seen.outcomes().iter().filter(|outcome| **outcome == "waiting").count(), 1);
    }
}

/// A signal that can no longer come is none.
#[tokio::test(start_paused = true)]
async fn a_shutdown_signal_without_a_sender_never_comes() {
    let (classifier, _) = classifier();
    let service = script([|| Ok(reply(503)), || Ok(reply(200))]);
    let layer =
        RetryLayer::new(classifier).policy(plan(every(ms(100)))).shutdown(watch::channel(false).1);
    assert_eq!(layer.layer(service).oneshot(ask()).await.unwrap(), reply(200));
}

fn circuit_open() -> Failure {
    Failure::new(ErrorClass::Rejected).reason(CircuitOpen::REASON)
}

/// KF-47, the retry's half: the breaker below refuses the second attempt.
#[tokio::test(start_paused = true)]
async fn kf47_a_rejection_of_our_own_returns_the_kept_error() {
    let rejected = || Oops(circuit_open(), "open");
    let (classifier, seen) = classifier();
    let service =
        script([|| Err(oops(ErrorClass::Transient)), || Err(Oops(circuit_open(), "open"))]);
    let retry = RetryLayer::new(classifier.clone())
        .policy(plan(at_once().attempts(5)))
        .layer(service.clone());
    let error = retry.clone().oneshot(ask()).await.unwrap_err();
    assert_eq!(error, oops(ErrorClass::Transient));
    assert_eq!(service.calls(), 2);
    assert_eq!(refusal(&seen.last()), Refusal::ClassNotRetried);
    // On the first attempt there is nothing else to return.
    assert_eq!(retry.oneshot(ask()).await.unwrap_err(), rejected());

    // A response was released before the wait: then the rejection is returned.
    let service = script([|| Ok(reply(503)), || Err(Oops(circuit_open(), "open"))]);
    let layer = RetryLayer::new(classifier.clone()).policy(plan(at_once()));
    assert_eq!(layer.layer(service).oneshot(ask()).await.unwrap_err(), rejected());
    assert!(seen.last().steps.iter().any(|step| step.kind.outcome() == "released"));

    // With a shutdown signal it was not, and is.
    let service = script([|| Ok(reply(503)), || Err(Oops(circuit_open(), "open"))]);
    let (_down, signal) = watch::channel(false);
    let layer = layer.shutdown(signal);
    assert_eq!(layer.layer(service).oneshot(ask()).await.unwrap(), reply(503));

    // An outer retry does not begin anew.
    let service =
        script([|| Err(oops(ErrorClass::Transient)), || Err(Oops(circuit_open(), "open"))]);
    let layer = RetryLayer::new(classifier).policy(plan(at_once()));
    let error = layer.layer(layer.layer(service.clone())).oneshot(ask()).await.unwrap_err();
    assert_eq!(error, oops(ErrorClass::Transient));
    assert_eq!(service.calls(), 2);
}

/// Where rejections are repeated by request, the last word of the service outlives all of them.
#[tokio::test(start_paused = true)]
async fn the_kept_error_outlives_repeated_rejections() {
    let (classifier, _) = classifier();
    let service =
        script([|| Err(oops(ErrorClass::Transient)), || Err(Oops(circuit_open(), "open"))]);
    let policy =
        at_once().attempts(4).retry(ErrorClass::Rejected, ClassRule::new(Backoff::immediate()));
    let layer = RetryLayer::new(classifier).policy(plan(policy));
    let error = layer.layer(service.clone()).oneshot(ask()).await.unwrap_err();
    assert_eq!(error, oops(ErrorClass::Transient));
    assert_eq!(service.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_servers_word_is_heard() {
    let (classifier, seen) = classifier();
    let service = script([
        || Err(Oops(Failure::new(ErrorClass::Permanent).server(ServerWord::Demanded), "again")),
        || Err(Oops(Failure::new(ErrorClass::Transient).server(ServerWord::Forbidden), "no")),
    ]);
    let layer = RetryLayer::new(classifier).policy(plan(at_once()));
    let error = layer.layer(service.clone()).oneshot(ask()).await.unwrap_err();
    assert_eq!(error.1, "no");
    assert_eq!(service.calls(), 2);
    assert_eq!(refusal(&seen.last()), Refusal::ServerForbade);
}

/// A request that counts its clones.
#[derive(Debug)]
struct Counted {
    repeatable: bool,
    clones: Arc<AtomicUsize>,
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, Ordering::SeqCst);
        Self { repeatable: self.repeatable, clones: Arc::clone(&self.clones) }
    }
}

#[derive(Clone, Copy, Debug)]
struct CountedRules;

impl ClassifyResponse<Reply> for CountedRules {
    fn response(&self, reply: &Reply) -> Verdict {
        Rules.response(reply)
    }
}

impl Describe<Counted> for CountedRules {
    fn repeatable(&self, request: &Counted) -> bool {
        request.repeatable
    }
}

impl ClassifyError<Oops> for CountedRules {
    fn error(&self, error: &Oops) -> Failure {
        error.0
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_cloned_that_the_policy_cannot_use() {
    /// Counts how often the service is cloned.
    struct CountingService(Arc<AtomicUsize>);
    impl Clone for CountingService {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::SeqCst);
            Self(Arc::clone(&self.0))
        }
    }
    impl Service<Counted> for CountingService {
        type Response = Reply;
        type Error = Oops;
        type Future = Ready<Result<Reply, Oops>>;
        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Oops>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _request: Counted) -> Self::Future {
            ready(Err(oops(ErrorClass::Transient)))
        }
    }
    let rules = Halves { response: CountedRules, error: CountedRules };
    let clones = |policy: RetryPolicy, repeatable| async move {
        let layer = RetryLayer::new(Classifier::new(rules)).policy(plan(policy));
        let (requests, services) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let mut retry = layer.layer(CountingService(Arc::clone(&services)));
        // The template for further attempts, made once for all calls.
        assert_eq!(services.swap(0, Ordering::SeqCst), 1);
        let request = Counted { repeatable, clones: Arc::clone(&requests) };
        retry.ready().await.unwrap().call(request).await.unwrap_err();
        (requests.load(Ordering::SeqCst), services.load(Ordering::SeqCst))
    };
    assert_eq!(clones(at_once().attempts(1), true).await, (0, 0));
    assert_eq!(clones(at_once().keep_unrepeatable(false), false).await, (0, 0));
    assert_eq!(clones(at_once().keep_unrepeatable(false), true).await, (3, 1));
    // Kept for the case that the peer vouches that it did nothing; it does not.
    assert_eq!(clones(at_once(), false).await, (1, 0));
}

/// That nothing was kept is said where nothing else is asked before it.
#[tokio::test(start_paused = true)]
async fn what_was_not_kept_is_told() {
    let (classifier, seen) = classifier();
    let layer = RetryLayer::new(classifier);
    let post = Ask { repeatable: false, ..ask() };
    let told = async |policy: RetryPolicy| {
        let retry = layer.clone().policy(plan(policy)).layer(failing());
        retry.oneshot(post.clone()).await.unwrap_err();
        refusal(&seen.last())
    };
    let kept_not = at_once().keep_unrepeatable(false);
    assert!(matches!(told(kept_not.clone()).await, Refusal::NotReplayable(_)));
    // One attempt was asked for: then that nothing was kept is no news.
    assert_eq!(told(kept_not.attempts(1)).await, Refusal::NotIdempotent);
}

/// A request that is not `Clone`, and is not sent twice.
#[tokio::test(start_paused = true)]
async fn kf12_what_cannot_be_replayed_is_sent_once() {
    struct Stream;
    let (classifier, seen) = {
        let classifier =
            Classifier::new(tower_triage_core::classify_fn(|outcome: Result<&Reply, &Oops>| {
                match outcome {
                    Ok(reply) => Rules.response(reply),
                    Err(oops) => oops.0.into(),
                }
            }));
        let seen = Seen::default();
        classifier.observe(seen.clone());
        (classifier, seen)
    };
    let layer = RetryLayer::new(classifier).policy(plan(at_once()));
    let service = service_fn(|_: Stream| ready(Ok::<_, Oops>(reply(503))));
    let never = layer.clone().replay(Never);
    assert_eq!(never.layer(service).oneshot(Stream).await.unwrap(), reply(503));
    assert!(matches!(refusal(&seen.last()), Refusal::NotReplayable(_)));

    let by_fn = layer.replay(replay_fn(|ask: &Ask| (ask.text != "stream").then(|| ask.clone())));
    let service = script([|| Ok(reply(503))]);
    let retry = by_fn.layer(service.clone());
    retry.clone().oneshot(ask()).await.unwrap();
    assert_eq!(service.calls(), 3);
    retry.oneshot(Ask { text: "stream".to_owned(), ..ask() }).await.unwrap();
    assert_eq!(service.calls(), 4);
}

/// What was kept may have become useless meanwhile, and says so itself, with a release hook or without.
#[tokio::test(start_paused = true)]
async fn what_was_kept_and_is_gone_is_not_sent_again() {
    #[derive(Clone)]
    struct Spent;
    impl Replay<Ask> for Spent {
        type Kept = Ask;
        fn keep(&self, ask: &mut Ask) -> Result<Ask, &'static str> {
            Ok(ask.clone())
        }
        fn ready(&self, _: &Ask) -> Result<(), &'static str> {
            Err("spent")
        }
        fn again(&self, kept: &mut Ask, _: &Attempt) -> Result<Ask, &'static str> {
            Ok(kept.clone())
        }
    }
    impl Release<Reply> for Spent {
        type Future = Ready<()>;
        fn release(&self, _: Reply) -> Ready<()> {
            ready(())
        }
    }
    let (classifier, seen) = classifier();
    let layer = RetryLayer::new(classifier).policy(plan(at_once())).replay(Spent);
    let service = failing();
    layer.layer(service.clone()).oneshot(ask()).await.unwrap_err();
    assert_eq!((service.calls(), refusal(&seen.last())), (1, Refusal::NotReplayable("spent")));
    let releasing = layer.release(|_: Reply| ready(()));
    releasing.layer(service.clone()).oneshot(ask()).await.unwrap_err();
    assert_eq!((service.calls(), refusal(&seen.last())), (2, Refusal::NotReplayable("spent")));
}

#[tokio::test(start_paused = true)]
async fn a_nudge_changes_a_fresh_copy_by_what_went_wrong() {
    let (classifier, seen) = classifier();
    let service = script([
        || Err(Oops(ErrorClass::Transient.into(), "page 7")),
        || Ok(reply(503)),
        || Ok(reply(200)),
    ]);
    let layer = RetryLayer::new(classifier).policy(plan(at_once())).nudge(
        |ask: &mut Ask, attempt, failed: Result<&Reply, &Oops>| match failed {
            Err(Oops(_, page)) => {
                let class = attempt.previous.expect("it failed").class;
                ask.text.push_str(&format!(": {}, from {page} on ({class})", attempt.number));
                true
            }
            Ok(_) => false,
        },
    );
    layer.layer(service.clone()).oneshot(ask()).await.unwrap();
    let texts: Vec<_> = service.take_requests().into_iter().map(|ask| ask.text).collect();
    assert_eq!(texts, ["ask", "ask: 2, from page 7 on (Transient)", "ask"]);
    assert_eq!(seen.outcomes().iter().filter(|outcome| **outcome == "nudged").count(), 1);
}

/// A request that an identical repeat does not help is repeated as often as it is changed; what is not
/// repeated costs no budget.
#[tokio::test(start_paused = true)]
async fn what_needs_a_change_is_repeated_only_when_changed() {
    for (changes, calls, why) in [
        (0, 1, Refusal::NotReplayable("nothing has changed the request")),
        (1, 2, Refusal::NotReplayable("nothing has changed the request")),
        (9, 3, Refusal::AttemptsUsedUp),
    ] {
        let (classifier, seen) = classifier();
        let rule = ClassRule::new(Backoff::immediate()).attempts(3).if_changed();
        let budget = Budget::default();
        let full = budget.balance(Duration::ZERO);
        let layer = RetryLayer::new(classifier)
            .policy(plan(RetryPolicy::default().attempts(5).retry(ErrorClass::Declined, rule)))
            .budget(budget.clone())
            .nudge(move |ask: &mut Ask, attempt, _: Result<&Reply, &Oops>| {
                ask.text.truncate(1);
                attempt.number <= 1 + changes
            });
        let service = script([|| Err(Oops(ErrorClass::Declined.into(), "too long"))]);
        layer.layer(service.clone()).oneshot(ask()).await.unwrap_err();
        assert_eq!((service.calls(), refusal(&seen.last())), (calls, why), "{changes}");
        assert_eq!(full - budget.balance(Duration::ZERO), calls as u64 - 1, "{changes}");
    }
}

#[tokio::test(start_paused = true)]
async fn auth_is_repeated_once_after_a_refresh() {
    for (fresh, calls, why) in
        [(true, 2, Refusal::ClassNotRetried), (false, 1, Refusal::RefreshFailed)]
    {
        let (classifier, seen) = classifier();
        let refreshes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&refreshes);
        let service = script([|| Ok(reply(401))]);
        let layer = RetryLayer::new(classifier.clone()).refresh(move |failure: Failure| {
            assert_eq!(failure.class, ErrorClass::Auth);
            counter.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(ms(20)).await;
                fresh
            }
        });
        let answer = layer.layer(service.clone()).oneshot(ask()).await.unwrap();
        assert_eq!(answer, reply(401));
        assert_eq!((service.calls(), refreshes.load(Ordering::SeqCst)), (calls, 1));
        assert_eq!(refusal(&seen.last()), why);
        // Without a refresh it is not repeated.
        let service = script([|| Ok(reply(401))]);
        RetryLayer::new(classifier).layer(service.clone()).oneshot(ask()).await.unwrap();
        assert_eq!(service.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_hangs_ends_at_the_deadline() {
    let (classifier, seen) = classifier();
    let service = script([|| Ok(reply(401))]);
    let layer = RetryLayer::new(classifier)
        .policy(plan(RetryPolicy::default().deadline(ms(1000))))
        .refresh(|_| std::future::pending());
    let began = Instant::now();
    assert_eq!(layer.layer(service).oneshot(ask()).await.unwrap(), reply(401));
    assert_eq!(began.elapsed(), ms(1000));
    assert_eq!(refusal(&seen.last()), Refusal::DeadlinePassed);
}

/// The hook gets each failed response but the one that is returned, and the wait goes on meanwhile.
#[tokio::test(start_paused = true)]
async fn failed_responses_are_released_before_the_next_attempt() {
    let (classifier, _) = classifier();
    let released = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&released);
    let service = script([|| Ok(reply(500)), || Ok(reply(502)), || Ok(reply(503))]);
    let layer =
        RetryLayer::new(classifier).policy(plan(every(ms(100)))).release(move |reply: Reply| {
            let list = Arc::clone(&list);
            async move {
                tokio::time::sleep(ms(40)).await;
                list.lock().unwrap().push(reply.status);
            }
        });
    let began = Instant::now();
    assert_eq!(layer.layer(service).oneshot(ask()).await.unwrap(), reply(503));
    assert_eq!(*released.lock().unwrap(), [500, 502]);
    assert_eq!(began.elapsed(), ms(200));
}

/// A release that hangs is dropped a second after the wait, or at the deadline; a refresh that takes
/// longer, like the wait itself, costs it nothing.
#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_does_not_hold_the_call() {
    for (deadline, wait, expected) in [
        (None, 0, 2 * 1000),
        (None, 100, 2 * (100 + 1000)),
        (Some(60_000), 100, 2 * (100 + 1000)),
        (Some(500), 100, 500),
    ] {
        let mut policy = if wait == 0 { at_once() } else { every(ms(wait)) };
        if let Some(deadline) = deadline {
            policy = policy.deadline(ms(deadline));
        }
        let (classifier, _) = classifier();
        let service = script([|| Ok(reply(503))]);
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let layer = RetryLayer::new(classifier).policy(plan(policy)).release(move |_: Reply| {
            let inside = Arc::clone(&inside);
            async move {
                let _inside = inside;
                std::future::pending().await
            }
        });
        let began = Instant::now();
        let answer = layer.layer(service).oneshot(ask()).await;
        assert_eq!(answer.unwrap(), reply(503));
        assert_eq!(began.elapsed(), ms(expected), "{deadline:?}, {wait}");
        drop(layer);
        assert_eq!(Arc::strong_count(&held), 1, "what hung is dropped");
    }
}

/// No timer is touched: it runs where there is none, with a deadline too.
#[test]
fn a_wait_of_zero_needs_no_timer() {
    for policy in [at_once(), at_once().deadline(ms(60_000))] {
        let (classifier, _) = classifier();
        let service = failing();
        let layer = RetryLayer::new(classifier).policy(plan(policy));
        let mut call = tokio_test::task::spawn(layer.layer(service.clone()).oneshot(ask()));
        assert!(call.poll().is_ready());
        assert_eq!(service.calls(), 3);
    }
}

/// Endless attempts without a wait do not keep the thread for themselves.
#[tokio::test]
async fn others_get_a_turn() {
    let (classifier, _) = classifier();
    let service = failing();
    let layer = RetryLayer::new(classifier)
        .policy(plan(at_once().unlimited_attempts()))
        .budget(Budget::unlimited());
    let mut call = tokio_test::task::spawn(layer.layer(service.clone()).oneshot(ask()));
    for turn in 1..5 {
        assert!(call.poll().is_pending());
        assert!(call.is_woken());
        assert!(service.calls() >= turn && service.calls() < 100 * turn);
    }
}

/// Each logical request pays into the budget once, and retries draw on it.
#[tokio::test(start_paused = true)]
async fn successes_fill_the_budget_and_retries_empty_it() {
    let (classifier, _) = classifier();
    let budget = Budget::bucket(BucketSettings { gain: 0.5, capacity: 10, initial: 0 }).unwrap();
    let layer = RetryLayer::new(classifier).policy(plan(at_once())).budget(budget.clone());
    let service = script([|| Ok(reply(200))]);
    let retry = layer.layer(service);
    for _ in 0..6 {
        retry.clone().oneshot(ask()).await.unwrap();
    }
    assert_eq!(budget.balance(Duration::ZERO), 3);
    layer.layer(failing()).oneshot(ask()).await.unwrap_err();
    assert_eq!(budget.balance(Duration::ZERO), 1);
}

/// A throttle hears of every outcome: it stops retries while half of the calls fail.
#[tokio::test(start_paused = true)]
async fn a_failure_throttle_hears_of_every_outcome() {
    let (classifier, _) = classifier();
    let throttle = ThrottleSettings { max_tokens: 4, token_ratio: 1.0 };
    let layer = RetryLayer::new(classifier)
        .policy(plan(at_once().attempts(5)))
        .budget(Budget::failure_throttle(throttle).unwrap());
    let calls = async || {
        let service = failing();
        layer.layer(service.clone()).oneshot(ask()).await.unwrap_err();
        service.calls()
    };
    assert_eq!(calls().await, 2);
    assert_eq!(calls().await, 1);
    for _ in 0..3 {
        layer.layer(script([|| Ok(reply(200))])).oneshot(ask()).await.unwrap();
    }
    assert_eq!(calls().await, 2);
    // What is not repeated at all, says nothing.
    for _ in 0..3 {
        layer.layer(script([|| Ok(reply(200))])).oneshot(ask()).await.unwrap();
        layer.layer(script([|| Ok(reply(404))])).oneshot(ask()).await.unwrap();
    }
    assert_eq!(calls().await, 2);
}

/// A budget over time is told the time: what was spent comes back with it.
#[tokio::test(start_paused = true)]
async fn a_window_moves_on_with_the_clock() {
    let (classifier, _) = classifier();
    let window = WindowSettings { ttl: Duration::from_secs(1), min_retries_per_sec: 1, ratio: 0.0 };
    let layer =
        RetryLayer::new(classifier).policy(plan(at_once())).budget(Budget::window(window).unwrap());
    let calls = async || {
        let service = failing();
        layer.layer(service.clone()).oneshot(ask()).await.unwrap_err();
        service.calls()
    };
    assert_eq!((calls().await, calls().await), (2, 1));
    advance(Duration::from_secs(2)).await;
    assert_eq!((calls().await, calls().await), (2, 1));
}

/// A handler that tolerates one exhausted client call is still retried itself.
#[tokio::test(start_paused = true)]
async fn a_call_inside_a_call_exhausts_only_itself() {
    let (classifier, _) = classifier();
    let client = RetryLayer::new(classifier.clone()).policy(plan(at_once())).layer(failing());
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let handler = service_fn(move |_: Ask| {
        let client = client.clone();
        let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            client.oneshot(ask()).await.unwrap_err();
            Ok::<_, Oops>(reply(if run == 1 { 503 } else { 200 }))
        }
    });
    let layer = RetryLayer::new(classifier).policy(plan(at_once()));
    assert_eq!(layer.layer(handler).oneshot(ask()).await.unwrap(), reply(200));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// Overrides at run time reach the decision.
#[tokio::test(start_paused = true)]
async fn kf08_the_classifiers_verdict_decides() {
    let (classifier, _) = classifier();
    let layer = RetryLayer::new(classifier.clone()).policy(plan(at_once()));
    let service = script([|| Ok(reply(404))]);
    layer.layer(service.clone()).oneshot(ask()).await.unwrap();
    assert_eq!(service.calls(), 1);
    classifier.override_class(ErrorClass::Permanent, ErrorClass::Transient);
    layer.layer(service.clone()).oneshot(ask()).await.unwrap();
    assert_eq!(service.calls(), 4);
}

#[test]
fn everything_has_a_debug_text() {
    let (classifier, _) = classifier();
    let layer = RetryLayer::new(classifier)
        .replay(replay_fn(|ask: &Ask| Some(ask.clone())))
        .release(|_: Reply| ready(()))
        .nudge(|_: &mut Ask, _, _: Result<&Reply, &Oops>| false)
        .refresh(|_| ready(true));
    let text = format!("{layer:?}");
    for part in ["RetryLayer", "Transient", "Releasing", "ReplayFn", "NudgeFn", "RefreshFn"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let mut retry = layer.layer(failing());
    assert!(format!("{retry:?}").contains("Retry"));
    assert!(format!("{:?}", retry.call(ask())).contains("ResponseFuture"));
    let open = CircuitOpen::new(Label::new("x"), Duration::ZERO);
    assert!(open.to_string().contains('x'));
}

fn spawnable<T: Future + Send + 'static>(_: T) {}

#[tokio::test]
async fn a_stack_with_every_hook_is_spawned_unboxed() {
    let classifier = Classifier::new(Halves { response: Rules, error: Chain });
    let layer = RetryLayer::new(classifier)
        .replay(replay_fn(|ask: &Ask| Some(ask.clone())))
        .release(|_: Reply| async {})
        .nudge(|_: &mut Ask, _, _: Result<&Reply, &AnyError>| false)
        .refresh(|_| async { true });
    let service = service_fn(|_: Ask| async {
        Err::<Reply, _>(std::io::Error::from(std::io::ErrorKind::NotFound))
    })
    .map_err(AnyError::from);
    let stack = tower::ServiceBuilder::new().layer(layer).service(service);
    spawnable(async move { stack.oneshot(ask()).await });
}
