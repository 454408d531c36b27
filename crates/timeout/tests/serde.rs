//! Policies as configuration files hold them.
#![cfg(feature = "serde")]

use std::time::Duration;

use tower_triage_timeout::TimeoutPolicy;

#[test]
fn a_policy_is_read_back_and_the_grace_may_be_left_out() {
    let policy = TimeoutPolicy::new(Duration::from_secs(30)).grace(Duration::ZERO);
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<TimeoutPolicy>(&text).unwrap(), policy);

    let policy: TimeoutPolicy = serde_json::from_str(r#"{"limit": "1m"}"#).unwrap();
    assert_eq!(policy, TimeoutPolicy::new(Duration::from_secs(60)));
}

#[test]
fn what_cannot_be_meant_is_an_error() {
    assert!(serde_json::from_str::<TimeoutPolicy>("{}").is_err(), "there is no default limit");
    assert!(serde_json::from_str::<TimeoutPolicy>(r#"{"limit": "1m", "gracce": "1s"}"#).is_err());
    let policy: TimeoutPolicy = serde_json::from_str(r#"{"limit": "0s"}"#).unwrap();
    assert_eq!(policy.build().unwrap_err().field(), "limit");
}
