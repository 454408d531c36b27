//! The future of a call: fused while all is well, then the layers' own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::classify::Classify;
use crate::describe::Describe;
use crate::fuse::{Fusible, Shared};
use crate::incident::record::guarded;
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
        R: Describe<Req>,
        M: Sharing<Shared<R, L::Cores>>,
    {
        #[pin]
        pub(super) state: State<<L::Innermost as Service<Req>>::Future, L::Future>,
        pub(super) shared: M::Held,
        // If no layer keeps the request, to be named when there is something to tell.
        pub(super) operation: Option<Operation>,
        pub(super) kept: L::Kept,
        pub(super) scope: Scope,
    }

    impl<L, R, Req, M> PinnedDrop for ResponseFuture<L, R, Req, M>
    where
        L: Fusible<R, Req>,
        R: Describe<Req>,
        M: Sharing<Shared<R, L::Cores>>,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if matches!(*this.state, State::Begun | State::Fused { .. }) {
                // The request is read only if there is something to tell. What reads it is the user's: a
                // panic there, maybe while unwinding, would abort the process.
                let named = this.operation.as_ref();
                let name = || guarded(|| this.shared.operation::<L, Req>(this.kept, named));
                let operation = this.scope.has_record().then(|| name().unwrap_or_default());
                let end = || this.state.set(State::Done);
                L::dropped(&this.shared.cores, this.kept, operation.as_ref(), this.scope, end);
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<F, G> {
        /// The innermost service is still to be called, or has answered and the layers are still to see
        /// that.
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
    R: Describe<Req>,
    M: Sharing<Shared<R, L::Cores>>,
{
    /// A call that begins.
    #[inline]
    pub(super) fn new(shared: M::Held, scope: Scope) -> Self {
        Self { state: State::Begun, shared, operation: None, kept: L::Kept::default(), scope }
    }

    /// A call that the layers make.
    #[cold]
    pub(super) fn layered(shared: M::Held, future: L::Future) -> Self {
        let mut call = Self::new(shared, Scope::member());
        call.state = State::Layered { future: Box::pin(future) };
        call
    }

    /// A layer does not let the call through.
    #[cold]
    pub(super) fn not_admitted(&mut self) {
        let Self { shared, operation, kept, scope, .. } = self;
        let layers = shared.go_on::<L, Req>(kept, operation.as_ref(), scope, None);
        self.state = State::Layered { future: layers };
    }
}

impl<L, R, Req, M> Future for ResponseFuture<L, R, Req, M>
where
    L: Fusible<R, Req>,
    R: Classify<L::Response, L::Error> + Describe<Req>,
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
            let Poll::Ready(outcome) = &mut polled else { return Poll::Pending };
            // What it says on its way out belongs to the attempt's span.
            this.state.set(State::Begun);
            drop(span);
            let shared: &Shared<R, L::Cores> = this.shared;
            let named = this.operation.as_ref();
            if shared.classifier.passes(outcome.as_ref())
                && !incident::has_begun()
                && L::succeeded(&shared.cores, this.kept, named, outcome)
            {
                this.state.set(State::Done);
                shared.classifier.finish(entered, true, outcome);
                return polled;
            }
            drop(entered);
            let outcome = Some(ready!(polled));
            let layers = shared.go_on::<L, Req>(this.kept, named, this.scope, outcome);
            this.state.set(State::Layered { future: layers });
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
    R: Describe<Req>,
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
