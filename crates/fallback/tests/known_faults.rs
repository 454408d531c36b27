//! Faults of comparable libraries, and their neighbours.

mod common;

use common::{Reply, classifier, rejected, reply, reset, script};
use std::sync::{Arc, Mutex};

use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::{AnyError, ErrorClass, Resolution, StepKind, incident};
use tower_triage_fallback::FallbackLayer;
use tower_triage_test_support::Seen;

use ErrorClass::{Permanent, Quota, Rejected, Throttled, Timeout, Transient};

/// Neither `Clone` nor anything else.
struct Bare(u32);

#[tokio::test]
async fn kf05_steps_that_only_look_need_no_clone() {
    let layer = FallbackLayer::new(classifier())
        .or_call(Throttled, |failed| {
            let class = failed.failure.class;
            async move { Ok(reply(200, class.as_str())) }
        })
        .or_value(Transient, |failed| reply(200, failed.failure.reason));
    struct NotClone;
    impl Service<Bare> for NotClone {
        type Response = Reply;
        type Error = AnyError;
        type Future = std::future::Ready<Result<Reply, AnyError>>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), AnyError>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: Bare) -> Self::Future {
            std::future::ready(Ok(reply(if request.0 == 1 { 429 } else { 503 }, "")))
        }
    }
    let mut service = layer.layer(NotClone);
    assert_eq!(service.ready().await.unwrap().call(Bare(1)).await.unwrap().body, "Throttled");
    assert_eq!(service.ready().await.unwrap().call(Bare(2)).await.unwrap().body, "Transient");
}

/// Once an answer has begun, what follows is nobody's to replace: the layer sees no more of it.
#[tokio::test]
async fn kf25_an_answer_that_has_begun_is_not_replaced() {
    let primary = script([|| Ok::<_, AnyError>(reply(200, "three frames, then an error"))]);
    let backup = script([|| Ok::<_, AnyError>(reply(200, "backup"))]);
    let layer = FallbackLayer::new(classifier()).or_service(ErrorClass::ALL, backup.clone());
    let mut service = layer.layer(primary.clone());
    let answer = service.ready().await.unwrap().call(1).await.unwrap();
    assert_eq!(answer.body, "three frames, then an error");
    assert_eq!((primary.calls(), backup.calls()), (1, 0));
}

#[tokio::test]
async fn kf48_a_function_sees_class_outcome_and_request() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let primary = script([|| Err(reset("wire cut")), || Ok(reply(503, "busy"))]);
    let layer = FallbackLayer::new(classifier()).or_call_with(
        Transient,
        move |request: &'static str, failed: tower_triage_fallback::Failed<'_, Reply, AnyError>| {
            let outcome = match failed.outcome {
                Ok(reply) => reply.body.clone(),
                Err(error) => error.to_string(),
            };
            let line = format!("{request}: {} {outcome}", failed.failure.class);
            log.lock().unwrap().push(line);
            async { Ok(reply(200, "")) }
        },
    );
    let mut service = layer.layer(primary);
    service.ready().await.unwrap().call("a").await.unwrap();
    service.ready().await.unwrap().call("b").await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["a: Transient wire cut", "b: Transient busy"]);
}

#[tokio::test]
async fn kf48_a_service_gets_what_a_function_makes_of_request_and_failure() {
    let primary = script([|| Ok(reply(503, "busy")), || Err(reset("wire cut"))]);
    let backup = script([|| Ok(reply(200, "backup"))]);
    let layer = FallbackLayer::new(classifier()).or_service_with(
        Transient,
        backup.clone(),
        |request: u32, failed: tower_triage_fallback::Failed<'_, Reply, AnyError>| {
            let why = failed.outcome.map_or_else(ToString::to_string, |reply| reply.body.clone());
            (request, failed.failure.class, why)
        },
    );
    let mut service = layer.layer(primary);
    for request in [1_u32, 2] {
        assert_eq!(service.ready().await.unwrap().call(request).await.unwrap().body, "backup");
    }
    let expected = [(1, Transient, "busy".to_owned()), (2, Transient, "wire cut".to_owned())];
    assert_eq!(backup.take_requests(), expected);
}

#[tokio::test]
async fn kf49_a_fallback_is_visible_and_the_failure_still_counts() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let layer = FallbackLayer::new(classifier.clone())
        .or_service(Transient, service_fn(|_: u32| async { Ok(reply(200, "backup")) }));
    let handle = layer.handle();
    let mut service = layer.layer(script([|| Err::<Reply, _>(reset("wire cut"))]));

    let answer = service.ready().await.unwrap().call(1).await.unwrap();

    assert_eq!(answer.notes.fallback, Some(Transient), "the answer is marked");
    assert_eq!(handle.answered(Transient), 1, "a counter by class");
    assert_eq!(classifier.count(Transient), 1, "the primary failure is counted, once");
    let incident = seen.last();
    assert_eq!(incident.resolution, Resolution::AnsweredByFallback);
    assert_eq!(answer.notes.incident.unwrap().id, incident.id);
    let text: Vec<String> = incident.steps.iter().map(|step| step.kind.to_string()).collect();
    assert_eq!(
        text,
        [
            "attempt 1 failed: Transient (wire cut)",
            "fallback 1 (service) answered for Transient (wire cut)"
        ]
    );
}

#[tokio::test]
async fn kf50_only_for_the_configured_classes() {
    let primary =
        script([|| Ok(reply(422, "no such field")), || Ok(reply(503, "")), || Err(rejected())]);
    let layer =
        FallbackLayer::new(classifier()).or_value([Transient, Rejected], |_| reply(200, "stale"));
    let handle = layer.handle();
    let mut service = layer.layer(primary);
    let mut answers = Vec::new();
    for request in 0..3 {
        answers.push(service.ready().await.unwrap().call(request).await.unwrap());
    }
    assert_eq!((answers[0].status, answers[0].body.as_str()), (422, "no such field"));
    assert_eq!(answers[0].notes.fallback, None);
    assert_eq!((answers[1].body.as_str(), answers[1].notes.fallback), ("stale", Some(Transient)));
    assert_eq!((answers[2].body.as_str(), answers[2].notes.fallback), ("stale", Some(Rejected)));
    assert_eq!((handle.failed(Permanent), handle.answered(Permanent)), (0, 0));
}

/// The class of the primary failure decides for every step, not that of the step before.
#[tokio::test]
async fn kf50_a_later_step_looks_at_the_primary_class() {
    let layer = FallbackLayer::new(classifier())
        .or_call(Transient, |_| async { Ok(reply(429, "")) })
        .or_value(Throttled, |_| reply(200, "for a throttled primary"));
    let mut service = layer.layer(script([|| Ok::<_, AnyError>(reply(503, "primary"))]));
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap().body, "primary");
}

#[tokio::test]
async fn kf51_two_failures_both_reported_and_the_primary_decides() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let layer = FallbackLayer::new(classifier.clone())
        .or_call(Transient, |_| async { Err::<Reply, _>(AnyError::msg("F")) });
    let handle = layer.handle();
    let mut service = layer.layer(script([|| Err::<Reply, _>(reset("P"))]));

    let (outcome, collected) = incident::scope(service.ready().await.unwrap().call(1)).await;

    let error = outcome.unwrap_err();
    assert_eq!(error.to_string(), "P");
    assert_eq!(handle.failed(Transient), 1);
    assert_eq!(classifier.count(Transient), 1);
    assert_eq!(classifier.count(ErrorClass::Unknown), 1, "F counts too, once");
    for incident in [collected.unwrap(), seen.last(), (**error.incident().unwrap()).clone()] {
        assert_eq!(incident.failure.unwrap().class, Transient);
        assert_eq!(incident.resolution, Resolution::Failed);
        let text = incident.timeline(10).to_string();
        assert!(text.find("(P)").unwrap() < text.find("(F)").unwrap(), "{text}");
    }
}

/// A backup that is a stack of ours records its own failure; it is counted once all the same.
#[tokio::test]
async fn kf51_a_backup_with_layers_of_ours_joins_the_call() {
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let backup = FallbackLayer::new(classifier.clone())
        .or_value(Quota, |_| reply(200, "never"))
        .layer(script([|| Ok::<_, AnyError>(reply(429, "F"))]));
    let layer = FallbackLayer::new(classifier.clone())
        .or_service(Transient, backup)
        .or_value(Transient, |_| reply(200, "last resort"));
    let mut service = layer.layer(script([|| Ok::<_, AnyError>(reply(503, "P"))]));
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap().body, "last resort");
    assert_eq!((classifier.count(Transient), classifier.count(Throttled)), (1, 1));
    assert_eq!(seen.incidents().len(), 1, "one call, one incident");
    assert_eq!(seen.last().failure.unwrap().class, Transient, "the primary failure is the one");
}

/// A step's answer is judged like any other: a failed one does not replace the failure.
#[tokio::test]
async fn kf51_an_answer_that_is_a_failure_does_not_answer() {
    let layer = FallbackLayer::new(classifier())
        .or_value(Timeout, |_| reply(200, "other class"))
        .or_value(Transient, |_| reply(429, "F"));
    let (outcome, incident) = {
        let mut service = layer.layer(script([|| Ok::<_, AnyError>(reply(503, "P"))]));
        incident::scope(service.ready().await.unwrap().call(1)).await
    };
    assert_eq!(outcome.unwrap().body, "P");
    let steps = incident.unwrap().steps;
    assert!(matches!(steps[1].kind, StepKind::FallbackFailed { step: 2, by: "value", .. }));
}

/// What a retry below told the layers above ("used up") holds again after a chain without an
/// answer, and is forgotten when one answered.
#[tokio::test]
async fn kf51_the_primary_failures_marks_survive_a_failed_chain() {
    for (answer, still_exhausted) in [(503, true), (200, false)] {
        let classifier = classifier();
        let innermost = FallbackLayer::new(classifier.clone())
            .or_value(Quota, |_| reply(200, ""))
            .layer(script([|| Ok::<_, AnyError>(reply(503, "P"))]));
        let exhausted = innermost.map_future(|call| async {
            let outcome = call.await;
            incident::mark_exhausted();
            outcome
        });
        let middle = FallbackLayer::new(classifier.clone())
            .or_value(Transient, move |_| reply(answer, ""))
            .layer(exhausted);
        let mark = Arc::new(Mutex::new(None));
        let log = Arc::clone(&mark);
        let watched = middle.map_future(move |call| {
            let log = Arc::clone(&log);
            async move {
                let outcome = call.await;
                *log.lock().unwrap() = Some(incident::exhausted_below());
                outcome
            }
        });
        let mut outermost =
            FallbackLayer::new(classifier).or_value(Quota, |_| reply(200, "")).layer(watched);
        outermost.ready().await.unwrap().call(1).await.unwrap();
        assert_eq!(*mark.lock().unwrap(), Some(still_exhausted));
    }
}
