//! What `poll_ready` and `call` do.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;
use tower_service::Service;
use tower_triage_core::{Classify, Describe};

use crate::adaptive::future::AdaptiveFuture;
use crate::adaptive::layer::Core;

/// The service that [`AdaptiveLayer`](crate::AdaptiveLayer) makes: ready when the rate allows one
/// more request and the inner service is ready.
///
/// # Cancel safety
/// An instance that is dropped before it is called leaves the line, or gives its turn to the next. A
/// call that is dropped teaches nothing.
pub struct Adaptive<S, R> {
    inner: S,
    turn: Turn<R>,
}

/// The right of one instance to send. Dropped before it is used, it is given back.
struct Turn<R> {
    core: Arc<Core<R>>,
    state: State,
}

enum State {
    /// Wants nothing.
    Idle,
    /// Stands in line, and asks again after a while if it is not woken before.
    Waiting { place: u64, sleep: Pin<Box<Sleep>> },
    /// May send.
    Ready,
}

impl<S, R> Adaptive<S, R> {
    pub(super) const fn new(inner: S, core: Arc<Core<R>>) -> Self {
        Self { inner, turn: Turn { core, state: State::Idle } }
    }
}

impl<R> Turn<R> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.state {
                State::Ready => return Poll::Ready(()),
                State::Idle => {
                    if self.core.line().take(self.core.clock.now()) {
                        self.state = State::Ready;
                        continue;
                    }
                    // Both before there is a place: nothing foreign runs under the lock, and without
                    // a runtime nobody stands in line.
                    let waker = cx.waker().clone();
                    let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
                    let place = self.core.line().join(waker);
                    tracing::debug!("the dependency throttles: in line for the next request");
                    self.state = State::Waiting { place, sleep };
                }
                State::Waiting { place, sleep } => {
                    let mut waker = cx.waker().clone();
                    let left = self
                        .core
                        .change(|line, now| (line.serve(now), line.wait(*place, &mut waker, now)));
                    let Some(left) = left else {
                        self.state = State::Ready;
                        continue;
                    };
                    sleep.set(tokio::time::sleep(left));
                    ready!(sleep.as_mut().poll(cx));
                }
            }
        }
    }
}

impl<R> Drop for Turn<R> {
    fn drop(&mut self) {
        match self.state {
            State::Idle => {}
            State::Waiting { place, .. } => {
                drop(self.core.change(|line, now| line.leave(place, now)));
            }
            State::Ready => self.core.change(|line, now| (line.give_back(now), ())),
        }
    }
}

impl<S, R, Req> Service<Req> for Adaptive<S, R>
where
    S: Service<Req>,
    R: Classify<S::Response, S::Error> + Describe<Req>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = AdaptiveFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.turn.poll(cx));
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let core = Arc::clone(&self.turn.core);
        let operation = core.classifier.rules().operation(&request);
        // The flag of the call stays up as it is: this layer records nothing of its own.
        let future = self.inner.call(request);
        // One that was not ready keeps its place in line.
        if matches!(self.turn.state, State::Ready) {
            self.turn.state = State::Idle;
        }
        AdaptiveFuture::new(future, operation, core)
    }
}

/// A clone has no turn of its own yet.
impl<S: Clone, R> Clone for Adaptive<S, R> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.turn.core))
    }
}

impl<S: fmt::Debug, R> fmt::Debug for Adaptive<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive").field("inner", &self.inner).finish_non_exhaustive()
    }
}
