//! Requests with a policy of their own.

mod common;

use std::future::{Ready, ready};
use std::time::Duration;

use common::{Ask, Oops, Reply, ask, classifier, every, ms, oops, reply};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{Backoff, Disposition, ErrorClass, Failure, RetryAfter, StepKind, Vote};
use tower_triage_retry::budget::{Budget, ThrottleSettings};
use tower_triage_retry::{
    Attempt, ClassRule, Release, Replay, RequestPolicy, RetryLayer, RetryPlan, RetryPolicy,
};
use tower_triage_test_support::scripted;

/// Requests that say "own" have a policy by which everything is Transient, four attempts.
struct Own(RetryPlan);

impl Own {
    fn new() -> Self {
        let rule = ClassRule::new(Backoff::fixed(ms(7)));
        let policy = RetryPolicy::default().attempts(4).retry(ErrorClass::Transient, rule);
        Self(policy.resend_unseen(true).deadline(ms(1000)).build().unwrap())
    }
}

impl RequestPolicy for Own {
    fn plan(&self) -> &RetryPlan {
        &self.0
    }

    fn regard(&self, failure: Failure) -> Failure {
        failure.reclassified(ErrorClass::Transient)
    }
}

impl Replay<Ask> for Own {
    type Kept = Ask;

    fn policy(&self, ask: &Ask) -> Option<usize> {
        (ask.text == "own").then_some(3)
    }

    fn policy_at(&self, place: usize) -> Option<&dyn RequestPolicy> {
        (place == 3).then_some(self as &dyn RequestPolicy)
    }

    fn keep(&self, ask: &mut Ask) -> Result<Ask, &'static str> {
        Ok(ask.clone())
    }

    fn again(&self, kept: &mut Ask, _: &Attempt) -> Result<Ask, &'static str> {
        Ok(kept.clone())
    }
}

impl Release<Reply> for Own {
    type Future = Ready<()>;

    /// Read from replies of every class.
    fn hint(&self, reply: &Reply) -> Option<RetryAfter> {
        (reply.status == 404).then_some(RetryAfter::Exactly(ms(30)))
    }

    fn release(&self, _: Reply) -> Ready<()> {
        ready(())
    }
}

fn own() -> Ask {
    Ask { text: "own".to_owned(), ..ask() }
}

#[tokio::test(start_paused = true)]
async fn each_request_is_repeated_by_its_policy() {
    let (classifier, seen) = classifier();
    let service = scripted([
        || Ok::<_, Oops>(reply(400)),
        || Ok(reply(400)),
        || Ok(reply(400)),
        || Ok(reply(200)),
    ]);
    let layer =
        RetryLayer::new(classifier).policy(every(ms(500)).build().unwrap()).replay(Own::new());
    let retry = ServiceBuilder::new().layer(layer).service(service.clone());

    let begun = tokio::time::Instant::now();
    assert_eq!(retry.clone().oneshot(own()).await, Ok(reply(200)));
    assert_eq!(begun.elapsed(), ms(21));
    assert_eq!(service.calls(), 4);
    // What is told to others is what it was.
    let failed = seen.steps().into_iter().filter_map(|(_, step)| match step.kind {
        StepKind::Failed { failure, .. } => Some(failure.class),
        _ => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [ErrorClass::Permanent; 3]);

    let service = scripted([|| Ok::<_, Oops>(reply(400)), || Ok(reply(200))]);
    let (classifier, _) = common::classifier();
    let layer = RetryLayer::new(classifier).replay(Own::new());
    let retry = ServiceBuilder::new().layer(layer).service(service.clone());
    assert_eq!(retry.oneshot(ask()).await, Ok(reply(400)), "the layer's policy repeats no 400");
}

#[tokio::test(start_paused = true)]
async fn its_hint_is_read_whatever_the_class() {
    let (classifier, _) = classifier();
    let service = scripted([|| Ok::<_, Oops>(reply(404)), || Ok(reply(400)), || Ok(reply(200))]);
    let retry = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).replay(Own::new()))
        .service(service);
    let begun = tokio::time::Instant::now();
    let _: Result<Reply, Oops> = retry.oneshot(own()).await;
    assert_eq!(begun.elapsed(), ms(37));
}

#[tokio::test(start_paused = true)]
async fn its_deadline_counts() {
    let (classifier, _) = classifier();
    let service = scripted([|| Err::<Reply, _>(oops(ErrorClass::Transient))]);
    let slow = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).replay(Own::new()))
        .map_future(|attempt| async {
            tokio::time::sleep(ms(600)).await;
            attempt.await
        })
        .service(service.clone());
    assert!(slow.oneshot(own()).await.is_err());
    assert_eq!(service.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resend_costs_no_attempt_and_no_budget() {
    let unseen = || {
        let failure = Failure::new(ErrorClass::Transient).vote(Vote::Ignore);
        Err(Oops(failure.disposition(Disposition::NotSent), "unseen"))
    };
    let (classifier, _) = classifier();
    let service = scripted([unseen, unseen, unseen, unseen, unseen, || Ok(reply(200))]);
    let settings = ThrottleSettings { max_tokens: 10, token_ratio: 0.1 };
    let budget = Budget::failure_throttle(settings).unwrap();
    let layer = RetryLayer::new(classifier).budget(budget.clone()).replay(Own::new());
    let retry = ServiceBuilder::new().layer(layer).service(service.clone());
    assert_eq!(retry.oneshot(own()).await, Ok(reply(200)));
    assert_eq!(service.calls(), 6);
    assert!((budget.level(Duration::ZERO) - 10.0).abs() < 1e-9);
}
