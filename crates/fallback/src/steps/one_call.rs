//! Readiness, then one call: how a step uses a service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;
use tower_triage_core::incident;

pin_project! {
    /// Polls a service ready and calls that same instance. If it joins, layers of ours inside belong
    /// to the call that the fallback is for; else it is a call of its own.
    pub struct OneCall<S: Service<Req>, Req> {
        #[pin]
        state: State<S, Req, S::Future>,
        joins: bool,
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
        Self { state: State::Readying { service, request: Some(request) }, joins: true }
    }

    /// A call of its own: a part of a decomposed one.
    pub(crate) fn on_its_own(service: S, request: Req) -> Self {
        Self { joins: false, ..Self::new(service, request) }
    }
}

impl<S: Service<Req>, Req> Future for OneCall<S, Req> {
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut state = this.state;
        loop {
            match state.as_mut().project() {
                StateProj::Readying { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    let request = request.take().expect("polled after it was ready");
                    let future = match this.joins {
                        true => incident::call(service, request),
                        false => service.call(request),
                    };
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
