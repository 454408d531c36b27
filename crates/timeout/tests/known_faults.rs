//! KF-30: each attempt gets the smaller of its limit and the time left, and is told so; an elapsed
//! attempt may be repeated, the elapsed overall deadline may not.

mod common;

use std::time::Duration;

use common::{Ask, Slow, ask, hard, ms, rules, secs, watched};
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{
    AnyError, Backoff, Classifier, Classify, Describe, Elapsed, ErrorClass, Incident, Refusal,
    StepKind,
};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPlan, RetryPolicy};
use tower_triage_timeout::{SoftLimit, TimeoutLayer};

fn patient(wait: Duration) -> RetryPlan {
    let rule = ClassRule::new(Backoff::fixed(wait));
    RetryPolicy::default().attempts(9).retry(ErrorClass::Timeout, rule).build().unwrap()
}

fn refusals(incident: &Incident) -> Vec<Refusal> {
    let refusal = |kind: &StepKind| match kind {
        StepKind::NotRetried { why } => Some(*why),
        _ => None,
    };
    incident.steps.iter().filter_map(|step| refusal(&step.kind)).collect()
}

/// Retry over an attempt's limit of 4 s, hard, with the time left in the request.
async fn run<R>(
    classifier: &Classifier<R>,
    wait: Duration,
    slow: &Slow,
    request: Ask,
) -> Result<u32, AnyError>
where
    R: Classify<u32, AnyError> + Describe<Ask>,
{
    ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(patient(wait)))
        .layer(
            TimeoutLayer::new(classifier.clone(), secs(4)).unwrap().policy(hard(secs(4))).tell(
                |ask: &mut Ask, limit: &SoftLimit| ask.told = Some(limit.time_until_dropped()),
            ),
        )
        .service(slow.clone())
        .oneshot(request)
        .await
}

#[tokio::test(start_paused = true)]
async fn kf30_each_attempt_gets_the_smaller_of_its_limit_and_the_time_left() {
    let (classifier, seen) = watched(rules());
    let slow = Slow::default();
    let begun = Instant::now();
    let request = ask(secs(60)).by(begun + secs(10));
    let error = run(&classifier, Duration::ZERO, &slow, request).await.unwrap_err();

    assert_eq!(begun.elapsed(), secs(10));
    let attempts = slow.attempts();
    let at: Vec<_> = attempts.iter().map(|attempt| attempt.at - begun).collect();
    assert_eq!(at, [secs(0), secs(4), secs(8)]);
    let told: Vec<_> = attempts.iter().filter_map(|attempt| attempt.request.told).collect();
    assert_eq!(told, [secs(4), secs(4), secs(2)]);

    let elapsed = error.downcast_ref::<Elapsed>().unwrap();
    assert_eq!(*elapsed, Elapsed::deadline(secs(2)));
    let incident = seen.last();
    assert_eq!(refusals(&incident), [Refusal::DeadlinePassed]);
    assert_eq!(incident.attempts, 3);
    assert_eq!(classifier.count(ErrorClass::Timeout), 3);
}

#[tokio::test(start_paused = true)]
async fn kf30_an_elapsed_attempt_may_be_repeated() {
    let (classifier, seen) = watched(rules());
    let slow = Slow::default();
    let request = ask(secs(60)).by(Instant::now() + secs(10));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(patient(secs(1))))
        .layer(TimeoutLayer::new(classifier, secs(4)).unwrap().policy(hard(secs(4))))
        .map_request({
            let slow = slow.clone();
            move |mut ask: Ask| {
                // The second attempt finds a quick server.
                if slow.calls() > 0 {
                    ask.takes = ms(100);
                }
                ask
            }
        })
        .service(slow.clone());
    assert_eq!(stack.oneshot(request).await.unwrap(), 2);
    assert_eq!(seen.last().resolution.as_str(), "recovered_by_retry");
}

/// Also where only the limit knows the deadline, and the retry above it does not.
#[tokio::test(start_paused = true)]
async fn kf30_the_elapsed_overall_deadline_is_not_repeated_by_a_retry_that_does_not_know_it() {
    let (classifier, seen) = watched(rules());
    let slow = Slow::default();
    let begun = Instant::now();
    let deadline = begun + secs(3);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(patient(secs(1))))
        .map_request(move |ask: Ask| ask.by(deadline))
        .layer(TimeoutLayer::new(classifier.clone(), secs(4)).unwrap())
        .service(slow.clone());
    let error = stack.clone().oneshot(ask(secs(60))).await.unwrap_err();
    assert!(error.downcast_ref::<Elapsed>().unwrap().is_deadline());
    assert_eq!((begun.elapsed(), slow.calls()), (secs(3), 1));
    assert_eq!(refusals(&seen.last()), [Refusal::DeadlinePassed]);

    // And one that has passed already.
    let error = stack.oneshot(ask(secs(60))).await.unwrap_err();
    assert_eq!(*error.downcast_ref::<Elapsed>().unwrap(), Elapsed::not_sent());
    assert_eq!((begun.elapsed(), slow.calls()), (secs(3), 1));
    assert_eq!(refusals(&seen.last()), [Refusal::DeadlinePassed]);
    assert_eq!(seen.last().attempts, 0);
}

/// The work behind an elapsed attempt may be running still.
#[tokio::test(start_paused = true)]
async fn kf30_what_must_not_be_done_twice_is_not_repeated() {
    let (classifier, seen) = watched(rules());
    let slow = Slow::default();
    let request = Ask { repeatable: false, ..ask(secs(60)) };
    run(&classifier, Duration::ZERO, &slow, request).await.unwrap_err();
    assert_eq!(slow.calls(), 1);
    assert_eq!(refusals(&seen.last()), [Refusal::NotIdempotent]);
}

/// O1 with O2's limit: five attempts, before them waits of 0, 2, 4, 8, 16 s, each at most 30 s and
/// its grace.
#[tokio::test(start_paused = true)]
async fn o1_five_attempts_of_thirty_seconds_each() {
    let (classifier, _) = watched(rules());
    let slow = Slow::default();
    let waits = Backoff::list([secs(2), secs(4), secs(8), secs(16)]);
    let policy = RetryPolicy::default()
        .attempts(5)
        .retry(ErrorClass::Timeout, ClassRule::new(waits))
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(policy))
        .layer(TimeoutLayer::new(classifier, secs(30)).unwrap())
        .service(slow.clone());
    let begun = Instant::now();
    stack.oneshot(ask(secs(3600))).await.unwrap_err();
    let at: Vec<_> = slow.attempts().iter().map(|attempt| attempt.at - begun).collect();
    assert_eq!(at, [secs(0), secs(35), secs(72), secs(113), secs(162)]);
    assert_eq!(begun.elapsed(), secs(195));
}
