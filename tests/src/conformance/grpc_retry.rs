//! Rows of `grpc_retry.json`: whole calls over a retry layer with gRPC's rules, and its parts.

mod config;
mod stack;

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;
use tower_triage_core::{ErrorClass, Failure, Verdict};
use tower_triage_grpc::{AttemptLimit, Method, ServiceConfig};
use tower_triage_retry::budget::{Budget, Spending};
use tower_triage_retry::{Decision, Facts, Progress, RequestPolicy};

use self::stack::{Call, Stack, code_named};
use super::Outcome;

/// The types of this file.
pub(super) const TYPES: [&str; 8] = [
    "sequence",
    "throttle_ops",
    "max_attempts",
    "config_validation",
    "config_conversion",
    "buffer",
    "hedging",
    "deadline",
];

pub(super) fn run(kind: &str, row: &Value) -> Outcome {
    let differences = match kind {
        "sequence" => sequence(row),
        "throttle_ops" => throttle_ops(row),
        "max_attempts" => max_attempts(row),
        "config_validation" | "config_conversion" => config::run(row),
        "buffer" => buffer(row),
        "deadline" => deadline(row),
        "hedging" => return Outcome::skip("optional: no layer has to implement it"),
        other => Err(format!("unknown type {other}")),
    };
    match differences {
        Ok(differences) => Outcome::from_differences(differences),
        Err(problem) => Outcome::fail("a row that can be run", problem),
    }
}

type Differences = Result<Vec<String>, String>;

/// Adds a line if the two are not the same.
fn check(differences: &mut Vec<String>, place: &str, expected: &Value, actual: impl Into<Value>) {
    let actual = actual.into();
    let same = match (expected.as_f64(), actual.as_f64()) {
        (Some(expected), Some(actual)) => (expected - actual).abs() < 1e-9,
        _ => *expected == actual,
    };
    if !same {
        differences.push(format!("{place}: expected {expected}, got {actual}"));
    }
}

// === Configuration ===

/// The row's policy and throttle as the service config that a gRPC client would be given.
fn service_config(policy: &Value, throttle: &Value) -> Result<ServiceConfig, String> {
    let seconds = |key: &str| {
        let millis = policy[key].as_f64().ok_or_else(|| format!("no {key}"))?;
        Ok::<_, String>(format!("{:.9}s", millis / 1000.0))
    };
    let mut config = json!({"methodConfig": [{"name": [{}], "retryPolicy": {
        "maxAttempts": policy["max_attempts"],
        "initialBackoff": seconds("initial_backoff_ms")?,
        "maxBackoff": seconds("max_backoff_ms")?,
        "backoffMultiplier": policy["multiplier"],
        "retryableStatusCodes": policy["retryable_codes"],
    }}]});
    if throttle.is_object() {
        let ratio = throttle["token_ratio"].as_f64().unwrap_or(0.1);
        config["retryThrottling"] =
            json!({"maxTokens": throttle["max_tokens"], "tokenRatio": ratio});
    }
    parse(&config, &policy["client_max_attempts"])
}

fn parse(config: &Value, client_max_attempts: &Value) -> Result<ServiceConfig, String> {
    let limit = match client_max_attempts.as_i64() {
        Some(limit) => AttemptLimit::of(u32::try_from(limit).unwrap_or(0)),
        None => AttemptLimit::default(),
    };
    ServiceConfig::parse_within(&config.to_string(), limit).map_err(|error| error.to_string())
}

/// Spends and earns tokens until there are as many as the row starts with.
fn start_with(budget: &Budget, throttle: &Value) -> Result<(), String> {
    let Some(start) = throttle["start_tokens"].as_f64() else { return Ok(()) };
    let level = || budget.level(Duration::ZERO);
    let mut spending = budget.begin(Duration::ZERO);
    // First below it, then up again in steps of the ratio.
    while level() > start + 1e-9 {
        fail(budget, &mut spending);
    }
    for _ in 0..2_000_000 {
        if level() >= start - 1e-9 {
            break;
        }
        budget.observe(&mut spending, &Verdict::Success, false);
    }
    let reached = (level() - start).abs() < 1e-9;
    reached.then_some(()).ok_or_else(|| format!("{start} tokens cannot be reached"))
}

fn fail(budget: &Budget, spending: &mut Spending) {
    budget.observe(spending, &Failure::new(ErrorClass::Transient).into(), true);
}

// === Types ===

/// Jitter is drawn anew in each run.
const RUNS: u32 = 16;

fn sequence(row: &Value) -> Differences {
    let mut differences = Vec::new();
    for _ in 0..RUNS {
        let config = service_config(&row["policy"], &row["throttle"])?;
        let budget = config.budget();
        start_with(&budget, &row["throttle"])?;
        let mut stack = Stack::new(config);
        let calls = row["calls"].as_array().ok_or("no calls")?;
        for (index, call) in calls.iter().enumerate() {
            let made = stack.call(Call::of(&call["attempts"])?);
            // We hand out nothing before the first data, and commit on it.
            let expect = match call.get("expect_when_committing_on_first_data") {
                Some(expect) => expect,
                None => &call["expect"],
            };
            let place = |key: &str| format!("calls[{index}].{key}");
            let found = &mut differences;
            check(found, &place("final_code"), &expect["final_code"], made.code);
            let counted = &expect["counted_attempts"];
            check(found, &place("counted_attempts"), counted, made.counted);
            let wire = &expect["wire_attempts"];
            check(found, &place("wire_attempts"), wire, made.headers.len());
            let headers = &expect["previous_attempts_header"];
            check(found, &place("previous_attempts_header"), headers, made.headers);
            let ranges = expect["delay_ms_range"].as_array().ok_or("no delays")?;
            let delays = made.delays_ms;
            let within = ranges.len() == delays.len()
                && ranges.iter().zip(&delays).all(|(range, delay)| {
                    let bound = |index: usize| range[index].as_f64().unwrap_or(f64::NAN);
                    (bound(0) - 1e-6..=bound(1) + 1e-6).contains(delay)
                });
            if !within {
                found.push(format!("{}: {ranges:?}, got {delays:?}", place("delay_ms_range")));
            }
            if let Some(tokens) = expect.get("tokens_after") {
                let level = budget.level(Duration::ZERO);
                check(found, &place("tokens_after"), tokens, level);
            }
        }
        if !differences.is_empty() {
            break;
        }
    }
    Ok(differences)
}

fn throttle_ops(row: &Value) -> Differences {
    let settings = json!({"maxTokens": row["max_tokens"], "tokenRatio": row["token_ratio"]});
    let budget = parse(&json!({"retryThrottling": settings}), &Value::Null)?.budget();
    start_with(&budget, row)?;
    let mut spending = budget.begin(Duration::ZERO);
    let failure = Failure::new(ErrorClass::Transient);
    let mut differences = Vec::new();
    for (index, op) in row["ops"].as_array().ok_or("no ops")?.iter().enumerate() {
        match op["op"].as_str() {
            Some("qualified_failure") => fail(&budget, &mut spending),
            Some("success") => budget.observe(&mut spending, &Verdict::Success, false),
            Some("unqualified_failure" | "failure") => {
                let permanent = Failure::new(ErrorClass::Permanent);
                budget.observe(&mut spending, &permanent.into(), false);
            }
            other => return Err(format!("unknown op {other:?}")),
        }
        let level = budget.level(Duration::ZERO);
        let allowed = budget.ask(&mut spending, &failure, Duration::ZERO).is_ok();
        check(&mut differences, &format!("ops[{index}].tokens"), &op["tokens"], level);
        let above = &op["above_threshold"];
        check(&mut differences, &format!("ops[{index}].above_threshold"), above, allowed);
    }
    Ok(differences)
}

fn max_attempts(row: &Value) -> Differences {
    let policy = json!({
        "max_attempts": row["service_max_attempts"],
        "client_max_attempts": row["client_max_attempts"],
        "initial_backoff_ms": 10, "max_backoff_ms": 10, "multiplier": 1,
        "retryable_codes": [row["always"]],
    });
    let mut stack = Stack::new(service_config(&policy, &Value::Null)?);
    let made = stack.call(Call::always(&row["always"])?);
    let mut differences = Vec::new();
    check(&mut differences, "attempts", &row["expect"]["attempts"], made.headers.len());
    Ok(differences)
}

fn buffer(row: &Value) -> Differences {
    let size = |key: &str| row[key].as_u64().ok_or_else(|| format!("no {key}"));
    let policy = json!({
        "max_attempts": 5, "initial_backoff_ms": 10, "max_backoff_ms": 10, "multiplier": 1,
        "retryable_codes": ["UNAVAILABLE"],
    });
    let stack = Stack::new(service_config(&policy, &Value::Null)?);
    let first = json!([{"code": row["first"]}, {"code": "OK"}]);
    let made = stack.call_with_body(
        Call::of(&first)?,
        usize::try_from(size("request_bytes")?).map_err(|error| error.to_string())?,
        size("buffer_bytes")?,
    );
    let mut differences = Vec::new();
    let expect = &row["expect"];
    check(&mut differences, "attempts", &expect["attempts"], made.headers.len());
    check(&mut differences, "final_code", &expect["final_code"], made.code);
    Ok(differences)
}

/// Stepped by hand for the exact jitter, and over the layer with whatever it draws.
fn deadline(row: &Value) -> Differences {
    let millis =
        |key: &str| row[key].as_u64().map(Duration::from_millis).ok_or(format!("no {key}"));
    let (deadline, takes) = (millis("deadline_ms")?, millis("attempt_takes_ms")?);
    let code = code_named(&row["always"])?;
    let config = service_config(&row["policy"], &Value::Null)?;
    let policy = config.policy_of(Method { service: "any", name: "Any" }).ok_or("no policy")?;
    let factor = row["jitter_factor"].as_f64().unwrap_or(1.0);
    let u = ((factor - 0.8) / 0.4).clamp(0.0, 0.999_999_999);

    let (mut now, mut started, mut progress) = (Duration::ZERO, 0, Progress::default());
    let early = loop {
        started += 1;
        now += takes;
        if now >= deadline {
            break now == deadline;
        }
        let facts = Facts { time_left: Some(deadline - now), ..Facts::default() };
        let failure = policy.regard(stack::failure_with(code)?);
        match policy.plan().decide(&facts, &mut progress, &failure, u) {
            Decision::Again { wait, .. } => now += wait,
            Decision::Stop(_) => break true,
            other => return Err(format!("unexpected {other:?}")),
        }
    };
    let expect = &row["expect"];
    let mut differences = Vec::new();
    check(&mut differences, "attempts_started", &expect["attempts_started"], started);
    let end = match expect.get("fail_early").filter(|_| early) {
        Some(fail_early) => fail_early,
        None => expect,
    };
    let ends_at = (now.min(deadline).as_secs_f64() * 1e6).round() / 1e3;
    check(&mut differences, "ends_at_ms", &end["ends_at_ms"], ends_at);

    let made =
        Stack::new(config).call(Call::always(&row["always"])?.lasting(takes).within(deadline));
    check(&mut differences, "final_code", &end["final_code"], made.code);
    Ok(differences)
}

/// Of a call that ended well, or not.
fn name_of(code: Code) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES[code as usize]
}
