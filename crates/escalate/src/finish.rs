//! A forced finish: an answer built from what is known.

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

/// What the caller gets when the stack has failed.
pub trait Finish<Res, E> {
    /// An answer built from what is known; `None` leaves the failure as it is.
    fn finish(&self, failed: Failed<'_, Res, E>) -> Option<Res>;
}

/// The caller gets the failure. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeepFailure;

impl<Res, E> Finish<Res, E> for KeepFailure {
    fn finish(&self, _failed: Failed<'_, Res, E>) -> Option<Res> {
        None
    }
}

/// The caller gets what a function makes of it; see
/// [`EscalateLayer::finish_with`](crate::EscalateLayer::finish_with).
#[derive(Clone, Copy)]
pub struct FinishWith<F> {
    pub(crate) f: F,
}

impl<Res, E, F> Finish<Res, E> for FinishWith<F>
where
    F: Fn(Failed<'_, Res, E>) -> Option<Res>,
{
    fn finish(&self, failed: Failed<'_, Res, E>) -> Option<Res> {
        (self.f)(failed)
    }
}

impl<F> std::fmt::Debug for FinishWith<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FinishWith({})", std::any::type_name::<F>())
    }
}
