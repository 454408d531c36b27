//! What the rules read, and how they are adjusted.

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderName, Request, Response};
use tokio::time::Instant;
use tonic::{Code, Status};
use tower_triage_circuit_breaker::Reject;
use tower_triage_core::{
    AnyError, CircuitOpen, Classify, Describe, Elapsed, ErrorClass, Failure, Halves, Key, Note,
    Notes, Operation, OwnError, RetryAfter, ServerWord, ToFailure, Verdict,
};
use tower_triage_grpc::{
    AsStatus, Deadline, GrpcRules, GrpcRulesExt, Repeatable, UnitOfWork, circuit_open, grpc,
    with_status,
};

fn answer(lines: &[(&'static str, &str)]) -> Response<()> {
    let mut response = Response::new(());
    for (name, value) in lines {
        response.headers_mut().append(HeaderName::from_static(name), value.parse().unwrap());
    }
    response
}

fn verdict(rules: &GrpcRules, response: &Response<()>) -> Verdict {
    let outcome: Result<_, &Infallible> = Ok(response);
    rules.classify(outcome)
}

fn call(path: &str) -> Request<()> {
    Request::post(path).body(()).unwrap()
}

#[test]
fn a_code_can_be_another_class_or_a_success() {
    let missing = answer(&[("grpc-status", "5"), ("grpc-retry-pushback-ms", "20")]);
    let usual = verdict(&grpc(), &missing).failure().unwrap();
    assert_eq!((usual.class, usual.retry_after), (ErrorClass::Permanent, None));
    let changed = grpc().code(Code::NotFound, ErrorClass::Transient);
    let failure = verdict(&changed, &missing).failure().unwrap();
    assert_eq!((failure.class, failure.reason), (ErrorClass::Transient, "grpc_not_found"));
    assert_eq!(failure.retry_after, Some(RetryAfter::Exactly(Duration::from_millis(20))));
    assert!(verdict(&changed.success(Code::NotFound), &missing).is_success());
    // The last word on a code counts, and others stay as they are.
    let back = grpc().success(Code::NotFound).code(Code::NotFound, ErrorClass::Declined);
    assert_eq!(
        verdict(&back, &missing),
        Failure::new(ErrorClass::Declined).reason("grpc_not_found").into()
    );
    assert_eq!(
        verdict(&back, &answer(&[("grpc-status", "9")])).failure().unwrap().class,
        ErrorClass::Permanent
    );
    // Without a hint of its own it is not the code's rule that decides.
    let throttled = grpc().code(Code::NotFound, ErrorClass::Throttled);
    let failure = verdict(&throttled, &answer(&[("grpc-status", "5")])).failure().unwrap();
    assert_eq!(failure.server, ServerWord::Silent);
}

#[test]
fn what_was_stamped_is_believed() {
    let mut response = answer(&[("grpc-status", "13")]);
    let rules = grpc();
    let stamp = Note::Verdict(ErrorClass::Quota.into());
    let outcome: Result<_, &mut Infallible> = Ok(&mut response);
    assert!(rules.annotate(outcome, &stamp));
    assert_eq!(verdict(&rules, &response), ErrorClass::Quota.into());

    let mut error = AnyError::from(Status::internal(""));
    let outcome: Result<&mut Response<()>, _> = Err(&mut error);
    assert!(rules.annotate(outcome, &stamp));
    let outcome: Result<&Response<()>, _> = Err(&error);
    assert_eq!(rules.classify(outcome), ErrorClass::Quota.into());
}

#[test]
fn a_fallbacks_answer_is_marked() {
    let mut response = answer(&[("grpc-status", "0")]);
    let outcome: Result<_, &mut Infallible> = Ok(&mut response);
    assert!(grpc().annotate(outcome, &Note::Fallback(ErrorClass::Transient)));
    let notes = response.extensions().get::<Notes>().unwrap();
    assert_eq!(notes.fallback, Some(ErrorClass::Transient));
}

#[test]
fn methods_are_repeatable_by_name_or_mark() {
    let rules =
        grpc().repeatable_methods(["shop.Orders/Get"]).repeatable_methods(["shop.Catalogue"]);
    let is = |path: &str| rules.repeatable(&call(path));
    assert!(is("/shop.Orders/Get") && is("/shop.Catalogue/List") && is("/shop.Catalogue/Find"));
    assert!(!is("/shop.Orders/Put") && !is("/shop.Orders") && !is("/"));
    let mut marked = call("/shop.Orders/Put");
    marked.extensions_mut().insert(Repeatable);
    assert!(rules.repeatable(&marked));
}

#[test]
fn units_of_work_are_named_or_marked_too() {
    let rules = grpc().unit_of_work_methods(["shop.Orders/Transfer"]);
    assert!(rules.unit_of_work(&call("/shop.Orders/Transfer")));
    assert!(!rules.unit_of_work(&call("/shop.Orders/Get")));
    assert!(!rules.repeatable(&call("/shop.Orders/Transfer")));
    let mut marked = call("/shop.Orders/Get");
    marked.extensions_mut().insert(UnitOfWork);
    assert!(rules.unit_of_work(&marked));
}

#[test]
fn operations_and_keys() {
    let rules = grpc();
    assert_eq!(rules.operation(&call("/shop.Orders/Get")), "shop.Orders/Get");
    // Never what a stranger wrote into the path.
    assert_eq!(rules.operation(&call("/some/thing/%2e%2e")), "_OTHER");
    assert_eq!(rules.key(&call("/shop.Orders/Get")), "shop.Orders/Get");
    let named = grpc()
        .operation_by(|head| head.uri.path().starts_with("/shop").then(|| Operation::new("shop")))
        .key_by(|head| Key::new(head.uri.host().unwrap_or("nowhere")));
    assert_eq!(named.operation(&call("/shop.Orders/Get")), "shop");
    assert_eq!(named.operation(&call("/a.B/C")), "a.B/C");
    assert_eq!(named.key(&call("http://example.com/a.B/C")), "example.com");
}

#[tokio::test(start_paused = true)]
async fn deadlines_ids_and_targets() {
    let rules = grpc();
    let mut request = call("http://example.com/shop.Orders/Get");
    assert_eq!(rules.deadline(&request), None);
    request.headers_mut().insert("grpc-timeout", "2S".parse().unwrap());
    assert_eq!(rules.deadline(&request), Some(Instant::now() + Duration::from_secs(2)));
    let sooner = Instant::now() + Duration::from_secs(1);
    request.extensions_mut().insert(Deadline(sooner));
    assert_eq!(rules.deadline(&request), Some(sooner));
    request.headers_mut().insert("x-request-id", "r-17".parse().unwrap());
    assert_eq!(rules.request_id(&request).unwrap(), "r-17");
    assert!(rules.trace(&request).is_none());
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request.headers_mut().insert("traceparent", trace.parse().unwrap());
    assert!(rules.trace(&request).is_some());
    assert_eq!(rules.target(&request), "example.com/shop.Orders/Get");
}

#[test]
fn what_is_explained_is_the_code_and_no_text_of_the_peer() {
    let explained = |response: &Response<()>| {
        let mut text = String::new();
        let outcome: Result<_, &Infallible> = Ok(response);
        grpc().explain(outcome, &mut text);
        text
    };
    let status = answer(&[("grpc-status", "14"), ("grpc-message", "secret"), ("x-key", "secret")]);
    assert_eq!(explained(&status), "Unavailable");
    let mut page = answer(&[("content-type", "text/html")]);
    *page.status_mut() = http::StatusCode::BAD_GATEWAY;
    assert_eq!(explained(&page), "Unavailable (HTTP 502 Bad Gateway)");
}

#[test]
fn a_status_is_given_to_errors_that_have_none() {
    let open = || CircuitOpen::new("orders".into(), Duration::from_secs(9));
    for (error, code) in [
        (AnyError::from(open()), Code::Unavailable),
        (Elapsed::limit(Duration::from_secs(1)).into(), Code::DeadlineExceeded),
        (tonic::TimeoutExpired(()).into(), Code::DeadlineExceeded),
        (std::io::Error::from(std::io::ErrorKind::ConnectionReset).into(), Code::Unavailable),
        (AnyError::msg("something"), Code::Unknown),
        (Status::not_found("").into(), Code::NotFound),
    ] {
        let text = error.to_string();
        let status = Status::from_error(with_status(error).into());
        assert_eq!(status.code(), code, "{text}");
    }
    // One that lies further down is left where it is.
    let wrapped = AnyError::from(std::io::Error::other(Status::aborted("in here")));
    assert!(with_status(wrapped).downcast_ref::<std::io::Error>().is_some());

    let mut noted = AnyError::from(open());
    noted.annotate(&Note::Verdict(ErrorClass::Quota.into()));
    assert_eq!(with_status(noted).verdict(), Some(ErrorClass::Quota.into()));
    // And what it stands for is still what it is.
    let outcome = with_status(open().into());
    let outcome: Result<&Response<()>, _> = Err(&outcome);
    assert_eq!(grpc().classify(outcome).failure().unwrap().class, ErrorClass::Rejected);
}

#[test]
fn a_rejection_can_be_a_status_by_itself() {
    let open = CircuitOpen::new("orders".into(), Duration::from_secs(9));
    let rejected: Result<(), Status> = AsStatus.reject(open);
    let status = rejected.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(circuit_open(&status).unwrap().retry_after(), Duration::from_secs(9));
}

/// An error of one's own, and a half for it.
#[test]
fn the_half_for_errors_can_be_swapped() {
    #[derive(Debug)]
    struct Mine;
    impl std::fmt::Display for Mine {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("mine")
        }
    }
    impl std::error::Error for Mine {}
    impl ToFailure for Mine {
        fn to_failure(&self) -> Failure {
            ErrorClass::Declined.into()
        }
    }
    let rules: Halves<_, OwnError> = grpc().errors(OwnError);
    let outcome: Result<&Response<()>, _> = Err(&Mine);
    assert_eq!(rules.classify(outcome), ErrorClass::Declined.into());
}
