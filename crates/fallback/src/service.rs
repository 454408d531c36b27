//! The service: readiness, and the primary call.

use std::fmt;
use std::task::{Context, Poll};

use tower_service::Service;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{Classify, Counted, Describe, HeldError, Sharing};

use crate::chain::Steps;
use crate::future::ResponseFuture;
use crate::keep::{Keep, Keeping};
use crate::layer::Core;

/// The service that [`FallbackLayer`](crate::FallbackLayer) makes.
pub struct Fallback<S, R, T, K: Keeping, M: Sharing<Core<R, T, K>> = Counted> {
    pub(crate) inner: S,
    pub(crate) core: M::Handle,
    /// The inner service was not ready and said why: the outcome of the next call.
    pub(crate) held: HeldError<K::Error>,
}

impl<S, R, T, K: Keeping, M: Sharing<Core<R, T, K>>> Fallback<S, R, T, K, M> {
    pub(crate) fn new(inner: S, core: Core<R, T, K>) -> Self {
        Self { inner, core: M::share(core), held: HeldError::none() }
    }

    /// The wrapped service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The wrapped service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The wrapped service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req, R, T, K, M> Service<Req> for Fallback<S, R, T, K, M>
where
    S: Service<Req>,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    T: Steps<S, Req, K>,
    K: Keep<S, Req>,
    M: Sharing<Core<R, T, K>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Req, R, T, K, M>;

    /// Never an error: a readiness error of the wrapped service becomes the outcome of the next
    /// call, so that it is classified and can be answered like any other failure.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.held.poll_ready(&mut self.inner, cx).map(Ok)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn call(&mut self, request: Req) -> Self::Future {
        let scope = Scope::join();
        let core = M::hold(&mut self.core);
        let operation = core.classifier.rules().operation(&request);
        match self.held.take() {
            None => {
                let kept = core.keep.copy(&self.inner, &request);
                let future = incident::call(&mut self.inner, request);
                ResponseFuture::sent(core, scope, operation, kept, future)
            }
            Some(error) => {
                let kept = core.keep.keep(&self.inner, request);
                ResponseFuture::held(core, scope, operation, kept, error)
            }
        }
    }
}

/// By hand: a held readiness error belongs to the instance that was polled.
impl<S, R, T, K, M> Clone for Fallback<S, R, T, K, M>
where
    S: Clone,
    K: Keeping,
    M: Sharing<Core<R, T, K>>,
{
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), core: self.core.clone(), held: HeldError::none() }
    }
}

impl<S, R, T, K, M> fmt::Debug for Fallback<S, R, T, K, M>
where
    S: fmt::Debug,
    K: Keeping,
    M: Sharing<Core<R, T, K>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").field("inner", &self.inner).finish_non_exhaustive()
    }
}
