//! The record of one logical call that met at least one failure.
//!
//! Nothing is allocated until the first failure. The layers of one call share one scope (see
//! [`scope`](self::scope())): steps are recorded in it while the call is polled, and at its end
//! the incident gets a resolution and goes to the observers of the [`Classifier`](crate::Classifier).

mod id;
mod nested;
mod observer;
pub(crate) mod outcome;
pub(crate) mod record;
mod refusal;
pub(crate) mod scope;
mod step;
mod timeline;

pub use self::{
    id::IncidentId,
    nested::{InScope, scope},
    observer::{Labels, Observer},
    outcome::{
        Aside, Branch, Deferred, Handover, blocked_below, circuit_opened, defer, exhausted_below,
        identify, mark_blocked, mark_exhausted, next_attempt, rejected_below, seen, snapshot,
        take_over, urgent_left,
    },
    refusal::Refusal,
    scope::{Detached, Entered, Scope, call, calling, detached, has_begun, run_detached},
    step::{LayerKind, Step, StepKind},
    timeline::{Span, SpanKind, Timeline, is_invisible},
};

use std::time::{Duration, SystemTime};

use crate::class::ClassSet;
use crate::label::Operation;
use crate::verdict::Failure;

/// The story of one logical call that met at least one failure.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Incident {
    /// Fixed at the first failure; the id of every record made of this incident.
    pub id: IncidentId,
    /// What was being done.
    pub operation: Operation,
    /// When the call began, by the calendar. The clock is first read when the call has to wait or
    /// meets a failure: what it did before in one go took no time.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub started: SystemTime,
    /// From the call's begin to its end, or to now if it is still going on.
    pub elapsed: Duration,
    /// What happened, oldest first, at most [`Incident::MAX_STEPS`].
    pub steps: Vec<Step>,
    /// How many of the oldest steps were dropped to keep the record bounded.
    pub collapsed: u32,
    /// How many attempts were made: calls of the service itself, the successful one included, and
    /// rejections of our own not.
    pub attempts: u32,
    /// The last failure of the primary path: the one that decides.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub failure: Option<Failure>,
    /// Every class that was seen on the way.
    pub classes: ClassSet,
    /// How it ended.
    pub resolution: Resolution,
    /// An escalation was due, and every sink failed: nobody has been told.
    pub not_recorded: bool,
}

impl Incident {
    /// Longest list of steps; the oldest collapse into a count.
    pub const MAX_STEPS: usize = 64;

    /// The incident as a chart over time, one line a step; `width` is the bar's width in columns.
    #[must_use]
    pub const fn timeline(&self, width: usize) -> Timeline<'_> {
        Timeline::new(self, width)
    }
}

/// How an incident ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Resolution {
    /// Not yet ended.
    Open,
    /// A later attempt succeeded.
    RecoveredByRetry,
    /// A fallback answered.
    AnsweredByFallback,
    /// The caller got an answer built from what was known.
    ForcedFinish,
    /// The caller got the failure, and somebody who can act was told.
    Escalated,
    /// The caller got the failure.
    Failed,
    /// Nothing failed here; told is what happened beside: a call made inside this one met a failure,
    /// a soft time limit passed, a slow answer opened a breaker.
    Succeeded,
    /// The caller dropped the call.
    Abandoned,
}

impl Resolution {
    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::RecoveredByRetry => "recovered_by_retry",
            Self::AnsweredByFallback => "answered_by_fallback",
            Self::ForcedFinish => "forced_finish",
            Self::Escalated => "escalated",
            Self::Failed => "failed",
            Self::Succeeded => "succeeded",
            Self::Abandoned => "abandoned",
        }
    }
}

impl std::fmt::Display for Resolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
