//! The stack that meets the failures: real layers over a service that fails as the world says.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{
    AnyOk, Backoff, ClassSet, Classifier, ErrorClass, Halves, Jitter, OwnError,
};
use tower_triage_fallback::{Failed, FallbackLayer};
use tower_triage_learn::{Learner, Remedy};
use tower_triage_retry::budget::Budget;
use tower_triage_retry::{Attempt, ClassRule, RetryLayer, RetryPolicy};

use super::Figures;
use super::world::{Cure, SimulatedError, World};

/// Which kinds the classifier knows.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Knows {
    Half,
    All,
}

/// What the stack does with a failure that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Nothing.
    Leave,
    /// Repeat it once, then replan, then the other service.
    TryAll,
}

/// What can be tried, and the class that leads there: first what helps against most. (Another
/// attempt at once is part of one after a longer wait.)
pub(super) fn remedies() -> [Remedy; 4] {
    [
        ("wait", Cure::Wait),
        ("nudge", Cure::Nudge),
        ("fallback/replan", Cure::Replan),
        ("fallback/service", Cure::Backup),
    ]
    .map(|(name, cure)| Remedy::new(name, cure.class()))
}

/// What an unknown failure meets where everything is tried on it.
pub(super) fn reached() -> [Remedy; 3] {
    [("retry", Cure::Retry), ("fallback/replan", Cure::Replan), ("fallback/service", Cure::Backup)]
        .map(|(name, cure)| Remedy::new(name, cure.class()))
}

/// A request on its way.
#[derive(Clone)]
struct Job {
    kind: usize,
    way: Way,
    begun: Instant,
    tries: Arc<AtomicU32>,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Nudged,
    Replanned,
}

/// Long enough for what needs time.
const LONG: Duration = Duration::from_secs(1);

/// Calls a stack once for each of `kinds`.
pub(super) async fn drive(
    world: &World,
    knows: Knows,
    unknown: Unknown,
    learner: Option<&Learner>,
    kinds: &[usize],
) -> Figures {
    let attempts = AtomicU32::new(0);
    // Once more, or at the other service.
    let answer = |job: &Job, elsewhere: bool| {
        attempts.fetch_add(1, Relaxed);
        let again = job.tries.fetch_add(1, Relaxed) > 0;
        let cure = world.cure(job.kind);
        let right = match cure {
            Cure::Retry => again && job.way == Way::Plain && !elsewhere,
            Cure::Wait => {
                again && job.way == Way::Plain && !elsewhere && job.begun.elapsed() >= LONG
            }
            Cure::Nudge => job.way == Way::Nudged,
            Cure::Replan => job.way == Way::Replanned,
            Cure::Backup => elsewhere,
            Cure::None => false,
        };
        if right && world.works() {
            return Ok(());
        }
        let known = knows == Knows::All || world.knows(job.kind);
        let class = if known { cure.class() } else { ErrorClass::Unknown };
        Err(world.failure(job.kind, class))
    };
    let primary = service_fn(|job: Job| ready(answer(&job, false)));
    let backup = service_fn(|job: Job| ready(answer(&job, true)));

    let classifier = Classifier::new(Halves { response: AnyOk, error: OwnError });
    if let Some(learner) = learner {
        learner.attach(&classifier);
    }
    let with_unknown = |class| match unknown {
        Unknown::Leave => ClassSet::from(class),
        Unknown::TryAll => ClassSet::from([class, ErrorClass::Unknown]),
    };
    let rule = |wait| ClassRule::new(Backoff::fixed(wait).jitter(Jitter::None));
    let soon = rule(LONG / 10);
    let mut policy = RetryPolicy::default()
        .attempts(2)
        .retry(ErrorClass::Transient, soon.clone())
        .retry(ErrorClass::Timeout, soon.clone())
        .retry(ErrorClass::Throttled, rule(LONG * 2));
    if unknown == Unknown::TryAll {
        policy = policy.retry(ErrorClass::Unknown, soon);
    }
    let nudge = |job: &mut Job, attempt: &Attempt, _: Result<&(), &SimulatedError>| {
        let nudges = attempt.previous.is_some_and(|failed| failed.class == ErrorClass::Timeout);
        if nudges {
            job.way = Way::Nudged;
        }
        nudges
    };
    let mut stack = ServiceBuilder::new()
        .layer(
            FallbackLayer::new(classifier.clone())
                .or_replan(
                    with_unknown(ErrorClass::Quota),
                    |job: Job, _: Failed<'_, (), SimulatedError>| Job {
                        way: Way::Replanned,
                        ..job
                    },
                )
                .or_service(with_unknown(ErrorClass::Declined), backup),
        )
        .layer(
            RetryLayer::new(classifier)
                .policy(policy.build().expect("a policy of this file"))
                // Every call fails here at first.
                .budget(Budget::unlimited())
                .nudge(nudge),
        )
        .service(primary);

    let mut figures = Figures::default();
    for kind in kinds {
        let job =
            Job { kind: *kind, way: Way::Plain, begun: Instant::now(), tries: Arc::default() };
        let Ok(ready) = stack.ready().await else { unreachable!("it is always ready") };
        figures.solved += u32::from(ready.call(job).await.is_ok());
        figures.calls += 1;
    }
    figures.attempts = attempts.into_inner();
    figures
}
