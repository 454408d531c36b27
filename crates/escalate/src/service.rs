//! Readiness and call.

use std::fmt;
use std::task::{Context, Poll};

use tower_service::Service;
use tower_triage_core::incident::{Scope, calling};
use tower_triage_core::{Classify, Describe, HeldError, Shared};

use crate::finish::Finish;
use crate::future::ResponseFuture;
use crate::layer::Core;
use crate::write::Facts;

/// The service of an [`EscalateLayer`](crate::EscalateLayer).
///
/// A readiness error of the inner service is kept, and is the outcome of the next call: so it is
/// classified and told of like any other failure.
pub struct Escalate<S, R, D, E> {
    inner: S,
    shared: Shared<Core<R, D>>,
    held: HeldError<E>,
}

impl<S, R, D, E> Escalate<S, R, D, E> {
    pub(crate) const fn new(inner: S, shared: Shared<Core<R, D>>) -> Self {
        Self { inner, shared, held: HeldError::none() }
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

impl<S, Req, R, D, E> Service<Req> for Escalate<S, R, D, E>
where
    S: Service<Req, Error = E>,
    R: Classify<S::Response, E> + Describe<Req>,
    D: Finish<S::Response, E>,
{
    type Response = S::Response;
    type Error = E;
    type Future = ResponseFuture<S::Future, S::Response, E, R, D>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.held.poll_ready(&mut self.inner, cx).map(Ok)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let scope = Scope::join();
        let shared = self.shared.clone();
        let facts = Facts::read(shared.classifier.rules(), &request);
        match self.held.take() {
            Some(error) => ResponseFuture::failed(error, scope, shared, facts),
            None => {
                let inner = calling(|| self.inner.call(request));
                ResponseFuture::calling(inner, scope, shared, facts)
            }
        }
    }
}

/// Readiness, and a readiness error, belong to one instance and stay there.
impl<S: Clone, R, D, E> Clone for Escalate<S, R, D, E> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.shared.clone())
    }
}

impl<S: fmt::Debug, R, D, E> fmt::Debug for Escalate<S, R, D, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Escalate")
            .field("inner", &self.inner)
            .field("reporter", &self.shared.reporter)
            .finish_non_exhaustive()
    }
}
