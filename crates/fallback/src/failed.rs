//! What a fallback step gets to see.

use std::fmt;

use tower_triage_core::Failure;

/// The failure that a step stands in for: the verdict on it, and the primary outcome itself.
///
/// `Copy`. A step's future cannot borrow it (the outcome stays with the call, which returns it if
/// the chain fails): read what you need before the `async` block.
pub struct Failed<'a, Res, E> {
    /// What happened.
    pub failure: Failure,
    /// The primary outcome: an error, or a response that the classifier judged a failure.
    pub outcome: Result<&'a Res, &'a E>,
}

impl<Res, E> Clone for Failed<'_, Res, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Res, E> Copy for Failed<'_, Res, E> {}

impl<Res, E> fmt::Debug for Failed<'_, Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed").field("failure", &self.failure).finish_non_exhaustive()
    }
}
