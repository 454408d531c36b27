//! An escalation for the tests of the formats.

use serde_json::{Value, json};
use tower_triage_escalate::Escalation;

pub(crate) fn json() -> Value {
    json!({
        "schema": 1,
        "id": "0123456789abcdef0123456789abcdef",
        "task_type": "human_required",
        "priority": "high",
        "from": "worker 7",
        "to": ["on-call"],
        "operation": "orders.create",
        "outcome": "failed",
        "class": "Quota",
        "reason": "balance",
        "fingerprint": "00000000deadbeef",
        "summary": "orders.create failed after 2 attempts: quota (balance)",
        "detail": "balance < 0 & used up",
        "attempts": [
            {"number": 1, "strategy": "call", "class": "Transient", "delay_ms": 0, "result": "reset"},
            {"number": 2, "strategy": "retry", "class": "Quota", "delay_ms": 100, "result": "used up"},
        ],
        "impact": "the caller got the failure",
        "suggestion": "top up the balance",
        "context": {
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
            "request_id": "r-1",
            "fields": {"shop": "Köln"},
        },
        "first_time": "2026-01-02T03:04:05.000Z",
        "last_time": "2026-01-02T03:04:06.500Z",
        "count": 1,
        "method": "POST",
        "target": "shop.example/orders",
        "server_hint": null,
    })
}

pub(crate) fn escalation() -> Escalation {
    serde_json::from_value(json()).expect("an escalation")
}

/// The resolve of the same, 5 minutes later, with `count` failures that were not told.
pub(crate) fn resolve(count: u64) -> Escalation {
    let mut escalation = escalation();
    escalation.count = count;
    escalation.resolved = Some("2026-01-02T03:09:06.500Z".parse().expect("a timestamp"));
    escalation
}

/// One whose every text is far too long, and made of what has to be escaped.
pub(crate) fn huge() -> Escalation {
    let mut escalation = escalation();
    let text = "<&>ö```\n".repeat(20_000);
    for field in [
        &mut escalation.summary,
        &mut escalation.detail,
        &mut escalation.impact,
        &mut escalation.suggestion,
        &mut escalation.from,
        &mut escalation.task_type,
    ] {
        field.clone_from(&text);
    }
    for n in 0..1000 {
        escalation.context.fields.insert(format!("{n} {}", &text[..2000]), text.clone());
    }
    escalation
}
