//! tower-http's `classify` traits, both ways.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_http::classify::{
    ClassifyResponse, GrpcErrorsAsFailures, MakeClassifier, ServerErrorsAsFailures,
    SharedClassifier, StatusInRangeAsFailures,
};
use tower_http::trace::TraceLayer;
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{
    AnyError, Backoff, CircuitOpen, ClassSet, Classifier, Classify, Disposition, ErrorClass,
    Failure, Operation,
};
use tower_triage_http::{
    HttpReplay, HttpRulesExt, MakeClassifierLayer, MakeTriageClassifier, TraceFailure,
    TriageClassifier, by_make_classifier, http, server_errors,
};
use tower_triage_retry::{RetryLayer, RetryPlan, RetryPolicy};
use tower_triage_test_support::scripted;

type Body = Full<Bytes>;

fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).body(Body::default()).unwrap()
}

fn at_once() -> RetryPlan {
    RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap()
}

/// What a `TraceLayer` called failures, in order.
type Failures = Arc<Mutex<Vec<String>>>;

/// Sends a request through a `TraceLayer` that our classifier drives.
async fn traced(
    make: impl MakeClassifier<FailureClass = TraceFailure, Classifier: Clone> + Clone,
    outcome: Result<Response<Body>, AnyError>,
) -> Vec<String> {
    let failures = Failures::default();
    let seen = Arc::clone(&failures);
    let outcome = Mutex::new(Some(outcome));
    let service = service_fn(move |_: Request<Body>| {
        std::future::ready(outcome.lock().unwrap().take().unwrap())
    });
    let trace = TraceLayer::new(make).on_failure(
        move |failure: TraceFailure, _: Duration, _: &tracing::Span| {
            seen.lock().unwrap().push(failure.to_string());
        },
    );
    let _ = trace.layer(service).oneshot(Request::get("/").body(Body::default()).unwrap()).await;
    let failures = failures.lock().unwrap();
    failures.clone()
}

#[tokio::test]
async fn our_classifier_drives_a_trace_layer() {
    let classifier = Classifier::new(http().status(404, ErrorClass::Transient).success(410));
    let make = MakeTriageClassifier::new(classifier.clone());
    for (code, expected) in [
        (200, None),
        (410, None),
        (404, Some("Transient (http_status_override)")),
        (429, Some("Throttled (http_429)")),
        (501, Some("Permanent (http_unsupported)")),
        (503, Some("Transient (http_503)")),
    ] {
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(traced(make.clone(), Ok(status(code))).await, expected, "{code}");
    }
    let reset = AnyError::from(io::Error::from(io::ErrorKind::ConnectionReset));
    assert_eq!(traced(make.clone(), Err(reset)).await, ["Transient (connection_reset)"]);
    let open = AnyError::from(CircuitOpen::new("shop".into(), Duration::from_secs(1)));
    assert_eq!(traced(make.clone(), Err(open)).await, ["Rejected (circuit_open)"]);

    // What was decided at run time counts here too.
    classifier.override_operation(Operation::new("GET"), ErrorClass::Quota);
    assert_eq!(traced(make.clone(), Ok(status(503))).await, ["Quota (http_503)"]);
    classifier.clear_overrides();

    // A server's log need not hold its clients' mistakes.
    let only = make.only(ClassSet::ALL.without(ErrorClass::Permanent));
    assert!(traced(only.clone(), Ok(status(422))).await.is_empty());
    assert_eq!(traced(only, Ok(status(503))).await.len(), 1);
    assert_eq!(classifier.count(ErrorClass::Transient), 0, "tracing counts nothing");
}

/// Without a request, behind tower-http's `SharedClassifier`; and errors by type, never by text.
#[tokio::test]
async fn our_classifier_behind_a_shared_one() {
    let make = MakeTriageClassifier::new(Classifier::new(http()));
    let ours = TriageClassifier::from(make);
    let shared = SharedClassifier::new(ours.clone());
    assert_eq!(traced(shared, Ok(status(503))).await, ["Transient (http_503)"]);

    let class = |failure: TraceFailure| ErrorClass::from(failure);
    let late = io::Error::from(io::ErrorKind::TimedOut);
    assert_eq!(class(ours.clone().classify_error(&late)), ErrorClass::Timeout);
    let boxed: tower_triage_core::BoxError = late.into();
    assert_eq!(class(ours.clone().classify_error(&boxed)), ErrorClass::Timeout);
    let text = "connection reset, 503, timed out".to_owned();
    assert_eq!(class(ours.classify_error(&text)), ErrorClass::Unknown);
}

/// Two of three requests fail by tower-http's rule for the services behind a proxy.
#[tokio::test]
async fn a_classifier_of_theirs_is_a_rule_of_ours() {
    let theirs = SharedClassifier::new(StatusInRangeAsFailures::new(400..=599));
    let rules = by_make_classifier(theirs, |_| ErrorClass::Transient.into());
    let inner = scripted::<Request<Body>, Response<Body>, Infallible, _>([
        || Ok(status(404)),
        || Ok(status(503)),
        || Ok(status(200)),
    ]);
    let classifier = Classifier::new(rules);
    let retry = RetryLayer::new(classifier.clone()).policy(at_once()).replay(HttpReplay::new());
    let response = retry.layer(inner.clone()).oneshot(Request::new(Body::default())).await.unwrap();
    assert_eq!((response.status().as_u16(), inner.calls()), (200, 3), "its verdict is acted on");
    assert_eq!(classifier.count(ErrorClass::Transient), 2);

    // Facts are ours: a POST is no request to repeat.
    let inner = scripted::<_, _, Infallible, _>([|| Ok(status(503))]);
    let retry = RetryLayer::new(classifier).policy(at_once()).replay(HttpReplay::new());
    let post = Request::post("/").body(Body::default()).unwrap();
    retry.layer(inner.clone()).oneshot(post).await.unwrap();
    assert_eq!(inner.calls(), 1);
}

#[test]
fn their_server_errors_have_the_class_of_their_status_and_our_hints() {
    let rules = by_make_classifier(ServerErrorsAsFailures::make_classifier(), server_errors);
    let response = Response::builder().status(503).header("retry-after", "3").body(()).unwrap();
    let outcome: Result<_, &AnyError> = Ok(&response);
    let failure = rules.classify(outcome).failure().unwrap();
    assert_eq!(
        (failure.class, failure.disposition),
        (ErrorClass::Transient, Disposition::MaybeProcessed)
    );
    assert_eq!(failure.retry_after.unwrap().duration(), Duration::from_secs(3));
    let response = status(429);
    let outcome: Result<_, &AnyError> = Ok(&response);
    assert!(rules.classify(outcome).is_success());

    // Our own rejections stay what they are; of others tower-http keeps the text.
    let class = |error: AnyError| {
        let outcome: Result<&Response<()>, _> = Err(&error);
        rules.classify(outcome).failure().unwrap().class
    };
    let open = CircuitOpen::new("shop".into(), Duration::from_secs(1));
    assert_eq!(class(open.into()), ErrorClass::Rejected);
    assert_eq!(class(io::Error::other("anything").into()), ErrorClass::Unknown);
}

/// gRPC's classifier says most of it at the end of the stream; what it says at the head counts.
#[test]
fn a_verdict_at_the_end_of_a_stream_comes_too_late() {
    let theirs = SharedClassifier::new(GrpcErrorsAsFailures::new());
    let rules = by_make_classifier(theirs, |_| ErrorClass::Transient.into());
    let failed = Response::builder().header("grpc-status", "14").body(()).unwrap();
    let outcome: Result<_, &AnyError> = Ok(&failed);
    assert!(!rules.classify(outcome).is_success());
    let streams = Response::new(());
    let outcome: Result<_, &AnyError> = Ok(&streams);
    assert!(rules.classify(outcome).is_success());
}

/// A failure class that already is one of ours goes in as it is.
#[test]
fn ours_as_theirs_as_ours() {
    let make = MakeTriageClassifier::new(Classifier::new(http()));
    let rules = by_make_classifier(make, Failure::from);
    for code in [200, 404, 429, 503] {
        let response = status(code);
        let outcome: Result<_, &AnyError> = Ok(&response);
        assert_eq!(rules.classify(outcome), http().classify(outcome), "{code}");
    }
}

/// Judges a 404 by the path that was asked for.
#[derive(Clone)]
struct ByPath;

impl MakeClassifier for ByPath {
    type Classifier = StatusInRangeAsFailures;
    type FailureClass = <StatusInRangeAsFailures as ClassifyResponse>::FailureClass;
    type ClassifyEos = <StatusInRangeAsFailures as ClassifyResponse>::ClassifyEos;

    fn make_classifier<B>(&self, request: &Request<B>) -> StatusInRangeAsFailures {
        let from = if request.uri().path() == "/search" { 404 } else { 504 };
        StatusInRangeAsFailures::new(from..=599)
    }
}

/// One that looks at its request stamps its verdict, which every layer above believes.
#[tokio::test]
async fn a_classifier_that_looks_at_requests_is_a_layer() {
    for (path, expected) in [("/search", 3), ("/things", 1)] {
        for code in [404_u16, 503] {
            let expected = if code == 503 && path == "/things" { 1 } else { expected };
            let inner = service_fn(move |_: Request<Body>| {
                std::future::ready(Ok::<_, Infallible>(status(code)))
            });
            let classifier = Classifier::new(http());
            let breaker = CircuitBreakerLayer::new(classifier.clone())
                .reject_with(tower_triage_http::Unavailable)
                .policy(BreakerPolicy::new().consecutive_failures(10).build().unwrap());
            let handle = breaker.handle();
            let calls = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&calls);
            let stack = ServiceBuilder::new()
                .layer(RetryLayer::new(classifier).policy(at_once()).replay(HttpReplay::new()))
                .layer(breaker)
                .layer(MakeClassifierLayer::new(ByPath, |_| ErrorClass::Transient.into()))
                .map_request(move |request| {
                    *counted.lock().unwrap() += 1;
                    request
                })
                .service(inner);
            let get = Request::get(path).body(Body::default()).unwrap();
            let task = tokio::spawn(async move { stack.oneshot(get).await });
            assert_eq!(task.await.unwrap().unwrap().status(), code);
            assert_eq!(*calls.lock().unwrap(), expected, "{path} {code}");
            let failures = if expected == 1 { 0 } else { 3 };
            assert_eq!(handle.counts().failures, failures, "{path} {code}");
        }
    }
}

/// Errors too, if they are no rejections of ours.
#[tokio::test]
async fn a_layer_of_theirs_stamps_errors() {
    for (error, class) in [
        (AnyError::from(io::Error::other("who knows")), ErrorClass::Declined),
        (CircuitOpen::new("shop".into(), Duration::ZERO).into(), ErrorClass::Rejected),
    ] {
        let error = Mutex::new(Some(error));
        let inner = service_fn(move |_: Request<Body>| {
            let error = error.lock().unwrap().take().unwrap();
            std::future::ready(Err::<Response<Body>, _>(error))
        });
        let layer = MakeClassifierLayer::new(ByPath, |_| ErrorClass::Declined.into());
        let error = layer.layer(inner).oneshot(Request::new(Body::default())).await.unwrap_err();
        let outcome: Result<&Response<()>, _> = Err(&error);
        assert_eq!(http().classify(outcome).failure().unwrap().class, class);
    }
}
