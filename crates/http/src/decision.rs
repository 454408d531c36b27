//! The public decision: plain facts of a response → verdict.

use std::time::SystemTime;

use http::HeaderMap;
use tower_triage_core::{ErrorClass, Failure, RetryAfter, ServerWord, Verdict, Vote};

use crate::body_code::aws_failure;
use crate::hints;
use crate::status::{failure_of, untouched};

/// What is known of a response: plain facts, so that the decision runs without a service, a body
/// type or a clock.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_triage_core::{ErrorClass, RetryAfter};
/// use tower_triage_http::HttpFacts;
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("retry-after", "3".parse().unwrap());
/// let facts = HttpFacts { status: 429, headers: &headers, body_prefix: b"", now: SystemTime::now() };
/// let failure = facts.verdict().failure().unwrap();
/// assert_eq!(failure.class, ErrorClass::Throttled);
/// assert_eq!(failure.retry_after, Some(RetryAfter::AtLeast(Duration::from_secs(3))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HttpFacts<'a> {
    /// The status code. Any number is judged.
    pub status: u16,
    /// The response's headers.
    pub headers: &'a HeaderMap,
    /// The beginning of the body, if it is known: error codes in it say more than the status. At
    /// most 16 KiB are looked at.
    pub body_prefix: &'a [u8],
    /// The clock for hints that are dates.
    pub now: SystemTime,
}

impl HttpFacts<'_> {
    /// The verdict: error code in the body, then status, then the server's hints.
    pub fn verdict(&self) -> Verdict {
        let Some(by_status) = failure_of(self.status) else { return Verdict::Success };
        let failure = aws_failure(self.headers, self.body_prefix)
            .or_else(|| self.corrected_by_headers())
            .unwrap_or(by_status);
        self.with_hints(failure, None).into()
    }

    /// Headers that change what a status means.
    fn corrected_by_headers(&self) -> Option<Failure> {
        let asked_to_wait = || hints::retry_after(self.headers, self.now).is_some();
        match self.status {
            // Two ways in which limits are told with a 403.
            403 if asked_to_wait() || hints::is_used_up(self.headers, "x-ratelimit-remaining") => {
                Some(Failure::new(ErrorClass::Throttled).reason("http_403_limit"))
            }
            // Too large now, but not for ever (RFC 9110, section 15.5.14).
            413 if asked_to_wait() => {
                Some(Failure::new(ErrorClass::Throttled).reason("http_413_limit"))
            }
            // Envoy dropped it before the upstream saw it.
            503 if self.headers.contains_key("x-envoy-overloaded") => Some(
                untouched(ErrorClass::Transient)
                    .vote(Vote::Failure)
                    .reason("http_503_envoy_overloaded"),
            ),
            _ => None,
        }
    }

    /// Adds what the server says about repeating. A wait is read only for classes that time can
    /// heal; the explicit word for each. `in_body` is the wait that a body asks for
    /// (`google.rpc.RetryInfo`), for rules that read bodies; see [`hints::wait_with`].
    pub fn with_hints(&self, mut failure: Failure, in_body: Option<RetryAfter>) -> Failure {
        match hints::word(self.headers) {
            ServerWord::Silent => {}
            word @ (ServerWord::Forbidden | ServerWord::Demanded) => failure.server = word,
        }
        failure.retry_after = match failure.class {
            ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::Throttled
            | ErrorClass::Contention
            | ErrorClass::Quota => hints::wait_with(self.headers, self.now, in_body),
            ErrorClass::Auth
            | ErrorClass::Internal
            | ErrorClass::Permanent
            | ErrorClass::Declined
            | ErrorClass::Cancelled
            | ErrorClass::Rejected
            | ErrorClass::Unknown => None,
        };
        failure
    }
}
