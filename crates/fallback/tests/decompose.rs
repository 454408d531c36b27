//! One request as many.

mod common;

use common::{Reply, classifier, reply, reset};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use static_assertions::assert_impl_all;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{AnyError, ErrorClass, Resolution, StepKind};
use tower_triage_fallback::{Decompose, FallbackLayer, decompose};
use tower_triage_test_support::{Seen, Strict};

type Outcome = Result<Reply, AnyError>;

assert_impl_all!(Decompose<(), fn(), fn()>: Clone, Send, Sync, Unpin);

fn letters(text: String) -> Vec<String> {
    text.chars().map(String::from).collect()
}

/// What answered, in order; `?` for a part that failed.
fn join(parts: Vec<Outcome>) -> Outcome {
    let body: String =
        parts.into_iter().map(|part| part.map_or("?".to_owned(), |r| r.body)).collect();
    Ok(reply(200, &body))
}

/// Counts how many are under way, and how many there were at most.
#[derive(Clone, Default)]
struct Busy(Arc<[AtomicUsize; 2]>);

impl Busy {
    fn enter(&self) -> Place {
        let now = self.0[0].fetch_add(1, Ordering::SeqCst) + 1;
        self.0[1].fetch_max(now, Ordering::SeqCst);
        Place(self.clone())
    }

    fn now_and_most(&self) -> [usize; 2] {
        [0, 1].map(|n| self.0[n].load(Ordering::SeqCst))
    }
}

struct Place(Busy);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0[0].fetch_sub(1, Ordering::SeqCst);
    }
}

fn slow(
    busy: &Busy,
) -> impl Service<String, Response = Reply, Error = AnyError, Future: Send> + Clone + use<> {
    let busy = busy.clone();
    service_fn(move |part: String| {
        let place = busy.enter();
        async move {
            // The first one takes longest.
            sleep(Duration::from_millis(u64::from(b'z' - part.as_bytes()[0]))).await;
            drop(place);
            Ok(reply(200, &part))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn parts_run_a_few_at_a_time_and_are_merged_in_order() {
    for (at_once, most) in [(None, 4), (Some(2), 2), (Some(100), 8)] {
        let busy = Busy::default();
        let mut service = decompose(slow(&busy), letters, join);
        if let Some(parts) = at_once {
            service = service.at_once(parts).unwrap();
        }
        // Unboxed in a task.
        let task = tokio::spawn(async move {
            let mut service = service;
            service.ready().await?.call("abcdefgh".to_owned()).await
        });
        assert_eq!(task.await.unwrap().unwrap().body, "abcdefgh");
        assert_eq!(busy.now_and_most(), [0, most]);
    }
    let error = decompose((), letters, join).at_once(0).unwrap_err();
    assert_eq!(error.field(), "at_once");
}

#[tokio::test(start_paused = true)]
async fn dropped_with_its_parts() {
    let busy = Busy::default();
    let service = decompose(slow(&busy), letters, join);
    let call = service.oneshot("abcdefgh".to_owned());
    assert!(tokio::time::timeout(Duration::from_millis(5), call).await.is_err());
    assert_eq!(busy.now_and_most(), [0, 4]);
}

#[tokio::test]
async fn no_parts_are_an_answer_too() {
    let service = decompose(Strict::new(slow(&Busy::default())), letters, join);
    assert_eq!(service.oneshot(String::new()).await.unwrap().body, "");
}

/// Each part on a clone that was polled ready for it; again for the next request.
#[tokio::test(start_paused = true)]
async fn kf01_readiness_per_part() {
    let limited = ServiceBuilder::new().concurrency_limit(2).service(slow(&Busy::default()));
    let mut service = decompose(Strict::new(limited), letters, join);
    for _ in 0..3 {
        let answer = service.ready().await.unwrap().call("abcde".to_owned()).await.unwrap();
        assert_eq!(answer.body, "abcde");
    }
}

/// A part that fails has an incident of its own; the call that was split tells of it as nested, and
/// none of its attempts count there.
#[tokio::test(start_paused = true)]
async fn parts_are_calls_of_their_own() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    // The stack of the parts: a layer of ours, which owns the scope of its call.
    let part = service_fn(|part: String| async move {
        sleep(Duration::from_millis(1)).await;
        match part.as_str() {
            "b" => Err(reset("b is down")),
            _ => Ok(reply(200, &part)),
        }
    });
    let parts = FallbackLayer::new(classifier.clone())
        .or_value(ErrorClass::Transient, |_| reply(200, "B"))
        .layer(part);
    let primary = service_fn(|_: String| async { Err::<Reply, _>(reset("too large")) });
    let stack = FallbackLayer::new(classifier)
        .or_service(ErrorClass::Transient, decompose(parts, letters, join))
        .layer(primary);

    let begun = Instant::now();
    assert_eq!(stack.oneshot("abc".to_owned()).await.unwrap().body, "aBc");
    assert_eq!(begun.elapsed(), Duration::from_millis(1));
    let [part, whole] = &seen.incidents()[..] else { panic!("{:?}", seen.incidents()) };
    assert_eq!(part.resolution, Resolution::AnsweredByFallback);
    assert_eq!((part.attempts, part.steps.len()), (1, 2));
    assert_ne!(part.id, whole.id);
    assert_eq!(whole.attempts, 1);
    let nested: Vec<_> = whole.steps.iter().filter(|step| step.nested).collect();
    assert_eq!(nested.len(), 2, "{whole:?}");
    let StepKind::Failed { detail, .. } = &nested[0].kind else { panic!("{nested:?}") };
    assert!(detail.as_str().contains("b is down"));
    let answered = whole.steps.last().unwrap();
    assert!(matches!(answered.kind, StepKind::FallbackAnswered { step: 1, .. }), "{whole:?}");
    assert!(!answered.nested);
}
