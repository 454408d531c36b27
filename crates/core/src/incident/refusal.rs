//! Why something was not repeated.

use std::fmt;

/// Why a failed attempt was not repeated: each refusal has a reason of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Refusal {
    /// The policy has no rule for this class.
    ClassNotRetried,
    /// The server said no.
    ServerForbade,
    /// Response data reached the caller already.
    Committed,
    /// The request cannot be sent again; the text says why.
    NotReplayable(&'static str),
    /// The peer may have done the work and the request is not idempotent: the outcome is unknown.
    NotIdempotent,
    /// The request is not the complete unit of work.
    NotUnitOfWork,
    /// No attempts left.
    AttemptsUsedUp,
    /// The server wants to see us later than we are willing to wait.
    HintOverCap,
    /// The overall deadline has passed.
    DeadlinePassed,
    /// The next wait would end after the deadline.
    WaitOverDeadline,
    /// The retry budget is used up.
    BudgetExhausted,
    /// A retry below used up its attempts for this very call.
    ExhaustedBelow,
    /// The layer was told to shut down.
    Shutdown,
    /// No new credentials were obtained.
    RefreshFailed,
}

impl Refusal {
    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClassNotRetried => "class_not_retried",
            Self::ServerForbade => "server_forbade",
            Self::Committed => "committed",
            Self::NotReplayable(_) => "not_replayable",
            Self::NotIdempotent => "not_idempotent",
            Self::NotUnitOfWork => "not_unit_of_work",
            Self::AttemptsUsedUp => "attempts_used_up",
            Self::HintOverCap => "hint_over_cap",
            Self::DeadlinePassed => "deadline_passed",
            Self::WaitOverDeadline => "wait_over_deadline",
            Self::BudgetExhausted => "budget_exhausted",
            Self::ExhaustedBelow => "exhausted_below",
            Self::Shutdown => "shutdown",
            Self::RefreshFailed => "refresh_failed",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReplayable(why) => write!(f, "not replayable: {why}"),
            Self::NotIdempotent => f.write_str("not idempotent, and the outcome is unknown"),
            other => f.write_str(&other.as_str().replace('_', " ")),
        }
    }
}
