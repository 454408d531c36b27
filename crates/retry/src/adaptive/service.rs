//! What `poll_ready` and `call` do.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Sleep;
use tower_service::Service;
use tower_triage_core::{Classify, Describe};

use crate::adaptive::future::AdaptiveFuture;
use crate::adaptive::layer::Core;

/// The service that [`AdaptiveLayer`](crate::AdaptiveLayer) makes: ready when the rate allows one
/// more request and the inner service is ready.
///
/// # Cancel safety
/// An instance that is dropped before it is called gives its turn back. A call that is dropped
/// teaches nothing.
pub struct Adaptive<S, R> {
    inner: S,
    turn: Turn<R>,
}

/// The right of one instance to send. Dropped before it is used, it is given back.
struct Turn<R> {
    core: Arc<Core<R>>,
    taken: Option<Wait>,
}

enum Wait {
    Until(Pin<Box<Sleep>>),
    Over,
}

impl<S, R> Adaptive<S, R> {
    pub(super) const fn new(inner: S, core: Arc<Core<R>>) -> Self {
        Self { inner, turn: Turn { core, taken: None } }
    }
}

impl<R> Turn<R> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let core = &self.core;
        let wait = self.taken.get_or_insert_with(|| {
            let wait = core.rate().take(core.clock.now());
            if wait.is_zero() {
                return Wait::Over;
            }
            tracing::debug!(?wait, "the dependency throttles: waiting before the next request");
            Wait::Until(Box::pin(tokio::time::sleep(wait)))
        });
        if let Wait::Until(sleep) = wait {
            ready!(sleep.as_mut().poll(cx));
            *wait = Wait::Over;
        }
        Poll::Ready(())
    }
}

impl<R> Drop for Turn<R> {
    fn drop(&mut self) {
        if self.taken.is_some() {
            self.core.rate().give_back();
        }
    }
}

impl<S, R, Req> Service<Req> for Adaptive<S, R>
where
    S: Service<Req>,
    R: Classify<S::Response, S::Error> + Describe<Req>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = AdaptiveFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.turn.poll(cx));
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let core = Arc::clone(&self.turn.core);
        let operation = core.classifier.rules().operation(&request);
        // The flag of the call stays up as it is: this layer records nothing of its own.
        let future = self.inner.call(request);
        self.turn.taken = None;
        AdaptiveFuture::new(future, operation, core)
    }
}

/// A clone has no turn of its own yet.
impl<S: Clone, R> Clone for Adaptive<S, R> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.turn.core))
    }
}

impl<S: fmt::Debug, R> fmt::Debug for Adaptive<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive").field("inner", &self.inner).finish_non_exhaustive()
    }
}
