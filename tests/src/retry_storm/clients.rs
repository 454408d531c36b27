//! The clients: our layers, as they are shipped.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep_until};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_triage::timeout::{TimeoutLayer, TimeoutPolicy};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{
    AnyError, AnyOk, Backoff, Chain, Classifier, ConfigError, ErrorClass, Halves, Jitter, Random,
};
use tower_triage_retry::budget::BucketSettings;
use tower_triage_retry::{Budget, ClassRule, RetryLayer, RetryPolicy};

use super::meter::Meter;
use super::model::Model;
use super::server::Server;

/// How every client is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// What it is called.
    pub name: &'static str,
    /// What is repeated, and when.
    pub retry: RetryPolicy,
    /// How many retries one client has; `None` for as many as the policy wants.
    pub budget: Option<BucketSettings>,
    /// When a client stops calling; `None` for one that never does.
    pub breaker: Option<BreakerPolicy>,
}

impl Setup {
    /// What the layers do unless told otherwise. The bucket is full, as it is after a quiet while: a
    /// storm does not wait for clients that have just been started.
    #[must_use]
    pub fn defaults() -> Self {
        let bucket = BucketSettings::default();
        Self {
            name: "defaults",
            retry: RetryPolicy::default(),
            budget: Some(BucketSettings { initial: bucket.capacity, ..bucket }),
            breaker: Some(BreakerPolicy::default()),
        }
    }

    /// Three attempts of whatever fails, exponential backoff with full jitter, and nothing else.
    #[must_use]
    pub fn retries_alone() -> Self {
        Self {
            name: "retries alone",
            retry: RetryPolicy::default().retry(ErrorClass::Timeout, ClassRule::default()),
            budget: None,
            breaker: None,
        }
    }

    /// No second attempt, and no breaker.
    #[must_use]
    pub fn single_attempt() -> Self {
        Self { name: "no retries", retry: RetryPolicy::single_attempt(), ..Self::retries_alone() }
    }

    /// The defaults without the breaker.
    #[must_use]
    pub fn budget_alone() -> Self {
        Self { name: "retry, budget", breaker: None, ..Self::defaults() }
    }

    /// The defaults without the budget.
    #[must_use]
    pub fn breaker_alone() -> Self {
        Self { name: "retry, breaker", budget: None, ..Self::defaults() }
    }

    /// The defaults, with a bucket that holds 100 retries instead of 20 and an open time that begins
    /// at 30 s instead of 5 s.
    #[must_use]
    pub fn patient() -> Self {
        Self::with("patient", 100, 30)
    }

    /// The defaults, with a bucket that holds so many retries and an open time that begins at so many
    /// seconds.
    #[must_use]
    pub fn with(name: &'static str, retries: u32, seconds: u64) -> Self {
        let bucket =
            BucketSettings { capacity: retries, initial: retries, ..BucketSettings::default() };
        let open_for = Backoff::exponential(Duration::from_secs(seconds), 2.0)
            .cap_before_jitter(Duration::from_secs(250))
            .jitter(Jitter::Ratio(0.2));
        Self {
            name,
            budget: Some(bucket),
            breaker: Some(BreakerPolicy::default().open_for(open_for)),
            ..Self::defaults()
        }
    }

    fn stack(
        &self,
        server: Server,
        model: &Model,
        seed: u64,
    ) -> Result<impl Service<(), Error = AnyError, Future: Send> + Clone + Send + use<>, ConfigError>
    {
        let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
        let budget = self.budget.clone().map_or(Ok(Budget::unlimited()), Budget::bucket)?;
        let retry = RetryLayer::new(classifier.clone())
            .policy(self.retry.clone().build()?)
            .budget(budget)
            .random(Random::seeded(seed));
        let breaker = CircuitBreakerLayer::new(classifier.clone())
            .policy(self.breaker.clone().unwrap_or_default().build()?)
            .random(Random::seeded(!seed));
        if self.breaker.is_none() {
            breaker.handle().disable();
        }
        let patience = TimeoutPolicy::new(model.patience).grace(Duration::ZERO);
        let timeout = TimeoutLayer::new(classifier, model.patience)?.policy(patience.build()?);
        Ok(ServiceBuilder::new().layer(retry).layer(breaker).layer(timeout).service(server))
    }
}

/// Sends requests at its rate, whatever becomes of the earlier ones, until the end.
pub(super) async fn client(
    setup: Arc<Setup>,
    model: Model,
    server: Server,
    meter: Arc<Meter>,
    seed: u64,
) -> Result<(), ConfigError> {
    let begun = Instant::now();
    let period = Duration::from_secs(1) / model.rate;
    let first = period.mul_f64(StdRng::seed_from_u64(seed).random());
    let stack = setup.stack(server, &model, seed)?;
    let mut at = begun + first;
    while at < begun + model.length {
        sleep_until(at).await;
        let (call, meter) = (stack.clone().oneshot(()), Arc::clone(&meter));
        tokio::spawn(async move {
            if call.await.is_ok() {
                meter.answered();
            }
        });
        at += period;
    }
    Ok(())
}
