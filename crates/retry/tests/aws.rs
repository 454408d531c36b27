//! The AWS preset under a real layer.

mod common;

use std::task::Poll;
use std::time::Duration;

use common::{Oops, Reply, ask, classifier, ms, oops, reply, script};
use tokio::sync::watch;
use tokio::time::{Instant, advance};
use tower::{Layer, ServiceExt};
use tower_triage_core::{ErrorClass, Failure, Incident, Refusal, RetryAfter, StepKind};
use tower_triage_retry::budget::{Budget, TokenCostSettings, TokenCosts};
use tower_triage_retry::{AwsStandard, Decision, Facts, Progress, RetryLayer};

fn waits(incident: &Incident) -> Vec<Duration> {
    let waits = incident.steps.iter().filter_map(|step| match step.kind {
        StepKind::Waiting { delay, .. } => Some(delay),
        _ => None,
    });
    waits.collect()
}

fn denied(incident: &Incident) -> bool {
    let why = |why| matches!(why, StepKind::NotRetried { why: Refusal::BudgetExhausted });
    incident.steps.iter().any(|step| why(step.kind.clone()))
}

/// `tokens` tokens, at `aws`'s prices.
fn bucket(aws: &AwsStandard, tokens: u32) -> Budget {
    Budget::token_cost(TokenCostSettings { initial: Some(tokens), ..aws.tokens() }).unwrap()
}

#[test]
fn the_prices_are_the_sdks() {
    let costs = TokenCosts { transient: 10, timeout: 10, throttled: 5, other: 5 };
    assert_eq!(AwsStandard::v2_0().tokens().costs, costs);
    let costs = TokenCosts { transient: 14, timeout: 14, throttled: 5, other: 14 };
    assert_eq!(AwsStandard::v2_1().tokens().costs, costs);
    assert_eq!(AwsStandard::v2_1().tokens().capacity, 500);
    assert_eq!(AwsStandard::dynamodb().policy().max_attempts(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn attempts_waits_and_tokens_are_those_of_the_preset() {
    let aws = AwsStandard::v2_1();
    let tokens = bucket(&aws, 500);
    let (classifier, seen) = classifier();
    let layer =
        RetryLayer::new(classifier).policy(aws.policy().build().unwrap()).budget(tokens.clone());
    let service = script([|| Ok(reply(503)), || Ok(reply(503)), || Ok(reply(200))]);
    let began = Instant::now();
    assert_eq!(layer.layer(service.clone()).oneshot(ask()).await, Ok(reply(200)));
    assert_eq!(service.calls(), 3);
    let waits = waits(&seen.last());
    assert!(waits[0] <= ms(50) && waits[1] <= ms(100), "{waits:?}");
    assert!(began.elapsed() <= ms(153));
    // Two were paid, the last one's price came back.
    assert_eq!(tokens.level(Duration::ZERO), 486.0);
}

/// One bucket for two clients of a service: what one spent the other does not have.
#[tokio::test(start_paused = true)]
async fn clients_share_the_tokens() {
    let aws = AwsStandard::v2_0();
    let tokens = bucket(&aws, 25);
    let client = || {
        let (classifier, seen) = classifier();
        let layer = RetryLayer::new(classifier)
            .policy(aws.policy().build().unwrap())
            .budget(tokens.clone());
        let service = script([|| Err(oops(ErrorClass::Timeout))]);
        (layer.layer(service.clone()), service, seen)
    };
    let ((one, first, _), (other, second, seen)) = (client(), client());
    assert!(one.oneshot(ask()).await.is_err());
    assert_eq!((first.calls(), tokens.level(Duration::ZERO)), (3, 5.0));
    assert!(other.oneshot(ask()).await.is_err());
    assert_eq!(second.calls(), 1);
    assert!(denied(&seen.last()));
}

#[tokio::test(start_paused = true)]
async fn long_polling_waits_where_the_tokens_deny_a_retry() {
    for line in [|| Err(oops(ErrorClass::Throttled)), || Ok(reply(429))] as [fn() -> _; 2] {
        let line: fn() -> Result<Reply, Oops> = line;
        for (aws, waits_for) in [
            (AwsStandard::v2_1().long_polling(), Duration::from_secs(1)),
            (AwsStandard::v2_1(), Duration::ZERO),
        ] {
            let (classifier, seen) = classifier();
            let layer = RetryLayer::new(classifier)
                .policy(aws.policy().build().unwrap())
                .budget(bucket(&aws, 4));
            let service = script([line]);
            let began = Instant::now();
            assert_eq!(layer.layer(service.clone()).oneshot(ask()).await, line());
            assert_eq!(service.calls(), 1);
            let incident = seen.last();
            assert!(denied(&incident));
            let waited: Duration = waits(&incident).iter().sum();
            assert!(waited <= waits_for, "{waited:?}");
            assert_eq!(waits(&incident).len(), usize::from(!waits_for.is_zero()));
            // A timer has a granularity of a millisecond.
            assert!(began.elapsed() >= waited && began.elapsed() <= waited + ms(1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_wait_of_a_denied_retry() {
    let aws = AwsStandard::v2_1().throttled_base(Duration::from_secs(1000)).long_polling();
    let aws = aws.max_backoff(Duration::from_secs(1000));
    let (classifier, _) = classifier();
    let (down, signal) = watch::channel(false);
    let layer = RetryLayer::new(classifier)
        .policy(aws.policy().build().unwrap())
        .budget(bucket(&aws, 0))
        .random(tower_triage_core::Random::seeded(1))
        .shutdown(signal);
    let service = script([|| Ok(reply(429))]);
    let mut call = tokio_test::task::spawn(layer.layer(service.clone()).oneshot(ask()));
    assert!(call.poll().is_pending());
    advance(ms(5)).await;
    assert!(call.poll().is_pending());
    down.send(true).unwrap();
    assert!(matches!(call.poll(), Poll::Ready(Ok(Reply { status: 429, .. }))));
    assert_eq!(service.calls(), 1);
}

/// The second retry takes the second wait, though it is the first after throttling.
#[test]
fn waits_are_counted_over_all_classes() {
    let (transient, throttled) =
        (Failure::new(ErrorClass::Transient), Failure::new(ErrorClass::Throttled));
    for (policy, second) in [
        (AwsStandard::v2_1().policy(), 2000),
        (AwsStandard::v2_1().policy().count_all_waits(false), 1000),
    ] {
        let mut progress = Progress::default();
        let decide = |progress: &mut Progress, failure| {
            let decision = policy.decide(&Facts::default(), progress, failure, 1.0);
            let Decision::Again { wait, .. } = decision else { panic!("{decision:?}") };
            wait
        };
        assert_eq!(decide(&mut progress, &transient), ms(50));
        assert_eq!(decide(&mut progress, &throttled), ms(second));
    }
}

/// 2.0 follows a hint up to the longest wait, 2.1 up to 5 s beyond the wait.
#[test]
fn hints_are_followed_as_far_as_the_mode_goes() {
    for (aws, hint, expected) in [
        (AwsStandard::v2_0(), 3, 3000),
        (AwsStandard::v2_0(), 600, 20_000),
        (AwsStandard::v2_0().max_backoff(Duration::from_secs(300)), 90, 90_000),
        (AwsStandard::v2_1(), 3, 3000),
        (AwsStandard::v2_1(), 600, 5050),
        (
            AwsStandard::v2_1()
                .base(Duration::from_secs(300))
                .max_backoff(Duration::from_secs(300)),
            0,
            300_000,
        ),
    ] {
        let hint = RetryAfter::AtLeast(Duration::from_secs(hint));
        let failure = Failure::new(ErrorClass::Transient).retry_after(hint);
        let mut progress = Progress::default();
        let decision = aws.policy().decide(&Facts::default(), &mut progress, &failure, 1.0);
        assert!(
            matches!(decision, Decision::Again { wait, .. } if wait == ms(expected)),
            "{decision:?}"
        );
    }
}

/// Long polling waits only where the tokens deny it.
#[tokio::test(start_paused = true)]
async fn other_refusals_come_at_once() {
    let aws = AwsStandard::v2_1().attempts(1).long_polling();
    let (classifier, _) = classifier();
    let layer = RetryLayer::new(classifier).policy(aws.policy().build().unwrap());
    let began = Instant::now();
    for class in [ErrorClass::Throttled, ErrorClass::Permanent] {
        let service = match class {
            ErrorClass::Permanent => script([|| Err(oops(ErrorClass::Permanent))]),
            _ => script([|| Err(oops(ErrorClass::Throttled))]),
        };
        assert_eq!(layer.layer(service).oneshot(ask()).await, Err(oops(class)));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}
