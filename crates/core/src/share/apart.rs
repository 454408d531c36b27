//! Keeping threads off each other's cache lines.

use std::fmt;

/// On lines of its own, so that a thread that writes to it slows down nobody who reads or writes a
/// neighbour. 128 bytes: processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

impl<T: fmt::Debug> fmt::Debug for Apart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
