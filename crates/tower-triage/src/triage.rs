//! Four slots, one layer.

use tower_layer::{Identity, Layer};
use tower_triage_core::{Classifier, FuseLayer};

/// The four layers in their usual order as one [`Layer`]: escalate over fallback over retry over
/// breaker. Made by [`preset`](crate::preset), adjusted slot by slot.
///
/// A slot that holds [`Identity`] is left out and costs nothing. Each method takes what is in a
/// slot and puts in what the closure makes of it, so the type says what the stack consists of and
/// can be named in a struct.
///
/// ```
/// # #[cfg(all(feature = "retry", feature = "circuit-breaker", feature = "escalate", feature = "fallback"))] {
/// use tower::{ServiceBuilder, service_fn};
/// use tower_triage::{
///     AnyError, AnyOk, Chain, Classifier, Desk, ErrorClass, FallbackLayer, Halves, RetryPolicy, preset,
/// };
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let plan = RetryPolicy::default().attempts(5).build()?;
/// let layer = preset::service(classifier.clone(), Desk::log())
///     .retry(|retry| retry.policy(plan))
///     .fallback(|_| FallbackLayer::new(classifier).or_value(ErrorClass::Transient, |_| 0));
/// let stack = ServiceBuilder::new()
///     .layer(layer)
///     .service(service_fn(async |n: u32| Ok::<u32, AnyError>(n)));
/// # tower_triage::serving::<u32, _>(stack); }
/// # Ok::<(), tower_triage::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Triage<E = Identity, F = Identity, Y = Identity, B = Identity> {
    /// Outermost: what nothing below could solve.
    pub escalate: E,
    /// Another way to the same goal.
    pub fallback: F,
    /// The same thing again.
    pub retry: Y,
    /// Innermost: is it worth calling at all?
    pub breaker: B,
}

impl<E, F, Y, B> Triage<E, F, Y, B> {
    /// Changes the escalation slot.
    pub fn escalate<E2>(self, change: impl FnOnce(E) -> E2) -> Triage<E2, F, Y, B> {
        let Self { escalate, fallback, retry, breaker } = self;
        Triage { escalate: change(escalate), fallback, retry, breaker }
    }

    /// Changes the fallback slot.
    pub fn fallback<F2>(self, change: impl FnOnce(F) -> F2) -> Triage<E, F2, Y, B> {
        let Self { escalate, fallback, retry, breaker } = self;
        Triage { escalate, fallback: change(fallback), retry, breaker }
    }

    /// Changes the retry slot.
    pub fn retry<Y2>(self, change: impl FnOnce(Y) -> Y2) -> Triage<E, F, Y2, B> {
        let Self { escalate, fallback, retry, breaker } = self;
        Triage { escalate, fallback, retry: change(retry), breaker }
    }

    /// Changes the breaker slot.
    pub fn breaker<B2>(self, change: impl FnOnce(B) -> B2) -> Triage<E, F, Y, B2> {
        let Self { escalate, fallback, retry, breaker } = self;
        Triage { escalate, fallback, retry, breaker: change(breaker) }
    }

    /// Runs the slots as one, which does the same and costs less as long as nothing fails
    /// ([`fuse`](tower_triage_core::fuse), which names what differs). They judge by `classifier`; call
    /// it last.
    ///
    /// ```
    /// # #[cfg(all(feature = "retry", feature = "circuit-breaker", feature = "escalate"))] {
    /// use tower::{ServiceBuilder, service_fn};
    /// use tower_triage::{AnyError, AnyOk, Chain, Classifier, Desk, Halves, preset};
    ///
    /// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    /// let layer = preset::service(classifier.clone(), Desk::log()).fused(classifier);
    /// let stack = ServiceBuilder::new()
    ///     .layer(layer)
    ///     .service(service_fn(async |n: u32| Ok::<u32, AnyError>(n)));
    /// # tower_triage::serving::<u32, _>(stack); }
    /// ```
    pub const fn fused<R>(self, classifier: Classifier<R>) -> FuseLayer<Self, R> {
        FuseLayer::new(classifier, self)
    }
}

impl<S, E, F, Y, B> Layer<S> for Triage<E, F, Y, B>
where
    B: Layer<S>,
    Y: Layer<B::Service>,
    F: Layer<Y::Service>,
    E: Layer<F::Service>,
{
    type Service = E::Service;

    fn layer(&self, inner: S) -> Self::Service {
        self.escalate.layer(self.fallback.layer(self.retry.layer(self.breaker.layer(inner))))
    }
}
