//! What the compositions have in common.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tower_triage::circuit_breaker::BreakerPolicy;
use tower_triage::escalate::{ChannelSink, Receiver, Route, Routes};
use tower_triage::retry::{ClassRule, RetryPlan};
use tower_triage::{
    AnyError, AnyOk, Backoff, Chain, Classifier, Desk, Escalation, Halves, RetryPolicy,
};
use tower_triage_test_support::Seen;

pub(crate) type Rules = Halves<AnyOk, Chain>;

pub(crate) fn classifier() -> (Classifier<Rules>, Seen) {
    watched(Halves { response: AnyOk, error: Chain })
}

pub(crate) fn watched<R>(rules: R) -> (Classifier<R>, Seen) {
    let classifier = Classifier::new(rules);
    let seen = Seen::default();
    classifier.observe(seen.clone());
    (classifier, seen)
}

/// A desk whose records come out of a channel.
pub(crate) fn desk() -> (Desk, mpsc::Receiver<Escalation>) {
    let (sink, letters) = ChannelSink::new(1024).unwrap();
    let routes = Routes::new(Route::new(["ops"], "look_at_it"));
    (Desk::new(routes, [Receiver::new("ops").record(sink)]).unwrap(), letters)
}

pub(crate) fn reset() -> AnyError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

/// `attempts` attempts of a transient failure, 10 ms apart.
pub(crate) fn attempts(attempts: u32) -> RetryPlan {
    let backoff = Backoff::fixed(Duration::from_millis(10));
    let rule = ClassRule::new(backoff);
    let policy = RetryPolicy::default().retry(tower_triage::ErrorClass::Transient, rule);
    policy.attempts(attempts).build().unwrap()
}

/// Opens at so many failures in a row, for a second.
pub(crate) fn opens_at(failures: u32) -> tower_triage::circuit_breaker::BreakerPlan {
    BreakerPolicy::new()
        .consecutive_failures(failures)
        .open_for(Backoff::fixed(Duration::from_secs(1)))
        .build()
        .unwrap()
}
