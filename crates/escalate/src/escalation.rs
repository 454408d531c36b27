//! The message to whoever must act.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::incident::IncidentId;
use tower_triage_core::{ErrorClass, Fingerprint, Resolution, RetryAfter, TraceParent};

use crate::capture::Captured;
use crate::question::Question;
use crate::routes::Priority;
use crate::timestamp::Timestamp;

/// One logical request that needs somebody: what was tried, what came of it, what can be done.
///
/// Serde both ways. It holds no header, no body, no query and no user information of a URL; what
/// else of a request is worth telling you add yourself
/// ([`EscalateLayer::enrich`](crate::EscalateLayer::enrich)). `Debug` shows ids only.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Escalation {
    /// Version of this record's form: [`Escalation::SCHEMA`].
    pub schema: u32,
    /// The incident's id, the same on every write; made from the request's own id if it has one,
    /// so that a request which comes again has the same record.
    pub id: IncidentId,
    /// What the receivers are asked to do; from the route.
    pub task_type: String,
    /// How soon.
    pub priority: Priority,
    /// Who failed.
    pub from: String,
    /// Who is told; from the route.
    pub to: Vec<String>,
    /// What was being done: a template.
    pub operation: String,
    /// How the request ended for its caller.
    pub outcome: Outcome,
    /// What happened.
    pub class: ErrorClass,
    /// Why it has that class: one of a fixed set.
    pub reason: String,
    /// Alike for failures of one kind: the key of storm control, and for grouping elsewhere.
    pub fingerprint: Fingerprint,
    /// One line.
    pub summary: String,
    /// The chain of the error, then what failed beside it (fallbacks).
    pub detail: String,
    /// What was tried, oldest first.
    pub attempts: Vec<Attempt>,
    /// How many of the oldest steps were not kept.
    #[serde(default)]
    pub collapsed: u32,
    /// What it means for the caller, and for other calls.
    pub impact: String,
    /// What is likely to help.
    pub suggestion: String,
    /// Where to look further.
    pub context: Context,
    /// The first failure that this record stands for.
    pub first_time: Timestamp,
    /// The last one.
    pub last_time: Timestamp,
    /// How many failures it stands for: 1 in a record; in a notification also those that were held
    /// back since the last one; in a resolve only those, maybe none.
    pub count: u64,
    /// Set in a resolve: no failure of this fingerprint has come for a while
    /// ([`DeskPolicy::resolve_after`](crate::DeskPolicy::resolve_after)). The rest is as people were
    /// told last, the id too. Only sinks of notifications get resolves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Timestamp>,
    /// The request's method, if the protocol has one.
    #[serde(default)]
    pub method: Option<String>,
    /// Where it went, without query.
    #[serde(default)]
    pub target: Option<String>,
    /// When the server wanted to see us again, uncapped.
    #[serde(default)]
    pub server_hint: Option<RetryAfter>,
    /// What somebody is asked, if the call waits for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// The request, if it was captured. Not part of the serialised form: only stores and the spill
    /// file write it, on purpose.
    #[serde(skip)]
    pub request: Option<Arc<Captured>>,
}

impl Escalation {
    /// The present version of the record's form. It goes up when a field changes its meaning or
    /// goes away, not when one is added.
    pub const SCHEMA: u32 = 1;
}

/// Ids only: what fails may hold what must not be printed.
impl fmt::Debug for Escalation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Escalation")
            .field("id", &self.id)
            .field("fingerprint", &self.fingerprint)
            .field("trace_id", &self.context.trace_id)
            .field("request_id", &self.context.request_id)
            .finish_non_exhaustive()
    }
}

/// How the request ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The caller got the failure.
    Failed,
    /// A later attempt or a fallback answered.
    Recovered,
    /// The caller dropped the call.
    Abandoned,
    /// The caller got an answer built from what is known.
    Forced,
}

impl Outcome {
    pub(crate) const fn of(resolution: Resolution) -> Self {
        match resolution {
            Resolution::RecoveredByRetry
            | Resolution::AnsweredByFallback
            | Resolution::Succeeded => Self::Recovered,
            Resolution::ForcedFinish => Self::Forced,
            Resolution::Abandoned => Self::Abandoned,
            Resolution::Open | Resolution::Escalated | Resolution::Failed => Self::Failed,
        }
    }

    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Recovered => "recovered",
            Self::Abandoned => "abandoned",
            Self::Forced => "forced",
        }
    }
}

/// One thing that was tried.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Attempts of the call are counted from 1; steps of a fallback chain likewise, by themselves.
    pub number: u32,
    /// `call`, `retry`, `changed_retry`, `circuit_breaker`, or `fallback_` and the kind of its step.
    pub strategy: String,
    /// What happened; nothing if it succeeded.
    #[serde(default)]
    pub class: Option<ErrorClass>,
    /// The wait before it.
    #[serde(rename = "delay_ms", with = "millis")]
    pub delay: Duration,
    /// What came of it, for a person.
    pub result: String,
}

/// The result is left out: it is the dependency's text.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("number", &self.number)
            .field("strategy", &self.strategy)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

impl Attempt {
    pub(crate) const fn new(
        number: u32,
        strategy: String,
        class: Option<ErrorClass>,
        delay: Duration,
        result: String,
    ) -> Self {
        Self { number, strategy, class, delay, result }
    }
}

/// Where to look further.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Context {
    /// The trace's id as 32 hexadecimal digits.
    #[serde(default)]
    pub trace_id: Option<String>,
    /// The caller's W3C trace context.
    #[serde(default)]
    pub traceparent: Option<TraceParent>,
    /// The request's own id.
    #[serde(default)]
    pub request_id: Option<String>,
    /// What you add.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
}

/// Ids only.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("trace_id", &self.trace_id)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// A span as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
