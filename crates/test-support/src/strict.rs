//! A service that insists on the readiness contract.

use std::task::{Context, Poll};

use tower_service::Service;

/// Insists that what is called is what was polled ready: clones start unready, the first poll of
/// each is pending, and a call without readiness panics. So does readiness that is used twice.
#[derive(Debug)]
pub struct Strict<S> {
    inner: S,
    state: State,
}

#[derive(Debug, PartialEq)]
enum State {
    Fresh,
    Polled,
    Ready,
}

impl<S> Strict<S> {
    /// Insists on readiness before each call of `inner`.
    pub const fn new(inner: S) -> Self {
        Self { inner, state: State::Fresh }
    }
}

impl<S: Clone> Clone for Strict<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone())
    }
}

impl<S: Service<Req>, Req> Service<Req> for Strict<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.state == State::Fresh {
            self.state = State::Polled;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        std::task::ready!(self.inner.poll_ready(cx))?;
        self.state = State::Ready;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> S::Future {
        assert_eq!(self.state, State::Ready, "called without being polled ready");
        self.state = State::Fresh;
        self.inner.call(request)
    }
}
