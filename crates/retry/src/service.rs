//! What `poll_ready` and `call` do.

use std::fmt;
use std::task::{Context, Poll};

use tower_service::Service;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{Classify, Describe, Shared};

use crate::future::{About, Call, Kept, ResponseFuture};
use crate::layer::Core;
use crate::nudge::Nudge;
use crate::refresh::Refresh;
use crate::replay::{Release, Replay};
use crate::span::AttemptSpan;

/// The service that [`RetryLayer`](crate::RetryLayer) makes. Types of response and error are the
/// inner service's.
///
/// The first attempt is a call of the instance that was polled ready. Further ones go to a clone of
/// it, made only if the request was kept, which is polled ready before each of them.
///
/// # Cancel safety
/// A call that is dropped drops its attempt or its wait, and leaves no task and no timer behind.
pub struct Retry<S, R, P, N, F> {
    inner: S,
    core: Shared<Core<R, P, N, F>>,
}

impl<S, R, P, N, F> Retry<S, R, P, N, F> {
    pub(crate) const fn new(inner: S, core: Shared<Core<R, P, N, F>>) -> Self {
        Self { inner, core }
    }
}

impl<S, R, P, N, F, Req> Service<Req> for Retry<S, R, P, N, F>
where
    P: Replay<Req> + Release<S::Response>,
    S: Service<P::Sent> + Clone,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    N: Nudge<P::Sent, S::Response, S::Error>,
    F: Refresh,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Req, R, P, N, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let scope = Scope::join();
        let core = self.core.clone();
        let rules = core.classifier.rules();
        let about = About {
            operation: rules.operation(&request),
            repeatable: rules.repeatable(&request),
            unit_of_work: rules.unit_of_work(&request),
            deadline: core.deadline(rules.deadline(&request)),
        };
        let spending = core.budget.begin(core.budget_now());

        let (request, kept) = if core.plan.keeps(about.repeatable) {
            core.replay.keep(request)
        } else {
            (core.replay.once(request), Err("the policy keeps no request like this one"))
        };
        let kept = kept.map(|request| Kept { request, service: self.inner.clone() });
        let span = AttemptSpan::first();
        let future = {
            let _entered = span.enter();
            incident::calling(|| self.inner.call(request))
        };
        ResponseFuture::new(future, Call::new(core, about, spending, kept, span), scope)
    }
}

impl<S: Clone, R, P, N, F> Clone for Retry<S, R, P, N, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), core: self.core.clone() }
    }
}

impl<S: fmt::Debug, R, P, N, F> fmt::Debug for Retry<S, R, P, N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("inner", &self.inner).finish_non_exhaustive()
    }
}
