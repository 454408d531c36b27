//! What is said of an outcome goes where the outcome goes: unusual orders, layers in between that
//! make outcomes of their own, outcomes that are kept while others come and go.

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{attempts, classifier, desk, opens_at, reset};
use tokio::sync::mpsc;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::circuit_breaker::BreakerPolicy;
use tower_triage::escalate::{DeskPolicy, Overflow, Receiver, Route, Routes};
use tower_triage::{
    AnyError, CircuitBreakerLayer, ClassSet, Desk, ErrorClass, EscalateLayer, Escalation,
    FallbackLayer, Resolution, RetryLayer, StepKind,
};
use tower_triage_test_support::scripted;

fn permanent() -> AnyError {
    io::Error::from(io::ErrorKind::InvalidInput).into()
}

type Answer = fn() -> Result<u32, AnyError>;
const RESET: Answer = || Err(reset());
const PERMANENT: Answer = || Err(permanent());
const UNKNOWN: Answer = || Err(AnyError::msg("primary"));
const OK: Answer = || Ok(7);

/// Classes of the letters so far.
async fn sent(desk: &Desk, letters: &mut mpsc::Receiver<Escalation>) -> Vec<ErrorClass> {
    desk.idle().await;
    std::iter::from_fn(|| letters.try_recv().ok()).map(|letter| letter.class).collect()
}

/// The primary's escalation survives the attempts of a fallback step that fails too.
#[tokio::test(start_paused = true)]
async fn a_failed_fallback_gives_the_primarys_escalation_back() {
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk();
    let retry_over_escalate = ServiceBuilder::new()
        .layer(FallbackLayer::new(classifier.clone()).or_replan(ErrorClass::Unknown, |n, _| n))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .service(scripted::<u32, _, _, _>([UNKNOWN, RESET, PERMANENT]));
    let error = retry_over_escalate.oneshot(1).await.unwrap_err();
    assert_eq!(error.to_string(), "primary");
    assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Unknown]);
    assert_eq!(seen.last().resolution, Resolution::Escalated);

    let escalate_over_retry = ServiceBuilder::new()
        .layer(FallbackLayer::new(classifier.clone()).or_replan(ClassSet::ALL, |n, _| n))
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .layer(RetryLayer::new(classifier).policy(attempts(2)))
        .service(scripted::<u32, _, _, _>([RESET, RESET, RESET, PERMANENT]));
    escalate_over_retry.oneshot(1).await.unwrap_err();
    assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Transient]);
    assert_eq!(seen.last().resolution, Resolution::Escalated);
}

/// What a failed step would have escalated is not claimed for a primary that does not escalate.
#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_for_a_failure_that_does_not_escalate() {
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk();
    let stack = ServiceBuilder::new()
        .layer(FallbackLayer::new(classifier.clone()).or_replan(ClassSet::ALL, |n, _| n))
        .layer(EscalateLayer::new(classifier, desk.clone()))
        .service(scripted::<u32, _, _, _>([PERMANENT, RESET]));
    stack.oneshot(1).await.unwrap_err();
    assert!(sent(&desk, &mut letters).await.is_empty());
    assert_eq!(seen.last().resolution, Resolution::Failed);
}

/// The circuit is opened by somebody else during the wait: the kept error is returned, and its
/// escalation is sent.
#[tokio::test(start_paused = true)]
async fn a_kept_error_keeps_its_escalation() {
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(9));
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(breaker)
        .layer(EscalateLayer::new(classifier, desk.clone()))
        .service(scripted::<u32, _, _, _>([RESET]));
    let call = tokio::spawn(stack.oneshot(1));
    tokio::task::yield_now().await;
    handle.force_open();
    let error = call.await.unwrap().unwrap_err();
    assert!(error.downcast_ref::<io::Error>().is_some());
    assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Transient]);
    assert_eq!(seen.last().resolution, Resolution::Escalated);
}

/// An escalation that finds no room is not called escalated.
#[tokio::test(start_paused = true)]
async fn kf53_an_escalation_that_finds_no_room_is_marked_not_recorded() {
    let (classifier, seen) = classifier();
    let hanging = service_fn(|_: Escalation| std::future::pending::<Result<(), AnyError>>());
    let policy = DeskPolicy::new().queue(1).workers(1).overflow(Overflow::DropNewest);
    let routes = Routes::new(Route::new(["nobody"], "look_at_it"));
    let desk = Desk::with_policy(policy, routes, [Receiver::new("nobody").record(hanging)]);
    let desk = desk.unwrap();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(1)))
        .layer(EscalateLayer::new(classifier, desk.clone()))
        .service(scripted::<u32, _, _, _>([RESET]));
    for n in 0..6 {
        stack.clone().oneshot(n).await.unwrap_err();
    }
    let (told, lost): (Vec<_>, Vec<_>) =
        seen.incidents().into_iter().partition(|i| i.resolution == Resolution::Escalated);
    assert_eq!(lost.len() as u64, desk.counts().dropped);
    assert!(!lost.is_empty() && !told.is_empty());
    for incident in lost {
        assert!(incident.not_recorded);
        assert!(matches!(incident.steps.last().unwrap().kind, StepKind::NotRecorded));
    }
}

/// A time limit above the retry fires during a wait: that is a failure of its own.
#[tokio::test(start_paused = true)]
async fn a_failure_made_by_a_layer_in_between_is_recorded() {
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .map_err(AnyError::from_boxed)
        .timeout(Duration::from_millis(5))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .service(scripted::<u32, _, _, _>([RESET]));
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
    assert_eq!(classifier.count(ErrorClass::Timeout), 1);
    let incident = seen.last();
    assert_eq!(incident.failure.unwrap().class, ErrorClass::Timeout, "what the caller got");
    assert_eq!(incident.attempts, 1, "the service was called once");
    assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Timeout]);

    // A recovered answer that a layer in between refuses is a failure again.
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .map_result(|_: Result<u32, AnyError>| Err::<u32, _>(permanent()))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .service(scripted::<u32, _, _, _>([RESET, OK]));
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(classifier.count(ErrorClass::Permanent), 1);
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Permanent);
    assert_eq!(seen.last().resolution, Resolution::Failed);
}

/// A fallback that is cut off in the middle of a step leaves later failures to decide.
#[tokio::test(start_paused = true)]
async fn a_fallback_cut_off_in_mid_step_does_not_outlive_itself() {
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk();
    let hangs = |_: tower_triage::fallback::Failed<'_, u32, AnyError>| std::future::pending();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .map_err(AnyError::from_boxed)
        .timeout(Duration::from_millis(50))
        .layer(FallbackLayer::new(classifier).or_call(ErrorClass::Transient, hangs))
        .service(scripted::<u32, _, _, _>([RESET, UNKNOWN]));
    let error = stack.oneshot(1).await.unwrap_err();
    assert_eq!(error.to_string(), "primary");
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Unknown);
    assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Unknown]);
}

/// A fallback inside a fallback's step: the outermost primary decides.
#[tokio::test(start_paused = true)]
async fn kf51_nested_fallbacks_leave_the_primary_to_decide() {
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new()
        .layer(FallbackLayer::new(classifier.clone()).or_replan(ErrorClass::Permanent, |n, _| n))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(2)))
        .layer(
            FallbackLayer::new(classifier)
                .or_call(ErrorClass::Transient, |_| std::future::ready(Err::<u32, _>(reset()))),
        )
        .service(scripted::<u32, _, _, _>([PERMANENT, RESET]));
    let error = stack.oneshot(1).await.unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Permanent);
}

/// An attempt that succeeds by itself is not called a fallback's answer.
#[tokio::test(start_paused = true)]
async fn the_last_attempt_says_who_answered() {
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        // The fallback's answer is refused by a layer in between.
        .map_result(|result: Result<u32, AnyError>| match result {
            Ok(0) => Err(reset()),
            other => other,
        })
        .layer(FallbackLayer::new(classifier).or_value(ErrorClass::Transient, |_| 0))
        .service(scripted::<u32, _, _, _>([RESET, OK]));
    assert_eq!(stack.oneshot(1).await.unwrap(), 7);
    assert_eq!(seen.last().resolution, Resolution::RecoveredByRetry);
}

/// Two calls that one handler begins at once are two calls, each with its own attempts.
#[tokio::test(start_paused = true)]
async fn calls_begun_together_do_not_share_their_marks() {
    let (classifier, _) = classifier();
    let (desk, _letters) = desk();
    let calls = Arc::new(AtomicU32::new(0));
    let client = |max: u32| {
        let calls = Arc::clone(&calls);
        ServiceBuilder::new()
            .layer(RetryLayer::new(classifier.clone()).policy(attempts(max)))
            .service(service_fn(move |_: u32| {
                calls.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Err::<u32, _>(reset()))
            }))
    };
    let (mut impatient, mut patient) = (client(1), client(3));
    let mut handler = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .service(service_fn(move |n: u32| {
            let both = (impatient.call(n), patient.call(n));
            async move {
                both.0.await.unwrap_err();
                both.1.await
            }
        }));
    handler.ready().await.unwrap().call(1).await.unwrap_err();
    assert_eq!(calls.load(Ordering::Relaxed), 4, "one and three");
    assert_eq!(classifier.count(ErrorClass::Transient), 4);
}

/// A readiness error behind a breaker is one failure of one call.
#[tokio::test(start_paused = true)]
async fn a_readiness_error_is_one_incident() {
    #[derive(Clone)]
    struct Broken;
    impl Service<u32> for Broken {
        type Response = u32;
        type Error = AnyError;
        type Future = std::future::Ready<Result<u32, AnyError>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), AnyError>> {
            std::task::Poll::Ready(Err(reset()))
        }
        fn call(&mut self, _: u32) -> Self::Future {
            unreachable!("it is never ready")
        }
    }
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk();
    let policy = BreakerPolicy::new().consecutive_failures(1).build().unwrap();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(policy);
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .layer(breaker)
        .service(Broken);
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(handle.counts().failures, 1, "the breaker counts it");
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
    assert_eq!(seen.incidents().len(), 1);
    assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Transient]);
}

/// A time limit above a fallback fires while a step hangs: its failure decides, with or without a
/// retry on top, and is told of.
#[tokio::test(start_paused = true)]
async fn a_time_limit_above_a_hanging_fallback_decides() {
    for attempts_on_top in [None, Some(1)] {
        let (classifier, seen) = classifier();
        let (desk, mut letters) = desk();
        let hangs = |_: tower_triage::fallback::Failed<'_, u32, AnyError>| std::future::pending();
        let fallback = FallbackLayer::new(classifier.clone()).or_call(ErrorClass::Permanent, hangs);
        let stack = ServiceBuilder::new()
            .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
            .map_err(AnyError::from_boxed)
            .timeout(Duration::from_millis(50))
            .layer(fallback)
            .service(scripted::<u32, _, _, _>([PERMANENT]));
        match attempts_on_top {
            None => stack.oneshot(1).await.unwrap_err(),
            Some(n) => {
                let retry = RetryLayer::new(classifier.clone()).policy(attempts(n));
                ServiceBuilder::new().layer(retry).service(stack).oneshot(1).await.unwrap_err()
            }
        };
        assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Timeout);
        assert_eq!(seen.last().resolution, Resolution::Escalated);
        assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Timeout]);
        assert_eq!(classifier.count(ErrorClass::Timeout), 1);
        assert_eq!(classifier.count(ErrorClass::Permanent), 1);
    }
}

/// An escalation inside a backup gives the incident the request's own id; what was kept of the
/// primary is still the primary's.
#[tokio::test(start_paused = true)]
async fn an_id_given_in_the_middle_changes_nothing_else() {
    use tower_triage::{AnyOk, Chain, Halves, RequestFacts, RulesExt};

    let rules = Halves { response: AnyOk, error: Chain };
    let rules = rules.describe(|n: &u32| RequestFacts::new("op").request_id(&format!("r{n}")));
    let (classifier, seen) = common::watched(rules);
    let (desk, mut letters) = desk();
    let backup = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .service(scripted::<u32, _, _, _>([UNKNOWN]));
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(FallbackLayer::new(classifier.clone()).or_service(ErrorClass::Transient, backup))
        .service(scripted::<u32, _, _, _>([RESET, PERMANENT]));
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Permanent, "what the caller got");
    assert!(sent(&desk, &mut letters).await.is_empty(), "a definite no is nobody's alarm");
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
}

/// What must be told at once is told although the call is dropped while a fallback hangs, also
/// where the layer is not the outermost.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_still_tells_what_must_be_told_at_once() {
    use tower_triage::{AnyOk, Chain, Halves, RulesExt, Verdict};

    let rules = Halves { response: AnyOk, error: Chain };
    let rules = rules.adjust(|outcome: Result<&u32, &AnyError>, verdict: Verdict| match outcome {
        Err(error) if error.to_string() == "primary" => ErrorClass::Auth.into(),
        _ => verdict,
    });
    let (classifier, seen) = common::watched(rules);
    let (desk, mut letters) = desk();
    let hangs = |_: tower_triage::fallback::Failed<'_, u32, AnyError>| std::future::pending();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(2)))
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .layer(FallbackLayer::new(classifier).or_call(ErrorClass::Auth, hangs))
        .service(scripted::<u32, _, _, _>([UNKNOWN]));
    let dropped = tokio::time::timeout(Duration::from_millis(10), stack.oneshot(1)).await;
    assert!(dropped.is_err());
    assert_eq!(seen.last().resolution, Resolution::Abandoned);
    assert_eq!(sent(&desk, &mut letters).await, [ErrorClass::Auth]);
}

/// The retry does not wait for a circuit that it opened, but asks it: a fallback for refusals that
/// stands below gets its chance, and of two breakers the longer one counts.
#[tokio::test(start_paused = true)]
async fn an_opened_circuit_is_asked_at_once() {
    let (classifier, seen) = classifier();
    let begun = tokio::time::Instant::now();
    let with_fallback_below = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Rejected, |_| 42))
        .layer(CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(1)))
        .service(scripted::<u32, _, _, _>([RESET]));
    assert_eq!(with_fallback_below.oneshot(1).await.unwrap(), 42);
    assert_eq!(seen.last().resolution, Resolution::AnsweredByFallback);

    let breaker = |open_ms: u64| {
        let open = tower_triage::Backoff::fixed(Duration::from_millis(open_ms));
        let policy = BreakerPolicy::new().consecutive_failures(1).open_for(open);
        CircuitBreakerLayer::new(classifier.clone()).policy(policy.build().unwrap())
    };
    let two_breakers = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(breaker(1))
        .layer(breaker(60_000))
        .service(scripted::<u32, _, _, _>([RESET]));
    two_breakers.oneshot(1).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_millis(10), "no wait for a closed door");
}

/// A failover below the retry: the refusal of its first leg does not hide the second leg's answer.
#[tokio::test(start_paused = true)]
async fn another_legs_failure_is_a_failure_of_its_own() {
    let (classifier, seen) = classifier();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(9));
    let handle = breaker.handle();
    let first = ServiceBuilder::new().layer(breaker).service(scripted::<u32, _, _, _>([RESET]));
    let legs = Arc::new(AtomicU32::new(0));
    let failover = service_fn(move |n: u32| {
        let (mut first, legs, handle) = (first.clone(), Arc::clone(&legs), handle.clone());
        async move {
            match first.ready().await?.call(n).await {
                Err(error) if legs.fetch_add(1, Ordering::Relaxed) == 0 => {
                    handle.force_open();
                    Err(error)
                }
                Err(_) => Err(permanent()),
                ok => ok,
            }
        }
    });
    let retry = RetryLayer::new(classifier.clone()).policy(attempts(3));
    let stack = ServiceBuilder::new().layer(retry).service(failover);
    let error = stack.oneshot(1).await.unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Permanent);
}

/// A breaker behind a buffer is a call of its own; the kept error that the retry returns decides all
/// the same.
#[tokio::test(start_paused = true)]
async fn the_kept_error_decides_also_behind_a_buffer() {
    let (classifier, seen) = classifier();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(1));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(attempts(3)))
        .map_err(AnyError::from_boxed)
        .buffer(4)
        .layer(breaker)
        .service(scripted::<u32, _, _, _>([RESET]));
    let error = stack.oneshot(1).await.unwrap_err();
    assert!(error.find::<io::Error>().is_some(), "{error}");
    let own = seen.incidents().into_iter().find(|incident| {
        !incident.steps.is_empty()
            && incident.steps.iter().any(|step| step.layer == tower_triage::LayerKind::Retry)
    });
    assert_eq!(own.unwrap().failure.unwrap().class, ErrorClass::Transient);
}
