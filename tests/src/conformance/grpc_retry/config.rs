//! Values of a service config: refused, or read as what they mean.

use std::time::Duration;

use serde_json::{Value, json};
use tower_triage_grpc::{Method, ServiceConfig};

use super::{Differences, check};

pub(super) fn run(row: &Value) -> Differences {
    let field = row["field"].as_str().ok_or("no field")?;
    let mut differences = Vec::new();
    for (index, case) in row["cases"].as_array().ok_or("no cases")?.iter().enumerate() {
        let place = format!("cases[{index}] ({})", case["value"]);
        let config = with_value(field, &case["value"])?;
        let read = ServiceConfig::parse(&config.to_string());
        let expected = &case["ok"];
        if !expected.is_null() {
            check(&mut differences, &format!("{place}.ok"), expected, read.is_ok());
        }
        match read {
            Ok(config) => {
                for key in ["effective", "converted", "expect", "becomes"] {
                    if let Some(effective) = case.get(key) {
                        let actual = effective_value(field, &config, effective)?;
                        check(&mut differences, &format!("{place}.{key}"), effective, actual);
                    }
                }
            }
            Err(error) if expected == &json!(false) => {
                let named = field.contains(error.field()) || error.field().contains(field);
                if !named {
                    differences.push(format!("{place}: the error names {}", error.field()));
                }
            }
            Err(error) if expected.is_null() => differences.push(format!("{place}: {error}")),
            Err(_) => {}
        }
    }
    Ok(differences)
}

/// A config that works, with one value changed.
fn with_value(field: &str, value: &Value) -> Result<Value, String> {
    let retry = json!({
        "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "100s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    });
    let hedging = json!({
        "maxAttempts": 4, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["UNAVAILABLE"],
    });
    let mut method = json!({"name": [{"service": "shop.Orders"}]});
    let mut config = json!({"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}});
    match field.split_once('.') {
        Some(("retryPolicy", name)) => {
            method["retryPolicy"] = retry;
            method["retryPolicy"][name] = value.clone();
        }
        Some(("hedgingPolicy", name)) => {
            method["hedgingPolicy"] = hedging;
            method["hedgingPolicy"][name] = value.clone();
        }
        Some(("retryThrottling", name)) => config["retryThrottling"][name] = value.clone(),
        Some(("methodConfig", name)) => method[name] = value.clone(),
        None if field == "retryPolicy+hedgingPolicy" => match value.as_str() {
            Some("both") => (method["retryPolicy"], method["hedgingPolicy"]) = (retry, hedging),
            Some("retry") => method["retryPolicy"] = retry,
            Some("hedging") => method["hedgingPolicy"] = hedging,
            Some("neither") => {}
            _ => return Err(format!("unknown value {value}")),
        },
        _ => return Err(format!("unknown field {field}")),
    }
    config["methodConfig"] = json!([method]);
    Ok(config)
}

/// What the config makes of the field, in the form in which the row expects it.
fn effective_value(field: &str, config: &ServiceConfig, expected: &Value) -> Result<Value, String> {
    let method = Method { service: "shop.Orders", name: "Get" };
    let policy = config.policy_of(method).ok_or("no policy")?;
    // The middle of the jitter is the wait itself.
    let waits = || policy.backoff().into_iter().flat_map(|backoff| backoff.iter(|| 0.5).take(2));
    let wait = |index| -> Result<Duration, String> { waits().nth(index).ok_or("no wait".into()) };
    Ok(match field {
        "retryPolicy.maxAttempts" | "hedgingPolicy.maxAttempts" => policy.max_attempts().into(),
        "retryPolicy.initialBackoff" => as_expected(wait(0)?, expected),
        "retryPolicy.maxBackoff" => as_expected(wait(1)?, expected),
        "retryPolicy.backoffMultiplier" => (wait(1)?.as_secs_f64() / wait(0)?.as_secs_f64()).into(),
        "retryPolicy.retryableStatusCodes" => {
            let codes = (0..=16).map(tonic::Code::from_i32).filter(|code| policy.repeats(*code));
            codes.map(super::name_of).collect()
        }
        "retryThrottling.maxTokens" => config.budget().level(Duration::ZERO).into(),
        "retryThrottling.tokenRatio" => token_ratio(config).into(),
        "retryPolicy+hedgingPolicy" if policy.max_attempts() == 1 => "no retries, no hedges".into(),
        other => return Err(format!("nothing is known of the effect of {other}")),
    })
}

/// As text or in milliseconds.
fn as_expected(wait: Duration, expected: &Value) -> Value {
    let millis = (wait.as_secs_f64() * 1e6).round() / 1e3;
    match expected.as_str() {
        Some(_) => format!("{}s", millis / 1e3).into(),
        None => millis.into(),
    }
}

/// What one success brings.
fn token_ratio(config: &ServiceConfig) -> f64 {
    use tower_triage_core::{ErrorClass, Failure, Verdict};

    let budget = config.budget();
    let mut spending = budget.begin(Duration::ZERO);
    let level = || budget.level(Duration::ZERO);
    budget.observe(&mut spending, &Failure::new(ErrorClass::Transient).into(), true);
    let before = level();
    budget.observe(&mut spending, &Verdict::Success, false);
    level() - before
}
