//! A request body that can be read again, whatever it streams from.

mod error;
mod layer;
mod source;
mod tape;

pub use self::{
    error::ReplayError,
    layer::{ReplayBodies, ReplayBodyLayer},
};

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::{fmt, mem};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tower_triage_core::BoxError;

use self::source::{Recording, Source, Taken};
use self::tape::{Cursor, Tape};
use crate::replayable::Replayable;

/// Bytes of data.
const DEFAULT_LIMIT: u64 = 64 * 1024;

/// The declared length is over the limit: the body was never copied.
const DECLARED_OVER_LIMIT: &str = "the request body's length is over the replay limit";
/// More came than the limit allows: what was copied is gone.
const READ_OVER_LIMIT: &str = "the request body grew over the replay limit";
/// Another attempt reads it.
const STILL_HELD: &str = "an earlier attempt still holds the request body";
/// The body itself gave an error: there is no rest to go on with.
const BODY_FAILED: &str = "the request body failed while it was sent";
/// Nobody wanted a copy when the first frame was read.
const READ_UNCOPIED: &str = "the request body was read before a copy of it was made";

/// No attempt came to its end.
#[cfg(feature = "escalate")]
const NOT_READ: &str = "the request body was not read to its end";
/// Trailers are not captured.
#[cfg(feature = "escalate")]
const TRAILERS: &str = "the request body has trailers";

/// A body whose clones give the same frames again: what one of them reads from the stream is kept
/// for the others, up to a limit, 64 KiB by default.
///
/// Put on once, at the top of a stack ([`ReplayBodyLayer`]); all layers below then share one buffer.
///
/// - **Without a clone nothing is kept.** The body is passed on as it came, without a copy and
///   without an allocation. So it is for a request that a retry layer will not repeat, and for a
///   body whose declared length ([`SizeHint::lower`]) is over the limit.
/// - **With a clone** each frame of data is kept (a cheap clone of its [`Bytes`]; small ones are
///   merged), and the trailers. As soon as the last clone is gone, nothing more is kept. Once more
///   data than the limit was read the buffer is dropped: the body flows on, but is not replayable.
/// - **A clone begins at the beginning.** It gives what was kept and goes on with the stream where
///   the reader before it was dropped. Only one of them reads the stream at a time.
/// - **A body that cannot be sent again** says why ([`Replayable::replayable`]): too long, still
///   held by an earlier attempt, failed, or read before it was cloned. [`HttpReplay`] asks before it
///   repeats a request; a clone that is read nevertheless gives a [`ReplayError`].
///
/// The size hint of a clone that was not yet read is the original's, so that each attempt declares
/// the same length. Trailers do not count towards the limit.
///
/// It is `Sync` even if `B` is not. `B` has to be `Unpin`; `Pin<Box<B>>` is.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::{BodyExt, StreamBody};
/// use http_body::Frame;
/// use tower_triage_http::{ReplayBody, Replayable};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let frames = ["one", " two"].map(|text| Ok::<_, std::io::Error>(Frame::data(Bytes::from(text))));
/// let body = ReplayBody::new(StreamBody::new(futures_util::stream::iter(frames)));
/// let again = body.clone();
/// assert_eq!(body.collect().await.unwrap().to_bytes(), "one two");
/// assert_eq!(again.replayable(), Ok(()));
/// assert_eq!(again.collect().await.unwrap().to_bytes(), "one two");
/// # }
/// ```
///
/// # Cancel safety
/// Dropped midway, it hands the stream and what was kept of it to its clones.
///
/// [`HttpReplay`]: crate::HttpReplay
pub struct ReplayBody<B> {
    /// A lock, because `Clone` begins to share what was not shared; reading needs no locking.
    state: Mutex<State<B>>,
    limit: u64,
}

enum State<B> {
    /// No data, no trailers.
    Empty,
    /// The body as it came: read directly, nothing kept. If no clone can be made of it, why.
    Alone { body: B, lost: Option<&'static str> },
    /// One of several, not yet read.
    Fresh(Arc<Source<B>>),
    /// Holds the stream, and keeps what it reads.
    Recording(Recording<B>),
    /// Everything is in memory.
    Replaying { tape: Arc<Tape>, cursor: Cursor },
    /// A clone that has nothing to give; says so when it is read.
    Refused(&'static str),
    /// It has said so.
    Over(&'static str),
}

impl<B: Body> ReplayBody<B> {
    /// Keeps at most 64 KiB of `body`.
    pub fn new(body: B) -> Self {
        Self::with_limit(body, DEFAULT_LIMIT)
    }

    /// Keeps at most `limit` bytes of `body`; 0 makes only empty bodies replayable.
    pub fn with_limit(body: B, limit: u64) -> Self {
        let state = if body.is_end_stream() {
            State::Empty
        } else {
            let over = body.size_hint().lower() > limit;
            State::Alone { lost: over.then_some(DECLARED_OVER_LIMIT), body }
        };
        Self { state: Mutex::new(state), limit }
    }
}

#[cfg(feature = "escalate")]
impl<B> ReplayBody<B> {
    /// All of its bytes, if an attempt has read it to its end.
    pub(crate) fn read_so_far(&self) -> Result<Bytes, &'static str> {
        match &*self.lock() {
            State::Empty => Ok(Bytes::new()),
            State::Replaying { tape, .. } => tape.bytes(),
            State::Fresh(source) => source.bytes(),
            State::Recording(_) => Err(STILL_HELD),
            State::Alone { lost, .. } => Err(lost.unwrap_or(NOT_READ)),
            State::Refused(why) | State::Over(why) => Err(why),
        }
    }

    /// A body of these bytes.
    pub(crate) fn of_bytes(bytes: Bytes) -> Self {
        let limit = DEFAULT_LIMIT.max(bytes.len() as u64);
        let mut tape = Tape::default();
        let kept = bytes.is_empty() || tape.keep(&Frame::data(bytes), limit);
        debug_assert!(kept, "within the limit");
        tape.seal();
        let state = State::Replaying { tape: Arc::new(tape), cursor: Cursor::default() };
        Self { state: Mutex::new(state), limit }
    }
}

impl<B> ReplayBody<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // A body that panicked left the state as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Body for ReplayBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = ReplayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplayError>>> {
        let Self { state, limit } = self.get_mut();
        let state = state.get_mut().unwrap_or_else(PoisonError::into_inner);
        loop {
            match state {
                State::Empty | State::Over(_) => return Poll::Ready(None),
                State::Alone { body, lost } => {
                    lost.get_or_insert(READ_UNCOPIED);
                    return Pin::new(body).poll_frame(cx).map_err(ReplayError::of_body);
                }
                State::Fresh(source) => {
                    *state = match Source::take(source) {
                        Taken::Stream(recording) => State::Recording(recording),
                        Taken::Complete(tape) => {
                            State::Replaying { tape, cursor: Cursor::default() }
                        }
                        Taken::Refused(why) => State::Refused(why),
                    };
                }
                State::Recording(recording) => {
                    if let Some(frame) = recording.replayed() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    if recording.is_last() {
                        state.leave(|recording| State::alone(recording.stop(), READ_UNCOPIED));
                        continue;
                    }
                    let frame = match ready!(recording.poll_body(cx)) {
                        None => {
                            state.leave(Recording::complete);
                            return Poll::Ready(None);
                        }
                        Some(Err(error)) => {
                            state.leave(|recording| {
                                State::alone(recording.lose(BODY_FAILED), BODY_FAILED)
                            });
                            return Poll::Ready(Some(Err(ReplayError::of_body(error))));
                        }
                        Some(Ok(frame)) => frame,
                    };
                    if !recording.keep(&frame, *limit) {
                        state.leave(|recording| {
                            State::alone(recording.lose(READ_OVER_LIMIT), READ_OVER_LIMIT)
                        });
                    } else if recording.is_at_end() {
                        // A transport may hold on to a body that it need not read further.
                        state.leave(Recording::complete);
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                State::Replaying { tape, cursor } => {
                    return Poll::Ready(cursor.next(tape).map(Ok));
                }
                State::Refused(why) => {
                    let why = *why;
                    *state = State::Over(why);
                    return Poll::Ready(Some(Err(ReplayError::refused(why))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &*self.lock() {
            State::Empty | State::Over(_) => true,
            State::Alone { body, .. } => body.is_end_stream(),
            State::Recording(recording) => recording.is_at_end(),
            State::Replaying { tape, cursor } => cursor.is_at_end(tape),
            State::Fresh(_) | State::Refused(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.lock() {
            State::Empty | State::Over(_) => SizeHint::with_exact(0),
            State::Alone { body, .. } => body.size_hint(),
            State::Fresh(source) => source.size_hint(),
            State::Recording(recording) => recording.size_hint(),
            State::Replaying { tape, cursor } => SizeHint::with_exact(cursor.bytes_left(tape)),
            State::Refused(_) => SizeHint::default(),
        }
    }
}

/// Can a clone of it be read now?
impl<B: Body> Replayable for ReplayBody<B> {
    fn replayable(&self) -> Result<(), &'static str> {
        match &*self.lock() {
            State::Empty | State::Replaying { .. } | State::Alone { lost: None, .. } => Ok(()),
            State::Fresh(source) => source.ready(),
            State::Recording(_) => Err(STILL_HELD),
            State::Alone { lost: Some(why), .. } | State::Refused(why) | State::Over(why) => {
                Err(why)
            }
        }
    }
}

/// A clone begins at the beginning, however far this one was read.
impl<B: Body> Clone for ReplayBody<B> {
    fn clone(&self) -> Self {
        Self { state: Mutex::new(self.lock().share()), limit: self.limit }
    }
}

impl<B> Drop for ReplayBody<B> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Recording(recording) = mem::replace(state, State::Empty) {
            recording.hand_over();
        }
    }
}

impl<B> State<B> {
    fn alone(body: B, lost: &'static str) -> Self {
        Self::Alone { body, lost: Some(lost) }
    }

    /// Ends a recording.
    fn leave(&mut self, next: impl FnOnce(Recording<B>) -> Self) {
        *self = match mem::replace(self, Self::Empty) {
            Self::Recording(recording) => next(recording),
            other => other,
        };
    }
}

impl<B: Body> State<B> {
    /// The state of a clone. The first one makes this one a clone too.
    fn share(&mut self) -> Self {
        *self = match mem::replace(self, Self::Empty) {
            Self::Alone { body, lost: None } => Self::Fresh(Arc::new(Source::new(body))),
            other => other,
        };
        match self {
            Self::Empty => Self::Empty,
            Self::Fresh(source) => Self::Fresh(Arc::clone(source)),
            Self::Recording(recording) => Self::Fresh(recording.source()),
            Self::Replaying { tape, .. } => {
                Self::Replaying { tape: Arc::clone(tape), cursor: Cursor::default() }
            }
            Self::Alone { lost, .. } => Self::Refused(lost.unwrap_or(READ_UNCOPIED)),
            Self::Refused(why) | Self::Over(why) => Self::Refused(why),
        }
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.lock() {
            State::Empty => "empty",
            State::Alone { .. } => "alone",
            State::Fresh(_) => "fresh",
            State::Recording(_) => "recording",
            State::Replaying { .. } => "replaying",
            State::Refused(why) | State::Over(why) => why,
        };
        f.debug_struct("ReplayBody")
            .field("state", &state)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
