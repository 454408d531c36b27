//! The body of an answer that was looked at.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::look::Look;

/// A body under a [`PeekLayer`](crate::PeekLayer): first the frames that were looked at, as they came,
/// then the rest. Length, trailers and errors are the body's own.
pub struct PeekBody<B: Body> {
    /// Read already, in order.
    seen: VecDeque<Frame<B::Data>>,
    seen_bytes: u64,
    /// The error behind what was read already.
    failed: Option<B::Error>,
    /// `None` once it has ended.
    rest: Option<B>,
    pub(super) look: Option<Box<Look>>,
}

/// Nothing in it is pinned: a body is read only where it is `Unpin` itself.
impl<B: Body> Unpin for PeekBody<B> {}

/// What came of reading on.
pub(super) enum Read {
    Frame,
    Failed,
    Ended,
}

impl<B: Body> PeekBody<B> {
    pub(super) const fn new(body: B, look: Option<Box<Look>>) -> Self {
        Self { seen: VecDeque::new(), seen_bytes: 0, failed: None, rest: Some(body), look }
    }

    /// Frames that were read and not yet handed on.
    pub(super) fn frames(&self) -> usize {
        self.seen.len()
    }
}

impl<B: Body<Data = Bytes> + Unpin> PeekBody<B> {
    /// Reads one frame, and keeps it to be handed on.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(Read::Ended) };
        Poll::Ready(match ready!(Pin::new(rest).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.seen_bytes = self.seen_bytes.saturating_add(data.len() as u64);
                    if let Some(look) = &mut self.look {
                        look.reader.feed(data);
                    }
                }
                self.seen.push_back(frame);
                Read::Frame
            }
            Some(Err(error)) => {
                (self.failed, self.rest) = (Some(error), None);
                Read::Failed
            }
            None => {
                self.rest = None;
                Read::Ended
            }
        })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for PeekBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if let Some(look) = &mut this.look {
            look.report(cx);
        }
        if let Some(frame) = this.seen.pop_front() {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            this.seen_bytes = this.seen_bytes.saturating_sub(bytes as u64);
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(rest).poll_frame(cx));
        match (&frame, &mut this.look) {
            (None, look) => {
                this.rest = None;
                if let Some(look) = look {
                    look.reader.finish();
                    look.report(cx);
                }
            }
            (Some(Ok(frame)), Some(look)) => {
                if let Some(data) = frame.data_ref() {
                    look.reader.feed(data);
                    look.report(cx);
                }
            }
            (Some(Err(_)), Some(look)) => look.broke(cx),
            (Some(_), None) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.seen.is_empty()
            && self.failed.is_none()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        // The upper bound first: the lower one must not be above it.
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(self.seen_bytes)) {
            hint.set_upper(upper);
        }
        hint.set_lower(rest.lower().saturating_add(self.seen_bytes));
        hint
    }
}

impl<B: Body> fmt::Debug for PeekBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither content nor error: debug output shows no body.
        f.debug_struct("PeekBody")
            .field("frames", &self.seen.len())
            .field("bytes", &self.seen_bytes)
            .finish_non_exhaustive()
    }
}
