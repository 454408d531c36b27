//! The body of an answer that was looked at.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tonic::Code;
use tower_triage_core::Operation;

use crate::code::{code_of_header, reason};
use crate::decision::STATUS;
use crate::details::remove_unreadable;

/// The body of an answer under a [`PeekLayer`](crate::PeekLayer): the same frames, at the same time.
pub struct PeekBody<B: Body> {
    /// What was read ahead.
    first: Option<Result<Frame<B::Data>, B::Error>>,
    body: B,
    operation: Operation,
    /// A message, or a part of one, has reached the caller.
    begun: bool,
}

impl<B: Body> PeekBody<B> {
    pub(super) const fn new(
        first: Option<Result<Frame<B::Data>, B::Error>>,
        body: B,
        operation: Operation,
    ) -> Self {
        Self { first, body, operation, begun: false }
    }

    /// Nobody decides any more what becomes of a failure that comes now, so at least it is said.
    #[cold]
    fn late(&self, what: &'static str) {
        tracing::warn!(
            action = "late_failure",
            operation = self.operation.as_str(),
            reason = what,
            "the answer failed after its first message: {what}",
        );
    }

    fn look_at(&mut self, frame: &mut Result<Frame<B::Data>, B::Error>) {
        match frame {
            Ok(frame) => match frame.trailers_mut() {
                None => self.begun = true,
                Some(trailers) => {
                    remove_unreadable(trailers);
                    if let (true, Some(reason)) = (self.begun, failed(trailers)) {
                        self.late(reason);
                    }
                }
            },
            Err(_) if self.begun => self.late("the stream broke off"),
            Err(_) => {}
        }
    }
}

/// The reason that trailers give for a failure.
fn failed(trailers: &HeaderMap) -> Option<&'static str> {
    let code = code_of_header(trailers.get(STATUS)?.as_bytes());
    (code != Code::Ok).then(|| reason(code))
}

impl<B: Body + Unpin> Body for PeekBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let mut next = match this.first.take() {
            Some(first) => Some(first),
            None => ready!(Pin::new(&mut this.body).poll_frame(cx)),
        };
        if let Some(frame) = &mut next {
            this.look_at(frame);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = match &self.first {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Buf::remaining),
            Some(Err(_)) | None => 0,
        };
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ahead));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint
    }
}

/// `B` is `Unpin`, and what was read ahead is never pinned.
impl<B: Body + Unpin> Unpin for PeekBody<B> {}

impl<B: Body + Default> Default for PeekBody<B> {
    fn default() -> Self {
        Self::new(None, B::default(), Operation::EMPTY)
    }
}

impl<B: Body> fmt::Debug for PeekBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekBody")
            .field("operation", &self.operation)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}
