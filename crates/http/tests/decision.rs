//! The public decision on plain facts: order of hints, and what changes a status's class.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tower_triage_core::{Disposition, ErrorClass, Failure, RetryAfter, ServerWord, Vote};
use tower_triage_http::HttpFacts;

/// 2026-03-02T12:00:00.250Z
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_452_800_250)
}

/// Header lines.
type Lines = &'static [(&'static str, &'static str)];

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

fn judge(status: u16, lines: &[(&str, &str)], body: &str) -> Failure {
    let headers = headers(lines);
    let body_prefix = body.as_bytes();
    HttpFacts { status, headers: &headers, body_prefix, now: now() }.verdict().failure().unwrap()
}

fn wait(lines: &[(&str, &str)]) -> Option<u128> {
    judge(429, lines, "").retry_after.map(|hint| hint.duration().as_millis())
}

#[test]
fn the_first_valid_hint_in_the_order_wins() {
    let used_up = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "70")];
    let mut lines = vec![
        ("retry-after-ms", "1000"),
        ("x-ms-retry-after-ms", "2000"),
        ("retry-after", "3"),
        ("x-amz-retry-after", "4000"),
        ("ratelimit", "\"a\";r=0;t=5"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "6"),
    ];
    for expected in [1000, 2000, 3000, 4000, 5000] {
        assert_eq!(wait(&lines), Some(expected));
        // An invalid one falls through like an absent one.
        lines[0].1 = "-1";
        assert_ne!(wait(&lines), Some(expected));
        lines.remove(0);
    }
    assert_eq!(wait(&lines), Some(6000));
    assert_eq!(wait(&used_up), Some(70_000));
    assert_eq!(wait(&[]), None);
}

#[test]
fn forms_of_hints() {
    let cases: [(Lines, Option<u128>); 27] = [
        (&[("retry-after-ms", "1.5")], Some(1)),
        (&[("x-ms-retry-after-ms", " 250 ")], Some(250)),
        (&[("retry-after", "\t120 ")], Some(120_000)),
        (&[("retry-after", "+5")], None),
        (&[("retry-after", "soon"), ("retry-after", "2")], Some(2000)),
        (&[("retry-after", "２")], None),
        (&[("retry-after", "Mon, 02 Mar 2026 12:00:20 GMT")], Some(19_750)),
        (&[("retry-after", "Tue, 02 Mar 2026 12:00:20 GMT")], None),
        (&[("retry-after", "Monday, 02-Mar-26 12:00:20 GMT")], Some(19_750)),
        (&[("retry-after", "2026-03-02T12:00:20Z")], None),
        (&[("x-amz-retry-after", "1.5")], None),
        (&[("x-amz-retry-after", "007")], Some(7)),
        (&[("ratelimit", "\"a\";r=0;t=10, \"b\";r=0;t=50, \"c\";r=1;t=99")], Some(50_000)),
        (&[("ratelimit", "\"a\";r=0;t=10"), ("ratelimit", "b;r=0;t=20")], Some(20_000)),
        (&[("ratelimit", "\"a\";r=0;t=10"), ("ratelimit", "b;;")], None),
        (&[("ratelimit", "\"a\";r=0")], None),
        (&[("ratelimit", "\"a\";r=0;t=-5")], None),
        (&[("ratelimit", "\"a\";r=0;t=\"10\"")], None),
        (&[("ratelimit", "limit=10, remaining=0, reset=5")], None),
        (
            &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")],
            Some(360_000),
        ),
        (&[("x-ratelimit-remaining-requests", "1"), ("x-ratelimit-reset-requests", "6m0s")], None),
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "20ms"),
            ],
            Some(1000),
        ),
        (
            &[
                ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-03-02T12:00:10Z"),
                ("anthropic-ratelimit-requests-remaining", "5"),
                ("anthropic-ratelimit-requests-reset", "2026-03-02T13:00:00Z"),
            ],
            Some(9750),
        ),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1772452845")], Some(44_750)),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1000000000")], Some(0)),
        (
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "999999999")],
            Some(999_999_999_000),
        ),
        (&[("x-ratelimit-reset", "5")], None),
    ];
    for (lines, expected) in cases {
        assert_eq!(wait(lines), expected, "{lines:?}");
    }
    let huge = [("retry-after", "99999999999999999999")];
    assert_eq!(judge(503, &huge, "").retry_after, Some(RetryAfter::Never));
}

#[test]
fn a_wait_is_read_where_time_can_heal_and_the_word_everywhere() {
    let hint = [("retry-after", "3")];
    for status in [408, 409, 421, 429, 402, 500, 503, 507, 529] {
        assert!(judge(status, &hint, "").retry_after.is_some(), "{status}");
    }
    for status in [400, 401, 404, 499, 501, 508] {
        assert_eq!(judge(status, &hint, "").retry_after, None, "{status}");
    }
    let word = |text| judge(400, &[("x-should-retry", text)], "").server;
    assert_eq!(word("true"), ServerWord::Demanded);
    assert_eq!(word(" false "), ServerWord::Forbidden);
    assert_eq!(word("True"), ServerWord::Silent);
    let both = [("x-should-retry", "true"), ("x-should-retry", "false")];
    assert_eq!(judge(503, &both, "").server, ServerWord::Forbidden);
    let no = judge(503, &[("x-should-retry", "false"), ("retry-after", "3")], "");
    assert!(no.retry_after.is_some(), "the wait is still read");
}

#[test]
fn headers_and_bodies_correct_a_status() {
    let limit = judge(403, &[("retry-after", "3")], "");
    assert_eq!((limit.class, limit.vote), (ErrorClass::Throttled, Vote::Ignore));
    let none_left = judge(403, &[("x-ratelimit-remaining", "0")], "");
    assert_eq!((none_left.class, none_left.retry_after), (ErrorClass::Throttled, None));
    for lines in [[("x-ratelimit-remaining", "1")], [("retry-after", "later")]] {
        assert_eq!(judge(403, &lines, "").class, ErrorClass::Permanent);
    }
    assert_eq!(judge(413, &[("retry-after", "3")], "").class, ErrorClass::Throttled);

    let dropped = judge(503, &[("x-envoy-overloaded", "true")], "");
    assert_eq!(dropped.disposition, Disposition::NotProcessed);
    assert_eq!((dropped.class, dropped.vote), (ErrorClass::Transient, Vote::Failure));

    let slow_down = "<Error><Code>SlowDown</Code></Error>";
    let slow_down = judge(503, &[("retry-after", "2")], slow_down);
    assert_eq!((slow_down.class, slow_down.vote), (ErrorClass::Throttled, Vote::Ignore));
    assert!(slow_down.retry_after.is_some());
    let quota = judge(429, &[("x-amzn-errortype", "ServiceQuotaExceededException")], "");
    assert_eq!(quota.class, ErrorClass::Quota);
    let timeout = judge(400, &[], "{\"__type\":\"RequestTimeout\"}");
    assert_eq!(timeout.class, ErrorClass::Timeout);
    assert_eq!(timeout.disposition, Disposition::MaybeProcessed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a server sends: a verdict, no panic, and no hint outside of its classes.
    #[test]
    fn foreign_bytes_are_judged(
        status: u16,
        values in proptest::collection::vec(
            (0..14_usize, proptest::collection::vec(any::<u8>(), 0..40)),
            0..12,
        ),
        body: Vec<u8>,
        seconds in 0..i64::MAX as u64,
    ) {
        const NAMES: [&str; 14] = [
            "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after",
            "ratelimit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-should-retry",
            "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", "x-amzn-errortype",
            "anthropic-ratelimit-x-remaining", "anthropic-ratelimit-x-reset", "x-envoy-overloaded",
        ];
        let mut map = HeaderMap::new();
        for (name, value) in values {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                map.append(NAMES[name], value);
            }
        }
        let now = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let now = now.unwrap_or(SystemTime::UNIX_EPOCH);
        let facts = HttpFacts { status, headers: &map, body_prefix: &body, now };
        let verdict = facts.verdict();
        prop_assert_eq!(verdict.is_success(), (100..400).contains(&status));
        if let Some(failure) = verdict.failure() {
            let heals = matches!(
                failure.class,
                ErrorClass::Transient
                    | ErrorClass::Timeout
                    | ErrorClass::Throttled
                    | ErrorClass::Contention
                    | ErrorClass::Quota
            );
            prop_assert!(heals || failure.retry_after.is_none());
        }
    }
}
