//! Escalations by number.

use std::time::Duration;

use serde_json::json;
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::store::{LeaseToken, Letter};
use tower_triage_escalate::{Escalation, Timestamp};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// When every world begins.
pub(crate) fn t0() -> Timestamp {
    "2026-03-01T12:00:00.000Z".parse().unwrap()
}

pub(crate) fn id(n: u32) -> IncidentId {
    IncidentId::from_bits(u128::from(n))
}

/// What an earlier lease of nobody would have been.
pub(crate) fn stranger() -> LeaseToken {
    serde_json::from_value(json!(id(u32::MAX))).unwrap()
}

/// The proof that comes with a leased letter.
pub(crate) fn token(letter: &Letter) -> LeaseToken {
    letter.lease.as_ref().expect("it is leased").token
}

/// A failure at [`t0`].
pub(crate) fn escalation(n: u32) -> Escalation {
    serde_json::from_value(json!({
        "schema": 1,
        "id": id(n),
        "task_type": "look_into_it",
        "priority": "high",
        "from": "shop",
        "to": ["ops"],
        "operation": "orders.create",
        "outcome": "failed",
        "class": "Transient",
        "reason": "transient",
        "fingerprint": "00000000000000aa",
        "summary": format!("order {n} failed"),
        "detail": "connection reset",
        "attempts": [],
        "impact": "an order is missing",
        "suggestion": "look at the upstream",
        "context": {},
        "first_time": t0(),
        "last_time": t0(),
        "count": 1,
    }))
    .unwrap()
}

/// The same request's failure, so long after [`t0`].
pub(crate) fn later(n: u32, after: Duration) -> Escalation {
    let at = t0().plus(after);
    let mut escalation = escalation(n);
    (escalation.first_time, escalation.last_time) = (at, at);
    escalation
}

/// A failure whose call waits for an answer so long after [`t0`].
pub(crate) fn asking(n: u32, wait: Duration) -> Escalation {
    let question = json!({
        "text": "again?",
        "options": [{ "label": "yes", "decision": "retry" }],
        "deadline": t0().plus(wait),
        "on_timeout": "abort",
        "levels": [{ "to": ["ops"], "within": "10s" }, { "to": ["boss"], "within": "10s" }],
    });
    let mut escalation = escalation(n);
    escalation.question = Some(serde_json::from_value(question).unwrap());
    escalation
}

/// The numbers of letters, in their order.
pub(crate) fn numbers<'a>(letters: impl IntoIterator<Item = &'a Letter>) -> Vec<u32> {
    letters.into_iter().map(number).collect()
}

pub(crate) fn number(letter: &Letter) -> u32 {
    let summary = &letter.escalation.summary;
    summary.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("as `escalation` wrote it")
}
