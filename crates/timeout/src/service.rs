//! What `poll_ready` and `call` do.

use std::fmt;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_service::Service;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{Classify, Counted, Describe, Sharing};

use crate::future::{ResponseFuture, Timing};
use crate::layer::Core;
use crate::reject::Reject;
use crate::soft::SoftLimit;
use crate::tell::Tell;

/// Calls the inner service and limits the time of each call; see [`TimeoutLayer`](crate::TimeoutLayer).
///
/// Readiness is the inner service's, for however long it takes: time runs from the call. A call that
/// finds its request's deadline passed leaves the inner service alone, which stays ready for the
/// next one.
///
/// # Cancel safety
/// A call that is dropped drops the inner one, and leaves no task and no timer behind.
pub struct Timeout<S, R, J, T, M: Sharing<Core<R, J, T>> = Counted> {
    inner: S,
    core: M::Handle,
}

impl<S, R, J, T, M: Sharing<Core<R, J, T>>> Timeout<S, R, J, T, M> {
    pub(crate) fn new(inner: S, core: Core<R, J, T>) -> Self {
        Self { inner, core: M::share(core) }
    }

    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R, J, T, M, Req> Service<Req> for Timeout<S, R, J, T, M>
where
    M: Sharing<Core<R, J, T>>,
    S: Service<Req>,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    J: Reject<S::Response, S::Error>,
    T: Tell<Req>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, J, T, M>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        let scope = Scope::join();
        let core = M::hold(&mut self.core);
        let rules = core.classifier.rules();
        let operation = rules.operation(&request);
        let deadline = rules.deadline(&request);
        let begun = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(begun));
        if left.is_some_and(|left| left.is_zero()) {
            return ResponseFuture::late(core, scope, operation);
        }
        let limit = SoftLimit::new(begun, core.plan.limits(left));
        core.tell.tell(&mut request, &limit.within_current());
        let future = limit.seen_by(|| incident::call(&mut self.inner, request));
        ResponseFuture::calling(future, Timing { begun, deadline, limit }, core, scope, operation)
    }
}

impl<S: Clone, R, J, T, M: Sharing<Core<R, J, T>>> Clone for Timeout<S, R, J, T, M> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), core: self.core.clone() }
    }
}

impl<S: fmt::Debug, R, J, T, M: Sharing<Core<R, J, T>>> fmt::Debug for Timeout<S, R, J, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("inner", &self.inner).finish_non_exhaustive()
    }
}
