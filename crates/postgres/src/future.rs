//! The future of the services.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower_triage_core::AnyError;

use crate::error::UnitError;

/// The answer of [`Transactions`](crate::Transactions) and [`Statements`](crate::Statements). One
/// box per call, beside some round trips to a database.
///
/// # Cancel safety
/// As said at the service.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<T> {
    inner: Pin<Box<dyn Future<Output = Result<T, UnitError>> + Send>>,
}

impl<T> ResponseFuture<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T, UnitError>> + Send + 'static) -> Self {
        Self { inner: Box::pin(future) }
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, AnyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.as_mut().poll(cx).map_err(AnyError::from)
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
