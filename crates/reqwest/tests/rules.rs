//! The rules are those of HTTP, over other types.

use proptest::prelude::*;
use tower_triage_core::{AnyError, Classify, Describe, ErrorClass, Note, Notes};
use tower_triage_http::{HttpRulesExt, ResponseHead, http};
use tower_triage_reqwest::{Marked, reqwest};

const HINTS: [&str; 6] = [
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-ratelimit-remaining",
    "x-envoy-overloaded",
    "x-amzn-errortype",
];

proptest! {
    /// Whatever a server says, the verdict is the one of `http()`; and nothing panics.
    #[test]
    fn a_response_is_judged_as_any_http_response(
        status in 100_u16..1000,
        headers in proptest::collection::vec((0..HINTS.len(), "[ -~]{0,24}|[0-9]{1,6}|false"), 0..4),
    ) {
        let mut head = http::Response::builder().status(status);
        for (name, value) in &headers {
            head = head.header(HINTS[*name], value.as_str());
        }
        let response = head.body("").unwrap();
        let (own, theirs) = (reqwest().status(404, ErrorClass::Quota), http().status(404, ErrorClass::Quota));
        let expected = {
            let outcome: Result<_, &AnyError> = Ok(&response);
            theirs.classify(outcome)
        };
        let response = reqwest::Response::from(response);
        let outcome: Result<_, &AnyError> = Ok(&response);
        prop_assert_eq!(own.classify(outcome), expected);
    }

    /// So are the facts about a request, whatever its method and URL.
    #[test]
    fn a_request_is_described_as_any_http_request(
        method in "GET|PUT|POST|PATCH|BREW",
        host in "[a-z]{1,8}(\\.[a-z]{2,3})?(:[1-9][0-9]{3})?",
        path in "(/[a-z0-9%.-]{0,8}){1,3}",
        query in "(\\?[a-z0-9=&]{0,12})?",
        key in proptest::option::of("[a-z]{0,4}"),
    ) {
        let uri = format!("http://{host}{path}{query}");
        let mut request = http::Request::builder().method(method.as_str()).uri(&uri);
        if let Some(key) = &key {
            request = request.header("idempotency-key", key.as_str());
        }
        let Ok(request) = request.body("") else { return Ok(()) };
        let copy = request.clone();
        let Ok(url) = uri.parse::<reqwest::Url>() else { return Ok(()) };
        let Ok(own) = reqwest::Request::try_from(copy) else { return Ok(()) };
        // A URL writes a path its own way.
        prop_assume!(url.path() == request.uri().path());
        let (rules, http) = (reqwest(), http());
        prop_assert_eq!(rules.operation(&own), http.operation(&request));
        prop_assert_eq!(rules.repeatable(&own), http.repeatable(&request));
        prop_assert_eq!(rules.unit_of_work(&own), http.unit_of_work(&request));
        prop_assert_eq!(rules.key(&own), http.key(&request));
        prop_assert_eq!(rules.target(&own), http.target(&request));
        let marked = Marked::from(own);
        prop_assert_eq!(rules.key(&marked), http.key(&request));
    }
}

/// What a `ClassifyLayer` stamped is believed, and a function of the user's comes before the rules.
#[test]
fn stamps_and_functions_count() {
    let rules = reqwest().response_by(|head: ResponseHead<'_>| {
        head.headers.contains_key("x-failed").then(|| ErrorClass::Declined.into())
    });
    let mut response: reqwest::Response =
        http::Response::builder().header("x-failed", "1").body("").unwrap().into();
    let class = |response: &reqwest::Response| {
        let outcome: Result<_, &AnyError> = Ok(response);
        rules.classify(outcome).failure().unwrap().class
    };
    assert_eq!(class(&response), ErrorClass::Declined);
    let note = Note::Verdict(ErrorClass::Internal.into());
    let mut outcome: Result<_, AnyError> = Ok(response);
    assert!(rules.annotate(outcome.as_mut(), &note));
    response = outcome.unwrap();
    assert_eq!(class(&response), ErrorClass::Internal);
    assert!(response.extensions().get::<Notes>().is_some());
}
