//! Escalations to store.
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::sync::Arc;

use serde_json::json;
use tower_triage_core::ErrorClass;
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::{Captured, Escalation, Timestamp};

pub(crate) fn id(number: u128) -> IncidentId {
    IncidentId::from_bits(number)
}

/// A failure at second `at`, of request `number`, in the 2020s.
pub(crate) fn escalation(number: u128, at: u64) -> Escalation {
    let class = ErrorClass::ALL[(number % 5) as usize];
    let time = second(at);
    let mut escalation: Escalation = serde_json::from_value(json!({
        "schema": 1,
        "id": id(number),
        "task_type": "human_required",
        "priority": "medium",
        "from": format!("worker-{}", number % 3),
        "to": [format!("team-{}", number % 2)],
        "operation": format!("orders.{}", ["create", "cancel", "list"][(number % 3) as usize]),
        "outcome": "failed",
        "class": class,
        "reason": "test",
        "fingerprint": format!("{:016x}", number % 7),
        "summary": "orders.create failed",
        "detail": "connection reset",
        "attempts": [],
        "impact": "none",
        "suggestion": "none",
        "context": {},
        "first_time": time,
        "last_time": time,
        "count": 1,
    }))
    .unwrap();
    escalation.request = Some(Arc::new(Captured::new("json", json!({ "number": number as u64 }))));
    escalation
}

pub(crate) fn second(at: u64) -> Timestamp {
    Timestamp::from_millis(1_600_000_000_000 + at * 1_000)
}
