//! A future whose panic is an outcome.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pin_project! {
    /// Polls its future until it ends or panics; then it is not polled again.
    pub(super) struct Caught<F> {
        #[pin]
        future: F,
    }
}

/// The future panicked.
pub(super) struct Panicked;

pub(super) const fn caught<F: Future>(future: F) -> Caught<F> {
    Caught { future }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        // Broken state goes away with the future.
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
}
