//! Escalations as `tracing` events.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tower_service::Service;

use crate::{Escalation, Priority};

/// Writes each escalation as one `tracing` event with target `tower_triage::escalation`: low
/// priority at `INFO`, medium at `WARN`, high and critical at `ERROR`; a resolve at `INFO`.
///
/// Where no subscriber takes such an event (none is installed, or the level is off), it writes one
/// line to the standard error instead: an escalation is never dropped without a word.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

macro_rules! event {
    ($level:ident, $it:expr, $text:literal) => {
        tracing::event!(
            target: "tower_triage::escalation",
            tracing::Level::$level,
            id = %$it.id,
            task_type = $it.task_type,
            priority = $it.priority.as_str(),
            from = $it.from,
            to = ?$it.to,
            operation = $it.operation,
            outcome = $it.outcome.as_str(),
            error.r#type = $it.class.as_str(),
            fingerprint = %$it.fingerprint,
            count = $it.count,
            trace_id = $it.context.trace_id,
            request_id = $it.context.request_id,
            detail = $it.detail,
            question = $it.question.as_ref().map(|question| question.text.as_str()),
            $text,
            $it.summary
        )
    };
}

/// The level of its event, as a priority. What is over can wait.
fn level(escalation: &Escalation) -> Priority {
    if escalation.resolved.is_some() { Priority::Low } else { escalation.priority }
}

/// Does anybody take events of this priority? A level is part of the static question, too.
fn is_heard(priority: Priority) -> bool {
    const TARGET: &str = "tower_triage::escalation";
    match priority {
        Priority::Low => tracing::enabled!(target: TARGET, tracing::Level::INFO),
        Priority::Medium => tracing::enabled!(target: TARGET, tracing::Level::WARN),
        Priority::High | Priority::Critical => {
            tracing::enabled!(target: TARGET, tracing::Level::ERROR)
        }
    }
}

impl Service<Escalation> for LogSink {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let (resolved, level) = (escalation.resolved.is_some(), level(&escalation));
        if !is_heard(level) {
            let Escalation { id, summary, detail, .. } = &escalation;
            let what = if resolved { "resolved" } else { "escalation" };
            eprintln!("tower-triage: {what} {id}: {summary}: {detail}");
        }
        // A level is part of an event's static description, so each needs an event of its own.
        match level {
            Priority::Low if resolved => event!(INFO, escalation, "resolved: {}"),
            Priority::Low => event!(INFO, escalation, "{}"),
            Priority::Medium => event!(WARN, escalation, "{}"),
            Priority::High | Priority::Critical => event!(ERROR, escalation, "{}"),
        }
        ready(Ok(()))
    }
}
