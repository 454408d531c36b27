//! The future of a call through a breaker.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower_triage_core::incident::{self, Entered, Scope};
use tower_triage_core::{
    CircuitOpen, Classify, Counted, ErrorClass, Failure, LayerKind, Note, Operation, RetryAfter,
    Sharing, Verdict,
};

use crate::reject::Reject;
use crate::ticket::{Core, Ticket};

pin_project! {
    /// The future of a call through a [`CircuitBreaker`](crate::CircuitBreaker).
    ///
    /// # Cancel safety
    /// Dropped before its end, the call counts as neither success nor failure, has a counter of its
    /// own, and gives its probe slot back.
    ///
    /// # Panics
    /// If it is polled after it was ready.
    pub struct ResponseFuture<F, R, J, M = Counted>
    where
        M: Sharing<Core<R, J>>,
    {
        #[pin]
        state: State<F>,
        ticket: Ticket<R, J, M>,
        scope: Scope,
        operation: Operation,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Calling { #[pin] future: F },
        /// So much is left of the open time.
        Rejected { left: Duration },
        Done,
    }
}

impl<F, R, J, M: Sharing<Core<R, J>>> ResponseFuture<F, R, J, M> {
    #[inline]
    pub(crate) const fn calling(
        future: F,
        ticket: Ticket<R, J, M>,
        scope: Scope,
        operation: Operation,
    ) -> Self {
        Self { state: State::Calling { future }, ticket, scope, operation }
    }

    pub(crate) const fn rejected(
        left: Duration,
        ticket: Ticket<R, J, M>,
        scope: Scope,
        operation: Operation,
    ) -> Self {
        Self { state: State::Rejected { left }, ticket, scope, operation }
    }
}

impl<F, Res, E, R, J, M> Future for ResponseFuture<F, R, J, M>
where
    F: Future<Output = Result<Res, E>>,
    R: Classify<Res, E>,
    J: Reject<Res, E>,
    M: Sharing<Core<R, J>>,
{
    type Output = Result<Res, E>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let entered = this.scope.enter();
        match this.state.as_mut().project() {
            StateProj::Calling { future } => {
                // Looked at where it is, not moved out and back.
                let mut polled = future.poll(cx);
                let Poll::Ready(outcome) = &mut polled else { return Poll::Pending };
                let core = this.ticket.core();
                let verdict = core.classifier.judge(this.operation, outcome.as_ref());
                let success = verdict.is_success();
                if !success || incident::has_begun() || !this.ticket.count_plain() {
                    this.ticket.conclude(this.operation, &verdict, outcome);
                }
                this.state.set(State::Done);
                this.ticket.core().classifier.finish(entered, success, outcome);
                polled
            }
            StateProj::Rejected { left } => {
                let rejection = this.ticket.rejection(*left);
                this.state.set(State::Done);
                Poll::Ready(refuse(this.ticket.core(), entered, this.operation, &rejection))
            }
            StateProj::Done => panic!("polled after it was ready"),
        }
    }
}

/// What the caller gets instead of a call, recorded.
#[cold]
fn refuse<Res, E, R, J>(
    core: &Core<R, J>,
    entered: Entered<'_>,
    operation: &Operation,
    rejection: &CircuitOpen,
) -> Result<Res, E>
where
    R: Classify<Res, E>,
    J: Reject<Res, E>,
{
    core.classifier.note_rejection(operation, LayerKind::CircuitBreaker, rejection);
    let mut outcome = core.reject.reject(*rejection);
    if outcome.is_ok() {
        // A 503 of ours must not pass for one of the dependency's.
        let rejected = Failure::new(ErrorClass::Rejected)
            .retry_after(RetryAfter::AtLeast(rejection.retry_after()))
            .reason(CircuitOpen::REASON);
        core.classifier.annotate(&mut outcome, &Note::Verdict(Verdict::Failure(rejected)));
    }
    core.classifier.finish(entered, false, &mut outcome);
    outcome
}

impl<F, R, J, M: Sharing<Core<R, J>>> fmt::Debug for ResponseFuture<F, R, J, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Calling { .. } => "calling",
            State::Rejected { .. } => "rejected",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
