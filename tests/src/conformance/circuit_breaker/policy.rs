//! What a row asks for: our semantic choices, and its policy.

use std::time::Duration;

use serde_json::Value;
use tower_triage_circuit_breaker::{BreakerPlan, BreakerPolicy};
use tower_triage_core::Backoff;

/// Is the row meant for our choices? `Ok(true)`: yes, with the reprobe option set.
pub(super) fn choices(requires: &Value) -> Result<bool, String> {
    let mut reprobe = false;
    for (key, accepted) in requires.as_object().into_iter().flatten() {
        let accepts = |choice: &str| {
            accepted.as_array().is_some_and(|values| values.iter().any(|value| value == choice))
        };
        let ours = match key.as_str() {
            "open_boundary" => "inclusive",
            "evaluate_on" => "any_outcome",
            "late_in_half_open" | "late_in_closed" => "ignored",
            "ignored" | "cancelled" => "neutral",
            "half_open_limit" => "in_flight",
            "half_open_decide_at" => "all_probes",
            "half_open_slow" => "failure",
            "closing_probe" => "discarded",
            "reprobe" => "never",
            "window_model" => "rolling10",
            "window_edge" => "evict",
            "rate_comparison" => "at_least",
            "slow_comparison" => "greater",
            _ => return Err(format!("requires `{key}`, which we do not know")),
        };
        if accepts(ours) {
            continue;
        }
        if key == "reprobe" && accepts("per_open_duration") {
            reprobe = true;
            continue;
        }
        return Err(format!("requires {key} = {accepted}; ours is {ours}"));
    }
    Ok(reprobe)
}

/// The row's policy, as ours.
pub(super) fn policy(fields: &Value, reprobe: bool) -> Result<BreakerPlan, String> {
    const KNOWN: [&str; 12] = [
        "kind",
        "failure_threshold",
        "window",
        "minimum_calls",
        "failure_rate",
        "slow_call_rate",
        "slow_call_duration_ms",
        "open_for_ms",
        "half_open_probes",
        "half_open_rule",
        "half_open_successes_to_close",
        "half_open_failures_to_open",
    ];
    let given = fields.as_object().ok_or("the policy is no object")?;
    if let Some(field) = given.keys().find(|field| !KNOWN.contains(&field.as_str())) {
        return Err(format!("unknown field `{field}`"));
    }
    let count = |field: &str| match fields.get(field) {
        None => Ok(None),
        Some(value) => match value.as_u64().and_then(|value| u32::try_from(value).ok()) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("`{field}` is {value}")),
        },
    };
    let rate = |field: &str| match fields.get(field) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(format!("`{field}` is {value}")),
    };

    let threshold = count("failure_threshold")?;
    let mut policy = BreakerPolicy::new().retry_after_cap(Duration::ZERO);
    policy = match fields["kind"].as_str() {
        Some("consecutive") => {
            policy.consecutive_failures(threshold.ok_or("no `failure_threshold`")?)
        }
        Some("count_window") => policy.count_window(count("window")?.ok_or("no `window`")?),
        Some("time_window") => policy.time_window(millis(&fields["window"])?),
        kind => return Err(format!("unknown kind {kind:?}")),
    };
    if let (Some(threshold), false) = (threshold, fields["kind"] == "consecutive") {
        policy = policy.failures(threshold);
    }
    if let Some(calls) = count("minimum_calls")? {
        policy = policy.minimum_calls(calls.max(1));
    }
    // Without a window only a half-open circuit may have a use for rates.
    let rates_matter = fields["kind"] != "consecutive"
        || fields.get("half_open_rule").is_some_and(|rule| rule == "rate");
    if let (Some(limit), true) = (rate("failure_rate")?, rates_matter) {
        policy = policy.failure_rate(limit);
    }
    if let (Some(limit), true) = (rate("slow_call_rate")?, rates_matter) {
        policy = policy.slow_rate(limit);
    }
    if let Some(limit) = fields.get("slow_call_duration_ms") {
        policy = policy.slow_call(millis(limit)?);
    }
    policy = policy.open_for(match &fields["open_for_ms"] {
        Value::Array(list) if !list.is_empty() => {
            Backoff::list(list.iter().map(millis).collect::<Result<Vec<_>, _>>()?)
        }
        single => Backoff::fixed(millis(single)?),
    });
    if let Some(probes) = count("half_open_probes")? {
        policy = policy.probes(probes);
    }
    policy = match fields.get("half_open_rule").map(Value::as_str) {
        None | Some(Some("successes")) => policy.decide_by_count(
            count("half_open_successes_to_close")?.unwrap_or(1),
            count("half_open_failures_to_open")?.unwrap_or(1),
        ),
        Some(Some("rate")) => policy.decide_by_rate(),
        Some(rule) => return Err(format!("unknown rule {rule:?}")),
    };
    if reprobe {
        policy = policy.reprobe();
    }
    policy.build().map_err(|error| error.to_string())
}

/// Whole or fractional milliseconds, exact to the nanosecond.
pub(super) fn millis(value: &Value) -> Result<Duration, String> {
    if let Some(whole) = value.as_u64() {
        return Ok(Duration::from_millis(whole));
    }
    let seconds = value.as_f64().ok_or(format!("{value} is no time"))? / 1000.0;
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("{value}: {error}"))
}
