//! From an incident to the message: pure, and off the happy path.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tower_triage_core::incident::IncidentId;
use tower_triage_core::redact::Redactor;
use tower_triage_core::{
    ClassSet, Describe, ErrorClass, Failure, Fingerprint, Incident, Label, Operation, Step,
    StepKind, Target, TraceParent,
};

use crate::capture::Captured;
use crate::escalation::{Attempt, Context, Escalation, Outcome};
use crate::question::Question;
use crate::routes::Priority;
use crate::timestamp::Timestamp;

/// What the record tells of the request: read in `call`, inline, because the request is gone when
/// it fails.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) operation: Operation,
    pub(crate) about: About,
}

/// All but the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    target: Target,
    request_id: Option<Label>,
    trace: Option<TraceParent>,
}

impl Facts {
    #[inline]
    pub(crate) fn read<Req>(describe: &impl Describe<Req>, request: &Req) -> Self {
        let operation = describe.operation(request);
        Self { operation, about: About::read(describe, request) }
    }

    /// Without the request, all that is known.
    pub(crate) const fn unread(operation: Operation) -> Self {
        let about = About { target: Target::EMPTY, request_id: None, trace: None };
        Self { operation, about }
    }

    /// The record's id, if the request has an id of its own. Who failed and at what is part of it:
    /// a request id is handed on from service to service, and each has its own story to tell.
    pub(crate) fn id(&self, from: &str) -> Option<IncidentId> {
        let request_id = self.about.request_id.filter(|id| !id.is_empty())?;
        // FNV-1a, 128 bits: stable between runs, and it need not resist an attacker.
        let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        for part in [from, self.operation.as_str(), request_id.as_str()] {
            for byte in part.bytes().chain([0]) {
                hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
            }
        }
        Some(IncidentId::from_bits(hash))
    }
}

impl About {
    #[inline]
    pub(crate) fn read<Req>(describe: &impl Describe<Req>, request: &Req) -> Self {
        Self {
            target: describe.target(request),
            request_id: describe.request_id(request),
            trace: describe.trace(request),
        }
    }
}

/// What is told of a call besides its incident.
pub(crate) struct Told {
    /// The one that decides.
    pub(crate) failure: Failure,
    pub(crate) outcome: Outcome,
    /// The text of the failure, if it is at hand; else the incident's steps tell.
    pub(crate) said: Option<String>,
    pub(crate) request: Option<Arc<Captured>>,
    pub(crate) question: Option<Question>,
}

impl Told {
    pub(crate) const fn of(failure: Failure, outcome: Outcome) -> Self {
        Self { failure, outcome, said: None, request: None, question: None }
    }
}

/// The escalation, not yet addressed.
pub(crate) fn escalation(from: &str, facts: &Facts, incident: &Incident, told: Told) -> Escalation {
    let Told { failure, outcome, said, request, question } = told;
    let own = || incident.steps.iter().filter(|step| !step.nested);
    let noted = || own().rev().find_map(|step| cause(step, failure.class));
    let cause = said.or_else(noted).unwrap_or_default();
    let cause = clean(&cause);
    let attempts = attempts(own());
    let (method, target) = match facts.about.target.as_str().split_once(' ') {
        Some((method, target)) => (Some(method), Some(target)),
        None => (None, Some(facts.about.target.as_str())),
    };
    let first = match own().find(|step| step.kind.class().is_some()) {
        // What came before the steps that were kept is not known to the millisecond.
        Some(step) if incident.collapsed == 0 => step.at,
        _ => Duration::ZERO,
    };
    Escalation {
        schema: Escalation::SCHEMA,
        id: incident.id,
        task_type: String::new(),
        priority: Priority::Low,
        from: from.to_owned(),
        to: Vec::new(),
        operation: facts.operation.as_str().to_owned(),
        outcome,
        class: failure.class,
        reason: failure.reason.to_owned(),
        fingerprint: Fingerprint::of(&facts.operation, &failure, &cause),
        summary: summary(facts, incident, &failure, outcome),
        detail: detail(cause, own()),
        attempts,
        collapsed: incident.collapsed,
        impact: impact(own(), &failure, outcome, question.is_some()),
        suggestion: suggestion(failure.class).to_owned(),
        context: Context {
            trace_id: facts.about.trace.map(|trace| format!("{:032x}", trace.trace_id)),
            traceparent: facts.about.trace,
            request_id: facts.about.request_id.map(|id| id.as_str().to_owned()),
            ..Context::default()
        },
        first_time: Timestamp::from(incident.started + first),
        last_time: Timestamp::from(incident.started + incident.elapsed),
        count: 1,
        resolved: None,
        method: method.map(str::to_owned),
        target: target.filter(|target| !target.is_empty()).map(clean),
        server_hint: failure.retry_after,
        question,
        request,
    }
}

/// The last failure of one of `classes` that the incident knows, if there is one.
pub(crate) fn last_failure(incident: &Incident, classes: ClassSet) -> Option<Failure> {
    incident.steps.iter().rev().filter(|step| !step.nested).find_map(|step| match &step.kind {
        StepKind::Failed { failure, .. } | StepKind::FallbackFailed { failure, .. } => {
            classes.contains(failure.class).then_some(*failure)
        }
        _ => None,
    })
}

/// Did a breaker open during the incident's own call?
pub(crate) fn circuit_opened(incident: &Incident) -> bool {
    let opened = |step: &Step| matches!(step.kind, StepKind::CircuitOpened { .. });
    incident.steps.iter().any(|step| !step.nested && opened(step))
}

/// Did an attempt succeed after the last failure of class `Auth`? Then the refresh helped.
pub(crate) fn refreshed(incident: &Incident) -> bool {
    let mut steps = incident.steps.iter().rev().filter(|step| !step.nested);
    steps.find_map(|step| match &step.kind {
        StepKind::Succeeded { .. } => Some(true),
        kind => (kind.class() == Some(ErrorClass::Auth)).then_some(false),
    }) == Some(true)
}

fn cause(step: &Step, class: ErrorClass) -> Option<String> {
    match &step.kind {
        StepKind::Failed { failure, detail, .. } if failure.class == class => {
            Some(detail.as_str().to_owned())
        }
        kind @ StepKind::Rejected { .. } if class == ErrorClass::Rejected => Some(kind.to_string()),
        _ => None,
    }
}

fn summary(facts: &Facts, incident: &Incident, failure: &Failure, outcome: Outcome) -> String {
    let operation = if facts.operation.is_empty() { "call" } else { facts.operation.as_str() };
    let verb = match outcome {
        Outcome::Failed => "failed",
        Outcome::Recovered => "recovered",
        Outcome::Abandoned => "was abandoned",
        Outcome::Forced => "was finished with what is known",
    };
    let attempts = match incident.attempts {
        1 => "1 attempt".to_owned(),
        n => format!("{n} attempts"),
    };
    let Failure { class, reason, .. } = failure;
    // Without a reason of its own a failure has its class's name as one.
    let reason = if *reason == class.as_str() { String::new() } else { format!(" ({reason})") };
    format!("{operation} {verb} after {attempts}: {class}{reason}")
}

/// The cause, then the failures beside it.
fn detail<'a>(cause: String, steps: impl Iterator<Item = &'a Step>) -> String {
    let mut text = cause;
    for step in steps {
        if matches!(step.kind, StepKind::FallbackFailed { .. } | StepKind::NotRetried { .. }) {
            let separator = if text.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{}", clean(&step.kind.to_string()));
        }
    }
    text
}

fn attempts<'a>(steps: impl Iterator<Item = &'a Step>) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    let mut delay = Duration::ZERO;
    let mut changed = 0;
    for step in steps {
        let (number, strategy) = match &step.kind {
            StepKind::Waiting { delay: wait, .. } => {
                delay = *wait;
                continue;
            }
            StepKind::Nudged { attempt } => {
                changed = *attempt;
                continue;
            }
            StepKind::Failed { attempt, .. } | StepKind::Succeeded { attempt } => {
                let strategy = match *attempt {
                    1 => "call",
                    n if n == changed => "changed_retry",
                    _ => "retry",
                };
                (*attempt, strategy.to_owned())
            }
            StepKind::Rejected { .. } => (attempts.len() as u32 + 1, "circuit_breaker".to_owned()),
            StepKind::FallbackAnswered { step, by, .. }
            | StepKind::FallbackFailed { step, by, .. } => (*step, format!("fallback_{by}")),
            _ => continue,
        };
        let class = match &step.kind {
            StepKind::FallbackAnswered { .. } => None,
            kind => kind.class(),
        };
        let result = clean(&step.kind.to_string());
        attempts.push(Attempt::new(number, strategy, class, std::mem::take(&mut delay), result));
    }
    attempts
}

fn impact<'a>(
    steps: impl Iterator<Item = &'a Step>,
    failure: &Failure,
    outcome: Outcome,
    asks: bool,
) -> String {
    let mut text = match outcome {
        Outcome::Failed if asks => {
            "the caller waits for an answer, and gets the failure if there is none"
        }
        Outcome::Failed => "the caller got the failure",
        Outcome::Recovered => "none for the caller: another attempt or a fallback answered",
        Outcome::Abandoned => "the caller gave up before there was an answer",
        Outcome::Forced => "the caller got an answer built from what is known",
    }
    .to_owned();
    if outcome != Outcome::Recovered && failure.disposition.may_be_processed() {
        text.push_str("; the work may have been done all the same");
    }
    for step in steps {
        if let StepKind::CircuitOpened { breaker, open_for } = &step.kind {
            // Writing to a string cannot fail.
            let _ = write!(text, "; breaker `{breaker}` refuses further calls for {open_for:?}");
        }
    }
    text
}

const fn suggestion(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transient => {
            "see whether the dependency is up; it can be driven again once it is"
        }
        ErrorClass::Timeout => {
            "see whether the dependency is slow; check whether the work was done before driving it again"
        }
        ErrorClass::Throttled => "send less, or ask for a higher rate; drive it again later",
        ErrorClass::Contention => {
            "look for other work on the same data; drive the whole unit again"
        }
        ErrorClass::Auth => "renew the credential or its permissions",
        ErrorClass::Quota => "raise the limit, free space or top up the balance",
        ErrorClass::Internal => "find the defect: trace and detail tell where it showed",
        ErrorClass::Permanent => "correct the request",
        ErrorClass::Declined => "send it to another backend, or change what it asks for",
        ErrorClass::Cancelled => "nothing, unless the caller should have waited",
        ErrorClass::Rejected => {
            "look at what our own protection guards: its dependency failed before, or our limit is too low"
        }
        ErrorClass::Unknown => {
            "look at the error and give it a class, so that it is handled by itself next time"
        }
    }
}

/// `text` as it may be stored, logged and sent: an error's text quotes what its dependency refused.
pub(crate) fn clean(text: &str) -> String {
    Redactor::new().text(&without_queries(text)).into_owned()
}

/// `text` with the query, the fragment and the user information of each URL in it left out: an
/// error's text may quote the URL it failed on, with a token in it.
fn without_queries(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'`()<>[]{},;".contains(c);
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(ends) {
        let word = piece.trim_end_matches(ends);
        let end = &piece[word.len()..];
        let word = match word.find(['?', '#']) {
            Some(at) if word[..at].contains('/') => &word[..at],
            _ => word,
        };
        match word
            .split_once("://")
            .map(|(scheme, rest)| (scheme, rest, rest.find('/').unwrap_or(rest.len())))
        {
            Some((scheme, rest, authority)) if rest[..authority].contains('@') => {
                let host = rest[..authority].rfind('@').map_or(0, |at| at + 1);
                out.push_str(scheme);
                out.push_str("://");
                out.push_str(&rest[host..]);
            }
            _ => out.push_str(word),
        }
        out.push_str(end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_what_may_be_secret_and_nothing_else() {
        for (text, expected) in [
            (
                "error for url (https://a.b/c?token=x&y=1): reset",
                "error for url (https://a.b/c): reset",
            ),
            ("https://me:pass@a.b/c#part", "https://a.b/c"),
            ("postgres://me:p@ss@db/x refused", "postgres://db/x refused"),
            ("GET /orders/17?key=s failed", "GET /orders/17 failed"),
            ("what now? a/b", "what now? a/b"),
            ("mail to me@a.b", "mail to me@a.b"),
            ("é ü", "é ü"),
            ("", ""),
        ] {
            assert_eq!(without_queries(text), expected);
        }
    }

    #[test]
    fn the_id_depends_on_request_operation_and_who_and_on_nothing_else() {
        let at = |target: &str, operation: &str, id: &str| {
            let target = Target::new(target);
            let about = About { target, request_id: Some(Label::new(id)), trace: None };
            Facts { operation: Operation::new(operation), about }
        };
        let facts = |operation: &str, id: &str| at("GET a/b", operation, id);
        let id = facts("op", "r-1").id("shop");
        assert_eq!(id, at("", "op", "r-1").id("shop"));
        for other in [
            facts("op", "r-2").id("shop"),
            facts("op2", "r-1").id("shop"),
            facts("op", "r-1").id("bank"),
        ] {
            assert_ne!(id, other);
        }
        assert_eq!(facts("op", "").id("shop"), None);
    }
}
