//! Readiness and call.

use std::fmt;
use std::task::{Context, Poll};

use tower_service::Service;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{Classify, Counted, Describe, HeldError, Sharing};

use crate::ending::{Finish, Keep};
use crate::future::ResponseFuture;
use crate::layer::Core;
use crate::write::Facts;

/// The service of an [`EscalateLayer`](crate::EscalateLayer).
///
/// A readiness error of the inner service is kept, and is the outcome of the next call: so it is
/// classified and told of like any other failure.
pub struct Escalate<S, R, D, E, M: Sharing<Core<R, D>> = Counted> {
    pub(crate) inner: S,
    pub(crate) core: M::Handle,
    pub(crate) held: HeldError<E>,
}

impl<S, R, D, E, M: Sharing<Core<R, D>>> Escalate<S, R, D, E, M> {
    pub(crate) fn new(inner: S, core: Core<R, D>) -> Self {
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

impl<S, Req, R, D, E, M> Service<Req> for Escalate<S, R, D, E, M>
where
    M: Sharing<Core<R, D>>,
    S: Service<Req, Error = E>,
    R: Classify<S::Response, E> + Describe<Req>,
    D: Finish<S::Response, E> + Keep<S, Req>,
{
    type Response = S::Response;
    type Error = E;
    type Future = ResponseFuture<S::Future, S::Response, E, R, D, M, D::Kept>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.held.poll_ready(&mut self.inner, cx).map(Ok)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn call(&mut self, request: Req) -> Self::Future {
        let scope = Scope::join();
        let core = M::hold(&mut self.core);
        let facts = Facts::read(core.classifier.rules(), &request);
        let kept = core.ending.keep(&self.inner, &request);
        match self.held.take() {
            Some(error) => ResponseFuture::failed(error, scope, core, facts, kept),
            None => {
                let inner = incident::call(&mut self.inner, request);
                ResponseFuture::calling(inner, scope, core, facts, kept)
            }
        }
    }
}

/// Readiness, and a readiness error, belong to one instance and stay there.
impl<S: Clone, R, D, E, M: Sharing<Core<R, D>>> Clone for Escalate<S, R, D, E, M> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), core: self.core.clone(), held: HeldError::none() }
    }
}

impl<S: fmt::Debug, R, D, E, M: Sharing<Core<R, D>>> fmt::Debug for Escalate<S, R, D, E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Escalate")
            .field("inner", &self.inner)
            .field("reporter", &self.core.reporter)
            .finish_non_exhaustive()
    }
}
