//! What happens after `call`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_triage_core::{Classify, ErrorClass, Operation, Verdict};

use crate::adaptive::layer::Core;

pin_project! {
    /// The future of [`Adaptive`](crate::Adaptive): the inner one's outcome, which it learns from.
    pub struct AdaptiveFuture<F, R> {
        #[pin]
        future: F,
        operation: Operation,
        core: Arc<Core<R>>,
    }
}

impl<F, R> AdaptiveFuture<F, R> {
    pub(super) const fn new(future: F, operation: Operation, core: Arc<Core<R>>) -> Self {
        Self { future, operation, core }
    }
}

impl<F, R, Res, E> Future for AdaptiveFuture<F, R>
where
    F: Future<Output = Result<Res, E>>,
    R: Classify<Res, E>,
{
    type Output = Result<Res, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = ready!(this.future.poll(cx));
        let throttled = match this.core.classifier.judge(this.operation, outcome.as_ref()) {
            Verdict::Success => Some(false),
            Verdict::Failure(failure) => match failure.class {
                ErrorClass::Throttled => Some(true),
                // Nothing was sent, or nobody waited for the answer.
                ErrorClass::Rejected | ErrorClass::Cancelled => None,
                _ => Some(false),
            },
        };
        match throttled {
            Some(throttled) => this.core.change(|line, now| (line.observe(throttled, now), ())),
            None => this.core.change(|line, now| (line.give_back(now), ())),
        }
        Poll::Ready(outcome)
    }
}

impl<F, R> fmt::Debug for AdaptiveFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveFuture").field("operation", &self.operation).finish_non_exhaustive()
    }
}
