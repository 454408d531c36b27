//! The future of a call through a breaker.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_triage_core::incident::Scope;
use tower_triage_core::{
    CircuitOpen, Classify, ErrorClass, Failure, LayerKind, Note, Operation, RetryAfter, Verdict,
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
    pub struct ResponseFuture<F, R, J> {
        #[pin]
        state: State<F>,
        ticket: Ticket<R, J>,
        scope: Scope,
        operation: Operation,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Calling { #[pin] future: F },
        Rejected { rejection: CircuitOpen },
        Done,
    }
}

impl<F, R, J> ResponseFuture<F, R, J> {
    pub(crate) const fn calling(
        future: F,
        ticket: Ticket<R, J>,
        scope: Scope,
        operation: Operation,
    ) -> Self {
        Self { state: State::Calling { future }, ticket, scope, operation }
    }

    pub(crate) const fn rejected(
        rejection: CircuitOpen,
        ticket: Ticket<R, J>,
        scope: Scope,
        operation: Operation,
    ) -> Self {
        Self { state: State::Rejected { rejection }, ticket, scope, operation }
    }
}

impl<F, Res, E, R, J> Future for ResponseFuture<F, R, J>
where
    F: Future<Output = Result<Res, E>>,
    R: Classify<Res, E>,
    J: Reject<Res, E>,
{
    type Output = Result<Res, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let entered = this.scope.enter();
        let outcome = match this.state.as_mut().project() {
            StateProj::Calling { future } => {
                let mut outcome = ready!(future.poll(cx));
                let verdict = this.ticket.core().classifier.judge(this.operation, outcome.as_ref());
                let transition = this.ticket.settle(&verdict);
                let core = this.ticket.core();
                core.conclude(entered, this.operation, &verdict, transition, &mut outcome);
                outcome
            }
            StateProj::Rejected { rejection } => {
                let core = this.ticket.core();
                let mut outcome = refuse(core, this.operation, rejection);
                core.classifier.finish(entered, false, &mut outcome);
                outcome
            }
            StateProj::Done => panic!("polled after it was ready"),
        };
        this.state.set(State::Done);
        Poll::Ready(outcome)
    }
}

/// What the caller gets instead of a call, recorded.
#[cold]
fn refuse<Res, E, R, J>(
    core: &Core<R, J>,
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
    outcome
}

impl<F, R, J> fmt::Debug for ResponseFuture<F, R, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Calling { .. } => "calling",
            State::Rejected { .. } => "rejected",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
