//! The HTTP rules under a retry layer.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body_util::Empty;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::{
    Classifier, Describe, Disposition, ErrorClass, Notes, Operation, Resolution, StepKind,
};
use tower_triage_http::{
    Attempt, Deadline, HttpReplay, HttpRulesExt, Repeatable, RequestHead, RouteTemplate,
    UnitOfWork, http,
};
use tower_triage_retry::RetryLayer;

type Calls = Arc<Mutex<Vec<Request<()>>>>;

/// A server in the process that answers with `answers` in turn and keeps what it was asked.
fn answering(
    answers: Vec<Response<()>>,
) -> (
    impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static,
    Calls,
) {
    let calls = Calls::default();
    let seen = Arc::clone(&calls);
    let service = service_fn(move |request| {
        let mut calls = calls.lock().unwrap();
        let answer = answers.get(calls.len()).cloned().expect("no further call");
        calls.push(request);
        async move { Ok::<_, Infallible>(answer) }
    });
    (service, seen)
}

fn status(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

fn with_hint(code: u16, hint: &str) -> Response<()> {
    Response::builder().status(code).header("retry-after", hint).body(()).unwrap()
}

fn request(method: Method) -> Request<()> {
    Request::builder().method(method).uri("http://example.com/things/17?q=1").body(()).unwrap()
}

/// The number of calls, the answer, and how long it took.
async fn run(answers: Vec<Response<()>>, request: Request<()>) -> (usize, Response<()>, Duration) {
    let (service, calls) = answering(answers);
    let retry = RetryLayer::new(Classifier::new(http())).layer(service);
    let start = Instant::now();
    let response = retry.oneshot(request).await.unwrap();
    let calls = calls.lock().unwrap().len();
    (calls, response, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn kf09_a_response_can_be_the_failure() {
    let answers = vec![status(503), status(503), status(200)];
    let (calls, response, _) = run(answers, request(Method::GET)).await;
    assert_eq!((calls, response.status().as_u16()), (3, 200));
    let notes = response.extensions().get::<Notes>().unwrap();
    let incident = notes.incident.as_ref().unwrap();
    assert_eq!(incident.resolution, Resolution::RecoveredByRetry);
}

#[tokio::test(start_paused = true)]
async fn kf10_status_ranges_are_too_coarse() {
    for (code, class, repeated) in [
        (400, ErrorClass::Permanent, false),
        (401, ErrorClass::Auth, false),
        (403, ErrorClass::Permanent, false),
        (404, ErrorClass::Permanent, false),
        (409, ErrorClass::Contention, false),
        (422, ErrorClass::Permanent, false),
        (408, ErrorClass::Timeout, true),
        (429, ErrorClass::Throttled, true),
        (500, ErrorClass::Transient, true),
        (502, ErrorClass::Transient, true),
        (503, ErrorClass::Transient, true),
        (504, ErrorClass::Timeout, true),
        (501, ErrorClass::Permanent, false),
        (505, ErrorClass::Permanent, false),
    ] {
        let classifier = Classifier::new(http());
        let (service, calls) = answering(vec![status(code), status(200)]);
        let retry = RetryLayer::new(classifier.clone()).layer(service);
        retry.oneshot(request(Method::GET)).await.unwrap();
        assert_eq!(classifier.count(class), 1, "{code}");
        assert_eq!(calls.lock().unwrap().len() == 2, repeated, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn kf10_each_status_can_be_overridden() {
    let rules = http().status(404, ErrorClass::Transient).status(503, ErrorClass::Permanent);
    for (code, expected) in [(404, 2), (503, 1)] {
        let (service, calls) = answering(vec![status(code), status(200)]);
        let retry = RetryLayer::new(Classifier::new(rules.clone())).layer(service);
        retry.oneshot(request(Method::GET)).await.unwrap();
        assert_eq!(calls.lock().unwrap().len(), expected, "{code}");
    }
    let (service, calls) = answering(vec![status(404)]);
    let retry = RetryLayer::new(Classifier::new(http().success(404))).layer(service);
    let response = retry.oneshot(request(Method::GET)).await.unwrap();
    assert_eq!(calls.lock().unwrap().len(), 1);
    assert!(response.extensions().get::<Notes>().is_none(), "a success has no incident");
}

#[tokio::test(start_paused = true)]
async fn kf15_every_attempt_has_equal_parts() {
    #[derive(Clone, Debug, PartialEq)]
    struct FromCaller(&'static str);
    #[derive(Clone, Debug, PartialEq)]
    struct FromClient(u8);

    let mut original = Request::builder()
        .method(Method::PUT)
        .uri("http://example.com/a?b=c")
        .version(Version::HTTP_2)
        .header("x-tag", "one")
        .header("x-tag", "two")
        .extension(FromCaller("mark"))
        .extension(FromClient(7))
        .body(())
        .unwrap();
    original.headers_mut().insert("x-secret", {
        let mut value = HeaderValue::from_static("s");
        value.set_sensitive(true);
        value
    });

    let (service, calls) = answering(vec![status(503), status(503), status(200)]);
    // `()` is no body that could be drained.
    let service = service.map_response(|response| response.map(|()| Empty::<Bytes>::new()));
    let retry = RetryLayer::new(Classifier::new(http())).replay(HttpReplay::new()).layer(service);
    retry.oneshot(original.clone()).await.unwrap();

    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), 3);
    for (made, call) in calls.iter().enumerate() {
        assert_eq!(call.method(), original.method());
        assert_eq!(call.uri(), original.uri());
        assert_eq!(call.version(), Version::HTTP_2);
        assert_eq!(call.headers(), original.headers());
        let tags: Vec<_> = call.headers().get_all("x-tag").iter().collect();
        assert_eq!(tags, ["one", "two"]);
        assert!(call.headers()["x-secret"].is_sensitive());
        assert_eq!(call.extensions().get(), Some(&FromCaller("mark")));
        assert_eq!(call.extensions().get(), Some(&FromClient(7)));
        let number = call.extensions().get::<Attempt>().map(|attempt| attempt.number);
        assert_eq!(number, [None, Some(2), Some(3)][made]);
    }
}

#[tokio::test(start_paused = true)]
async fn kf31_retry_after_is_a_lower_bound() {
    for code in [429, 503] {
        let answers = vec![with_hint(code, "3"), status(200)];
        let (calls, _, elapsed) = run(answers, request(Method::GET)).await;
        assert_eq!(calls, 2);
        assert!(elapsed >= Duration::from_secs(3), "{elapsed:?}");
        assert!(elapsed <= Duration::from_millis(3301), "only jitter later: {elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn kf32_retry_after_as_a_date() {
    let date = |date| httpdate::fmt_http_date(date);
    let now = SystemTime::now();
    let ahead = vec![with_hint(503, &date(now + Duration::from_secs(5))), status(200)];
    let (calls, _, elapsed) = run(ahead, request(Method::GET)).await;
    assert_eq!(calls, 2);
    // Dates have whole seconds, and the test takes some time itself.
    assert!(elapsed > Duration::from_secs(3) && elapsed <= Duration::from_millis(5501));

    let past = vec![with_hint(503, &date(now - Duration::from_secs(3600))), status(200)];
    let (calls, _, elapsed) = run(past, request(Method::GET)).await;
    assert_eq!(calls, 2);
    assert!(elapsed <= Duration::from_millis(101), "own backoff alone: {elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn kf33_a_hint_over_the_cap_ends_the_call_at_once() {
    for hint in ["86400", "99999999999999999999999999"] {
        let (calls, response, elapsed) =
            run(vec![with_hint(503, hint)], request(Method::GET)).await;
        assert_eq!((calls, elapsed), (1, Duration::ZERO));
        assert_eq!(response.status().as_u16(), 503);
        let incident = response.extensions().get::<Notes>().unwrap().incident.clone().unwrap();
        let hint_kept = incident.steps.iter().any(|step| {
            matches!(&step.kind, StepKind::Failed { failure, .. } if failure.retry_after.is_some())
        });
        assert!(hint_kept, "the hint is in the verdict");
    }
}

#[tokio::test(start_paused = true)]
async fn unsafe_methods_are_repeated_only_where_nothing_was_done_or_by_a_mark() {
    let answers = |code| vec![status(code), status(200)];
    let calls = |code, request| async move { run(answers(code), request).await.0 };
    assert_eq!(calls(503, request(Method::POST)).await, 1);
    assert_eq!(calls(429, request(Method::POST)).await, 2);
    assert_eq!(calls(503, request(Method::PATCH)).await, 1);

    let mut marked = request(Method::POST);
    marked.extensions_mut().insert(Repeatable);
    assert_eq!(calls(503, marked).await, 2);

    let mut keyed = request(Method::POST);
    keyed.headers_mut().insert("idempotency-key", HeaderValue::from_static("\"k-1\""));
    assert_eq!(calls(503, keyed.clone()).await, 2);
    assert_eq!(calls(409, keyed.clone()).await, 2, "the first one is still running");
    assert_eq!(calls(423, keyed).await, 1, "a lock is not waited for");
    assert_eq!(calls(409, request(Method::PUT)).await, 1);
    let mut unit = request(Method::PUT);
    unit.extensions_mut().insert(UnitOfWork);
    assert_eq!(calls(409, unit).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_extension_ends_the_retries() {
    let mut due = request(Method::GET);
    due.extensions_mut().insert(Deadline(Instant::now() + Duration::from_secs(2)));
    let (calls, _, elapsed) = run(vec![with_hint(503, "3")], due).await;
    assert_eq!((calls, elapsed), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_server_may_say_no_and_yes() {
    let word = |code, word| {
        let answer = Response::builder().status(code).header("x-should-retry", word);
        vec![answer.body(()).unwrap(), status(200)]
    };
    assert_eq!(run(word(503, "false"), request(Method::GET)).await.0, 1);
    assert_eq!(run(word(500, "true"), request(Method::POST)).await.0, 2);
    assert_eq!(run(word(503, "maybe"), request(Method::GET)).await.0, 2);
}

#[test]
fn facts_of_a_request() {
    let rules = http();
    let get = request(Method::GET);
    assert_eq!(rules.operation(&get), "GET");
    assert_eq!(rules.key(&get), "example.com");
    assert_eq!(rules.target(&get), "GET example.com/things/17");
    assert_eq!(rules.request_id(&get), None);
    assert_eq!(rules.trace(&get), None);

    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut rich = Request::builder()
        .uri("http://user:secret@EXAMPLE.com:8080/a?token=secret")
        .header("x-request-id", "r-1")
        .header("traceparent", traceparent)
        .body("any body")
        .unwrap();
    rich.extensions_mut().insert(RouteTemplate::new("/orders/{id}"));
    assert_eq!(rules.operation(&rich), "GET /orders/{id}");
    assert_eq!(rules.key(&rich), "example.com:8080");
    assert_eq!(rules.target(&rich), "GET EXAMPLE.com:8080/a");
    assert_eq!(rules.request_id(&rich).unwrap(), "r-1");
    assert_eq!(rules.trace(&rich).unwrap().to_string(), traceparent);

    // A server sees the host in a header; a method of the caller's own is no label.
    let served = Request::builder()
        .method("MAKE-COFFEE-17")
        .uri("/pot")
        .header("host", "shop.example")
        .body(())
        .unwrap();
    assert_eq!(rules.operation(&served), "_OTHER");
    assert_eq!(rules.key(&served), "shop.example");
    assert!(!rules.repeatable(&served));
}

#[test]
fn names_and_keys_can_be_chosen() {
    let rules = http()
        .operation_by(|head: RequestHead<'_>| {
            head.uri.path().starts_with("/things/").then(|| Operation::new("things"))
        })
        .key_by(|head: RequestHead<'_>| head.operation());
    assert_eq!(rules.operation(&request(Method::GET)), "things");
    let other = Request::builder().uri("/").body(()).unwrap();
    assert_eq!(rules.operation(&other), "GET");
    assert_eq!(rules.key(&other), "GET");
}

#[test]
fn kf36_client_mistakes_are_no_votes_against_the_service() {
    use tower_triage_core::{ClassifyResponse, Vote};
    for code in [400, 404, 422] {
        let failure = http().response.response(&status(code)).failure().unwrap();
        assert_eq!(failure.vote, Vote::Success, "{code}");
        assert_eq!(failure.disposition, Disposition::NotProcessed, "{code}");
    }
}
