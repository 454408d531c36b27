//! The decision over plain facts: what the vectors leave open.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use proptest::prelude::*;
use tower_triage_core::{Disposition, ErrorClass, Failure, RetryAfter, ServerWord, Vote};
use tower_triage_llm::{BodyFacts, LlmFacts};

fn judge(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Option<Failure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    let body = BodyFacts::read(body.as_bytes());
    LlmFacts { status, headers: &map, body, now: SystemTime::UNIX_EPOCH }.verdict().failure()
}

fn class(status: u16, body: &str) -> Option<ErrorClass> {
    judge(status, &[], body).map(|failure| failure.class)
}

#[test]
fn status_by_status_without_a_body() {
    use ErrorClass as C;
    for (status, expected) in [
        (200, None),
        (400, Some(C::Permanent)),
        (401, Some(C::Auth)),
        (402, Some(C::Quota)),
        (403, Some(C::Permanent)),
        (404, Some(C::Declined)),
        (408, Some(C::Timeout)),
        (409, Some(C::Contention)),
        (413, Some(C::Declined)),
        (422, Some(C::Permanent)),
        (429, Some(C::Throttled)),
        (500, Some(C::Transient)),
        (502, Some(C::Transient)),
        (503, Some(C::Transient)),
        (504, Some(C::Timeout)),
        (529, Some(C::Throttled)),
    ] {
        assert_eq!(class(status, ""), expected, "{status}");
    }
}

#[test]
fn overload_is_the_services_and_a_rate_limit_is_ours() {
    let overloaded =
        r#"{"error":{"type":"service_unavailable_error","code":"server_is_overloaded"}}"#;
    for status in [503, 529, 200] {
        let failure = judge(status, &[], overloaded).unwrap();
        assert_eq!((failure.class, failure.vote), (ErrorClass::Throttled, Vote::Failure));
    }
    let failure = judge(503, &[], r#"{"error":{"code":"slow_down"}}"#).unwrap();
    assert_eq!((failure.class, failure.vote), (ErrorClass::Throttled, Vote::Ignore));
    // Under a status of its own the peer vouches that it did nothing; inside a 200 it does not.
    assert_eq!(failure.disposition, Disposition::NotProcessed);
    let failure = judge(200, &[], r#"{"error":{"code":"slow_down"}}"#).unwrap();
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
}

#[test]
fn inside_a_200_an_error_counts_as_without_it() {
    use ErrorClass as C;
    for (body, expected) in [
        (r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#, C::Transient),
        (r#"{"error":{"code":401}}"#, C::Auth),
        (r#"{"error":{"type":"not_found_error"}}"#, C::Declined),
        (r#"{"error":{"type":"timeout_error"}}"#, C::Timeout),
        (r#"{"error":{"type":"permission_error"}}"#, C::Permanent),
        (r#"{"error":{"status":"RESOURCE_EXHAUSTED"}}"#, C::Throttled),
        (r#"{"error":{"type":"request_too_large"}}"#, C::Declined),
        (r#"{"error":{"code":"brand_new"}}"#, C::Unknown),
        (r#"{"error":{"message":"?"}}"#, C::Transient),
        (r#"{"response":{"incomplete_details":{"reason":"content_filter"}}}"#, C::Declined),
        (r#"{"candidates":[{"finishReason":"PROHIBITED_CONTENT"}]}"#, C::Declined),
    ] {
        assert_eq!(class(200, body), Some(expected), "{body}");
        assert!(judge(200, &[], body).unwrap().disposition.may_be_processed(), "{body}");
    }
}

#[test]
fn googles_quotas() {
    let body = |quota: &str, delay: &str| {
        format!(
            r#"{{"error":{{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{delay}{{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{{"quotaId":"{quota}"}}]}}]}}}}"#
        )
    };
    let delay = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.5s"},"#;
    let per_day = judge(429, &[], &body("GenerateRequestsPerDayPerProject", delay)).unwrap();
    assert_eq!(per_day.class, ErrorClass::Quota);
    assert_eq!(per_day.retry_after, Some(RetryAfter::AtLeast(Duration::from_millis(1500))));
    assert_eq!(class(429, &body("GenerateRequestsPerMinute", delay)), Some(ErrorClass::Throttled));
    assert_eq!(class(429, &body("GenerateRequestsPerMinute", "")), Some(ErrorClass::Quota));
    assert_eq!(
        class(429, r#"{"error":{"status":"RESOURCE_EXHAUSTED"}}"#),
        Some(ErrorClass::Throttled)
    );
    // A header that names a time counts more than the body, and a rate limit's reset less.
    let with = |headers| judge(429, headers, &body("PerMinute", delay)).unwrap().retry_after;
    let seconds = |seconds| Some(RetryAfter::AtLeast(Duration::from_secs_f64(seconds)));
    assert_eq!(with(&[("retry-after", "7")]), seconds(7.0));
    assert_eq!(with(&[("ratelimit", "a;r=0;t=9")]), seconds(1.5));
}

#[test]
fn a_request_that_is_too_large_is_too_large_at_any_time() {
    let limited = r#"{"error":{"type":"tokens","code":"rate_limit_exceeded"}}"#;
    assert_eq!(class(413, limited), Some(ErrorClass::Declined));
    assert_eq!(class(429, limited), Some(ErrorClass::Throttled));
}

#[test]
fn bedrock_speaks_as_aws_does() {
    let header = [("x-amzn-errortype", "ThrottlingException:http://x/")];
    assert_eq!(judge(400, &header, "").unwrap().class, ErrorClass::Throttled);
    assert_eq!(class(400, r#"{"__type":"a#ThrottlingException"}"#), Some(ErrorClass::Throttled));
    assert_eq!(class(400, r#"{"__type":"ValidationException"}"#), Some(ErrorClass::Permanent));
    assert_eq!(class(200, r#"{"stopReason":"guardrail_intervened"}"#), Some(ErrorClass::Declined));
}

#[test]
fn the_word_on_retries_is_taken_as_it_is() {
    let word = |value| judge(500, &[("x-should-retry", value)], "").unwrap().server;
    assert_eq!(word("true"), ServerWord::Demanded);
    assert_eq!(word("false"), ServerWord::Forbidden);
    assert_eq!(word("1"), ServerWord::Silent);
}

proptest! {
    /// Whatever the body says, a failure stays a failure, and its class is one of those that a
    /// provider can mean.
    #[test]
    fn any_body_under_any_status_gets_a_verdict(
        status: u16,
        body in "\\{\"(error|status|type|stop_reason|choices)\":(\"[a-z_]{0,24}\"|null|[0-9]{1,3}|\\{\"(code|type|status)\":(\"[a-zA-Z_]{0,24}\"|[0-9]{1,4}|null)\\}|\\[\\])\\}",
    ) {
        match judge(status, &[], &body) {
            None => prop_assert!((100..400).contains(&status)),
            Some(failure) => {
                prop_assert!(failure.class != ErrorClass::Rejected);
                prop_assert!(failure.reason.starts_with("llm_") || failure.reason.starts_with("http_"));
            }
        }
    }
}
