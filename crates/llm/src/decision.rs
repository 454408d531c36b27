//! The public decision: plain facts of an answer → verdict.

use std::time::SystemTime;

use http::HeaderMap;
use tower_triage_core::{Disposition, ErrorClass, Failure, Verdict};
use tower_triage_http::HttpFacts;

use crate::body::{BodyFacts, Code, ErrorFacts, Said, inside_success};

/// What is known of an answer: plain facts, so that the decision runs without a service, a body or
/// a clock.
///
/// The provider is not among them: OpenAI's, Anthropic's, Gemini's, Azure's and Bedrock's errors have
/// words of their own each, so one rule reads them all, and one classifier serves a chain of several
/// providers. Whether tokens reached the caller is no matter of the verdict but of the retry
/// (`Facts::committed`).
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_triage_core::{ErrorClass, RetryAfter};
/// use tower_triage_llm::{BodyFacts, LlmFacts};
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("retry-after-ms", "1200".parse().unwrap());
/// let judge = |body: &str| {
///     let body = BodyFacts::read(body.as_bytes());
///     let facts = LlmFacts { status: 429, headers: &headers, body, now: SystemTime::now() };
///     facts.verdict().failure().unwrap()
/// };
///
/// let rate = judge(r#"{"error":{"code":"rate_limit_exceeded"}}"#);
/// assert_eq!(rate.class, ErrorClass::Throttled);
/// assert_eq!(rate.retry_after, Some(RetryAfter::AtLeast(Duration::from_millis(1200))));
/// let quota = judge(r#"{"error":{"code":"insufficient_quota"}}"#);
/// assert_eq!(quota.class, ErrorClass::Quota);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LlmFacts<'a> {
    /// The status code. Any number is judged.
    pub status: u16,
    /// The response's headers.
    pub headers: &'a HeaderMap,
    /// What the body says, as far as it is known.
    pub body: BodyFacts,
    /// The clock for hints that are dates.
    pub now: SystemTime,
}

impl LlmFacts<'_> {
    /// The verdict: what the body says, then the status, then the server's hints. Inside a success
    /// an error counts as it would without it, but for what is known of the work: the peer began it.
    pub fn verdict(&self) -> Verdict {
        let failure = match (self.is_success(), self.body.said) {
            (true, Said::Nothing) => return Verdict::Success,
            // Processed, and billed.
            (true, Said::Refused) => Failure::new(ErrorClass::Declined)
                .disposition(Disposition::Processed)
                .reason("llm_refused"),
            (true, Said::CutOff) => Failure::new(ErrorClass::Transient).reason("llm_cut_off"),
            (true, Said::Error(error)) => inside_success(self.hidden(&error)),
            (false, Said::Error(error)) => self.failed(self.status, &error),
            (false, Said::Nothing | Said::Refused | Said::CutOff) => {
                self.failed(self.status, &ErrorFacts::default())
            }
        };
        let in_body = match self.body.said {
            Said::Error(error) => error.retry_delay,
            Said::Nothing | Said::Refused | Said::CutOff => None,
        };
        self.http(self.status).with_hints(failure, in_body).into()
    }

    const fn is_success(&self) -> bool {
        matches!(self.status, 100..=399)
    }

    const fn http(&self, status: u16) -> HttpFacts<'_> {
        HttpFacts { status, headers: self.headers, body_prefix: &[], now: self.now }
    }

    /// An error inside a success.
    fn hidden(&self, error: &ErrorFacts) -> Failure {
        match (error.code, error.status) {
            (_, Some(status)) => self.failed(status, error),
            (Some(code), None) => code.failure(),
            (None, None) if error.named => {
                Failure::new(ErrorClass::Unknown).reason("llm_unknown_error")
            }
            // It broke, and does not say why: as a 500 without a body.
            (None, None) => Failure::new(ErrorClass::Transient).reason("llm_unnamed_error"),
        }
    }

    /// An error under a status of its own.
    fn failed(&self, status: u16, error: &ErrorFacts) -> Failure {
        let declined = |reason| Failure::new(ErrorClass::Declined).reason(reason);
        match (status, error.code) {
            // Also where a limit per minute is named: this request is over it at any time.
            (413, _) => declined("llm_413"),
            (_, Some(code)) => code.failure(),
            (404, None) => declined("llm_404"),
            (_, None) if error.is_quota() => Code::Quota.failure(),
            (_, None) => {
                self.http(status).verdict().failure().unwrap_or_else(|| {
                    Failure::new(ErrorClass::Unknown).reason("llm_unknown_error")
                })
            }
        }
    }
}

impl ErrorFacts {
    /// Google's quotas: one per day does not come back soon, whatever else is said, and without a
    /// `RetryInfo` no other does.
    const fn is_quota(&self) -> bool {
        self.quota_failure && (self.per_day || self.retry_delay.is_none())
    }
}
