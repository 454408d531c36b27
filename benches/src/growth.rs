//! What must not grow: the cost of a call with the length of the window and the number of keys, the
//! cost of an attempt with the length of the incident.

use std::fmt::Write as _;
use std::time::Duration;

use tower::ServiceBuilder;
use tower_triage_circuit_breaker::{CircuitBreakerLayer, KeyedSettings};
use tower_triage_core::{
    AnyOk, Backoff, Classifier, ErrorClass, Halves, OwnError, RequestFacts, RulesExt,
};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPolicy};

use crate::case::{Case, Expect, complete, kept_loop};
use crate::ours::{Stack, Window, ample_budget, classifier, failing_breaker};
use crate::work::{Script, Work, begin_anew};

/// Two cases of which the large one may not cost more.
#[derive(Debug)]
pub struct Pair {
    /// The small one.
    pub small: Case,
    /// The large one.
    pub large: Case,
}

/// The pairs. Each loop is warmed up until it has the size that its name says.
#[must_use]
pub fn pairs() -> Vec<Pair> {
    vec![
        Pair { small: window(100), large: window(100_000) },
        Pair { small: keys(1), large: keys(1_000_000) },
        Pair { small: incident(3), large: incident(3_000) },
    ]
}

/// A tenth of the calls fails, so that the window is full of what it has to remember.
fn window(calls: u32) -> Case {
    let make = move || failing_breaker(Window::Count(calls));
    warmed(format!("window of {calls} calls"), Expect::Either, 150_000, make)
}

/// The calls take turns over the keys. The window counts calls: a slice of time begins with the first
/// call in it, so that a key that is called rarely pays for a new one each time, however few keys
/// there are.
fn keys(keys: u64) -> Case {
    warmed(format!("{keys} keys"), Expect::Answer, 2_500_000, move || {
        let facts = move |request: &u64| {
            let mut key = String::with_capacity(16);
            // As long for each number of keys. Writing to a string does not fail.
            let _ = write!(key, "agent-{:06}", request % keys);
            RequestFacts::new("ask").key(&key)
        };
        let rules = Halves { response: AnyOk, error: OwnError }.describe(facts);
        let settings =
            KeyedSettings::new(2_000_000, Duration::from_secs(3600)).expect("it is valid");
        let breaker = CircuitBreakerLayer::new(Classifier::new(rules))
            .policy(Window::Count(100).plan())
            .keyed(settings);
        ServiceBuilder::new().layer(breaker).service(Work(Script::Succeeds))
    })
}

/// Every call makes so many attempts, all failed but the last; what counts as one call of the case
/// is an attempt.
fn incident(attempts: u32) -> Case {
    Case::new(GROUP, format!("incident of {attempts} attempts"), move || {
        let rule = ClassRule::new(Backoff::immediate());
        let plan = RetryPolicy::default()
            .unlimited_attempts()
            .retry(ErrorClass::Transient, rule)
            .build()
            .expect("it is valid");
        let retry = RetryLayer::new(classifier()).policy(plan).budget(ample_budget());
        let script = Script::AllButOneFail(attempts.into());
        let service = ServiceBuilder::new().layer(retry).service(Work(script));
        let logical = kept_loop(GROUP, Expect::Answer, service);
        Box::new(move |calls| {
            begin_anew();
            logical(calls.div_ceil(attempts.into()))
        })
    })
}

const GROUP: &str = "growth";

/// A case whose service has made `warm_up` calls before its first run.
fn warmed<S: Stack>(
    who: String,
    expect: Expect,
    warm_up: u64,
    make: impl Fn() -> S + Send + Sync + 'static,
) -> Case {
    Case::new(GROUP, who, move || {
        let calls = kept_loop(GROUP, expect, make());
        complete(calls(warm_up));
        calls
    })
}
