//! One thing that happened during a call.

use std::fmt;
use std::time::Duration;

use crate::class::ErrorClass;
use crate::incident::Refusal;
use crate::label::Label;
use crate::redact::Detail;
use crate::verdict::Failure;

/// One thing that happened, and when.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Step {
    /// Since the call began.
    pub at: Duration,
    /// Who recorded it.
    pub layer: LayerKind,
    /// What it was.
    pub kind: StepKind,
    /// It belongs to a call made inside this one (a handler's client call), whose own incident it came from.
    pub nested: bool,
}

impl Step {
    pub(crate) const fn new(at: Duration, layer: LayerKind, kind: StepKind) -> Self {
        Self { at, layer, kind, nested: false }
    }
}

/// Which layer recorded a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LayerKind {
    /// `ClassifyLayer`.
    Classify,
    /// `RetryLayer`.
    Retry,
    /// `CircuitBreakerLayer`.
    CircuitBreaker,
    /// `TimeoutLayer`.
    Timeout,
    /// `FallbackLayer`.
    Fallback,
    /// `EscalateLayer`.
    Escalate,
    /// Whoever watches the body of a response that was returned (`WatchBodyLayer` for HTTP).
    ResponseBody,
}

impl LayerKind {
    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Classify => "classify",
            Self::Retry => "retry",
            Self::CircuitBreaker => "circuit_breaker",
            Self::Timeout => "timeout",
            Self::Fallback => "fallback",
            Self::Escalate => "escalate",
            Self::ResponseBody => "response_body",
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "what", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum StepKind {
    /// An attempt failed.
    Failed {
        /// Which attempt of this call, from 1.
        attempt: u32,
        /// The verdict.
        #[cfg_attr(feature = "serde", serde(serialize_with = "failure_as_fields"))]
        failure: Failure,
        /// What a person should read: the error's chain or the status line. Bounded.
        detail: Detail,
    },
    /// An attempt after a failure succeeded.
    Succeeded {
        /// Which attempt of this call, from 1.
        attempt: u32,
    },
    /// Waiting before the next attempt.
    Waiting {
        /// For how long.
        delay: Duration,
        /// The server asked for it.
        hinted: bool,
    },
    /// The failed attempt is not repeated.
    NotRetried {
        /// Why.
        why: Refusal,
    },
    /// The request was changed before the next attempt.
    Nudged {
        /// The attempt that gets the changed request, from 1.
        attempt: u32,
    },
    /// A failed response was released before the wait.
    Released {
        /// Its class.
        class: ErrorClass,
    },
    /// A time limit was reached.
    TimedOut {
        /// The soft one: the attempt was told, and goes on. Else the hard one: it was dropped, or
        /// not even begun.
        soft: bool,
        /// Since the attempt began.
        after: Duration,
    },
    /// A breaker refused to send.
    Rejected {
        /// The breaker's name or key.
        breaker: Label,
        /// What is left of its open period.
        retry_after: Duration,
    },
    /// This outcome opened a breaker.
    CircuitOpened {
        /// The breaker's name or key.
        breaker: Label,
        /// For how long.
        open_for: Duration,
    },
    /// A fallback step answered.
    FallbackAnswered {
        /// Position in the chain, from 1.
        step: u32,
        /// Kind of the step: service, replan, call, value, last good answer.
        by: &'static str,
        /// The primary failure it covers up.
        covers: ErrorClass,
        /// What a person should read of the primary failure. Bounded.
        detail: Detail,
    },
    /// A fallback step failed too.
    FallbackFailed {
        /// Position in the chain, from 1.
        step: u32,
        /// Kind of the step.
        by: &'static str,
        /// The verdict on its outcome.
        #[cfg_attr(feature = "serde", serde(serialize_with = "failure_as_fields"))]
        failure: Failure,
        /// What a person should read.
        detail: Detail,
    },
    /// A fallback step could not be tried; the text says why.
    FallbackSkipped {
        /// Position in the chain, from 1.
        step: u32,
        /// Kind of the step.
        by: &'static str,
        /// Why.
        why: &'static str,
    },
    /// Somebody who can act was told.
    Escalated {
        /// How many receivers took it.
        receivers: u32,
    },
    /// An escalation was due and every sink failed.
    NotRecorded,
    /// Somebody was asked, and this was decided.
    Decided {
        /// What: retry, retry_with, respond or abort.
        decision: &'static str,
        /// By whom.
        by: String,
    },
    /// The caller gets an answer built from what is known.
    ForcedFinish,
}

impl StepKind {
    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "failed",
            Self::Succeeded { .. } => "succeeded",
            Self::Waiting { .. } => "waiting",
            Self::NotRetried { .. } => "not_retried",
            Self::Nudged { .. } => "nudged",
            Self::Released { .. } => "released",
            Self::TimedOut { soft: true, .. } => "soft_timed_out",
            Self::TimedOut { soft: false, .. } => "timed_out",
            Self::Rejected { .. } => "rejected",
            Self::CircuitOpened { .. } => "circuit_opened",
            Self::FallbackAnswered { .. } => "fallback_answered",
            Self::FallbackFailed { .. } => "fallback_failed",
            Self::FallbackSkipped { .. } => "fallback_skipped",
            Self::Escalated { .. } => "escalated",
            Self::NotRecorded => "not_recorded",
            Self::Decided { .. } => "decided",
            Self::ForcedFinish => "forced_finish",
        }
    }

    /// The class it speaks of, if any.
    #[must_use]
    pub const fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Failed { failure, .. } | Self::FallbackFailed { failure, .. } => {
                Some(failure.class)
            }
            Self::Released { class } | Self::FallbackAnswered { covers: class, .. } => Some(*class),
            Self::TimedOut { soft: false, .. } => Some(ErrorClass::Timeout),
            Self::Rejected { .. } => Some(ErrorClass::Rejected),
            _ => None,
        }
    }

    /// A fixed text that says more, fit for a metric label; empty if there is nothing to say.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Failed { failure, .. } | Self::FallbackFailed { failure, .. } => failure.reason,
            Self::NotRetried { why } => why.as_str(),
            Self::FallbackAnswered { by, .. } | Self::FallbackSkipped { by, .. } => by,
            Self::Decided { decision, .. } => decision,
            _ => "",
        }
    }
}

/// One sentence for a person.
impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { attempt, failure, detail } if detail.is_empty() => {
                write!(f, "attempt {attempt} failed: {} ({})", failure.class, failure.reason)
            }
            Self::Failed { attempt, failure, detail } => {
                write!(f, "attempt {attempt} failed: {} ({detail})", failure.class)
            }
            Self::Succeeded { attempt } => write!(f, "attempt {attempt} succeeded"),
            Self::Waiting { delay, hinted: false } => write!(f, "waiting {delay:?}"),
            Self::Waiting { delay, hinted: true } => {
                write!(f, "waiting {delay:?}, as the server asked")
            }
            Self::NotRetried { why } => write!(f, "not repeated: {why}"),
            Self::Nudged { attempt } => write!(f, "request changed for attempt {attempt}"),
            Self::Released { class } => write!(f, "{class} response released before the wait"),
            Self::TimedOut { soft: true, after } => {
                write!(f, "told to come to an end after {after:?}")
            }
            Self::TimedOut { soft: false, after } => write!(f, "cut off after {after:?}"),
            Self::Rejected { breaker, retry_after } => {
                write!(f, "breaker `{breaker}` refused to send, {retry_after:?} left")
            }
            Self::CircuitOpened { breaker, open_for } => {
                write!(f, "breaker `{breaker}` opened for {open_for:?}")
            }
            Self::FallbackAnswered { step, by, covers, detail } if detail.is_empty() => {
                write!(f, "fallback {step} ({by}) answered for {covers}")
            }
            Self::FallbackAnswered { step, by, covers, detail } => {
                write!(f, "fallback {step} ({by}) answered for {covers} ({detail})")
            }
            Self::FallbackFailed { step, by, failure, detail } => {
                write!(f, "fallback {step} ({by}) failed: {} ({detail})", failure.class)
            }
            Self::FallbackSkipped { step, by, why } => {
                write!(f, "fallback {step} ({by}) not tried: {why}")
            }
            Self::Escalated { receivers: 1 } => f.write_str("told one receiver"),
            Self::Escalated { receivers } => write!(f, "told {receivers} receivers"),
            Self::NotRecorded => f.write_str("escalation NOT recorded: every sink failed"),
            Self::Decided { decision, by } => write!(f, "{by} decided: {decision}"),
            Self::ForcedFinish => f.write_str("finished with what is known"),
        }
    }
}

#[cfg(feature = "serde")]
fn failure_as_fields<S: serde::Serializer>(failure: &Failure, out: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeStruct;
    let mut fields = out.serialize_struct("Failure", 5)?;
    fields.serialize_field("class", &failure.class)?;
    fields.serialize_field("reason", failure.reason)?;
    fields.serialize_field("disposition", &failure.disposition)?;
    fields.serialize_field("retry_after", &failure.retry_after)?;
    fields.serialize_field("server", &failure.server)?;
    fields.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dashboards and alerts know layers and steps by these names, classes and reasons.
    #[test]
    fn steps_keep_their_labels() {
        let layers = [
            (LayerKind::Classify, "classify"),
            (LayerKind::Retry, "retry"),
            (LayerKind::CircuitBreaker, "circuit_breaker"),
            (LayerKind::Timeout, "timeout"),
            (LayerKind::Fallback, "fallback"),
            (LayerKind::Escalate, "escalate"),
        ];
        for (layer, name) in layers {
            assert_eq!(layer.as_str(), name);
        }

        use ErrorClass::{Quota, Rejected, Timeout};
        let failure = Failure::new(Quota).reason("reason");
        let (step, by, detail) = (1, "value", Detail::default());
        let (after, breaker) = (Duration::from_secs(1), Label::new("orders"));
        let steps = [
            (
                StepKind::Failed { attempt: 1, failure, detail: detail.clone() },
                ("failed", Some(Quota), "reason"),
            ),
            (StepKind::Succeeded { attempt: 2 }, ("succeeded", None, "")),
            (StepKind::Waiting { delay: after, hinted: true }, ("waiting", None, "")),
            (
                StepKind::NotRetried { why: Refusal::BudgetExhausted },
                ("not_retried", None, "budget_exhausted"),
            ),
            (StepKind::Nudged { attempt: 2 }, ("nudged", None, "")),
            (StepKind::Released { class: Quota }, ("released", Some(Quota), "")),
            (StepKind::TimedOut { soft: true, after }, ("soft_timed_out", None, "")),
            (StepKind::TimedOut { soft: false, after }, ("timed_out", Some(Timeout), "")),
            (StepKind::Rejected { breaker, retry_after: after }, ("rejected", Some(Rejected), "")),
            (StepKind::CircuitOpened { breaker, open_for: after }, ("circuit_opened", None, "")),
            (
                StepKind::FallbackAnswered { step, by, covers: Quota, detail: detail.clone() },
                ("fallback_answered", Some(Quota), by),
            ),
            (
                StepKind::FallbackFailed { step, by, failure, detail },
                ("fallback_failed", Some(Quota), "reason"),
            ),
            (StepKind::FallbackSkipped { step, by, why: "" }, ("fallback_skipped", None, by)),
            (StepKind::Escalated { receivers: 1 }, ("escalated", None, "")),
            (StepKind::NotRecorded, ("not_recorded", None, "")),
            (
                StepKind::Decided { decision: "retry", by: "me".to_owned() },
                ("decided", None, "retry"),
            ),
            (StepKind::ForcedFinish, ("forced_finish", None, "")),
        ];
        for (kind, labels) in steps {
            assert_eq!((kind.outcome(), kind.class(), kind.reason()), labels);
        }
    }
}
