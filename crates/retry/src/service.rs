//! What `poll_ready` and `call` do.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use tower_service::Service;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{Classify, Counted, Describe, Sharing};

use crate::future::{Call, ResponseFuture};
use crate::layer::Core;
use crate::nudge::Nudge;
use crate::refresh::Refresh;
use crate::replay::{Release, Replay};
use crate::span::AttemptSpan;

/// The service that [`RetryLayer`](crate::RetryLayer) makes. Types of response and error are the
/// inner service's.
///
/// The first attempt is a call of the instance that was polled ready. Further ones go to a clone of
/// the service that the layer was put around, made when the first one has failed, which is polled
/// ready before each of them.
///
/// # Cancel safety
/// A call that is dropped drops its attempt or its wait, and leaves no task and no timer behind.
pub struct Retry<S, R, P, N, F, M: Sharing<Stock<S, R, P, N, F>> = Counted> {
    pub(crate) inner: S,
    pub(crate) stock: M::Handle,
}

/// What the clones of one service share: the layer's part, and the service itself as a template for
/// further attempts, so that a call whose first attempt succeeds clones nothing. Opaque: it is named
/// in the types of service and future.
pub struct Stock<S, R, P, N, F> {
    pub(crate) core: Core<R, P, N, F>,
    template: Mutex<S>,
}

impl<S: Clone, R, P, N, F> Stock<S, R, P, N, F> {
    /// A service for further attempts, not yet polled ready.
    #[cold]
    pub(crate) fn service(&self) -> S {
        self.template.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: Clone, R, P, N, F, M: Sharing<Stock<S, R, P, N, F>>> Retry<S, R, P, N, F, M> {
    pub(crate) fn new(inner: S, core: Core<R, P, N, F>) -> Self {
        let template = Mutex::new(inner.clone());
        Self { inner, stock: M::share(Stock { core, template }) }
    }
}

impl<S, R, P, N, F, M, Req> Service<Req> for Retry<S, R, P, N, F, M>
where
    P: Replay<Req> + Release<S::Response>,
    S: Service<Req> + Clone,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    N: Nudge<Req, S::Response, S::Error>,
    F: Refresh,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Req, R, P, N, F, M>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn call(&mut self, mut request: Req) -> Self::Future {
        let scope = Scope::join();
        let stock = M::hold(&mut self.stock);
        let operation = stock.core.classifier.rules().operation(&request);
        let about = stock.core.read(&request);
        let spending = stock.core.deposit();
        let kept = stock.core.keep(&about, &mut request);
        let span = AttemptSpan::first();
        let future = {
            let _entered = span.enter();
            incident::call(&mut self.inner, request)
        };
        ResponseFuture::new(future, Call::new(stock, operation, about, spending, kept, span), scope)
    }
}

impl<S, R, P, N, F, M> Clone for Retry<S, R, P, N, F, M>
where
    S: Clone,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), stock: self.stock.clone() }
    }
}

impl<S, R, P, N, F> fmt::Debug for Stock<S, R, P, N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stock").field("policy", &*self.core.plan).finish_non_exhaustive()
    }
}

impl<S, R, P, N, F, M> fmt::Debug for Retry<S, R, P, N, F, M>
where
    S: fmt::Debug,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("inner", &self.inner).finish_non_exhaustive()
    }
}
