//! Words that the formats share.

use std::borrow::Cow;

use tower_triage_core::RetryAfter;
use tower_triage_escalate::{Escalation, Priority};

/// `text` with at most `most` characters; that something was cut shows.
pub(crate) fn clip(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some(_) => {
            let kept = text.char_indices().nth(most.saturating_sub(1)).map_or(0, |(at, _)| at);
            Cow::Owned(format!("{}…", &text[..kept]))
        }
    }
}

/// One line: what happened and how often, or that it is over.
pub(crate) fn headline(escalation: &Escalation) -> String {
    let Escalation { summary, count, .. } = escalation;
    match (escalation.resolved, count) {
        (None, 0 | 1) => summary.clone(),
        (None, count) => format!("{summary} ({count} failures)"),
        (Some(_), 0) => format!("resolved: {summary}"),
        (Some(_), count) => format!("resolved: {summary} ({count} more failures until then)"),
    }
}

/// PagerDuty's four severities; Alertmanager's habits are the same words.
pub(crate) const fn severity(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "info",
        Priority::Medium => "warning",
        Priority::High => "error",
        Priority::Critical => "critical",
    }
}

/// What a person wants to know besides the headline, by name; what is empty is left out.
pub(crate) fn facts(escalation: &Escalation) -> impl Iterator<Item = (&'static str, String)> {
    let context = &escalation.context;
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let target = match (&escalation.method, &escalation.target) {
        (Some(method), Some(target)) => format!("{method} {target}"),
        (None, Some(target)) => target.clone(),
        (_, None) => String::new(),
    };
    let hint = match escalation.server_hint {
        None => String::new(),
        Some(RetryAfter::Never) => "never".to_owned(),
        Some(hint) => format!("{} s", hint.duration().as_secs_f64().ceil()),
    };
    [
        ("operation", escalation.operation.clone()),
        ("class", escalation.class.as_str().to_owned()),
        ("reason", escalation.reason.clone()),
        ("task_type", escalation.task_type.clone()),
        ("outcome", escalation.outcome.as_str().to_owned()),
        ("count", escalation.count.to_string()),
        ("attempts", escalation.attempts.len().to_string()),
        ("first_time", escalation.first_time.to_string()),
        ("last_time", escalation.last_time.to_string()),
        ("target", target),
        ("server_hint", hint),
        ("trace_id", optional(&context.trace_id)),
        ("request_id", optional(&context.request_id)),
        ("record", escalation.id.to_string()),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample;

    #[test]
    fn what_is_cut_is_counted_in_characters_and_shows() {
        assert_eq!(clip("größe", 5), "größe");
        assert_eq!(clip("größe", 4), "grö…");
        assert_eq!(clip("größe", 1), "…");
        assert_eq!(clip("", 0), "");
    }

    #[test]
    fn the_headline_says_how_often_and_whether_it_is_over() {
        let mut escalation = sample::escalation();
        let summary = escalation.summary.clone();
        assert_eq!(headline(&escalation), summary);
        escalation.count = 12;
        assert_eq!(headline(&escalation), format!("{summary} (12 failures)"));
        assert_eq!(headline(&sample::resolve(0)), format!("resolved: {summary}"));
        let more = format!("resolved: {summary} (3 more failures until then)");
        assert_eq!(headline(&sample::resolve(3)), more);
    }

    #[test]
    fn facts_that_are_not_known_are_left_out() {
        let mut escalation = sample::escalation();
        let has = |escalation: &Escalation, name| facts(escalation).any(|(it, _)| it == name);
        assert!(!has(&escalation, "server_hint") && has(&escalation, "request_id"));
        escalation.server_hint = Some(RetryAfter::AtLeast(Duration::from_millis(1500)));
        escalation.context.request_id = None;
        let hint = facts(&escalation).find(|(name, _)| *name == "server_hint");
        assert_eq!(hint.map(|(_, text)| text), Some("2 s".to_owned()));
        assert!(!has(&escalation, "request_id"));
    }
}
