//! From the headers to the first frame.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Response, Version};
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower_triage_core::{ClassifyError, Operation};

use super::{PeekBody, Peeked};
use crate::decision::STATUS;
use crate::details::remove_unreadable;
use crate::errors::GrpcErrors;

pin_project! {
    /// The future of a [`Peek`](crate::Peek).
    ///
    /// # Cancel safety
    /// Dropping it drops the call, or the answer, and nothing else.
    pub struct PeekFuture<F, B> {
        #[pin]
        state: State<F, B>,
        operation: Operation,
        wait: Duration,
    }
}

pin_project! {
    #[project = StateProj]
    #[project_replace = StateOwned]
    enum State<F, B> {
        Calling { #[pin] future: F },
        /// The headers are here, the first frame is not.
        Peeking { response: Response<B>, #[pin] limit: Sleep },
        Done,
    }
}

impl<F, B> PeekFuture<F, B> {
    pub(super) const fn new(future: F, operation: Operation, wait: Duration) -> Self {
        Self { state: State::Calling { future }, operation, wait }
    }
}

type First<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

impl<F, B, E> Future for PeekFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body + Unpin,
    GrpcErrors: ClassifyError<B::Error>,
{
    type Output = Result<Response<PeekBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let operation = *this.operation;
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let mut response = ready!(future.poll(cx))?;
                    remove_unreadable(response.headers_mut());
                    if !may_tell_more(&response) {
                        return Poll::Ready(Ok(unread(response, operation)));
                    }
                    if let Poll::Ready(first) = poll_first(&mut response, cx) {
                        return Poll::Ready(Ok(peeked(response, first, operation)));
                    }
                    if this.wait.is_zero() {
                        return Poll::Ready(Ok(unread(response, operation)));
                    }
                    let limit = sleep(*this.wait);
                    this.state.set(State::Peeking { response, limit });
                }
                StateProj::Peeking { response, limit } => {
                    let first = poll_first(response, cx);
                    if first.is_pending() {
                        ready!(limit.poll(cx));
                    }
                    let StateOwned::Peeking { response, .. } =
                        this.state.as_mut().project_replace(State::Done)
                    else {
                        unreachable!("the state was just looked at")
                    };
                    return Poll::Ready(Ok(match first {
                        Poll::Ready(first) => peeked(response, first, operation),
                        Poll::Pending => unread(response, operation),
                    }));
                }
                StateProj::Done => panic!("`PeekFuture` polled after it was ready"),
            }
        }
    }
}

/// Can the first frame say what the headers do not?
fn may_tell_more<B>(response: &Response<B>) -> bool {
    response.version() == Version::HTTP_2 && !response.headers().contains_key(STATUS)
}

fn poll_first<B: Body + Unpin>(response: &mut Response<B>, cx: &mut Context<'_>) -> Poll<First<B>> {
    Pin::new(response.body_mut()).poll_frame(cx)
}

fn unread<B: Body>(response: Response<B>, operation: Operation) -> Response<PeekBody<B>> {
    response.map(|body| PeekBody::new(None, body, operation))
}

fn peeked<B: Body>(
    mut response: Response<B>,
    mut first: First<B>,
    operation: Operation,
) -> Response<PeekBody<B>>
where
    GrpcErrors: ClassifyError<B::Error>,
{
    let said = match &mut first {
        None => Some(Peeked::End),
        Some(Err(error)) => Some(Peeked::Failed(GrpcErrors.error(error))),
        Some(Ok(frame)) => frame.trailers_mut().map(|trailers| {
            remove_unreadable(trailers);
            Peeked::Trailers(trailers.clone())
        }),
    };
    if let Some(said) = said {
        response.extensions_mut().insert(said);
    }
    response.map(|body| PeekBody::new(first, body, operation))
}

impl<F, B> fmt::Debug for PeekFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekFuture").field("operation", &self.operation).finish_non_exhaustive()
    }
}
