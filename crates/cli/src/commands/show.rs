//! `triage show`

use std::fmt::Write as _;

use serde_json::Value;
use tower_triage_escalate::store::Letter;

use crate::commands::Desk;
use crate::exit::Exit;
use crate::letters::find;
use crate::{out, table};

pub(super) async fn run(desk: &Desk, id: &str, request: bool) -> Result<(), Exit> {
    let letter = find(&*desk.store, id).await?;
    match desk.json {
        true => out::json(&out::letter(&letter, request)?),
        false => out::line(text(&letter, request).trim_end()),
    }
}

/// A letter for a person.
fn text(letter: &Letter, request: bool) -> String {
    let escalation = &letter.escalation;
    let now = table::now();
    let mut text = String::new();
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{name:<12}{}", out::plain(value).replace('\n', "\n            "));
        }
    };
    field("id", &letter.id().to_string());
    field("state", &format!("{}, tried {} times", table::state(letter, now), letter.tries));
    field("summary", &escalation.summary);
    field("detail", &escalation.detail);
    field("class", &format!("{} ({})", escalation.class, escalation.reason));
    field("operation", &escalation.operation);
    let target = [escalation.method.as_deref(), escalation.target.as_deref()];
    field("target", &target.into_iter().flatten().collect::<Vec<_>>().join(" "));
    field("from", &escalation.from);
    field("to", &escalation.to.join(", "));
    field("impact", &escalation.impact);
    field("suggestion", &escalation.suggestion);
    field("fingerprint", &value(&escalation.fingerprint));
    field("priority", &value(&escalation.priority));
    let failures = match letter.failures {
        1 => format!("at {}", escalation.last_time),
        n => format!("{n} times, from {} to {}", escalation.first_time, escalation.last_time),
    };
    field("failed", &failures);
    field("stored", &letter.stored.to_string());
    if !letter.state.is_settled() {
        field("due", &letter.due.to_string());
    }
    if let Some(lease) = letter.lease.as_ref().filter(|_| letter.is_leased(now)) {
        field("leased", &format!("by {} until {}", lease.owner, lease.until));
    }
    field("trace", escalation.context.trace_id.as_deref().unwrap_or_default());
    field("request id", escalation.context.request_id.as_deref().unwrap_or_default());
    for (name, value) in &escalation.context.fields {
        field(name, value);
    }
    if let Some(question) = &escalation.question {
        field("question", &question.text);
        for (number, choice) in (1..).zip(&question.options) {
            field("", &format!("{number}. {}: {}", choice.label, choice.decision));
        }
        field("until", &format!("{}, then {}", question.deadline, question.on_timeout));
    }
    if let Some(answer) = &letter.answer {
        field("answer", &format!("{} by {} at {}", answer.decision, answer.by, answer.at));
        field("why", &answer.why);
    }
    for attempt in &escalation.attempts {
        let wait = match attempt.delay.is_zero() {
            true => String::new(),
            false => format!("after {:?}, ", attempt.delay),
        };
        let attempt = format!("{wait}{} {}: {}", attempt.strategy, attempt.number, attempt.result);
        field("attempt", &attempt);
    }
    for event in &letter.history {
        let by = if event.by.is_empty() { String::new() } else { format!(" by {}", event.by) };
        let note = if event.note.is_empty() { String::new() } else { format!(": {}", event.note) };
        field("history", &format!("{} {}{by}{note}", event.at, event.what));
    }
    match &letter.request {
        None => field("request", "not captured"),
        Some(captured) if !captured.redacted.is_empty() => {
            let redacted = captured.redacted.join(", ");
            field("request", &format!("captured by {}, without {redacted}", captured.codec));
        }
        Some(captured) => {
            let hint = if request { "" } else { "; --request shows it" };
            field("request", &format!("captured by {}{hint}", captured.codec));
        }
    }
    if let (true, Some(captured)) = (request, &letter.request) {
        let data = serde_json::to_string_pretty(&captured.data).unwrap_or_default();
        _ = writeln!(text, "{}", out::plain(&data));
    }
    text
}

/// What serde writes, without quotes.
fn value(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        Ok(value) => value.to_string(),
        Err(_) => String::new(),
    }
}
