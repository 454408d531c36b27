//! A stack over a service that does as it is told.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tower::{Service, ServiceBuilder, service_fn};
use tower_triage_circuit_breaker::{BreakerHandle, BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{
    AnyError, AnyOk, Backoff, Chain, Classifier, Halves, Observer, RequestFacts, RulesExt,
};
use tower_triage_retry::{RetryLayer, RetryPolicy};

/// What the service does: takes its time, and fails so many times before it succeeds.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    operation: &'static str,
    takes: Duration,
    fails: u32,
    error: io::ErrorKind,
    tried: Arc<AtomicU32>,
}

impl Task {
    pub(crate) fn new(operation: &'static str, takes: Duration) -> Self {
        let error = io::ErrorKind::ConnectionReset;
        Self { operation, takes, fails: 0, error, tried: Arc::default() }
    }

    pub(crate) fn failing(self, times: u32) -> Self {
        Self { fails: times, ..self }
    }

    pub(crate) fn with(self, error: io::ErrorKind) -> Self {
        Self { error, ..self }
    }

    async fn run(self) -> Result<(), AnyError> {
        tokio::time::sleep(self.takes).await;
        match self.tried.fetch_add(1, Ordering::Relaxed) < self.fails {
            true => Err(io::Error::from(self.error).into()),
            false => Ok(()),
        }
    }
}

/// Three attempts, a second apart, above a breaker that opens at three failures in a row.
pub(crate) fn stack(
    observer: impl Observer + 'static,
) -> (impl Service<Task, Response = (), Error = AnyError> + Clone, BreakerHandle) {
    let rules = Halves { response: AnyOk, error: Chain };
    let rules = rules.describe(|task: &Task| RequestFacts::new(task.operation));
    let classifier = Classifier::new(rules);
    classifier.observe(observer);
    let retry = RetryPolicy::default().backoff(&Backoff::fixed(Duration::from_secs(1)));
    let open_for = Backoff::fixed(Duration::from_secs(60));
    let breaker = BreakerPolicy::new().consecutive_failures(3).open_for(open_for);
    let breaker = CircuitBreakerLayer::new(classifier.clone())
        .name("shop")
        .policy(breaker.build().expect("sound"));
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(retry.build().expect("sound")))
        .layer(breaker)
        .service(service_fn(Task::run));
    (stack, handle)
}
