//! What was read of a body, and how far a reader has come in it.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

/// Data below this size is merged: a frame of its own would cost more than its bytes, and a short
/// slice may hold a large buffer alive.
const SMALL: usize = 512;
/// Merged data is cut into pieces of about this size.
const PIECE: usize = 4096;

/// The data and the trailers that were read, in order.
#[derive(Default)]
pub(super) struct Tape {
    chunks: Vec<Bytes>,
    /// Small frames that are not a chunk yet.
    merging: BytesMut,
    bytes: u64,
    trailers: Option<HeaderMap>,
}

impl Tape {
    /// Adds a frame; `false` if that makes it longer than `limit`, or if it cannot be kept.
    pub(super) fn keep(&mut self, frame: &Frame<Bytes>, limit: u64) -> bool {
        if let Some(data) = frame.data_ref() {
            let Some(bytes) = self.bytes.checked_add(length(data)).filter(|bytes| *bytes <= limit)
            else {
                return false;
            };
            self.bytes = bytes;
            self.push(data);
            return true;
        }
        self.trailers = frame.trailers_ref().cloned();
        self.trailers.is_some()
    }

    fn push(&mut self, data: &Bytes) {
        if data.len() < SMALL {
            self.merging.extend_from_slice(data);
            if self.merging.len() >= PIECE {
                self.seal();
            }
        } else {
            self.seal();
            self.chunks.push(data.clone());
        }
    }

    /// Makes a chunk of what was merged; before anybody else reads it.
    pub(super) fn seal(&mut self) {
        if !self.merging.is_empty() {
            self.chunks.push(mem::take(&mut self.merging).freeze());
        }
    }

    /// All of the data of a sealed tape.
    #[cfg(feature = "escalate")]
    pub(super) fn bytes(&self) -> Result<Bytes, &'static str> {
        match (&self.trailers, &*self.chunks) {
            (Some(_), _) => Err(super::TRAILERS),
            (None, [whole]) => Ok(whole.clone()),
            (None, chunks) => Ok(chunks.concat().into()),
        }
    }

    fn frames(&self) -> usize {
        self.chunks.len() + usize::from(self.trailers.is_some())
    }
}

/// Where a reader stands: behind so many frames and bytes of the tape.
#[derive(Default)]
pub(super) struct Cursor {
    frames: usize,
    bytes: u64,
}

impl Cursor {
    /// The next frame of a sealed tape, if there is one.
    pub(super) fn next(&mut self, tape: &Tape) -> Option<Frame<Bytes>> {
        let frame = match tape.chunks.get(self.frames) {
            Some(chunk) => {
                self.bytes += length(chunk);
                Frame::data(chunk.clone())
            }
            None if self.frames == tape.chunks.len() => Frame::trailers(tape.trailers.clone()?),
            None => return None,
        };
        self.frames += 1;
        Some(frame)
    }

    /// Moves behind what this reader has added itself.
    pub(super) fn skip_to_end(&mut self, tape: &Tape) {
        (self.frames, self.bytes) = (tape.frames(), tape.bytes);
    }

    pub(super) fn is_at_end(&self, tape: &Tape) -> bool {
        self.frames >= tape.frames()
    }

    pub(super) const fn bytes_left(&self, tape: &Tape) -> u64 {
        tape.bytes.saturating_sub(self.bytes)
    }
}

fn length(data: &Bytes) -> u64 {
    u64::try_from(data.remaining()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(tape: &mut Tape, size: usize) -> bool {
        tape.keep(&Frame::data(Bytes::from(vec![7; size])), 64 * 1024)
    }

    #[test]
    fn small_frames_cost_little_more_than_their_bytes() {
        let mut tape = Tape::default();
        for _ in 0..64 * 1024 {
            assert!(keep(&mut tape, 1));
            assert!(keep(&mut tape, 0));
        }
        tape.seal();
        assert_eq!(tape.chunks.len(), 16);
        assert!(!keep(&mut tape, 1), "the limit is exact");
        assert_eq!(tape.bytes, 64 * 1024);
    }

    #[test]
    fn large_frames_are_not_copied() {
        let mut tape = Tape::default();
        let large = Bytes::from(vec![7; SMALL]);
        assert!(keep(&mut tape, 3));
        assert!(tape.keep(&Frame::data(large.clone()), 64 * 1024));
        let mut cursor = Cursor::default();
        assert_eq!(cursor.next(&tape).unwrap().into_data().unwrap().len(), 3);
        let again = cursor.next(&tape).unwrap().into_data().unwrap();
        assert_eq!(again.as_ptr(), large.as_ptr());
        assert!(cursor.next(&tape).is_none());
    }
}
