//! The future of a call: fused while all is well, then the layers' own.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::classify::Classify;
use crate::fuse::{Fusible, OutcomeOf, Shared};
use crate::incident::{self, Scope};
use crate::label::Operation;
use crate::share::{Counted, Sharing};

pin_project! {
    /// The future of a call through a [`Fused`](crate::fuse::Fused) stack.
    ///
    /// # Cancel safety
    /// That of the layers: dropped before its end the call is nobody's success or failure, gives its
    /// probe slot back, and leaves no task and no timer behind.
    ///
    /// # Panics
    /// If it is polled after it was ready.
    pub struct ResponseFuture<L, R, Req, M = Counted>
    where
        L: Fusible<R, Req>,
        M: Sharing<Shared<R, L::Cores>>,
    {
        #[pin]
        pub(super) state: State<<L::Innermost as Service<Req>>::Future, L::Future>,
        pub(super) shared: M::Held,
        pub(super) operation: Operation,
        pub(super) kept: L::Kept,
        pub(super) scope: Scope,
    }

    impl<L, R, Req, M> PinnedDrop for ResponseFuture<L, R, Req, M>
    where
        L: Fusible<R, Req>,
        M: Sharing<Shared<R, L::Cores>>,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if matches!(*this.state, State::Begun | State::Fused { .. }) {
                let cores = &this.shared.cores;
                let end = || this.state.set(State::Done);
                L::dropped(cores, this.kept, this.operation, this.scope, end);
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<F, G> {
        /// The innermost service is still to be called.
        Begun,
        Fused { #[pin] future: F },
        /// Boxed: off the happy path's future.
        Layered { future: Pin<Box<G>> },
        Done,
    }
}

impl<L, R, Req, M> ResponseFuture<L, R, Req, M>
where
    L: Fusible<R, Req>,
    M: Sharing<Shared<R, L::Cores>>,
{
    /// A call that begins.
    #[inline]
    pub(super) fn new(shared: M::Held, operation: Operation, scope: Scope) -> Self {
        Self { state: State::Begun, shared, operation, kept: L::Kept::default(), scope }
    }

    /// A call that the layers make.
    #[cold]
    pub(super) fn layered(shared: M::Held, future: L::Future) -> Self {
        let mut call = Self::new(shared, Operation::EMPTY, Scope::member());
        call.state = State::Layered { future: Box::pin(future) };
        call
    }

    /// A layer does not let the call through.
    #[cold]
    pub(super) fn not_admitted(&mut self) {
        let Self { shared, operation, kept, scope, .. } = self;
        self.state = go_on::<L, R, Req>(&shared.cores, kept, operation, scope, None);
    }
}

type StateOf<L, R, Req> =
    State<<<L as Fusible<R, Req>>::Innermost as Service<Req>>::Future, <L as Service<Req>>::Future>;

/// The layers go on, with what the innermost service gave, if it was called.
#[cold]
fn go_on<L, R, Req>(
    cores: &L::Cores,
    kept: &mut L::Kept,
    operation: &Operation,
    scope: &mut Scope,
    outcome: Option<OutcomeOf<L, Req>>,
) -> StateOf<L, R, Req>
where
    L: Fusible<R, Req>,
{
    let (kept, scope) = (mem::take(kept), mem::replace(scope, Scope::member()));
    State::Layered { future: Box::pin(L::go_on(cores, kept, operation, scope, outcome)) }
}

impl<L, R, Req, M> Future for ResponseFuture<L, R, Req, M>
where
    L: Fusible<R, Req>,
    R: Classify<L::Response, L::Error>,
    M: Sharing<Shared<R, L::Cores>>,
{
    type Output = Result<L::Response, L::Error>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StateProj::Fused { future } = this.state.as_mut().project() {
            let entered = this.scope.enter();
            let span = L::span(this.kept);
            // Looked at where it is, not moved out and back.
            let mut polled = future.poll(cx);
            drop(span);
            let Poll::Ready(outcome) = &mut polled else { return Poll::Pending };
            let Shared { classifier, cores, .. } = &**this.shared;
            let verdict = classifier.judge(this.operation, outcome.as_ref());
            if verdict.is_success()
                && !incident::has_begun()
                && L::succeeded(cores, this.kept, this.operation, outcome)
            {
                this.state.set(State::Done);
                classifier.finish(entered, true, outcome);
                return polled;
            }
            drop(entered);
            let outcome = Some(ready!(polled));
            this.state.set(go_on::<L, R, Req>(
                cores,
                this.kept,
                this.operation,
                this.scope,
                outcome,
            ));
        }
        poll_layers(this.state, cx)
    }
}

#[cold]
fn poll_layers<F, G: Future>(
    mut state: Pin<&mut State<F, G>>,
    cx: &mut Context<'_>,
) -> Poll<G::Output> {
    match state.as_mut().project() {
        StateProj::Layered { future } => {
            let output = ready!(future.as_mut().poll(cx));
            state.set(State::Done);
            Poll::Ready(output)
        }
        StateProj::Begun | StateProj::Fused { .. } | StateProj::Done => {
            panic!("polled after it was ready")
        }
    }
}

impl<L, R, Req, M> fmt::Debug for ResponseFuture<L, R, Req, M>
where
    L: Fusible<R, Req>,
    M: Sharing<Shared<R, L::Cores>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Begun | State::Fused { .. } => "fused",
            State::Layered { .. } => "layered",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
