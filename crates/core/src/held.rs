//! A readiness error that waits for its call.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tower_service::Service;

/// The readiness error of an inner service, kept until the next call, whose outcome it becomes: so
/// a layer that solves failures (fallback, escalate) sees it like any other.
///
/// It belongs to the instance that was polled: a clone of the service starts with an empty one.
pub struct HeldError<E> {
    /// Never locked: the mutex makes the service `Sync` when the inner one is, whatever `E` is.
    error: Option<Mutex<E>>,
}

impl<E> HeldError<E> {
    /// Nothing held.
    #[must_use]
    pub const fn none() -> Self {
        Self { error: None }
    }

    /// Ready when `inner` is, or when it failed to become so; then its error is held. Meanwhile the
    /// service is ready, so a balancer above does not see that it failed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub fn poll_ready<S, Req>(&mut self, inner: &mut S, cx: &mut Context<'_>) -> Poll<()>
    where
        S: Service<Req, Error = E>,
    {
        if self.error.is_none() {
            if let Err(error) = ready!(inner.poll_ready(cx)) {
                self.hold(error);
            }
        }
        Poll::Ready(())
    }

    #[cold]
    fn hold(&mut self, error: E) {
        self.error = Some(Mutex::new(error));
    }

    /// Is nothing held?
    #[must_use]
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.error.is_none()
    }

    /// The error, for the call that gets it as its outcome.
    #[inline]
    pub fn take(&mut self) -> Option<E> {
        self.error.as_ref()?;
        let held = self.error.take()?;
        Some(held.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<E> Default for HeldError<E> {
    fn default() -> Self {
        Self::none()
    }
}

impl<E> fmt::Debug for HeldError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldError").field("held", &self.error.is_some()).finish()
    }
}
