//! What is commonly known of a class: a first word, for whoever has nothing better to say.

use serde::{Deserialize, Serialize};
use tower_triage_core::ErrorClass;

/// How much harm a failure does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// One answer is late or missing.
    Low,
    /// Many answers are.
    Medium,
    /// Nothing goes on until somebody acts.
    High,
    /// Data or security may be harmed.
    Critical,
}

/// How hard the way out is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difficulty {
    /// Time alone may do it.
    Easy,
    /// Another way, or a known act, does it.
    Moderate,
    /// Somebody has to find out.
    Hard,
}

impl Severity {
    /// A fixed name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// What a class commonly means.
    #[must_use]
    pub const fn of(class: ErrorClass) -> Self {
        use ErrorClass::{
            Auth, Cancelled, Contention, Declined, Internal, Permanent, Quota, Rejected, Throttled,
            Timeout, Transient, Unknown,
        };
        match class {
            Contention | Cancelled | Declined | Permanent => Self::Low,
            Transient | Timeout | Throttled | Rejected | Unknown => Self::Medium,
            Auth | Quota | Internal => Self::High,
        }
    }
}

impl Difficulty {
    /// A fixed name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Easy => "easy",
            Self::Moderate => "moderate",
            Self::Hard => "hard",
        }
    }

    /// What a class commonly takes.
    #[must_use]
    pub const fn of(class: ErrorClass) -> Self {
        use ErrorClass::{
            Auth, Cancelled, Contention, Declined, Internal, Permanent, Quota, Rejected, Throttled,
            Timeout, Transient, Unknown,
        };
        match class {
            Transient | Timeout | Throttled | Contention | Rejected | Cancelled => Self::Easy,
            Auth | Quota | Declined => Self::Moderate,
            Internal | Permanent | Unknown => Self::Hard,
        }
    }
}

/// What happened, in a sentence.
pub(crate) const fn diagnosis(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transient => "the attempt broke, or the dependency cannot serve just now",
        ErrorClass::Timeout => "there was no answer in time; the work may still be running",
        ErrorClass::Throttled => "the dependency refused because of rate or load",
        ErrorClass::Contention => "other work was faster; the dependency is healthy",
        ErrorClass::Auth => "a credential is missing, expired or refused",
        ErrorClass::Quota => "a hard limit is used up; time alone does not help",
        ErrorClass::Internal => "there is a defect or corrupted data on either side",
        ErrorClass::Permanent => "the answer is no, and will be for this request",
        ErrorClass::Declined => "the request is sound, but not for this backend",
        ErrorClass::Cancelled => "our side gave up",
        ErrorClass::Rejected => "our own protection refused before anything was sent",
        ErrorClass::Unknown => "the classifier cannot tell",
    }
}

/// What to do about it, as an order.
pub(crate) const fn remedy(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transient => "wait until the dependency serves again, then repeat",
        ErrorClass::Timeout => "find out what is slow, or reduce the scope, then repeat",
        ErrorClass::Throttled => "slow down, then repeat",
        ErrorClass::Contention => "repeat the whole unit of work",
        ErrorClass::Auth => "renew the credentials, then repeat",
        ErrorClass::Quota => "raise the limit or use another backend",
        ErrorClass::Internal => "find the defect",
        ErrorClass::Permanent => "correct the request",
        ErrorClass::Declined => "use another backend",
        ErrorClass::Cancelled => "repeat, if the result is still wanted",
        ErrorClass::Rejected => "repeat once the breaker has closed",
        ErrorClass::Unknown => "look at it, and teach the classifier",
    }
}
