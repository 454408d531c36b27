//! Requests, responses, errors and rules for the tests of this crate.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;
use tower_triage_core::{
    Backoff, Classifier, ClassifyResponse, Describe, ErrorClass, Failure, Halves, OwnError,
    RetryAfter, ToFailure, Verdict,
};
use tower_triage_retry::{RetryPlan, RetryPolicy};
use tower_triage_test_support::{Scripted, Seen, scripted};

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    pub(crate) text: String,
    pub(crate) repeatable: bool,
    pub(crate) unit: bool,
    pub(crate) deadline: Option<Instant>,
}

pub(crate) fn ask() -> Ask {
    Ask { text: "ask".to_owned(), repeatable: true, unit: true, deadline: None }
}

/// A response that is not `Clone`.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
}

pub(crate) fn reply(status: u16) -> Reply {
    Reply { status, retry_after: None }
}

/// An error that is neither `Clone` nor anything but what it says.
#[derive(Debug, PartialEq)]
pub(crate) struct Oops(pub(crate) Failure, pub(crate) &'static str);

pub(crate) fn oops(class: ErrorClass) -> Oops {
    Oops(class.into(), class.as_str())
}

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl std::error::Error for Oops {}

impl ToFailure for Oops {
    fn to_failure(&self) -> Failure {
        self.0
    }
}

/// Judges replies by status, and reads the facts of an [`Ask`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules;

impl ClassifyResponse<Reply> for Rules {
    fn response(&self, reply: &Reply) -> Verdict {
        let mut failure = match reply.status {
            0..=399 => return Verdict::Success,
            401 => Failure::new(ErrorClass::Auth),
            429 => Failure::new(ErrorClass::Throttled),
            500..=599 => Failure::new(ErrorClass::Transient),
            _ => Failure::new(ErrorClass::Permanent),
        };
        failure.retry_after = reply.retry_after.map(RetryAfter::AtLeast);
        failure.into()
    }
}

impl Describe<Ask> for Rules {
    fn repeatable(&self, ask: &Ask) -> bool {
        ask.repeatable
    }
    fn unit_of_work(&self, ask: &Ask) -> bool {
        ask.unit
    }
    fn deadline(&self, ask: &Ask) -> Option<Instant> {
        ask.deadline
    }
}

pub(crate) type TestRules = Halves<Rules, OwnError>;

/// A classifier, and who watches what is recorded.
pub(crate) fn classifier() -> (Classifier<TestRules>, Seen) {
    let classifier = Classifier::new(Halves { response: Rules, error: OwnError });
    let seen = Seen::default();
    classifier.observe(seen.clone());
    (classifier, seen)
}

/// The default policy with a fixed wait in every class.
pub(crate) fn every(wait: Duration) -> RetryPolicy {
    RetryPolicy::default().backoff(&Backoff::fixed(wait))
}

/// The default policy without waits.
pub(crate) fn at_once() -> RetryPolicy {
    RetryPolicy::default().backoff(&Backoff::immediate())
}

pub(crate) fn plan(policy: RetryPolicy) -> RetryPlan {
    policy.build().expect("a policy that works")
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) type Script = Scripted<Ask, Reply, Oops>;

pub(crate) fn script<const N: usize>(lines: [fn() -> Result<Reply, Oops>; N]) -> Script {
    scripted(lines)
}
