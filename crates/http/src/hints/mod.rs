//! What a server says about when to come back, in the order in which its words count.
//!
//! The first valid hint wins; an invalid one falls through to the next and never becomes an error.
//! Everything here takes foreign text: nothing panics, and the work is bounded by the header.

mod date;
mod number;
mod reset;
mod structured;

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use tower_triage_core::{RetryAfter, ServerWord};

use self::number::{Decimal, all_digits, at_least, trim};
pub(crate) use self::reset::is_used_up;

/// The wait that the headers of a response ask for: a lower bound, uncapped.
///
/// | order | field | form |
/// |---|---|---|
/// | 1 | `retry-after-ms`, `x-ms-retry-after-ms` | decimal milliseconds |
/// | 2 | `Retry-After` (RFC 9110, section 10.2.3) | decimal seconds or an HTTP date |
/// | 3 | `x-amz-retry-after` | whole milliseconds |
/// | 4 | `RateLimit` (IETF httpapi draft) | the largest `t` of the items with `r=0` |
/// | 5 | `x-ratelimit-reset-{requests,tokens}`, `anthropic-ratelimit-*-reset`, `x-ratelimit-reset` | only where the matching `remaining` is 0 |
///
/// A past date is a wait of zero. `now` is the clock for dates.
#[must_use]
pub fn wait(headers: &HeaderMap, now: SystemTime) -> Option<RetryAfter> {
    wait_with(headers, now, None)
}

/// [`wait`] with one more voice: what the body or the trailers ask for (`google.rpc.RetryInfo`). It
/// counts after `Retry-After`, like `x-amz-retry-after`, and before the rate limits.
#[must_use]
pub fn wait_with(
    headers: &HeaderMap,
    now: SystemTime,
    in_body: Option<RetryAfter>,
) -> Option<RetryAfter> {
    millis(headers, "retry-after-ms")
        .or_else(|| millis(headers, "x-ms-retry-after-ms"))
        .or_else(|| retry_after(headers, now))
        .or_else(|| amz_retry_after(headers))
        .or(in_body)
        .or_else(|| rate_limit(headers))
        .or_else(|| reset::longest_reset(headers, now))
}

/// `Retry-After` alone, seconds or a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<RetryAfter> {
    texts(headers, http::header::RETRY_AFTER.as_str()).find_map(|text| {
        if let Some(seconds) = Decimal::parse(text) {
            return Some(at_least(seconds.seconds()));
        }
        date::http_date(text, now).map(|date| RetryAfter::AtLeast(date.ahead_of(now)))
    })
}

/// The server's explicit word: `x-should-retry: true` or `false`; other values are ignored. Of two
/// that contradict each other the "no" counts.
#[must_use]
pub fn word(headers: &HeaderMap) -> ServerWord {
    let mut word = ServerWord::Silent;
    for text in texts(headers, "x-should-retry") {
        match trim(text) {
            "false" => return ServerWord::Forbidden,
            "true" => word = ServerWord::Demanded,
            _ => {}
        }
    }
    word
}

/// A date of RFC 3339 (`2026-03-02T12:00:00Z`), as far ahead of `now` as it is; zero if it passed.
#[must_use]
pub fn until_rfc3339(text: &str, now: SystemTime) -> Option<Duration> {
    date::rfc3339(text).map(|date| date.ahead_of(now))
}

/// A `google.protobuf.Duration` in its JSON form, `46s` or `0.25s`: the `retryDelay` of a
/// `google.rpc.RetryInfo`. A negative one is no hint.
#[must_use]
pub fn proto_duration(text: &str) -> Option<RetryAfter> {
    let number = text.strip_suffix('s')?;
    if number.contains([' ', '\t']) {
        return None;
    }
    Decimal::parse(number).map(|number| at_least(number.seconds()))
}

fn millis(headers: &HeaderMap, name: &str) -> Option<RetryAfter> {
    texts(headers, name).find_map(Decimal::parse).map(|number| at_least(number.millis()))
}

fn amz_retry_after(headers: &HeaderMap) -> Option<RetryAfter> {
    texts(headers, "x-amz-retry-after")
        .map(trim)
        .find(|text| all_digits(text))
        .map(|text| at_least(text.parse().ok().map(Duration::from_millis)))
}

/// All lines of the field are one list; one malformed line spoils it.
fn rate_limit(headers: &HeaderMap) -> Option<RetryAfter> {
    let mut longest = None;
    for line in headers.get_all("ratelimit") {
        structured::list(line.to_str().ok()?, |item| {
            if item.r == Some(0) {
                longest = longest.max(item.t.and_then(|t| u64::try_from(t).ok()));
            }
        })?;
    }
    longest.map(|seconds| RetryAfter::AtLeast(Duration::from_secs(seconds)))
}

/// The field's values that are text.
fn texts<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
}
