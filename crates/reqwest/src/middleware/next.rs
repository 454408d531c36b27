//! The innermost service of a stack that is a middleware: it hands requests to `handle`, which alone
//! has the `Next` to run them with.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::Next;
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;
use tower_triage_core::{AnyError, ErrorClass, Failure, ToFailure};

use super::errors::from_middleware;
use crate::outgoing::Marked;

/// Sends a request down the middleware chain that the stack is a part of. The leaf of
/// [`StackMiddleware`](crate::StackMiddleware): layers are put around it by `StackMiddleware::new`.
///
/// Always ready. Each request gets the extensions that came into the stack, and what the layers above
/// added; what the chain adds to them is not there in the next attempt.
///
/// # Errors
/// Those of the chain: the client's as [`reqwest::Error`], all others as what they are. [`Gone`] if
/// whoever ran the stack is not there any more, and for a request that did not come through it.
#[derive(Clone, Copy, Debug)]
pub struct NextService;

/// Where a request goes that has come to the end of the stack; among the request's marks, so that it
/// gets there from any task.
#[derive(Clone)]
pub(super) struct Uplink(mpsc::UnboundedSender<Job>);

/// One attempt.
pub(super) struct Job {
    request: Request,
    extensions: Extensions,
    answer: oneshot::Sender<Result<Response, AnyError>>,
}

impl Uplink {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Job>) {
        let (jobs, queue) = mpsc::unbounded_channel();
        (Self(jobs), queue)
    }
}

impl Job {
    /// Runs the attempt, until it has its outcome or nobody waits for it any more (a time limit in the
    /// stack dropped it). Gives the extensions as the chain left them.
    pub(super) async fn run(self, next: Next<'_>) -> Option<Extensions> {
        let Self { request, mut extensions, mut answer } = self;
        let outcome = tokio::select! {
            biased;
            () = answer.closed() => return None,
            outcome = next.run(request, &mut extensions) => outcome,
        };
        // If it was dropped just now, nobody has lost anything.
        let _ = answer.send(outcome.map_err(from_middleware));
        Some(extensions)
    }
}

impl Service<Marked> for NextService {
    type Response = Response;
    type Error = AnyError;
    type Future = NextFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Marked) -> NextFuture {
        let Marked { request, mut extensions } = request;
        let (answer, outcome) = oneshot::channel();
        if let Some(Uplink(jobs)) = extensions.remove() {
            // A job that nobody takes drops its sender, which the future sees.
            let _ = jobs.send(Job { request, extensions, answer });
        }
        NextFuture { outcome }
    }
}

/// The future of [`NextService`].
///
/// # Cancel safety
/// Dropping it drops the attempt.
#[derive(Debug)]
pub struct NextFuture {
    outcome: oneshot::Receiver<Result<Response, AnyError>>,
}

impl Future for NextFuture {
    type Output = Result<Response, AnyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(
            ready!(Pin::new(&mut self.outcome).poll(cx)).unwrap_or_else(|_| Err(Gone.into())),
        )
    }
}

/// An attempt had no chain to go down: the call that it belonged to had ended, or the request did not
/// come through the middleware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the middleware call that this attempt belongs to is over")
    }
}

impl std::error::Error for Gone {}

impl ToFailure for Gone {
    fn to_failure(&self) -> Failure {
        Failure::new(ErrorClass::Cancelled).reason("middleware_gone")
    }
}
