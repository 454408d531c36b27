//! New credentials after an `Auth` failure.

use std::fmt;
use std::future::{Future, Ready, ready};

use tower_triage_core::Failure;

/// Obtains new credentials after an `Auth` failure; then one more attempt is made, once a request.
///
/// The new credentials reach the attempt through a layer below, or a
/// [nudge](crate::RetryLayer::nudge). Many requests may fail at once: let the refresh be shared.
/// Runs outside the call's incident, within the overall deadline.
pub trait Refresh {
    /// Is there a refresh at all?
    const GIVEN: bool;
    /// Ends with whether there are new credentials now.
    type Future: Future<Output = bool>;

    /// Begins a refresh.
    fn refresh(&self, failure: Failure) -> Self::Future;
}

/// No refresh: `Auth` failures are returned. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRefresh;

impl Refresh for NoRefresh {
    const GIVEN: bool = false;
    type Future = Ready<bool>;

    fn refresh(&self, _failure: Failure) -> Ready<bool> {
        ready(false)
    }
}

/// A closure as a refresh; see [`RetryLayer::refresh`](crate::RetryLayer::refresh).
#[derive(Clone, Copy)]
pub struct RefreshFn<F> {
    f: F,
}

impl<F> RefreshFn<F> {
    pub(crate) const fn new(f: F) -> Self {
        Self { f }
    }
}

impl<F, Fut> Refresh for RefreshFn<F>
where
    F: Fn(Failure) -> Fut,
    Fut: Future<Output = bool>,
{
    const GIVEN: bool = true;
    type Future = Fut;

    fn refresh(&self, failure: Failure) -> Fut {
        (self.f)(failure)
    }
}

impl<F> fmt::Debug for RefreshFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefreshFn({})", std::any::type_name::<F>())
    }
}
