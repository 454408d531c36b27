//! What each step does, and what limits it.

mod common;

use common::{Reply, Rules, classifier, reply, reset, script};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::incident::{self, LayerKind};
use tower_triage_core::{
    AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves, Operation, Resolution,
};
use tower_triage_fallback::chain::{Call, Step};
use tower_triage_fallback::keep::KeepsService;
use tower_triage_fallback::steps::OneCall;
use tower_triage_fallback::{Failed, FallbackLayer, LastGood, copy_fn};
use tower_triage_test_support::Seen;

use ErrorClass::{Permanent, Throttled, Transient};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_success_passes_unmarked() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let layer = FallbackLayer::new(classifier).or_value(ErrorClass::ALL, |_| reply(200, "value"));
    let mut service = layer.layer(script([|| Ok::<_, AnyError>(reply(200, "primary"))]));
    let answer = service.ready().await.unwrap().call(1).await.unwrap();
    assert_eq!((answer.body.as_str(), answer.notes.fallback), ("primary", None));
    assert!(seen.incidents().is_empty());
}

#[tokio::test]
async fn a_replan_asks_the_same_service_something_else() {
    let primary = script([|| Ok(reply(429, "")), || Ok::<_, AnyError>(reply(200, "small"))]);
    let layer = FallbackLayer::new(classifier())
        .or_replan(Throttled, |(_model, prompt): (&'static str, u32), _failed| ("small", prompt));
    let mut service = layer.layer(primary.clone());
    assert_eq!(service.ready().await.unwrap().call(("large", 7)).await.unwrap().body, "small");
    assert_eq!(primary.take_requests(), [("large", 7), ("small", 7)]);
}

/// Asks the same service for the next request.
struct Next;

impl<S, K> Step<S, u32, K> for Next
where
    S: Service<u32>,
    K: KeepsService<S, u32>,
{
    const KIND: &'static str = "next";
    type Future = OneCall<S, u32>;

    fn start(
        &self,
        call: &Call<'_, S, u32, K>,
        _failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        Ok(OneCall::new(call.service()?, call.copy_request()? + 1))
    }
}

#[tokio::test]
async fn a_step_of_ones_own_has_request_and_service() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let primary = script([|| Ok(reply(429, "")), || Ok::<_, AnyError>(reply(200, "next"))]);
    let layer = FallbackLayer::new(classifier).or_step(Throttled, Next);
    let mut service = layer.layer(primary.clone());
    assert_eq!(service.ready().await.unwrap().call(7).await.unwrap().body, "next");
    assert_eq!(primary.take_requests(), [7, 8]);
    let text = seen.last().timeline(10).to_string();
    assert!(text.contains("fallback 1 (next) answered for Throttled"), "{text}");
}

/// Attempts whose errors say this, as a retry below makes them.
async fn attempts(
    classifier: Classifier<Rules>,
    texts: &[&'static str],
) -> Result<Reply, AnyError> {
    let operation = Operation::new("ask");
    let mut outcome = Ok(reply(200, "primary"));
    for text in texts {
        drop(incident::next_attempt());
        outcome = Err(reset(text));
        let verdict = classifier.judge(&operation, outcome.as_ref());
        let failure = verdict.failure().expect("it is an error");
        classifier.note_failure(&operation, LayerKind::Retry, failure, outcome.as_ref());
    }
    outcome
}

/// The third failure alike, whatever numbers are in it, is one too many; others do not count.
#[tokio::test]
async fn a_step_can_wait_for_failures_of_one_kind() {
    for (texts, answer) in [
        (&["full at 7"][..], None),
        (&["full at 7", "full at 12"], None),
        (&["full at 7", "gone", "full at 12"], None),
        (&["full at 7", "full at 12", "full at 9"], Some("in parts")),
        (&["full at 7", "gone", "full at 12", "full at 9"], Some("in parts")),
        (&["full at 7", "full at 12", "full at 9", "gone"], None),
    ] {
        let (classifier, seen) = (classifier(), Seen::default());
        classifier.observe(seen.clone());
        let primary = service_fn(|()| attempts(classifier.clone(), texts));
        let layer = FallbackLayer::new(classifier.clone())
            .or_value(Transient, |_| reply(200, "in parts"))
            .after_failures(3);
        let answered = layer.layer(primary).oneshot(()).await.ok().map(|reply| reply.body);
        assert_eq!(answered.as_deref(), answer, "{texts:?}");
        let skipped = seen.outcomes().contains(&"fallback_skipped");
        assert_eq!(skipped, answer.is_none(), "{texts:?}");
    }
}

/// However many they were, and however much the attempts themselves have called through our layers: the
/// incident keeps the latest 64 steps.
#[tokio::test]
async fn failures_are_not_forgotten() {
    let step = |classifier: Classifier<Rules>, failures| {
        FallbackLayer::new(classifier)
            .or_value(Transient, |_| reply(200, "in parts"))
            .after_failures(failures)
    };
    let classifier = classifier();
    let many = service_fn(|n| {
        let texts = vec!["full"; n];
        let classifier = classifier.clone();
        async move { attempts(classifier, &texts).await }
    });
    let layer = step(classifier.clone(), 60);
    for n in [59, 60, 64, 65, 70, 96, 97, 200] {
        let answered = layer.layer(many).oneshot(n).await.is_ok();
        assert_eq!(answered, n >= 60, "{n}");
    }
    assert!(step(classifier.clone(), u32::MAX).layer(many).oneshot(99).await.is_err());
    assert!(step(classifier.clone(), 0).layer(many).oneshot(1).await.is_ok());

    // Two attempts, each with 40 calls of its own that fail; and a single one.
    let calls = async |times| {
        let mut outcome = Ok(reply(200, "primary"));
        for _ in 0..times {
            drop(incident::next_attempt());
            for _ in 0..40 {
                let inner = step(classifier.clone(), 9).layer(many);
                inner.oneshot(1).await.unwrap_err();
            }
            outcome = attempts(classifier.clone(), &["full"]).await;
        }
        outcome
    };
    for (times, answered) in [(1, false), (2, true)] {
        let layer = step(classifier.clone(), 2);
        let outcome = layer.layer(service_fn(|()| calls(times))).oneshot(()).await;
        assert_eq!(outcome.is_ok(), answered, "{times}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_too_long_has_failed() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let layer = FallbackLayer::new(classifier.clone())
        .or_call(Transient, |_| std::future::pending::<Result<Reply, AnyError>>())
        .within(2 * SECOND)
        .or_value(Transient, |_| reply(200, "in time"));
    let mut service = layer.layer(script([|| Err::<Reply, _>(reset("down"))]));
    let begun = Instant::now();
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap().body, "in time");
    assert_eq!(begun.elapsed(), 2 * SECOND);
    assert_eq!(classifier.count(ErrorClass::Timeout), 1);
    let text = seen.last().timeline(10).to_string();
    assert!(text.contains("fallback 1 (call) failed: Timeout (no answer within 2s)"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_includes_the_backups_readiness() {
    let (backup, _handle) = tower_test::mock::pair::<u32, Reply>();
    let backup = backup.map_err(AnyError::from_boxed);
    let layer = FallbackLayer::new(classifier()).or_service(Transient, backup).within(SECOND);
    let mut service = layer.layer(script([|| Ok::<_, AnyError>(reply(503, "primary"))]));
    let begun = Instant::now();
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap().body, "primary");
    assert_eq!(begun.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_of_the_step_that_was_added_last() {
    let slow = service_fn(|_: u32| async {
        tokio::time::sleep(5 * SECOND).await;
        Ok::<_, AnyError>(reply(200, "slow"))
    });
    let layer = FallbackLayer::new(classifier())
        .or_service(Transient, slow)
        .or_value(Transient, |_| reply(200, "value"))
        .within(SECOND);
    let mut service = layer.layer(script([|| Err::<Reply, _>(reset("down"))]));
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap().body, "slow");
}

#[tokio::test]
async fn a_limit_of_zero_takes_what_is_there_at_once() {
    let layer = FallbackLayer::new(classifier())
        .or_call(Transient, |_| async {
            tokio::task::yield_now().await;
            Ok(reply(200, "late"))
        })
        .within(Duration::ZERO)
        .or_value(Transient, |_| reply(200, "at once"))
        .within(Duration::ZERO);
    let mut service = layer.layer(script([|| Err::<Reply, _>(reset("down"))]));
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap().body, "at once");
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_a_fallback_leaves_nothing_behind() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&dropped);
    let layer = FallbackLayer::new(classifier).or_call(Transient, move |_| {
        let guard = SetOnDrop(Arc::clone(&flag));
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    let handle = layer.handle();
    let mut service = layer.layer(script([|| Err::<Reply, _>(reset("down"))]));
    let mut call = task::spawn(service.ready().await.unwrap().call(1));
    assert_pending!(call.poll());
    assert!(!dropped.load(Ordering::Relaxed));
    drop(call);
    assert!(dropped.load(Ordering::Relaxed), "the step's future is dropped with the call");
    assert_eq!(seen.last().resolution, Resolution::Abandoned);
    assert_eq!((handle.answered(Transient), handle.failed(Transient)), (0, 0));
}

/// Like `reqwest::Request`: some can be copied, some cannot.
struct Streaming(bool);

#[tokio::test]
async fn a_request_that_cannot_be_copied_is_sent_once_and_its_step_skipped() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let primary = script([|| Ok::<_, AnyError>(reply(503, "primary"))]);
    let backup = script([|| Ok::<_, AnyError>(reply(200, "backup"))]);
    let layer = FallbackLayer::new(classifier)
        .or_service(Transient, backup.clone())
        .copy_requests(copy_fn(|request: &Streaming| (!request.0).then_some(Streaming(false))));
    let mut service = layer.layer(primary.clone());
    assert_eq!(service.ready().await.unwrap().call(Streaming(false)).await.unwrap().body, "backup");
    assert_eq!(service.ready().await.unwrap().call(Streaming(true)).await.unwrap().body, "primary");
    assert_eq!((primary.calls(), backup.calls()), (2, 1));
    let text = seen.last().timeline(10).to_string();
    assert!(
        text.contains("fallback 1 (service) not tried: the request cannot be copied"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_good_answer_of_one_layer_is_shared_by_all_its_services() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let policy = LastGood::new(SECOND, 10 * SECOND).unwrap();
    let layer = FallbackLayer::new(classifier).or_last_good(Transient, policy);
    let mut works = layer.layer(script([|| Ok::<_, AnyError>("report 1"), || Ok("report 2")]));
    let mut fails = layer.clone().layer(script([|| Err::<&str, _>(reset("down"))]));

    let outcome = fails.ready().await.unwrap().call(0).await;
    assert!(outcome.is_err(), "nothing is kept yet");
    works.ready().await.unwrap().call(0).await.unwrap();
    assert_eq!(fails.ready().await.unwrap().call(0).await.unwrap(), "report 1");
    works.ready().await.unwrap().call(0).await.unwrap();
    assert_eq!(fails.ready().await.unwrap().call(0).await.unwrap(), "report 1", "not yet due");
    advance(SECOND).await;
    works.ready().await.unwrap().call(0).await.unwrap();
    assert_eq!(fails.ready().await.unwrap().call(0).await.unwrap(), "report 2");
    advance(10 * SECOND).await;
    assert!(fails.ready().await.unwrap().call(0).await.is_ok(), "as old as it may be");
    advance(Duration::from_millis(1)).await;
    assert_eq!(fails.ready().await.unwrap().call(0).await.unwrap_err().to_string(), "down");
}

#[tokio::test(start_paused = true)]
async fn a_last_good_answer_goes_only_to_requests_with_its_key() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let mut down = false;
    let primary = service_fn(move |id: u32| {
        let answer = if down { Err(reset("down")) } else { Ok(id * 10) };
        down |= id == 2;
        std::future::ready(answer)
    });
    let layer = FallbackLayer::new(classifier).or_last_good_by(
        Transient,
        LastGood::default(),
        |id: &u32| *id,
    );
    let mut service = layer.layer(primary);
    for id in [1, 2] {
        service.ready().await.unwrap().call(id).await.unwrap();
    }
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap(), 10);
    assert_eq!(service.ready().await.unwrap().call(2).await.unwrap(), 20);
    assert!(service.ready().await.unwrap().call(3).await.is_err());
}

/// A fallback's own answer is not the primary's last good one.
#[tokio::test(start_paused = true)]
async fn a_rescued_answer_is_not_kept_as_a_good_one() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let layer = FallbackLayer::new(classifier)
        .or_last_good(Transient, LastGood::default())
        .or_value(Transient, |_| "value");
    let mut service = layer.layer(script([|| Err::<&str, _>(reset("down"))]));
    for _ in 0..2 {
        let (answer, incident) = incident::scope(service.ready().await.unwrap().call(0)).await;
        assert_eq!(answer.unwrap(), "value");
        let text = incident.unwrap().timeline(10).to_string();
        assert!(text.contains("fallback 1 (last_good) not tried"), "{text}");
    }
}

#[tokio::test]
async fn more_than_two_steps_on_request() {
    let layer = FallbackLayer::new(classifier())
        .max_steps::<3>()
        .or_value(Permanent, |_| reply(200, "1"))
        .or_call(Transient, |_| async { Err(reset("again")) })
        .or_value(Transient, |_| reply(200, "3"));
    let mut service = layer.layer(script([|| Err::<Reply, _>(reset("down"))]));
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap().body, "3");
}
