//! Changing the request before it is sent again.

use std::fmt;

use crate::replay::Attempt;

/// Changes a request before a further attempt: a shorter prompt, a smaller page, another replica, a
/// place to resume from.
///
/// Each attempt starts from the request as it came in, so a change is made to a fresh copy and does
/// not add up.
pub trait Nudge<Req, Res, E> {
    /// Changes `request`, which becomes `attempt`, and says whether it did. `failed` is the outcome
    /// of the attempt before, to read from it how far that one came (its checkpoint); the verdict
    /// on it is `attempt.previous`.
    fn nudge(&self, request: &mut Req, attempt: &Attempt, failed: Result<&Res, &E>) -> bool;
}

/// Leaves every request as it is: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNudge;

impl<Req, Res, E> Nudge<Req, Res, E> for NoNudge {
    fn nudge(&self, _request: &mut Req, _attempt: &Attempt, _failed: Result<&Res, &E>) -> bool {
        false
    }
}

/// A closure as a nudge; see [`RetryLayer::nudge`](crate::RetryLayer::nudge).
#[derive(Clone, Copy)]
pub struct NudgeFn<F> {
    f: F,
}

impl<F> NudgeFn<F> {
    pub(crate) const fn new(f: F) -> Self {
        Self { f }
    }
}

impl<Req, Res, E, F> Nudge<Req, Res, E> for NudgeFn<F>
where
    F: Fn(&mut Req, &Attempt, Result<&Res, &E>) -> bool,
{
    fn nudge(&self, request: &mut Req, attempt: &Attempt, failed: Result<&Res, &E>) -> bool {
        (self.f)(request, attempt, failed)
    }
}

impl<F> fmt::Debug for NudgeFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NudgeFn({})", std::any::type_name::<F>())
    }
}
