//! Readiness, then one call: how a step uses a service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;
use tower_triage_core::incident;

pin_project! {
    /// Polls a service ready and calls that same instance, so that layers of ours inside it join
    /// the call that the fallback is for.
    pub struct OneCall<S: Service<Req>, Req> {
        #[pin]
        state: State<S, Req, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req, F> {
        Readying { service: S, request: Option<Req> },
        Calling { #[pin] future: F },
    }
}

impl<S: Service<Req>, Req> OneCall<S, Req> {
    /// One call of `service`, which has yet to be polled ready.
    #[must_use]
    pub const fn new(service: S, request: Req) -> Self {
        Self { state: State::Readying { service, request: Some(request) } }
    }
}

impl<S: Service<Req>, Req> Future for OneCall<S, Req> {
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Readying { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    let request = request.take().expect("polled after it was ready");
                    let future = incident::call(service, request);
                    state.set(State::Calling { future });
                }
                StateProj::Calling { future } => return future.poll(cx),
            }
        }
    }
}

impl<S: Service<Req>, Req> fmt::Debug for OneCall<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneCall").finish_non_exhaustive()
    }
}
