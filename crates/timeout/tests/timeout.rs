//! What a caller, an attempt and the incident see of a time limit.

mod common;

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use common::{Ask, Reply, Slow, ask, hard, ms, plan, rules, secs, watched};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, State};
use tower_triage_core::{
    AnyError, AnyOk, Backoff, Chain, CircuitOpen, Classifier, ClassifyResponse, Describe,
    Disposition, Elapsed, ErrorClass, Halves, Incident, Note, Resolution, StepKind, Verdict,
};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPolicy};
use tower_triage_timeout::{SoftLimit, TimeoutLayer, TimeoutPolicy, reject_fn, soft_limit};

fn steps(incident: &Incident) -> Vec<(&'static str, Duration)> {
    incident.steps.iter().map(|step| (step.kind.outcome(), step.at)).collect()
}

fn elapsed(error: &AnyError) -> Elapsed {
    *error.downcast_ref::<Elapsed>().unwrap()
}

/// Soft at 100 % of the limit, hard at 110 %, at most 10 s later.
#[tokio::test(start_paused = true)]
async fn o2_soft_at_the_limit_hard_a_tenth_later_and_at_most_ten_seconds() {
    for (limit, end) in [(30, 33), (100, 110), (600, 610)] {
        let (classifier, seen) = watched(rules());
        let stack =
            TimeoutLayer::new(classifier.clone(), secs(limit)).unwrap().layer(Slow::default());
        let begun = Instant::now();
        let error = stack.oneshot(ask(secs(3600))).await.unwrap_err();

        assert_eq!(begun.elapsed(), secs(end));
        assert_eq!(elapsed(&error), Elapsed::limit(secs(end)));
        let incident = seen.last();
        assert_eq!(
            steps(&incident),
            [("soft_timed_out", secs(limit)), ("timed_out", secs(end)), ("failed", secs(end))]
        );
        let StepKind::TimedOut { soft: true, after } = incident.steps[0].kind else { panic!() };
        assert_eq!(after, secs(limit));
        let StepKind::TimedOut { soft: false, after } = incident.steps[1].kind else { panic!() };
        assert_eq!(after, secs(end));
        let failure = incident.failure.unwrap();
        assert_eq!((failure.class, failure.reason), (ErrorClass::Timeout, Elapsed::REASON));
        assert_eq!(failure.disposition, Disposition::MaybeProcessed);
        assert_eq!((incident.attempts, incident.resolution), (1, Resolution::Failed));
        assert_eq!(classifier.count(ErrorClass::Timeout), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_the_limit_is_the_end_and_there_is_no_signal() {
    let (classifier, seen) = watched(rules());
    let layer = TimeoutLayer::new(classifier, secs(60)).unwrap().policy(hard(secs(2)));
    let error = layer.layer(Slow::default()).oneshot(ask(secs(3))).await.unwrap_err();
    assert_eq!(elapsed(&error).after(), secs(2));
    assert_eq!(steps(&seen.last()), [("timed_out", secs(2)), ("failed", secs(2))]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_leaves_no_trace_and_one_within_the_grace_a_step() {
    let (classifier, seen) = watched(rules());
    let mut stack = TimeoutLayer::new(classifier.clone(), secs(10)).unwrap().layer(Slow::default());
    for takes in [0, 1, 9] {
        stack.ready().await.unwrap().call(ask(secs(takes))).await.unwrap();
    }
    assert!(seen.steps().is_empty());

    assert_eq!(stack.ready().await.unwrap().call(ask(ms(10_500))).await.unwrap(), 4);
    let incident = seen.last();
    assert_eq!(steps(&incident), [("soft_timed_out", secs(10))]);
    assert_eq!((incident.resolution, incident.attempts), (Resolution::Succeeded, 0));
    assert_eq!(classifier.count(ErrorClass::Timeout), 0);
}

/// The attempt that ends because it was told leaves a trace too, though it answers at once.
#[tokio::test(start_paused = true)]
async fn an_attempt_sees_that_its_time_is_up_and_how_much_is_left() {
    let (classifier, seen) = watched(rules());
    let work = service_fn(async |_: Ask| {
        let limit = soft_limit().unwrap();
        assert_eq!((limit.time_left(), limit.time_until_dropped()), (secs(10), secs(11)));
        assert!(!limit.is_due());
        tokio::select! {
            () = tokio::time::sleep(secs(3600)) => unreachable!("dropped long before"),
            () = limit.due() => {}
        }
        assert!(limit.is_due());
        assert_eq!(soft_limit(), Some(limit), "the same in every poll");
        assert_eq!((limit.time_left(), limit.time_until_dropped()), (secs(0), secs(1)));
        Ok::<_, AnyError>(7)
    });
    let stack = TimeoutLayer::new(classifier, secs(10)).unwrap().layer(work);
    assert_eq!(stack.oneshot(ask(secs(0))).await.unwrap(), 7);
    assert_eq!(steps(&seen.last()), [("soft_timed_out", secs(10))]);
    assert_eq!(soft_limit(), None, "nothing to see outside");
}

/// The signal wakes the attempt: one that only looks when it is polled sees it too.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_only_looks_when_it_is_polled_sees_it() {
    let classifier = Classifier::new(rules());
    let work = service_fn(|_: Ask| {
        std::future::poll_fn(|_| match soft_limit().unwrap().is_due() {
            true => std::task::Poll::Ready(Ok::<u32, AnyError>(1)),
            false => std::task::Poll::Pending,
        })
    });
    let begun = Instant::now();
    let stack = TimeoutLayer::new(classifier, secs(10)).unwrap().layer(work);
    stack.oneshot(ask(secs(0))).await.unwrap();
    assert_eq!(begun.elapsed(), secs(10));
}

/// Polled late, both limits have passed: an answer that is there counts all the same.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_counts_however_late_it_is_looked_at() {
    let classifier = Classifier::new(rules());
    let stack = TimeoutLayer::new(classifier, secs(1)).unwrap().layer(Slow::default());
    let mut call = tokio_test::task::spawn(stack.oneshot(ask(ms(500))));
    tokio_test::assert_pending!(call.poll());
    tokio::time::advance(secs(60)).await;
    assert_eq!(tokio_test::assert_ready!(call.poll()).unwrap(), 1);
}

/// tokio lets a task poll only so many of its resources before it must yield; a timer that is asked
/// after that is never ready.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_uses_up_its_task_s_budget_is_cut_off_all_the_same() {
    let classifier = Classifier::new(rules());
    let busy = service_fn(async |_: Ask| {
        loop {
            tokio::task::consume_budget().await;
            if false {
                break Ok::<u32, AnyError>(0);
            }
        }
    });
    let stack = TimeoutLayer::new(classifier, secs(1)).unwrap().layer(busy);
    let call = tokio::spawn(stack.oneshot(ask(secs(0))));
    for _ in 0..3 {
        tokio::time::advance(secs(1)).await;
    }
    assert!(call.is_finished());
    call.await.unwrap().unwrap_err();
}

/// Less time than the limit: the signal still comes first, and nothing outlives the deadline.
#[tokio::test(start_paused = true)]
async fn the_smaller_of_limit_and_time_left_counts() {
    let (classifier, seen) = watched(rules());
    let policy = plan(TimeoutPolicy::new(secs(4)).grace(secs(1)));
    let mut stack =
        TimeoutLayer::new(classifier, secs(1)).unwrap().policy(policy).layer(Slow::default());
    for (left, soft, end) in [(secs(60), secs(4), secs(5)), (ms(2200), secs(2), ms(2200))] {
        let begun = Instant::now();
        let request = ask(secs(3600)).by(begun + left);
        let error = stack.ready().await.unwrap().call(request).await.unwrap_err();
        assert_eq!(begun.elapsed(), end);
        assert_eq!(elapsed(&error).after(), end);
        assert_eq!(elapsed(&error).is_deadline(), end == left);
        assert_eq!(steps(&seen.last())[..2], [("soft_timed_out", soft), ("timed_out", end)]);
    }
    let failure = seen.last().failure.unwrap();
    assert_eq!((failure.class, failure.reason), (ErrorClass::Timeout, Elapsed::DEADLINE_REASON));
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
    assert!(!failure.repeatable(true, true));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_fails_at_once_and_nothing_is_called() {
    let (classifier, seen) = watched(rules());
    let slow = Slow::default();
    let stack = TimeoutLayer::new(classifier.clone(), secs(4)).unwrap().layer(slow.clone());
    let error = stack.oneshot(ask(secs(1)).by(Instant::now())).await.unwrap_err();
    assert_eq!(elapsed(&error), Elapsed::not_sent());
    assert_eq!(slow.calls(), 0);
    let incident = seen.last();
    assert_eq!(steps(&incident), [("timed_out", secs(0))]);
    assert_eq!((incident.attempts, incident.resolution), (0, Resolution::Failed));
    let failure = incident.failure.unwrap();
    assert_eq!((failure.class, failure.disposition), (ErrorClass::Timeout, Disposition::NotSent));
    assert_eq!(classifier.count(ErrorClass::Timeout), 1);
}

/// Limits that no clock can reach are no limits, and nothing overflows.
#[tokio::test(start_paused = true)]
async fn a_limit_beyond_every_clock() {
    let classifier = Classifier::new(rules());
    let policy = plan(TimeoutPolicy::new(Duration::MAX).grace(Duration::MAX));
    let mut stack =
        TimeoutLayer::new(classifier, secs(1)).unwrap().policy(policy).layer(Slow::default());
    assert_eq!(stack.ready().await.unwrap().call(ask(secs(86_400))).await.unwrap(), 1);
    let request = ask(secs(86_400)).by(Instant::now() + secs(5));
    assert!(elapsed(&stack.ready().await.unwrap().call(request).await.unwrap_err()).is_deadline());
}

/// A zero is often written where no limit is meant.
#[test]
fn a_limit_of_zero_does_not_build() {
    let error = TimeoutLayer::new(Classifier::new(rules()), Duration::ZERO).unwrap_err();
    assert_eq!(error.field(), "limit");
    assert!(TimeoutLayer::new(Classifier::new(rules()), Duration::from_nanos(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_told_what_its_attempt_has() {
    let classifier = Classifier::new(rules());
    let slow = Slow::default();
    let stack = TimeoutLayer::new(classifier, secs(4))
        .unwrap()
        .tell(|ask: &mut Ask, limit: &SoftLimit| ask.told = Some(limit.time_until_dropped()))
        .layer(slow.clone());
    stack.oneshot(ask(secs(1))).await.unwrap();
    assert_eq!(slow.attempts()[0].request.told, Some(ms(4400)));
    assert_eq!(slow.attempts()[0].limit.map(|limit| limit.time_left()), Some(secs(3)));
}

/// Of several limits around an attempt it sees the earlier moments, and those of its own call only.
#[tokio::test(start_paused = true)]
async fn the_earlier_of_two_limits_is_seen() {
    let classifier = Classifier::new(rules());
    let slow = Slow::default();
    for (outer, inner) in [(10, 4), (4, 10)] {
        let stack = ServiceBuilder::new()
            .layer(TimeoutLayer::new(classifier.clone(), secs(outer)).unwrap())
            .layer(TimeoutLayer::new(classifier.clone(), secs(inner)).unwrap())
            .service(slow.clone());
        let begun = Instant::now();
        let error = stack.oneshot(ask(secs(3600))).await.unwrap_err();
        assert_eq!((begun.elapsed(), elapsed(&error).after()), (ms(4400), ms(4400)));
        let seen = slow.attempts().last().unwrap().limit.unwrap();
        assert_eq!(seen.soft_at(), Some(begun + secs(4)));
        assert_eq!(seen.hard_at(), Some(begun + ms(4400)));
    }
}

/// A response takes the error's place where errors are impossible, and does not pass for an answer.
#[tokio::test(start_paused = true)]
async fn an_elapsed_limit_can_be_a_response() {
    #[derive(Clone)]
    struct Replies;

    impl ClassifyResponse<Reply> for Replies {
        fn response(&self, reply: &Reply) -> Verdict {
            reply.verdict.unwrap_or(Verdict::Success)
        }

        fn annotate(&self, reply: &mut Reply, note: &Note) -> bool {
            let Note::Verdict(verdict) = note else { return false };
            reply.verdict = Some(*verdict);
            true
        }
    }

    impl Describe<Ask> for Replies {}

    let (classifier, seen) = watched(Halves { response: Replies, error: Chain });
    let stack = TimeoutLayer::new(classifier, secs(1))
        .unwrap()
        .reject_with(reject_fn(|_: Elapsed| Ok(Reply { status: 504, verdict: None })))
        .layer(service_fn(async |_: Ask| pending::<Result<Reply, Infallible>>().await));
    let reply = stack.oneshot(ask(secs(0))).await.unwrap();
    let failure = reply.verdict.unwrap().failure().unwrap();
    assert_eq!((reply.status, failure.class), (504, ErrorClass::Timeout));
    assert_eq!(seen.last().resolution, Resolution::Failed);
}

/// The same where the type of the response has no place for a verdict.
#[tokio::test(start_paused = true)]
async fn a_response_that_carries_no_verdict_still_is_a_failed_call() {
    let (classifier, seen) = watched(Halves { response: AnyOk, error: Chain });
    let stack = TimeoutLayer::new(classifier.clone(), secs(1))
        .unwrap()
        .reject_with(reject_fn(|elapsed: Elapsed| Ok(elapsed.to_string())))
        .layer(service_fn(async |_: Ask| pending::<Result<String, Infallible>>().await));
    assert_eq!(stack.oneshot(ask(secs(0))).await.unwrap(), "no answer within 1.1s");
    assert_eq!(seen.last().resolution, Resolution::Failed);
    assert_eq!(classifier.count(ErrorClass::Timeout), 1);
}

/// What the inner service says passes as it is, and is recorded once.
#[tokio::test(start_paused = true)]
async fn errors_of_the_service_pass_through() {
    let (classifier, seen) = watched(rules());
    let broken = service_fn(async |_: Ask| {
        Err::<u32, _>(AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)))
    });
    let stack = TimeoutLayer::new(classifier.clone(), secs(1)).unwrap().layer(broken);
    let error = stack.oneshot(ask(secs(0))).await.unwrap_err();
    assert!(error.downcast_ref::<std::io::Error>().is_some());
    assert_eq!(steps(&seen.last()), [("failed", secs(0))]);
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_neutral() {
    let (classifier, seen) = watched(rules());
    let mut stack = TimeoutLayer::new(classifier.clone(), secs(10)).unwrap().layer(Slow::default());
    let call = stack.ready().await.unwrap().call(ask(secs(60)));
    tokio::time::timeout(secs(5), call).await.unwrap_err();
    assert!(seen.steps().is_empty() && seen.incidents().is_empty());

    // Once it was told, that is a story without an end.
    let call = stack.ready().await.unwrap().call(ask(secs(60)));
    tokio::time::timeout(ms(10_500), call).await.unwrap_err();
    assert_eq!(seen.last().resolution, Resolution::Abandoned);
    assert_eq!(classifier.count(ErrorClass::Timeout), 0);
}

/// Below the breaker each attempt is judged, by the same verdict.
#[tokio::test(start_paused = true)]
async fn a_breaker_above_counts_what_was_cut_off() {
    let classifier = Classifier::new(rules());
    let policy = BreakerPolicy::new().consecutive_failures(2).build().unwrap();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(policy);
    let handle = breaker.handle();
    let mut stack = ServiceBuilder::new()
        .layer(breaker)
        .layer(TimeoutLayer::new(classifier, secs(1)).unwrap())
        .service(Slow::default());
    // Not even sent: that says nothing of the dependency.
    for _ in 0..3 {
        let late = ask(secs(9)).by(Instant::now());
        stack.ready().await.unwrap().call(late).await.unwrap_err();
    }
    assert_eq!(handle.state(), State::Closed);
    for _ in 0..2 {
        stack.ready().await.unwrap().call(ask(secs(9))).await.unwrap_err();
    }
    assert_eq!(handle.state(), State::Open);
    let error = stack.ready().await.unwrap().call(ask(secs(0))).await.unwrap_err();
    assert!(error.downcast_ref::<CircuitOpen>().is_some());
}

/// Above the retry it is one limit for all attempts and waits, and a failure of its own, also while
/// the retry waits after another elapsed attempt.
#[tokio::test(start_paused = true)]
async fn above_the_retry_it_limits_the_whole_call() {
    let (classifier, seen) = watched(rules());
    let rule = ClassRule::new(Backoff::fixed(secs(10)));
    let policy = RetryPolicy::default().attempts(9).retry(ErrorClass::Timeout, rule);
    let slow = Slow::default();
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(classifier.clone(), secs(9)).unwrap().policy(hard(secs(9))))
        .layer(RetryLayer::new(classifier.clone()).policy(policy.build().unwrap()))
        .layer(TimeoutLayer::new(classifier.clone(), secs(3)).unwrap().policy(hard(secs(3))))
        .service(slow.clone());
    let begun = Instant::now();
    let error = stack.oneshot(ask(secs(60))).await.unwrap_err();
    assert_eq!((begun.elapsed(), elapsed(&error).after(), slow.calls()), (secs(9), secs(9), 1));
    assert_eq!(
        steps(&seen.last()),
        [
            ("timed_out", secs(3)),
            ("failed", secs(3)),
            ("waiting", secs(3)),
            ("timed_out", secs(9)),
            ("failed", secs(9)),
        ]
    );
    assert_eq!(seen.last().attempts, 1, "the wait was no attempt");
    assert_eq!(classifier.count(ErrorClass::Timeout), 2);
}

#[test]
fn what_is_ready_at_once_allocates_nothing_and_needs_no_runtime() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let ready = service_fn(|number: u32| std::future::ready(Ok::<_, AnyError>(number)));
    let mut stack = TimeoutLayer::new(classifier, secs(1)).unwrap().layer(ready);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut run = || {
        assert!(Service::<u32>::poll_ready(&mut stack, &mut context).is_ready());
        let mut call = std::pin::pin!(stack.call(1));
        assert!(call.as_mut().poll(&mut context).is_ready());
    };
    run();
    assert_eq!(allocation_counter::measure(run).count_total, 0);
}

/// Nor does one that has to wait: its timer is a part of its future.
#[tokio::test(start_paused = true)]
async fn what_is_pending_allocates_nothing_either() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let mut yields = 0;
    let waits = service_fn(move |number: u32| {
        yields += 1;
        async move {
            tokio::time::sleep(ms(yields)).await;
            Ok::<_, AnyError>(number)
        }
    });
    let mut stack = TimeoutLayer::new(classifier, secs(1)).unwrap().layer(waits);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let info = allocation_counter::measure(|| {
        assert!(Service::<u32>::poll_ready(&mut stack, &mut context).is_ready());
        let mut call = std::pin::pin!(stack.call(1));
        assert!(call.as_mut().poll(&mut context).is_pending());
        assert!(call.as_mut().poll(&mut context).is_pending());
    });
    assert_eq!(info.count_total, 0);
}
