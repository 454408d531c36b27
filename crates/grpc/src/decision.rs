//! The public decision: plain facts of an answer → verdict.

use std::time::SystemTime;

use http::HeaderMap;
use tonic::Code;
use tower_triage_core::{ErrorClass, Failure, RetryAfter, ServerWord, Verdict};
use tower_triage_http::hints;

use crate::code::{NO_HINT, code_of_header, code_of_http, failure_of};
use crate::details::StatusDetails;
use crate::pushback::Pushback;

/// The header.
pub(crate) const STATUS: &str = "grpc-status";

/// What is known of an answer that is over, or that began with its status: plain facts, so that the
/// decision runs without a service, a body or a clock.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_triage_core::{ErrorClass, RetryAfter};
/// use tower_triage_grpc::GrpcFacts;
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("grpc-status", "14".parse().unwrap());
/// headers.insert("grpc-retry-pushback-ms", "250".parse().unwrap());
/// let facts = GrpcFacts { headers: &headers, ..GrpcFacts::new(SystemTime::now()) };
/// let failure = facts.verdict().failure().unwrap();
/// assert_eq!(failure.class, ErrorClass::Transient);
/// assert_eq!(failure.retry_after, Some(RetryAfter::Exactly(Duration::from_millis(250))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GrpcFacts<'a> {
    /// The HTTP status; it counts only if there is no `grpc-status`.
    pub http_status: u16,
    /// The response's headers. Where they hold the status, there are no trailers.
    pub headers: &'a HeaderMap,
    /// The trailers, if some came.
    pub trailers: Option<&'a HeaderMap>,
    /// Was a message larger than a limit? Only who knows the limits knows: the status's text is not
    /// read.
    pub message_too_large: bool,
    /// Has the time passed that the call was given? CANCELLED is then the server's word for it, and
    /// means DEADLINE_EXCEEDED (tonic's servers say so).
    pub deadline_passed: bool,
    /// The clock for hints that are dates.
    pub now: SystemTime,
}

static NO_HEADERS: std::sync::LazyLock<HeaderMap> = std::sync::LazyLock::new(HeaderMap::new);

impl GrpcFacts<'_> {
    /// An answer with the HTTP status 200 and nothing else.
    #[must_use]
    pub fn new(now: SystemTime) -> Self {
        Self {
            http_status: 200,
            headers: &NO_HEADERS,
            trailers: None,
            message_too_large: false,
            deadline_passed: false,
            now,
        }
    }

    /// The verdict: `grpc-status` in the headers, else in the trailers, else the HTTP status; then
    /// what the server says about repeating.
    pub fn verdict(&self) -> Verdict {
        self.said().verdict()
    }

    pub(crate) fn said(&self) -> Said<'_> {
        let trailers = self.trailers.unwrap_or(self.headers);
        let (code, metadata) = match (self.headers.get(STATUS), trailers.get(STATUS)) {
            (Some(status), _) => (code_of_header(status.as_bytes()), self.headers),
            (None, Some(status)) => (code_of_header(status.as_bytes()), trailers),
            (None, None) => (code_of_http(self.http_status), self.headers),
        };
        let code = match code {
            Code::Cancelled if self.deadline_passed => Code::DeadlineExceeded,
            code => code,
        };
        let details = StatusDetails::of_headers(metadata);
        Said { code, metadata, details, too_large: self.message_too_large, now: self.now }
    }
}

/// A status and what came with it.
pub(crate) struct Said<'a> {
    pub(crate) code: Code,
    pub(crate) metadata: &'a HeaderMap,
    pub(crate) details: StatusDetails,
    pub(crate) too_large: bool,
    pub(crate) now: SystemTime,
}

impl Said<'_> {
    pub(crate) fn verdict(&self) -> Verdict {
        let Some(failure) = failure_of(self.code) else { return Verdict::Success };
        let failure = match self.code {
            Code::ResourceExhausted => self.of_resource(failure),
            _ => self.with_hints(failure),
        };
        failure.into()
    }

    /// RESOURCE_EXHAUSTED is a rate limit, a hard limit, or a message that is too large.
    fn of_resource(&self, failure: Failure) -> Failure {
        let class = |class| Failure::new(class).reason(failure.reason);
        if self.too_large {
            return self.with_hints(class(ErrorClass::Permanent));
        }
        let pushback = Pushback::of_headers(self.metadata);
        let comes_back =
            self.details.retry_delay.is_some() || matches!(pushback, Some(Pushback::After(_)));
        if self.details.quota_failure && !comes_back {
            return self.with_hints(class(ErrorClass::Quota));
        }
        let limited = self.with_hints(failure);
        match (limited.server, limited.retry_after) {
            (ServerWord::Silent, None) => limited.server(ServerWord::Forbidden).reason(NO_HINT),
            _ => limited,
        }
    }

    /// Adds what the server says about repeating. A wait is read only for classes that time can
    /// heal; the explicit word for each.
    pub(crate) fn with_hints(&self, mut failure: Failure) -> Failure {
        failure.server = match Pushback::of_headers(self.metadata) {
            Some(Pushback::Never) => ServerWord::Forbidden,
            Some(Pushback::After(_)) | None => hints::word(self.metadata),
        };
        failure.retry_after = match failure.class {
            ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::Throttled
            | ErrorClass::Contention
            | ErrorClass::Quota => self.wait(),
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

    /// When the server wants to see us again.
    pub(crate) fn wait(&self) -> Option<RetryAfter> {
        let pushback = match Pushback::of_headers(self.metadata) {
            Some(Pushback::After(wait)) => Some(RetryAfter::Exactly(wait)),
            Some(Pushback::Never) | None => None,
        };
        pushback.or_else(|| hints::wait_with(self.metadata, self.now, self.details.retry_delay))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::details::{DETAILS, with_retry_info};
    use crate::wire::put_bytes;
    use base64::Engine as _;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        lines.iter().map(line).collect()
    }

    fn failure(lines: &[(&'static str, &str)]) -> Failure {
        let headers = headers(lines);
        let facts = GrpcFacts { headers: &headers, ..GrpcFacts::new(SystemTime::UNIX_EPOCH) };
        facts.verdict().failure().unwrap()
    }

    fn retry_info(delay: Duration) -> String {
        let status = with_retry_info(Code::Unavailable, "", delay);
        base64::engine::general_purpose::STANDARD_NO_PAD.encode(status)
    }

    #[test]
    fn the_status_in_the_headers_comes_first_then_the_trailers_then_http() {
        let (ok, busy) = (headers(&[(STATUS, "0")]), headers(&[(STATUS, "14")]));
        let none = headers(&[]);
        let class = |headers, trailers, http_status| {
            let now = SystemTime::UNIX_EPOCH;
            let facts = GrpcFacts { http_status, headers, trailers, ..GrpcFacts::new(now) };
            facts.verdict().failure().map(|failure| failure.class)
        };
        assert_eq!(class(&ok, Some(&busy), 500), None);
        assert_eq!(class(&none, Some(&ok), 503), None);
        assert_eq!(class(&none, Some(&busy), 200), Some(ErrorClass::Transient));
        assert_eq!(class(&none, Some(&none), 401), Some(ErrorClass::Auth));
        assert_eq!(class(&none, None, 200), Some(ErrorClass::Unknown));
    }

    #[test]
    fn hints_in_their_order() {
        let info = retry_info(Duration::from_secs(5));
        let all = [
            (STATUS, "14"),
            ("grpc-retry-pushback-ms", "1"),
            ("retry-after", "2"),
            (DETAILS, info.as_str()),
            ("ratelimit", "\"day\";r=0;t=9"),
        ];
        let waits: Vec<Duration> = (1..5)
            .map(|first| {
                let lines = [&all[..1], &all[first..]].concat();
                failure(&lines).retry_after.unwrap().duration()
            })
            .collect();
        assert_eq!(waits, [1, 2000, 5000, 9000].map(Duration::from_millis));
    }

    #[test]
    fn an_exhausted_resource_is_a_rate_a_quota_or_a_size() {
        let bare = failure(&[(STATUS, "8")]);
        assert_eq!((bare.class, bare.reason), (ErrorClass::Throttled, NO_HINT));
        let hinted = failure(&[(STATUS, "8"), ("grpc-retry-pushback-ms", "0")]);
        assert_eq!(hinted.server, ServerWord::Silent);
        let refused = failure(&[(STATUS, "8"), ("grpc-retry-pushback-ms", "-1")]);
        let quota = |more: &[(&'static str, &str)]| {
            let mut any = Vec::new();
            put_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.QuotaFailure");
            let mut status = Vec::new();
            put_bytes(&mut status, 3, &any);
            let details = base64::engine::general_purpose::STANDARD.encode(status);
            failure(&[&[(STATUS, "8"), (DETAILS, details.as_str())], more].concat()).class
        };
        assert_eq!(quota(&[]), ErrorClass::Quota);
        assert_eq!(quota(&[("grpc-retry-pushback-ms", "-1")]), ErrorClass::Quota);
        assert_eq!(quota(&[("grpc-retry-pushback-ms", "5")]), ErrorClass::Throttled);
        assert_eq!(
            (refused.server, refused.reason),
            (ServerWord::Forbidden, "grpc_resource_exhausted")
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_judged(
            http_status: u16,
            status in "[ -~]{0,4}|1?[0-9]",
            pushback in proptest::option::of("[ -~]{0,12}"),
            details in proptest::option::of("[A-Za-z0-9+/=]{0,64}"),
        ) {
            let mut trailers = headers(&[(STATUS, &status)]);
            for (name, value) in [("grpc-retry-pushback-ms", pushback), (DETAILS, details)] {
                if let Some(value) = value {
                    trailers.insert(name, HeaderValue::from_str(&value).unwrap());
                }
            }
            let now = SystemTime::UNIX_EPOCH;
            let facts =
                GrpcFacts { http_status, trailers: Some(&trailers), ..GrpcFacts::new(now) };
            prop_assert_eq!(facts.verdict().is_success(), status == "0");
        }
    }
}
