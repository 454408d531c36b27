//! From JSON. Foreign text: every value is checked before it is used, and what is made of it is at
//! most as large as the text, or as the client's limit of attempts allows.

use std::time::Duration;

use serde_json::{Map, Value};
use tonic::Code;
use tower_triage_core::ConfigError;
use tower_triage_retry::budget::ThrottleSettings;

use super::ServiceConfig;
use crate::code::{all, name};
use crate::method_policy::{A6Policy, AttemptLimit, MethodPolicy};

type Object = Map<String, Value>;

pub(super) fn read(json: &str, limit: AttemptLimit) -> Result<ServiceConfig, ConfigError> {
    let config: Value = serde_json::from_str(json)
        .map_err(|error| ConfigError::new("serviceConfig", error, "must be JSON"))?;
    let config = object("serviceConfig", &config)?;
    let mut read = ServiceConfig::new();
    for method in list("methodConfig", config.get("methodConfig"))? {
        add_methods(&mut read, object("methodConfig", method)?, limit)?;
    }
    match present(config, "retryThrottling") {
        None => Ok(read),
        Some(throttling) => read.throttling(throttle(object("retryThrottling", throttling)?)?),
    }
}

fn add_methods(
    config: &mut ServiceConfig,
    method: &Object,
    limit: AttemptLimit,
) -> Result<(), ConfigError> {
    let policy = method_policy(method, limit)?;
    let place = config.policies.len();
    config.policies.push(policy);
    for named in list("methodConfig.name", method.get("name"))? {
        let named = object("methodConfig.name", named)?;
        let service = text("methodConfig.name.service", named.get("service"))?;
        let method = text("methodConfig.name.method", named.get("method"))?;
        if service.is_empty() && !method.is_empty() {
            const PROBLEM: &str = "a method needs its service";
            return Err(ConfigError::new("methodConfig.name.service", "empty", PROBLEM));
        }
        let full = format!("{service}/{method}");
        if config.place(&full).replace(place).is_some() {
            return Err(ConfigError::new("methodConfig.name", full, "is named a second time"));
        }
    }
    Ok(())
}

fn method_policy(method: &Object, limit: AttemptLimit) -> Result<MethodPolicy, ConfigError> {
    let policy = match (present(method, "retryPolicy"), present(method, "hedgingPolicy")) {
        (Some(_), Some(_)) => {
            const PROBLEM: &str = "a method is repeated or hedged, not both";
            Err(ConfigError::new("hedgingPolicy", "beside a retryPolicy", PROBLEM))
        }
        (Some(policy), None) => retry_policy(object("retryPolicy", policy)?)?.build(limit),
        (None, Some(policy)) => {
            check_hedging(object("hedgingPolicy", policy)?)?;
            Ok(MethodPolicy::none())
        }
        (None, None) => Ok(MethodPolicy::none()),
    }?;
    match present(method, "timeout") {
        None => Ok(policy),
        Some(timeout) => policy.timeout(duration("methodConfig.timeout", Some(timeout))?),
    }
}

fn retry_policy(policy: &Object) -> Result<A6Policy, ConfigError> {
    Ok(A6Policy {
        max_attempts: whole("retryPolicy.maxAttempts", policy.get("maxAttempts"))?,
        initial_backoff: duration("retryPolicy.initialBackoff", policy.get("initialBackoff"))?,
        max_backoff: duration("retryPolicy.maxBackoff", policy.get("maxBackoff"))?,
        backoff_multiplier: number(
            "retryPolicy.backoffMultiplier",
            policy.get("backoffMultiplier"),
        )?,
        retryable_codes: codes(
            "retryPolicy.retryableStatusCodes",
            policy.get("retryableStatusCodes"),
        )?,
    })
}

fn check_hedging(policy: &Object) -> Result<(), ConfigError> {
    const ATTEMPTS: &str = "hedgingPolicy.maxAttempts";
    let attempts = whole(ATTEMPTS, policy.get("maxAttempts"))?;
    if attempts < 2 {
        let problem = "the first call counts, so it must be at least 2";
        return Err(ConfigError::new(ATTEMPTS, attempts, problem));
    }
    if let Some(delay) = present(policy, "hedgingDelay") {
        duration("hedgingPolicy.hedgingDelay", Some(delay))?;
    }
    codes("hedgingPolicy.nonFatalStatusCodes", policy.get("nonFatalStatusCodes")).map(drop)
}

fn throttle(throttling: &Object) -> Result<ThrottleSettings, ConfigError> {
    const TOKENS: &str = "retryThrottling.maxTokens";
    const RATIO: &str = "retryThrottling.tokenRatio";
    let max_tokens = whole(TOKENS, throttling.get("maxTokens"))?;
    if !(1..=1000).contains(&max_tokens) {
        return Err(ConfigError::new(TOKENS, max_tokens, "from 1 to 1000"));
    }
    let token_ratio = number(RATIO, throttling.get("tokenRatio"))?;
    if token_ratio.is_nan() || token_ratio < 0.001 {
        return Err(ConfigError::new(RATIO, token_ratio, "must be at least 0.001"));
    }
    // More than there are tokens is all of them.
    Ok(ThrottleSettings { max_tokens, token_ratio: token_ratio.min(1000.0) })
}

// === Values ===

/// A field that is there, and not `null`.
fn present<'a>(object: &'a Object, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

fn wrong(field: &'static str, value: Option<&Value>, problem: &'static str) -> ConfigError {
    let shown = value.map_or_else(|| "missing".to_owned(), |value| value.to_string());
    ConfigError::new(field, shown.chars().take(64).collect::<String>(), problem)
}

fn object<'a>(field: &'static str, value: &'a Value) -> Result<&'a Object, ConfigError> {
    value.as_object().ok_or_else(|| wrong(field, Some(value), "must be an object"))
}

/// A list that may be absent.
fn list<'a>(field: &'static str, value: Option<&'a Value>) -> Result<&'a [Value], ConfigError> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        other => Err(wrong(field, other, "must be a list")),
    }
}

/// A text that may be absent.
fn text<'a>(field: &'static str, value: Option<&'a Value>) -> Result<&'a str, ConfigError> {
    match value {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        other => Err(wrong(field, other, "must be a text")),
    }
}

fn number(field: &'static str, value: Option<&Value>) -> Result<f64, ConfigError> {
    value.and_then(Value::as_f64).ok_or_else(|| wrong(field, value, "must be a number"))
}

/// A whole number; what is too large is the largest.
fn whole(field: &'static str, value: Option<&Value>) -> Result<u32, ConfigError> {
    let number = value.and_then(Value::as_f64);
    match number.filter(|number| number.fract() == 0.0 && *number >= 0.0) {
        Some(number) => Ok(number as u32),
        None => Err(wrong(field, value, "must be a whole number")),
    }
}

/// A list of names, in any case, or numbers.
fn codes(field: &'static str, value: Option<&Value>) -> Result<Vec<Code>, ConfigError> {
    list(field, value)?.iter().map(|item| code(field, item)).collect()
}

fn code(field: &'static str, value: &Value) -> Result<Code, ConfigError> {
    let named = match value {
        Value::String(text) => all().find(|code| text.eq_ignore_ascii_case(&name(*code))),
        Value::Number(number) => all().find(|code| number.as_i64() == Some(*code as i64)),
        _ => None,
    };
    named
        .filter(|code| *code != Code::Ok)
        .ok_or_else(|| wrong(field, Some(value), "must be the code of a failure"))
}

/// A duration as protocol buffers write it in JSON: decimal seconds and an `s`.
fn duration(field: &'static str, value: Option<&Value>) -> Result<Duration, ConfigError> {
    let read = value.and_then(Value::as_str).and_then(seconds);
    read.ok_or_else(|| wrong(field, value, "must be seconds as in \"1.5s\", and not negative"))
}

fn seconds(text: &str) -> Option<Duration> {
    /// Ten thousand years: the longest that protocol buffers allow.
    const LONGEST: u64 = 315_576_000_000;

    let number = text.strip_suffix('s')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.is_empty() || fraction.len() > 9 || !digits(fraction) || !digits(whole) {
        return None;
    }
    // gRPC's own examples write `.1s`.
    let whole: u64 = match whole {
        "" if number.starts_with('.') => 0,
        whole => whole.parse().ok()?,
    };
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    (whole <= LONGEST).then(|| Duration::new(whole, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Method;
    use proptest::prelude::*;
    use serde_json::json;

    const GET: Method<'_> = Method { service: "shop.Orders", name: "Get" };

    fn config(policy: Value) -> Result<ServiceConfig, ConfigError> {
        let method = json!({"name": [{"service": "shop.Orders"}], "retryPolicy": policy});
        ServiceConfig::parse(&json!({"methodConfig": [method]}).to_string())
    }

    fn policy() -> Value {
        json!({
            "maxAttempts": 4, "initialBackoff": ".1s", "maxBackoff": "1s", "backoffMultiplier": 2,
            "retryableStatusCodes": ["unavailable", 10],
        })
    }

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        let config = config(policy()).unwrap();
        let read = config.policy_of(GET).unwrap();
        let waits = [100, 200, 400].map(Duration::from_millis);
        assert_eq!(read.max_attempts(), 4);
        assert!(read.repeats(Code::Unavailable) && read.repeats(Code::Aborted));
        assert!(!read.repeats(Code::Internal));
        let middle: Vec<Duration> = read.backoff().unwrap().iter(|| 0.5).take(3).collect();
        assert_eq!(middle, waits);
    }

    #[test]
    fn every_wrong_value_names_its_field() {
        for (field, wrong) in [
            ("maxAttempts", json!(1)),
            ("maxAttempts", json!(2.5)),
            ("maxAttempts", json!(-3)),
            ("maxAttempts", json!("4")),
            ("initialBackoff", json!("0s")),
            ("initialBackoff", json!("-1s")),
            ("initialBackoff", json!("100ms")),
            ("initialBackoff", json!(1)),
            ("maxBackoff", json!("0.0s")),
            ("maxBackoff", json!(null)),
            ("backoffMultiplier", json!(0)),
            ("backoffMultiplier", json!("2")),
            ("retryableStatusCodes", json!([])),
            ("retryableStatusCodes", json!(["UNAVAILABLE", "NOPE"])),
            ("retryableStatusCodes", json!(["OK"])),
            ("retryableStatusCodes", json!([17])),
            ("retryableStatusCodes", json!("UNAVAILABLE")),
        ] {
            let mut policy = policy();
            policy[field] = wrong.clone();
            let error = config(policy).unwrap_err();
            assert_eq!(error.field(), format!("retryPolicy.{field}"), "{wrong}");
        }
        for missing in policy().as_object().unwrap().keys() {
            let mut policy = policy();
            policy.as_object_mut().unwrap().remove(missing);
            assert_eq!(config(policy).unwrap_err().field(), format!("retryPolicy.{missing}"));
        }
    }

    #[test]
    fn attempts_end_at_the_clients_limit() {
        let attempts = |max: u64, limit| {
            let mut policy = policy();
            policy["maxAttempts"] = json!(max);
            let method = json!({"name": [{}], "retryPolicy": policy});
            let text = json!({"methodConfig": [method]}).to_string();
            let config = ServiceConfig::parse_within(&text, limit).unwrap();
            config.policy_of(GET).unwrap().max_attempts()
        };
        assert_eq!(attempts(9, AttemptLimit::default()), 5);
        assert_eq!(attempts(9, AttemptLimit::of(0)), 5);
        assert_eq!(attempts(9, AttemptLimit::of(7)), 7);
        assert_eq!(attempts(u64::MAX, AttemptLimit::of(u32::MAX)), 1000);
    }

    #[test]
    fn the_closest_name_counts() {
        let method = |name: Value, attempts: u32| {
            let mut policy = policy();
            policy["maxAttempts"] = json!(attempts);
            json!({"name": [name], "retryPolicy": policy})
        };
        let text = json!({"methodConfig": [
            method(json!({}), 2),
            method(json!({"service": "shop.Orders"}), 3),
            method(json!({"service": "shop.Orders", "method": "Get"}), 4),
        ]})
        .to_string();
        let config = ServiceConfig::parse(&text).unwrap();
        let attempts =
            |service, name| config.policy_of(Method { service, name }).unwrap().max_attempts();
        assert_eq!(attempts("shop.Orders", "Get"), 4);
        assert_eq!(attempts("shop.Orders", "Put"), 3);
        assert_eq!(attempts("shop.Carts", "Get"), 2);
    }

    #[test]
    fn names_are_there_once_and_whole() {
        let parse = |names: Value| {
            ServiceConfig::parse(&json!({"methodConfig": [{"name": names}]}).to_string())
        };
        let twice = json!([{"service": "a.B"}, {"service": "a.B", "method": ""}]);
        assert_eq!(parse(twice).unwrap_err().field(), "methodConfig.name");
        let lone = json!([{"method": "Get"}]);
        assert_eq!(parse(lone).unwrap_err().field(), "methodConfig.name.service");
        assert_eq!(
            parse(json!([{"service": 7}])).unwrap_err().field(),
            "methodConfig.name.service"
        );
    }

    #[test]
    fn a_method_without_a_policy_is_called_once() {
        for method in [
            json!({"name": [{}]}),
            json!({"name": [{}], "hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.5s"}}),
        ] {
            let config = ServiceConfig::parse(&json!({"methodConfig": [method]}).to_string());
            assert_eq!(config.unwrap().policy_of(GET).unwrap().max_attempts(), 1);
        }
        let both =
            json!({"name": [{}], "retryPolicy": policy(), "hedgingPolicy": {"maxAttempts": 3}});
        let error = ServiceConfig::parse(&json!({"methodConfig": [both]}).to_string()).unwrap_err();
        assert_eq!(error.field(), "hedgingPolicy");
    }

    #[test]
    fn throttling_keeps_three_decimals() {
        let parse = |tokens: Value, ratio: Value| {
            let throttling = json!({"maxTokens": tokens, "tokenRatio": ratio});
            ServiceConfig::parse(&json!({"retryThrottling": throttling}).to_string())
        };
        assert!(parse(json!(10), json!(0.5466)).is_ok());
        assert!(parse(json!(1000), json!(5000)).is_ok());
        let field = |tokens, ratio| parse(tokens, ratio).unwrap_err().field();
        assert_eq!(field(json!(0), json!(1)), "retryThrottling.maxTokens");
        assert_eq!(field(json!(1001), json!(1)), "retryThrottling.maxTokens");
        assert_eq!(field(json!(10), json!(0)), "retryThrottling.tokenRatio");
        assert_eq!(field(json!(10), json!(0.0001)), "retryThrottling.tokenRatio");
        assert_eq!(field(json!(10), json!(null)), "retryThrottling.tokenRatio");
        assert!(ServiceConfig::parse("{").is_err() && ServiceConfig::parse("[]").is_err());
    }

    #[test]
    fn durations_of_protocol_buffers() {
        assert_eq!(seconds("1s"), Some(Duration::from_secs(1)));
        assert_eq!(seconds(".5s"), Some(Duration::from_millis(500)));
        assert_eq!(seconds("1.000000001s"), Some(Duration::new(1, 1)));
        for bad in [
            "",
            "s",
            ".s",
            "1",
            "1 s",
            "-1s",
            "+1s",
            "1.s",
            "1e3s",
            "1.0000000001s",
            "315576000001s",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_config_or_an_error(text in ".*") {
            let _ = ServiceConfig::parse(&text);
        }

        #[test]
        fn any_values_are_a_policy_or_an_error(
            attempts in any_value(), initial in any_value(), max in any_value(),
            multiplier in any_value(), codes in any_value(), names in any_value(),
        ) {
            let policy = json!({
                "maxAttempts": attempts, "initialBackoff": initial, "maxBackoff": max,
                "backoffMultiplier": multiplier, "retryableStatusCodes": codes,
            });
            let text = json!({"methodConfig": [{"name": names, "retryPolicy": policy}]}).to_string();
            if let Ok(config) = ServiceConfig::parse(&text) {
                for policy in &config.policies {
                    prop_assert!((2..=5).contains(&policy.max_attempts()));
                    let waits = policy.backoff().unwrap();
                    prop_assert!(waits.iter(|| 0.99).take(5).all(|wait| wait < Duration::MAX));
                }
            }
        }

        #[test]
        fn any_duration_is_read_or_refused(text in "[-+.0-9es ]{0,16}") {
            let _ = seconds(&text);
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (0..10u32).prop_map(Value::from),
            "[0-9]{1,3}(\\.[0-9]{1,9})?s".prop_map(Value::from),
            prop_oneof![Just("UNAVAILABLE"), Just("unavailable"), Just("NOPE")]
                .prop_map(|code| json!([code])),
            Just(json!([{}])),
        ]
    }
}
