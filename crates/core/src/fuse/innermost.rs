//! The service under a fused stack, as its layers see it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower_service::Service;
use tracing::span;

use crate::classifier::Classifier;
use crate::fuse::{Fusible, OutcomeOf, Part};
use crate::incident::Scope;
use crate::label::Operation;

/// The service that a fused stack is put around. A call of it may have ended before the layers get to
/// see it.
#[derive(Clone, Copy, Debug)]
pub struct Innermost<S>(pub(super) S);

pin_project! {
    /// A call of the innermost service.
    #[derive(Debug)]
    pub struct InnermostFuture<F, O> {
        #[pin]
        state: State<F, O>,
    }
}

pin_project! {
    #[project = StateProj]
    #[derive(Debug)]
    enum State<F, O> {
        Calling { #[pin] future: F },
        Ended { outcome: Option<O> },
    }
}

impl<S: Service<Req>, Req> Service<Req> for Innermost<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = InnermostFuture<S::Future, Result<S::Response, S::Error>>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        InnermostFuture { state: State::Calling { future: self.0.call(request) } }
    }
}

impl<F: Future> Future for InnermostFuture<F, F::Output> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().state.project() {
            StateProj::Calling { future } => future.poll(cx),
            StateProj::Ended { outcome } => match outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                // It was not called, so a layer above has an answer of its own.
                None => Poll::Pending,
            },
        }
    }
}

impl<S, R> Part<R> for Innermost<S> {
    type Cores = ();
    const TELLS: bool = false;

    fn cores(&self) {}

    fn is_fusible(&self, _classifier: &Classifier<R>) -> bool {
        true
    }
}

impl<S: Service<Req>, R, Req> Fusible<R, Req> for Innermost<S> {
    type Innermost = S;
    type Kept = ();
    const NAMES_SUCCESSES: bool = false;

    #[inline]
    fn is_ready(&self) -> bool {
        true
    }

    #[inline]
    fn begin(&mut self, (): &(), _request: &mut Req, (): &mut ()) {}

    #[inline]
    fn request<'a>((): &'a (), (): &'a ()) -> Option<&'a Req> {
        None
    }

    #[inline]
    fn is_admitted((): &()) -> bool {
        true
    }

    #[inline]
    fn innermost(&mut self) -> &mut S {
        &mut self.0
    }

    #[inline]
    fn span((): &()) -> Option<span::Entered<'_>> {
        None
    }

    #[inline]
    fn succeeded(
        (): &(),
        (): &mut (),
        _operation: Option<&Operation>,
        _outcome: &OutcomeOf<Self, Req>,
    ) -> bool {
        true
    }

    fn go_on(
        (): &(),
        (): (),
        _operation: &Operation,
        _scope: Scope,
        outcome: Option<OutcomeOf<Self, Req>>,
    ) -> Self::Future {
        InnermostFuture { state: State::Ended { outcome } }
    }

    fn dropped(
        (): &(),
        (): &mut (),
        _operation: Option<&Operation>,
        _scope: &mut Scope,
        end: impl FnOnce(),
    ) {
        end();
    }
}
