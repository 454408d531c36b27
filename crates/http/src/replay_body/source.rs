//! What the clones of a body share, and the one of them that reads the stream.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::tape::{Cursor, Tape};
use super::{STILL_HELD, State};

/// The stream while nobody reads it, and then what became of it.
pub(super) struct Source<B> {
    rest: Mutex<AtRest<B>>,
    size_hint: SizeHint,
}

enum AtRest<B> {
    /// Nobody reads it: what was read so far, and the rest.
    Stream(Stream<B>),
    /// A clone reads it.
    Held,
    /// It was read to its end.
    Complete(Arc<Tape>),
    /// It cannot be read again.
    Lost(&'static str),
}

struct Stream<B> {
    body: B,
    tape: Tape,
}

/// What a clone gets that is read for the first time.
pub(super) enum Taken<B> {
    Stream(Recording<B>),
    Complete(Arc<Tape>),
    Refused(&'static str),
}

/// The reader of the stream. It owns it, so that reading takes no lock.
pub(super) struct Recording<B> {
    source: Arc<Source<B>>,
    stream: Stream<B>,
    cursor: Cursor,
}

impl<B: Body> Source<B> {
    pub(super) fn new(body: B) -> Self {
        let size_hint = body.size_hint();
        let stream = Stream { body, tape: Tape::default() };
        Self { rest: Mutex::new(AtRest::Stream(stream)), size_hint }
    }
}

impl<B> Source<B> {
    fn lock(&self) -> MutexGuard<'_, AtRest<B>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hint of the whole body.
    pub(super) fn size_hint(&self) -> SizeHint {
        self.size_hint
    }

    pub(super) fn ready(&self) -> Result<(), &'static str> {
        match &*self.lock() {
            AtRest::Stream(_) | AtRest::Complete(_) => Ok(()),
            AtRest::Held => Err(STILL_HELD),
            AtRest::Lost(why) => Err(why),
        }
    }

    /// All of its bytes, if it was read to its end.
    #[cfg(feature = "escalate")]
    pub(super) fn bytes(&self) -> Result<Bytes, &'static str> {
        match &*self.lock() {
            AtRest::Complete(tape) => tape.bytes(),
            AtRest::Stream(_) => Err(super::NOT_READ),
            AtRest::Held => Err(STILL_HELD),
            AtRest::Lost(why) => Err(why),
        }
    }

    /// Begins to read: takes the stream, if it is there.
    pub(super) fn take(self: &Arc<Self>) -> Taken<B> {
        let mut rest = self.lock();
        match std::mem::replace(&mut *rest, AtRest::Held) {
            AtRest::Stream(stream) => {
                let (source, cursor) = (Arc::clone(self), Cursor::default());
                Taken::Stream(Recording { source, stream, cursor })
            }
            AtRest::Held => Taken::Refused(STILL_HELD),
            AtRest::Complete(tape) => {
                *rest = AtRest::Complete(Arc::clone(&tape));
                Taken::Complete(tape)
            }
            AtRest::Lost(why) => {
                *rest = AtRest::Lost(why);
                Taken::Refused(why)
            }
        }
    }
}

impl<B> Recording<B> {
    pub(super) fn source(&self) -> Arc<Source<B>> {
        Arc::clone(&self.source)
    }

    /// The next frame of those that were read before.
    pub(super) fn replayed(&mut self) -> Option<Frame<Bytes>> {
        self.cursor.next(&self.stream.tape)
    }

    /// Is there no other clone left to keep anything for?
    pub(super) fn is_last(&self) -> bool {
        // A clone can only come from another one, or from this one, which is borrowed.
        Arc::strong_count(&self.source) == 1
    }

    /// Keeps a frame that was just read; `false` if that is too much.
    pub(super) fn keep(&mut self, frame: &Frame<Bytes>, limit: u64) -> bool {
        let kept = self.stream.tape.keep(frame, limit);
        self.cursor.skip_to_end(&self.stream.tape);
        kept
    }

    /// Goes on without keeping anything, for nobody else is left.
    pub(super) fn stop(self) -> B {
        self.stream.body
    }

    /// Goes on without keeping anything, and tells the others why.
    pub(super) fn lose(self, why: &'static str) -> B {
        *self.source.lock() = AtRest::Lost(why);
        self.stream.body
    }

    /// Puts the stream back, for the next one to go on.
    pub(super) fn hand_over(self) {
        let Self { source, mut stream, .. } = self;
        stream.tape.seal();
        *source.lock() = AtRest::Stream(stream);
    }

    /// The stream has ended: all of it can be read from now on, by all at once.
    pub(super) fn complete(self) -> State<B> {
        let Self { source, stream: Stream { mut tape, .. }, mut cursor } = self;
        tape.seal();
        cursor.skip_to_end(&tape);
        let tape = Arc::new(tape);
        *source.lock() = AtRest::Complete(Arc::clone(&tape));
        State::Replaying { tape, cursor }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Recording<B> {
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.stream.body).poll_frame(cx)
    }
}

impl<B: Body> Recording<B> {
    pub(super) fn is_at_end(&self) -> bool {
        self.cursor.is_at_end(&self.stream.tape) && self.stream.body.is_end_stream()
    }

    /// What is left of the tape, and the rest of the stream.
    pub(super) fn size_hint(&self) -> SizeHint {
        let left = self.cursor.bytes_left(&self.stream.tape);
        let rest = self.stream.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(left));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(left));
        }
        hint
    }
}
