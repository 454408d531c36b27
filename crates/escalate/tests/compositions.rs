//! Above and below a retry, above a fallback.

mod common;

use std::time::Duration;

use common::{Broken, Memory, Order, Receipt, Script, classifier, desk, receipt, shop};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_triage_core::{Backoff, ErrorClass, Resolution};
use tower_triage_escalate::{Desk, EscalateLayer, EscalatePolicy, Outcome};
use tower_triage_fallback::{FallbackLayer, copy_fn};
use tower_triage_retry::{RetryLayer, RetryPlan, RetryPolicy, replay_fn};
use tower_triage_test_support::Seen;

const DOWN: Script = || Err(Broken(ErrorClass::Transient, "connection reset"));
const DEFECT: Script = || Err(Broken(ErrorClass::Internal, "index out of bounds"));
const EXPIRED: Script = || Err(Broken(ErrorClass::Auth, "token expired"));
const FINE: Script = || Ok(receipt("fine"));

fn again(order: &Order) -> Option<Order> {
    Some(Order::default()).filter(|_| order.body.is_empty())
}

fn three() -> RetryPlan {
    let backoff = Backoff::fixed(Duration::from_millis(10));
    RetryPolicy::default().backoff(&backoff).attempts(3).build().unwrap()
}

/// What a call through `stack` had the desk tell, and how its incident ended.
async fn story<S>(
    desk: &Desk,
    sink: &Memory,
    seen: &Seen,
    stack: S,
) -> (Vec<(Outcome, usize)>, Resolution)
where
    S: Service<Order, Response = Receipt, Error = Broken>,
{
    let _ = stack.oneshot(Order::default()).await;
    desk.idle().await;
    let told = sink.taken().into_iter().map(|told| (told.outcome, told.attempts.len()));
    (told.collect(), seen.last().resolution)
}

struct Bench {
    sink: Memory,
    desk: Desk,
    seen: Seen,
    classifier: tower_triage_core::Classifier<common::Rules>,
}

fn bench() -> Bench {
    let (sink, seen, classifier) = (Memory::default(), Seen::default(), classifier());
    classifier.observe(seen.clone());
    Bench { desk: desk(&sink), sink, seen, classifier }
}

#[tokio::test(start_paused = true)]
async fn kf56_outside_of_retry_one_record_with_three_attempts() {
    let Bench { sink, desk, seen, classifier } = bench();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .layer(RetryLayer::new(classifier).policy(three()).replay(replay_fn(again)))
        .service(shop([DOWN]));
    let expected = (vec![(Outcome::Failed, 3)], Resolution::Escalated);
    assert_eq!(story(&desk, &sink, &seen, stack).await, expected);
}

#[tokio::test(start_paused = true)]
async fn kf56_inside_of_retry_none_for_an_attempt_that_is_repeated() {
    let inside = |lines: [Script; 2]| {
        let Bench { sink, desk, seen, classifier } = bench();
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new(classifier.clone()).policy(three()).replay(replay_fn(again)))
            .layer(EscalateLayer::new(classifier, desk.clone()))
            .service(shop(lines));
        async move { story(&desk, &sink, &seen, stack).await }
    };
    let all_fail = (vec![(Outcome::Failed, 3)], Resolution::Escalated);
    assert_eq!(inside([DOWN, DOWN]).await, all_fail, "one record, with the whole story");
    let recovered = (vec![], Resolution::RecoveredByRetry);
    assert_eq!(inside([DOWN, FINE]).await, recovered);
}

#[tokio::test(start_paused = true)]
async fn kf56_a_rescued_call_is_recorded_only_if_asked_for_or_if_it_must_be_told_at_once() {
    let rescued = |line: Script, recorded: bool| {
        let Bench { sink, desk, seen, classifier } = bench();
        let policy = EscalatePolicy::new().record_recovered(recorded);
        let stack = ServiceBuilder::new()
            .layer(EscalateLayer::new(classifier.clone(), desk.clone()).policy(policy))
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_value([ErrorClass::Transient, ErrorClass::Internal], |_| receipt("stale")),
            )
            .layer(RetryLayer::new(classifier).policy(three()).replay(replay_fn(again)))
            .service(shop([line]));
        async move { story(&desk, &sink, &seen, stack).await }
    };
    let told = |attempts| (vec![(Outcome::Recovered, attempts)], Resolution::AnsweredByFallback);
    let silent = (vec![], Resolution::AnsweredByFallback);
    assert_eq!(rescued(DOWN, false).await, silent);
    assert_eq!(rescued(DOWN, true).await, told(4), "three attempts and the fallback");
    assert_eq!(rescued(DEFECT, false).await, told(2), "a defect is told of though it is hidden");
}

/// The same with the layers the other way round: the fallback above withdraws what may be
/// withdrawn.
#[tokio::test(start_paused = true)]
async fn a_fallback_above_withdraws_what_is_not_urgent() {
    for (line, told) in [(DOWN, vec![]), (DEFECT, vec![(Outcome::Recovered, 2)])] {
        let Bench { sink, desk, seen, classifier } = bench();
        let stack = ServiceBuilder::new()
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_value([ErrorClass::Transient, ErrorClass::Internal], |_| receipt("stale")),
            )
            .layer(EscalateLayer::new(classifier, desk.clone()))
            .service(shop([line]));
        let expected = (told, Resolution::AnsweredByFallback);
        assert_eq!(story(&desk, &sink, &seen, stack).await, expected);
    }
}

/// "Now, if no refresh helps": a credential that was renewed in time is nobody's business.
#[tokio::test(start_paused = true)]
async fn an_expired_credential_is_told_of_unless_the_refresh_helped() {
    for (lines, told) in
        [([EXPIRED, FINE], vec![]), ([EXPIRED, EXPIRED], vec![(Outcome::Failed, 2)])]
    {
        for outside in [true, false] {
            let Bench { sink, desk, seen, classifier } = bench();
            let escalate = EscalateLayer::new(classifier.clone(), desk.clone());
            let retry = RetryLayer::new(classifier)
                .policy(three())
                .replay(replay_fn(again))
                .refresh(|_| async { true });
            let inner = shop(lines);
            let (found, _) = if outside {
                story(&desk, &sink, &seen, escalate.layer(retry.layer(inner))).await
            } else {
                story(&desk, &sink, &seen, retry.layer(escalate.layer(inner))).await
            };
            assert_eq!(found, told, "outside: {outside}");
        }
    }
}

/// P decides, F is told of after it.
#[tokio::test]
async fn both_failures_are_in_the_record() {
    let Bench { sink, desk, classifier, .. } = bench();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(FallbackLayer::new(classifier).or_call(ErrorClass::Transient, |_| async {
            Err::<Receipt, _>(Broken(ErrorClass::Timeout, "backup too slow"))
        }))
        .service(shop([DOWN]));
    stack.oneshot(Order::default()).await.unwrap_err();
    let told = sink.one();
    assert_eq!(told.class, ErrorClass::Transient);
    let (primary, fallback) = (told.detail.find("reset"), told.detail.find("backup too slow"));
    assert!(primary.unwrap() < fallback.unwrap(), "{}", told.detail);
}

/// Below a retry, asked to record what is rescued: once, with the whole story.
#[tokio::test(start_paused = true)]
async fn a_rescue_by_a_retry_above_is_recorded_if_asked_for() {
    let Bench { sink, desk, seen, classifier } = bench();
    let policy = EscalatePolicy::new().record_recovered(true);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(three()).replay(replay_fn(again)))
        .layer(EscalateLayer::new(classifier, desk.clone()).policy(policy))
        .service(shop([DOWN, DOWN, FINE]));
    let expected = (vec![(Outcome::Recovered, 3)], Resolution::RecoveredByRetry);
    assert_eq!(story(&desk, &sink, &seen, stack).await, expected);
}

/// A retry above sees the built answer as a success.
#[tokio::test(start_paused = true)]
async fn a_forced_finish_below_a_retry_is_told_of_once() {
    let Bench { sink, desk, seen, classifier } = bench();
    let layer = EscalateLayer::new(classifier.clone(), desk.clone())
        .finish_with(|_: tower_triage_escalate::Failed<'_, Receipt, Broken>| Some(receipt("part")));
    let inner = shop([DOWN]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(three()).replay(replay_fn(again)))
        .layer(layer)
        .service(inner.clone());
    let expected = (vec![(Outcome::Forced, 1)], Resolution::ForcedFinish);
    assert_eq!(story(&desk, &sink, &seen, stack).await, expected);
    assert_eq!(inner.calls(), 1);
}

/// The caller goes away while a fallback is being tried: what must be told at once is told.
#[tokio::test]
async fn an_urgent_escalation_below_outlives_an_abandoned_call() {
    for (line, told) in [(DOWN, vec![]), (DEFECT, vec![Outcome::Abandoned])] {
        let Bench { sink, desk, classifier, .. } = bench();
        let mut stack = ServiceBuilder::new()
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_call([ErrorClass::Transient, ErrorClass::Internal], |_| {
                        std::future::pending::<Result<Receipt, Broken>>()
                    }),
            )
            .layer(EscalateLayer::new(classifier, desk.clone()))
            .service(shop([line]));
        let mut call = tokio_test::task::spawn(stack.call(Order::default()));
        assert!(call.poll().is_pending());
        drop(call);
        desk.idle().await;
        let outcomes = sink.taken().into_iter().map(|told| told.outcome).collect::<Vec<_>>();
        assert_eq!(outcomes, told);
    }
}

/// A fallback with a retry of its own fails with the primary's class: the primary still comes first.
#[tokio::test(start_paused = true)]
async fn the_primary_failure_is_told_in_its_own_words() {
    let Bench { sink, desk, classifier, .. } = bench();
    let backup = RetryLayer::new(classifier.clone())
        .policy(three())
        .replay(replay_fn(again))
        .layer(shop([|| Err(Broken(ErrorClass::Transient, "backup down"))]));
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(
            FallbackLayer::new(classifier)
                .or_service(ErrorClass::Transient, backup)
                .copy_requests(copy_fn(again)),
        )
        .service(shop([DOWN]));
    stack.oneshot(Order::default()).await.unwrap_err();
    let detail = sink.one().detail;
    assert!(detail.starts_with("connection reset; ") && detail.contains("backup down"), "{detail}");
}
