//! Five slots, one layer.

use tower_layer::{Identity, Layer};

/// The layers of [`orchestrator()`](crate::preset::orchestrator()) in their order as one [`Layer`]:
/// escalate over fallback over breaker over retry over time limit. Adjusted slot by slot, as
/// [`Triage`](crate::Triage) is; a slot that holds [`Identity`] is left out.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Slots<E = Identity, F = Identity, B = Identity, Y = Identity, T = Identity> {
    /// Outermost: what nothing below could solve.
    pub escalate: E,
    /// Another way to the same goal.
    pub fallback: F,
    /// Is it worth calling at all? Outside the retry: it counts calls.
    pub breaker: B,
    /// The same thing again.
    pub retry: Y,
    /// Innermost: how long one attempt may take.
    pub timeout: T,
}

impl<E, F, B, Y, T> Slots<E, F, B, Y, T> {
    /// Changes the escalation slot.
    pub fn escalate<E2>(self, change: impl FnOnce(E) -> E2) -> Slots<E2, F, B, Y, T> {
        let Self { escalate, fallback, breaker, retry, timeout } = self;
        Slots { escalate: change(escalate), fallback, breaker, retry, timeout }
    }

    /// Changes the fallback slot.
    pub fn fallback<F2>(self, change: impl FnOnce(F) -> F2) -> Slots<E, F2, B, Y, T> {
        let Self { escalate, fallback, breaker, retry, timeout } = self;
        Slots { escalate, fallback: change(fallback), breaker, retry, timeout }
    }

    /// Changes the breaker slot.
    pub fn breaker<B2>(self, change: impl FnOnce(B) -> B2) -> Slots<E, F, B2, Y, T> {
        let Self { escalate, fallback, breaker, retry, timeout } = self;
        Slots { escalate, fallback, breaker: change(breaker), retry, timeout }
    }

    /// Changes the retry slot.
    pub fn retry<Y2>(self, change: impl FnOnce(Y) -> Y2) -> Slots<E, F, B, Y2, T> {
        let Self { escalate, fallback, breaker, retry, timeout } = self;
        Slots { escalate, fallback, breaker, retry: change(retry), timeout }
    }

    /// Changes the slot of the time limit.
    pub fn timeout<T2>(self, change: impl FnOnce(T) -> T2) -> Slots<E, F, B, Y, T2> {
        let Self { escalate, fallback, breaker, retry, timeout } = self;
        Slots { escalate, fallback, breaker, retry, timeout: change(timeout) }
    }
}

impl<S, E, F, B, Y, T> Layer<S> for Slots<E, F, B, Y, T>
where
    T: Layer<S>,
    Y: Layer<T::Service>,
    B: Layer<Y::Service>,
    F: Layer<B::Service>,
    E: Layer<F::Service>,
{
    type Service = E::Service;

    fn layer(&self, inner: S) -> Self::Service {
        let attempts = self.retry.layer(self.timeout.layer(inner));
        self.escalate.layer(self.fallback.layer(self.breaker.layer(attempts)))
    }
}
