//! What a learner makes of the incidents of a real stack.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{
    Advisor, AnyError, AnyOk, Backoff, Chain, Classifier, ClassifyLayer, ErrorClass, Failure,
    Fingerprint, Halves, Jitter, Observation, Operation, Verdict,
};
use tower_triage_fallback::{Failed, FallbackLayer};
use tower_triage_learn::{Known, LearnPlan, LearnPolicy, Learner, Mode, Remedy};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPolicy};

type Rules = Halves<AnyOk, Chain>;

fn classifier() -> Classifier<Rules> {
    Classifier::new(Halves { response: AnyOk, error: Chain })
}

/// A learner whose calendar stands still, so that nothing fades.
fn learner(policy: LearnPolicy) -> Learner {
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    Learner::with_clock(policy.build().unwrap(), move || noon)
}

fn attached(policy: LearnPolicy) -> (Learner, Classifier<Rules>) {
    let (learner, classifier) = (learner(policy), classifier());
    learner.attach(&classifier);
    (learner, classifier)
}

fn aggressive() -> LearnPolicy {
    LearnPolicy::default().mode(Mode::Aggressive)
}

/// A retry that repeats what is unknown once, with caution.
fn cautious(classifier: &Classifier<Rules>) -> RetryLayer<Rules> {
    let backoff = Backoff::fixed(Duration::from_millis(10)).jitter(Jitter::None);
    let once = ClassRule::new(backoff).attempts(2);
    let policy = RetryPolicy::default().retry(ErrorClass::Unknown, once);
    RetryLayer::new(classifier.clone()).policy(policy.build().unwrap())
}

fn unknown(n: u32) -> AnyError {
    AnyError::msg(format!("shard {n} is moving"))
}

fn kind() -> Fingerprint {
    let failure = Chain::failure(&unknown(0));
    Fingerprint::of(&Operation::EMPTY, &failure, &unknown(0).to_string())
}

trait FailureOf {
    fn failure(error: &AnyError) -> Failure;
}

impl FailureOf for Chain {
    fn failure(error: &AnyError) -> Failure {
        use tower_triage_core::ClassifyError;
        ClassifyError::error(&Self, error)
    }
}

/// What is known: name, class, worked, failed (whole calls).
fn known(learner: &Learner) -> Vec<(String, ErrorClass, u32, u32)> {
    let all = learner.known(kind()).into_iter();
    let rounded = |n: f64| n.round() as u32;
    all.map(|Known { remedy, worked, failed, .. }| {
        (remedy.name.as_str().to_owned(), remedy.class, rounded(worked), rounded(failed))
    })
    .collect()
}

/// A service that counts its calls and answers by `answer(call, request)`.
fn counting<F>(
    answer: F,
) -> (
    impl Service<u32, Response = u32, Error = AnyError, Future = Ready<Result<u32, AnyError>>>
    + Clone
    + Send
    + 'static,
    Arc<AtomicU32>,
)
where
    F: Fn(u32, u32) -> Result<u32, AnyError> + Clone + Send + 'static,
{
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let service =
        service_fn(move |request| ready(answer(counter.fetch_add(1, SeqCst) + 1, request)));
    (service, calls)
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_solves_is_learned_and_then_an_unknown_failure_is_transient() {
    let (learner, classifier) = attached(aggressive());
    let (service, calls) =
        counting(|call, n| if call % 2 == 1 { Err(unknown(call)) } else { Ok(n) });
    let mut stack = ServiceBuilder::new().layer(cautious(&classifier)).service(service.clone());
    for _ in 0..2 {
        stack.ready().await.unwrap().call(1).await.unwrap();
    }
    assert_eq!(known(&learner), [("retry".to_owned(), ErrorClass::Transient, 2, 0)]);
    let class = |n| {
        let verdict = classifier.judge::<u32, _>(&Operation::EMPTY, Err(&unknown(n)));
        verdict.failure().unwrap().class
    };
    assert_eq!(class(77), ErrorClass::Unknown, "two successes are no certainty");
    stack.ready().await.unwrap().call(1).await.unwrap();
    assert_eq!(class(77), ErrorClass::Transient);

    // The default policy repeats nothing unknown, and this it now repeats.
    let before = calls.load(SeqCst);
    let stack = ServiceBuilder::new().layer(RetryLayer::new(classifier.clone())).service(service);
    stack.oneshot(1).await.unwrap();
    assert_eq!(calls.load(SeqCst) - before, 2);
    assert_eq!(known(&learner), [("retry".to_owned(), ErrorClass::Transient, 4, 0)]);
    // Another failure of the same class is another kind.
    let other = AnyError::msg("shard 7 is gone");
    let verdict = classifier.judge::<u32, _>(&Operation::EMPTY, Err(&other));
    assert_eq!(verdict.failure().unwrap().class, ErrorClass::Unknown);
}

#[tokio::test(start_paused = true)]
async fn what_the_fallback_solves_goes_straight_there() {
    let declared = Remedy::new("fallback/service", ErrorClass::Declined);
    let (learner, classifier) = attached(aggressive().remedies([declared]));
    let (primary, calls) = counting(|call, _| Err(unknown(call)));
    let mut stack = ServiceBuilder::new()
        .layer(
            FallbackLayer::new(classifier.clone())
                .or_service([ErrorClass::Unknown, ErrorClass::Declined], counting(|_, n| Ok(n)).0),
        )
        .layer(cautious(&classifier))
        .service(primary);
    for _ in 0..3 {
        stack.ready().await.unwrap().call(1).await.unwrap();
    }
    assert_eq!(calls.load(SeqCst), 6);
    assert_eq!(
        known(&learner),
        [
            ("fallback/service".to_owned(), ErrorClass::Declined, 3, 0),
            ("retry".to_owned(), ErrorClass::Transient, 0, 3),
        ]
    );
    stack.ready().await.unwrap().call(1).await.unwrap();
    assert_eq!(calls.load(SeqCst), 7, "it is not repeated any more");
    assert_eq!(known(&learner)[0].2, 4);
}

#[tokio::test(start_paused = true)]
async fn what_fails_inside_a_fallback_is_not_taken_for_the_primary_failure() {
    let retry = ("retry".to_owned(), ErrorClass::Transient, 0, 1);
    for retries in [true, false] {
        let (learner, classifier) = attached(aggressive());
        let (primary, _) = counting(|call, _| Err(unknown(call)));
        let primary = match retries {
            true => BoxCloneService::new(cautious(&classifier).layer(primary)),
            false => BoxCloneService::new(primary),
        };
        let (backup, _) = counting(|_, _| Err(AnyError::msg("the backup is asleep")));
        let backup = ServiceBuilder::new().layer(cautious(&classifier)).service(backup);
        let stack = ServiceBuilder::new()
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_service(ErrorClass::Unknown, backup)
                    .or_value(ErrorClass::Unknown, |_| 0),
            )
            .service(primary);
        assert_eq!(stack.oneshot(1).await.unwrap(), 0);
        let mut expected = vec![
            ("fallback/value".to_owned(), ErrorClass::Unknown, 1, 0),
            ("fallback/service".to_owned(), ErrorClass::Unknown, 0, 1),
        ];
        if retries {
            expected.insert(1, retry.clone());
        }
        assert_eq!(known(&learner), expected, "with a retry: {retries}");
        assert_eq!(learner.len(), 2, "the backup's retry taught something too");
    }
}

#[tokio::test(start_paused = true)]
async fn a_nudge_is_told_from_a_retry() {
    let (learner, classifier) = attached(aggressive());
    let (service, _) = counting(|call, n| if n > 5 { Err(unknown(call)) } else { Ok(n) });
    let retry = cautious(&classifier).nudge(
        |n: &mut u32, _: &tower_triage_retry::Attempt, _: Result<&u32, &AnyError>| {
            *n /= 2;
            true
        },
    );
    let mut stack = ServiceBuilder::new().layer(retry).service(service);
    assert_eq!(stack.ready().await.unwrap().call(8).await.unwrap(), 4);
    stack.ready().await.unwrap().call(80).await.unwrap_err();
    assert_eq!(known(&learner), [("nudge".to_owned(), ErrorClass::Transient, 1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn of_several_attempts_in_one_call_one_lesson_is_learned() {
    let (learner, classifier) = attached(aggressive());
    let (service, _) = counting(|call, n| if call % 3 != 0 { Err(unknown(call)) } else { Ok(n) });
    let rule = ClassRule::new(Backoff::immediate());
    let policy = RetryPolicy::default().retry(ErrorClass::Unknown, rule).build().unwrap();
    let layer = RetryLayer::new(classifier.clone()).policy(policy);
    ServiceBuilder::new().layer(layer).service(service).oneshot(1).await.unwrap();
    assert_eq!(known(&learner), [("retry".to_owned(), ErrorClass::Transient, 1, 0)]);
}

/// What a treatment leads to is not what was learned to help: another step of the fallback answers,
/// and in vain.
#[tokio::test(start_paused = true)]
async fn a_treatment_that_leads_elsewhere_is_given_up_too() {
    let declared = Remedy::new("fallback/replan", ErrorClass::Declined);
    let (learner, classifier) = attached(aggressive().remedies([declared]));
    let (service, _) = counting(|call, n| if n < 100 { Err(unknown(call)) } else { Ok(n) });
    let (backup, _) = counting(|_, _| Err(AnyError::msg("the backup is asleep")));
    let fallback = FallbackLayer::new(classifier.clone())
        .or_replan(ErrorClass::Unknown, |n: u32, _: Failed<'_, u32, AnyError>| n + 100)
        .or_service(ErrorClass::Declined, backup);
    let mut stack = ServiceBuilder::new().layer(fallback).service(service);
    let mut solved = Vec::new();
    for _ in 0..20 {
        solved.push(stack.ready().await.unwrap().call(1).await.is_ok());
    }
    assert_eq!(solved[..4], [true, true, true, false], "three successes, and the wrong treatment");
    let failed = solved.iter().filter(|solved| !**solved).count();
    assert!(failed <= 5, "{solved:?}");
    assert_eq!(known(&learner)[0].0, "fallback/replan");
}

/// The remedy has no place in the stack, or does not help any more.
#[tokio::test(start_paused = true)]
async fn a_treatment_that_no_longer_helps_is_given_up() {
    let (learner, classifier) = attached(aggressive());
    for _ in 0..100 {
        learner.record(kind(), Remedy::new("fallback/service", ErrorClass::Declined), true);
    }
    let (service, calls) = counting(|call, _| Err(unknown(call)));
    let mut stack = ServiceBuilder::new().layer(cautious(&classifier)).service(service);
    let mut attempts = Vec::new();
    for _ in 0..20 {
        let before = calls.load(SeqCst);
        stack.ready().await.unwrap().call(1).await.unwrap_err();
        attempts.push(calls.load(SeqCst) - before);
    }
    let declined = attempts.iter().take_while(|attempts| **attempts == 1).count();
    assert!((1..=12).contains(&declined), "{attempts:?}");
    // Then it is unknown again, and met with caution.
    assert!(attempts[declined..].iter().all(|attempts| *attempts == 2), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn known_failures_teach_nothing_and_are_not_looked_up() {
    let (learner, classifier) = attached(aggressive());
    let reset = || AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let (service, _) = counting(move |call, n| if call % 2 == 1 { Err(reset()) } else { Ok(n) });
    let stack = ServiceBuilder::new().layer(cautious(&classifier)).service(service);
    stack.oneshot(1).await.unwrap();
    assert!(learner.is_empty());

    struct Never;
    impl Advisor for Never {
        fn advise(&self, _: &Observation) -> Option<ErrorClass> {
            panic!("asked about a failure that the rules know")
        }
    }
    classifier.advised_by(Never);
    let verdict = classifier.judge::<u32, _>(&Operation::EMPTY, Err(&reset()));
    assert_eq!(verdict.failure().unwrap().class, ErrorClass::Transient);
    assert_eq!(classifier.judge::<u32, AnyError>(&Operation::EMPTY, Ok(&1)), Verdict::Success);
    // A panic of an advisor is not the caller's.
    let verdict = classifier.judge::<u32, _>(&Operation::EMPTY, Err(&unknown(1)));
    assert_eq!(verdict.failure().unwrap().class, ErrorClass::Unknown);
}

/// R1: unknown failures are tried with caution, and only where the caller allows it.
#[tokio::test(start_paused = true)]
async fn r01_trials_are_made_only_where_they_are_allowed_and_end() {
    let attempts = async |policy: LearnPolicy| {
        let (_learner, classifier) = attached(policy);
        let (service, calls) = counting(|call, _| Err(unknown(call)));
        let twice = RetryPolicy::default().attempts(2).build().unwrap();
        let retry = RetryLayer::new(classifier).policy(twice);
        let mut stack = ServiceBuilder::new().layer(retry).service(service);
        for _ in 0..20 {
            stack.ready().await.unwrap().call(1).await.unwrap_err();
        }
        calls.load(SeqCst)
    };
    assert_eq!(attempts(aggressive()).await, 20);
    let retry = Remedy::new("retry", ErrorClass::Transient);
    assert_eq!(attempts(aggressive().remedies([retry])).await, 20);
    assert_eq!(attempts(aggressive().remedies([retry]).explore(true)).await, 22);
}

/// Nothing that may have been done is done again because time healed it once.
#[tokio::test(start_paused = true)]
async fn what_is_known_of_the_work_stays_as_it_was() {
    let (learner, classifier) = attached(aggressive());
    for _ in 0..9 {
        learner.record(kind(), Remedy::new("later", ErrorClass::Throttled), true);
    }
    let verdict = classifier.judge::<u32, _>(&Operation::EMPTY, Err(&unknown(7)));
    let failure = verdict.failure().unwrap();
    assert_eq!(failure.class, ErrorClass::Throttled);
    assert!(failure.is_learned() && failure.disposition.may_be_processed());
    assert!(!failure.repeatable(false, true) && failure.repeatable(true, true));
}

#[tokio::test(start_paused = true)]
async fn as_the_judge_of_a_classify_layer_it_is_asked_once_and_believed() {
    let (learner, classifier) = (learner(aggressive()), classifier());
    classifier.observe(learner.clone());
    for _ in 0..9 {
        learner.record(kind(), Remedy::new("retry", ErrorClass::Transient), true);
    }
    let (service, calls) = counting(|call, n| if call == 1 { Err(unknown(call)) } else { Ok(n) });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()))
        .layer(ClassifyLayer::new(classifier.clone(), learner.clone()))
        .service(service);
    stack.oneshot(1).await.unwrap();
    assert_eq!(calls.load(SeqCst), 2);
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
    assert_eq!(known(&learner)[0].2, 9, "{:?}", known(&learner)); // 8.3 faded, and one more
}

#[test]
fn the_mode_can_be_changed_while_it_runs() {
    let learner = Learner::new(LearnPlan::default());
    for _ in 0..5 {
        learner.record(kind(), Remedy::new("retry", ErrorClass::Transient), true);
    }
    assert!(learner.advise(kind()).is_none());
    learner.set_mode(Mode::Aggressive);
    assert!(learner.advise(kind()).is_some());
    learner.forget(kind());
    assert!(learner.is_empty());
}
