//! What is configured.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tower_layer::Layer;
use tower_triage_core::{Classifier, Clock};

use crate::adaptive::line::Line;
use crate::adaptive::service::Adaptive;

/// Sends no faster than the dependency bears, found out from how often it throttles
/// ([`Throttled`](tower_triage_core::ErrorClass::Throttled)): the adaptive mode of the AWS SDKs. Put
/// it directly below the retry, so that it is asked before each attempt and sees each outcome.
///
/// The service is not ready while the rate is used up, so the wait is a wait for readiness: it ends
/// with the deadline of the retry, and a load shed above may refuse. Who waits stands in line, and goes
/// sooner when the rate grows. Until something is throttled nothing waits. One layer value has one rate, which all services made from it share.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
/// use tower_triage_retry::{AdaptiveLayer, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let rate = AdaptiveLayer::new(classifier.clone());
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::new(classifier))
///     .layer(rate.clone())
///     .service(service_fn(async |n: u32| Ok::<_, AnyError>(n)));
/// assert_eq!(stack.oneshot(1).await?, 1);
/// assert_eq!(rate.per_second(), None); // no limit yet
/// # Ok(()) }
/// ```
///
/// # Cost
/// A clock read and a short lock when it becomes ready, and again for each outcome.
pub struct AdaptiveLayer<R> {
    core: Arc<Core<R>>,
}

/// What all services of one layer value share.
pub(super) struct Core<R> {
    pub(super) classifier: Classifier<R>,
    pub(super) clock: Clock,
    line: Mutex<Line<Waker>>,
}

impl<R> AdaptiveLayer<R> {
    /// Finds its rate by the verdicts of `classifier`.
    #[must_use]
    pub fn new(classifier: Classifier<R>) -> Self {
        Self { core: Arc::new(Core { classifier, clock: Clock::new(), line: Mutex::default() }) }
    }

    /// How many requests a second are sent at most; `None` as long as nothing was throttled.
    #[must_use]
    pub fn per_second(&self) -> Option<f64> {
        self.core.line().rate.per_second()
    }
}

impl<R> Core<R> {
    /// Numbers are whole between any two of its methods, so a panic elsewhere does no harm.
    pub(super) fn line(&self) -> MutexGuard<'_, Line<Waker>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something now, and wakes whom that concerns: without the lock, for what wakes them is
    /// not ours. Gives what else came of it, to be dropped without the lock too.
    pub(super) fn change<T>(
        &self,
        how: impl FnOnce(&mut Line<Waker>, Duration) -> (Vec<Waker>, T),
    ) -> T {
        let (woken, answer) = how(&mut self.line(), self.clock.now());
        woken.into_iter().for_each(Waker::wake);
        answer
    }
}

impl<S, R> Layer<S> for AdaptiveLayer<R> {
    type Service = Adaptive<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Adaptive::new(inner, Arc::clone(&self.core))
    }
}

impl<R> Clone for AdaptiveLayer<R> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<R> fmt::Debug for AdaptiveLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLayer")
            .field("rate", &self.core.line().rate)
            .finish_non_exhaustive()
    }
}
