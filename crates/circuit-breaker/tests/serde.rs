//! Policies as configuration files hold them.
#![cfg(feature = "serde")]

use tower_triage_circuit_breaker::BreakerPolicy;

#[test]
fn a_policy_is_read_back_and_what_is_left_out_is_the_default() {
    let policy = BreakerPolicy::new().consecutive_failures(3).decide_by_rate().failure_rate(0.5);
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<BreakerPolicy>(&text).unwrap(), policy);

    let policy: BreakerPolicy = serde_json::from_str(r#"{"failure_rate": 0.2}"#).unwrap();
    assert_eq!(policy, BreakerPolicy::default().failure_rate(0.2));
}

#[test]
fn a_misspelt_field_is_an_error_and_a_wrong_value_does_not_build() {
    assert!(serde_json::from_str::<BreakerPolicy>(r#"{"failure_rat": 0.2}"#).is_err());
    let policy: BreakerPolicy = serde_json::from_str(r#"{"failure_rate": 20.0}"#).unwrap();
    assert_eq!(policy.build().unwrap_err().field(), "failure_rate");
}
