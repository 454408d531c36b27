//! What happens after the call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::Body;
use pin_project_lite::pin_project;
use tower_triage_core::share::Held;
use tower_triage_core::{Classifier, Operation};

use super::WatchedBody;

pin_project! {
    /// The future of [`WatchBodies`](crate::WatchBodies).
    pub struct WatchFuture<F, R> {
        #[pin]
        inner: F,
        operation: Operation,
        // Given to the body.
        classifier: Option<Held<Classifier<R>>>,
    }
}

impl<F, R> WatchFuture<F, R> {
    pub(super) const fn new(
        inner: F,
        operation: Operation,
        classifier: Held<Classifier<R>>,
    ) -> Self {
        Self { inner, operation, classifier: Some(classifier) }
    }
}

impl<F, B, E, R> Future for WatchFuture<F, R>
where
    F: Future<Output = Result<http::Response<B>, E>>,
    B: Body,
{
    type Output = Result<http::Response<WatchedBody<B, R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (head, body) = ready!(this.inner.poll(cx))?.into_parts();
        let classifier = this.classifier.take().expect("polled after it was ready");
        let body = WatchedBody::new(body, head.status, *this.operation, classifier);
        Poll::Ready(Ok(http::Response::from_parts(head, body)))
    }
}

impl<F: fmt::Debug, R> fmt::Debug for WatchFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchFuture").field("inner", &self.inner).finish_non_exhaustive()
    }
}
