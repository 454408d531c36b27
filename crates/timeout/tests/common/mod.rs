//! A dependency that takes as long as each request says.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower::Service;
use tower_triage_core::{
    AnyError, AnyOk, Chain, Classifier, Classify, Describe, Halves, RequestFacts, RulesExt, Verdict,
};
use tower_triage_test_support::Seen;
use tower_triage_timeout::{SoftLimit, TimeoutPlan, TimeoutPolicy, soft_limit};

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn plan(policy: TimeoutPolicy) -> TimeoutPlan {
    policy.build().unwrap()
}

/// A limit without a grace.
pub(crate) fn hard(limit: Duration) -> TimeoutPlan {
    plan(TimeoutPolicy::new(limit).grace(Duration::ZERO))
}

/// A request that takes its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ask {
    pub(crate) takes: Duration,
    pub(crate) deadline: Option<Instant>,
    pub(crate) repeatable: bool,
    /// What the layer told it.
    pub(crate) told: Option<Duration>,
}

pub(crate) fn ask(takes: Duration) -> Ask {
    Ask { takes, deadline: None, repeatable: true, told: None }
}

impl Ask {
    pub(crate) fn by(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// Everything that answers is fine; errors by type.
pub(crate) fn rules() -> impl Classify<u32, AnyError> + Describe<Ask> + Clone + Send + Sync {
    Halves { response: AnyOk, error: Chain }.describe(|ask: &Ask| {
        let facts = RequestFacts::new("ask").repeatable(ask.repeatable);
        ask.deadline.map_or(facts, |deadline| facts.deadline(deadline))
    })
}

/// A classifier over `rules`, and what it saw.
pub(crate) fn watched<R>(rules: R) -> (Classifier<R>, Seen) {
    let classifier = Classifier::new(rules);
    let seen = Seen::default();
    classifier.observe(seen.clone());
    (classifier, seen)
}

/// One attempt, as the dependency saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Instant,
    pub(crate) request: Ask,
    /// What could be seen in `call`.
    pub(crate) limit: Option<SoftLimit>,
}

/// Always ready; answers after the time that the request says, with the number of attempts so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slow {
    attempts: Arc<Mutex<Vec<Attempt>>>,
}

impl Slow {
    fn lock(&self) -> MutexGuard<'_, Vec<Attempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.lock().clone()
    }

    pub(crate) fn calls(&self) -> usize {
        self.lock().len()
    }
}

impl Service<Ask> for Slow {
    type Response = u32;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<u32, AnyError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Ask) -> Self::Future {
        let attempt = Attempt { at: Instant::now(), request, limit: soft_limit() };
        let mut attempts = self.lock();
        attempts.push(attempt);
        let number = attempts.len() as u32;
        Box::pin(async move {
            if !request.takes.is_zero() {
                tokio::time::sleep(request.takes).await;
            }
            Ok(number)
        })
    }
}

/// A response that can carry a verdict.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) verdict: Option<Verdict>,
}
