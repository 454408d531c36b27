//! Notes on responses, and what the rules believe.

use bytes::Bytes;
use http::{HeaderName, Response};
use tower_triage_core::{
    AnyError, Classify, ClassifyResponse, Disposition, ErrorClass, Failure, Note, Notes, Verdict,
};
use tower_triage_http::{BodyPrefix, HttpRulesExt, ResponseHead, http};

fn status(code: u16) -> Response<()> {
    Response::builder().status(code).body(()).unwrap()
}

fn class(response: &Response<()>) -> Option<ErrorClass> {
    http().response.response(response).failure().map(|failure| failure.class)
}

#[test]
fn a_stamp_is_believed_first() {
    let rules = http().status(200, ErrorClass::Permanent);
    let mut response = status(200);
    let stamp = Verdict::from(ErrorClass::Declined);
    let mut outcome: Result<_, AnyError> = Ok(&mut response);
    assert!(rules.annotate(outcome.as_mut().map(|r| &mut **r), &Note::Verdict(stamp)));
    assert_eq!(rules.response.response(&response), stamp);
}

#[test]
fn a_fallbacks_answer_is_marked() {
    let name = HeaderName::from_static("x-fallback");
    let rules = http().fallback_header(name.clone());
    let note = Note::Fallback(ErrorClass::Rejected);
    let mut marked = status(200);
    assert!(rules.response.annotate(&mut marked, &note));
    assert_eq!(marked.headers()[&name], "Rejected");
    let notes = marked.extensions().get::<Notes>().unwrap();
    assert_eq!(notes.fallback, Some(ErrorClass::Rejected));

    let mut plain = status(200);
    assert!(http().response.annotate(&mut plain, &note));
    assert!(plain.headers().is_empty(), "only by choice");
}

#[test]
fn a_body_prefix_that_a_peeking_layer_left_is_read() {
    let mut response = status(400);
    assert_eq!(class(&response), Some(ErrorClass::Permanent));
    let prefix = Bytes::from_static(b"{\"__type\":\"ThrottlingException\"}");
    response.extensions_mut().insert(BodyPrefix(prefix));
    assert_eq!(class(&response), Some(ErrorClass::Throttled));
}

#[test]
fn an_override_has_the_defaults_of_its_class() {
    let rules = http().status(404, ErrorClass::Transient).status(404, ErrorClass::Throttled);
    let mut response = status(404);
    response.headers_mut().insert("retry-after", "7".parse().unwrap());
    let failure = rules.response.response(&response).failure().unwrap();
    assert_eq!(failure.class, ErrorClass::Throttled, "the last one counts");
    assert_eq!(failure.retry_after.unwrap().duration().as_secs(), 7);
    assert_eq!(failure.vote, ErrorClass::Throttled.vote());

    // Nobody vouches that a 404 which is not definite did nothing.
    let rules = http().status(404, ErrorClass::Transient);
    let failure = rules.response.response(&status(404)).failure().unwrap();
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
    let expected = Failure::new(ErrorClass::Transient).reason("http_status_override");
    assert_eq!(failure, expected);
}

#[test]
fn an_explanation_shows_the_status_and_no_value() {
    let mut response = status(503);
    response.headers_mut().insert("set-cookie", "secret".parse().unwrap());
    let mut text = String::new();
    http().response.explain(&response, &mut text);
    assert_eq!(text, "503 Service Unavailable");
}

/// A closure on the head comes first, for any body type; what it leaves open the rules decide.
#[test]
fn a_closure_judges_responses_by_their_head() {
    let rules = http().status(200, ErrorClass::Quota).response_by(|response: ResponseHead<'_>| {
        response.headers.contains_key("x-ok").then_some(Verdict::Success)
    });
    let mut response = status(503);
    response.headers_mut().insert("x-ok", "1".parse().unwrap());
    let class = |response: &Response<()>| {
        let outcome: Result<_, &std::convert::Infallible> = Ok(response);
        rules.classify(outcome).failure().map(|failure| failure.class)
    };
    assert_eq!(class(&response), None);
    assert_eq!(class(&status(503)), Some(ErrorClass::Transient));
    assert_eq!(class(&status(200)), Some(ErrorClass::Quota));
}
