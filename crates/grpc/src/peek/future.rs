//! From the headers to the first frame.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http::{HeaderMap, Response, Version};
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};
use tonic::Code;
use tower_triage_core::{ClassifyError, Operation};

use super::{DeadlinePassed, PeekBody, Peeked};
use crate::code::code_of_header;
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
        call: Call,
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

/// What is known of the call.
#[derive(Clone, Copy)]
struct Call {
    operation: Operation,
    deadline: Option<Instant>,
    /// For the first frame.
    wait: Duration,
}

impl<F, B> PeekFuture<F, B> {
    pub(super) const fn new(
        future: F,
        operation: Operation,
        wait: Duration,
        deadline: Option<Instant>,
    ) -> Self {
        Self { state: State::Calling { future }, call: Call { operation, deadline, wait } }
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
        let call = *this.call;
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let mut response = ready!(future.poll(cx))?;
                    remove_unreadable(response.headers_mut());
                    if !may_tell_more(&response) {
                        return Poll::Ready(Ok(call.unread(response)));
                    }
                    if let Poll::Ready(first) = poll_first(&mut response, cx) {
                        return Poll::Ready(Ok(call.peeked(response, first)));
                    }
                    if call.wait.is_zero() {
                        return Poll::Ready(Ok(call.unread(response)));
                    }
                    this.state.set(State::Peeking { response, limit: sleep(call.wait) });
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
                        Poll::Ready(first) => call.peeked(response, first),
                        Poll::Pending => call.unread(response),
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

/// The first frame that says something. Some peers put an empty one before their trailers.
fn poll_first<B: Body + Unpin>(response: &mut Response<B>, cx: &mut Context<'_>) -> Poll<First<B>> {
    /// More in one go is nothing to look at.
    const EMPTY_ONES: u32 = 16;

    let mut body = Pin::new(response.body_mut());
    for _ in 0..EMPTY_ONES {
        match ready!(body.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) if frame.data_ref().is_some_and(|data| !data.has_remaining()) => {}
            first => return Poll::Ready(first),
        }
    }
    body.poll_frame(cx)
}

impl Call {
    fn unread<B: Body>(self, mut response: Response<B>) -> Response<PeekBody<B>> {
        if self.was_cancelled_late(response.headers()) {
            response.extensions_mut().insert(DeadlinePassed);
        }
        response.map(|body| PeekBody::new(None, body, self.operation))
    }

    fn peeked<B: Body>(
        self,
        mut response: Response<B>,
        mut first: First<B>,
    ) -> Response<PeekBody<B>>
    where
        GrpcErrors: ClassifyError<B::Error>,
    {
        let said = match &mut first {
            None => Some(Peeked::End),
            Some(Err(error)) => Some(Peeked::Failed(GrpcErrors.error(error))),
            Some(Ok(frame)) => frame.trailers_mut().map(|trailers| {
                remove_unreadable(trailers);
                if self.was_cancelled_late(trailers) {
                    response.extensions_mut().insert(DeadlinePassed);
                }
                Peeked::Trailers(trailers.clone())
            }),
        };
        if let Some(said) = said {
            response.extensions_mut().insert(said);
        }
        response.map(|body| PeekBody::new(first, body, self.operation))
    }

    fn was_cancelled_late(self, metadata: &HeaderMap) -> bool {
        let cancelled = metadata
            .get(STATUS)
            .is_some_and(|status| code_of_header(status.as_bytes()) == Code::Cancelled);
        cancelled && self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl<F, B> fmt::Debug for PeekFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekFuture")
            .field("operation", &self.call.operation)
            .finish_non_exhaustive()
    }
}
