//! What an ending gets to see.

use tower_triage_core::{Failure, Incident};

/// What is known of a call that failed. `Copy`; it ends with the call of the function that gets it.
pub struct Failed<'a, Res, E> {
    /// The verdict.
    pub failure: Failure,
    /// What would leave the stack.
    pub outcome: Result<&'a Res, &'a E>,
    /// The whole story: attempts, waits, fallbacks.
    pub incident: &'a Incident,
}

impl<Res, E> Clone for Failed<'_, Res, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Res, E> Copy for Failed<'_, Res, E> {}

/// Without the outcome, which may hold what must not be printed.
impl<Res, E> std::fmt::Debug for Failed<'_, Res, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Failed")
            .field("failure", &self.failure)
            .field("incident", &self.incident.id)
            .finish_non_exhaustive()
    }
}
