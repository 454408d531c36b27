//! What happens after the call.

mod settle;
mod telling;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{Classify, Counted, Sharing};

use crate::ending::{Finish, Kept};
use crate::layer::Core;
use crate::write::Facts;
use settle::Settled;
use telling::Telling;

pin_project! {
    /// The response future of [`Escalate`](crate::Escalate).
    ///
    /// # Cancel safety
    /// Dropped while an escalation is being delivered, delivery goes on in the desk's queue; dropped
    /// while it waits for an answer, the question stays in the store, and an answer that sends the
    /// request again is acted upon by whoever drives letters again. Dropped before, the call is
    /// abandoned: somebody is told only if it met what must be told at once.
    pub struct ResponseFuture<F, Res, E, R, D, M = Counted, K = ()>
    where
        M: Sharing<Core<R, D>>,
        K: Kept<D, F, E>,
    {
        #[pin]
        state: State<F, Res, E>,
        scope: Scope,
        core: M::Held,
        facts: Facts,
        kept: K,
    }

    impl<F, Res, E, R, D, M, K> PinnedDrop for ResponseFuture<F, Res, E, R, D, M, K>
    where
        M: Sharing<Core<R, D>>,
        K: Kept<D, F, E>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if matches!(*this.state, State::Calling { .. }) {
                let core: &Core<R, D> = this.core;
                core.dropped(this.scope, || *this.facts, || this.kept.captured(&core.ending));
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, Res, E> {
        Calling { #[pin] inner: F },
        /// The inner service's readiness error, before it has been looked at.
        Held { error: Option<E> },
        /// Somebody is being told, or asked; the outcome waits for that, not for ever.
        Telling { telling: Option<Box<Telling<F, Res, E>>> },
        Done,
    }
}

impl<F, Res, E, R, D, M, K> ResponseFuture<F, Res, E, R, D, M, K>
where
    M: Sharing<Core<R, D>>,
    K: Kept<D, F, E>,
{
    #[inline]
    pub(crate) const fn calling(
        inner: F,
        scope: Scope,
        core: M::Held,
        facts: Facts,
        kept: K,
    ) -> Self {
        Self { state: State::Calling { inner }, scope, core, facts, kept }
    }

    pub(crate) const fn failed(
        error: E,
        scope: Scope,
        core: M::Held,
        facts: Facts,
        kept: K,
    ) -> Self {
        Self { state: State::Held { error: Some(error) }, scope, core, facts, kept }
    }
}

impl<F, Res, E, R, D, M, K> Future for ResponseFuture<F, Res, E, R, D, M, K>
where
    M: Sharing<Core<R, D>>,
    F: Future<Output = Result<Res, E>>,
    R: Classify<Res, E>,
    D: Finish<Res, E>,
    K: Kept<D, F, E>,
{
    type Output = Result<Res, E>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let core: &Core<R, D> = this.core;
        if let StateProj::Calling { inner } = this.state.as_mut().project() {
            let entered = this.scope.enter();
            // Looked at where it is, not moved out and back.
            let mut polled = inner.poll(cx);
            let Poll::Ready(outcome) = &mut polled else {
                if incident::has_begun() && !entered.is_owner() {
                    core.leave_early(this.facts, || this.kept.captured(&core.ending));
                }
                return Poll::Pending;
            };
            let verdict = core.classifier.judge(&this.facts.operation, outcome.as_ref());
            if verdict.is_success() && !incident::has_begun() {
                this.state.set(State::Done);
                core.classifier.finish(entered, true, outcome);
                return polled;
            }
            let outcome = ready!(polled);
            match core.settle(entered, this.facts, this.kept, verdict.failure(), outcome) {
                Settled::Done(outcome) => {
                    this.state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                Settled::Tell(telling) => {
                    this.state.set(State::Telling { telling: Some(telling) });
                }
            }
        }
        core.poll_rest(this.state, this.scope, this.facts, this.kept, cx)
    }
}

impl<F, Res, E, R, D, M, K> fmt::Debug for ResponseFuture<F, Res, E, R, D, M, K>
where
    M: Sharing<Core<R, D>>,
    K: Kept<D, F, E>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("scope", &self.scope).finish_non_exhaustive()
    }
}
