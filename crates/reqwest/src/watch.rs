//! What becomes of a response's body once the response was returned.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use reqwest::{Body, Response, ResponseBuilderExt as _};
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::share::{Held, PerThread};
use tower_triage_core::{Classifier, Classify, Describe, Operation};
use tower_triage_http::WatchedBody;

use crate::outgoing::Outgoing;

/// Watches over the bodies of all responses that leave the stack: one that breaks off is classified
/// and counted, logged, and an incident of its own goes to the classifier's observers. Belongs above
/// every other layer.
///
/// A response is returned with its head; later no layer may repeat the request or answer in its place.
/// The caller sees the error as before. For what it does not do see [`WatchedBody`], which does it.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_triage_core::{AnyError, Classifier};
/// use tower_triage_reqwest::{ReqwestReplay, WatchBodyLayer, reqwest};
/// use tower_triage_retry::RetryLayer;
///
/// async fn text(request: reqwest::Request) -> Result<String, AnyError> {
///     let classifier = Classifier::new(reqwest());
///     let stack = ServiceBuilder::new()
///         .layer(WatchBodyLayer::new(classifier.clone()))
///         .layer(RetryLayer::new(classifier).replay(ReqwestReplay::new()))
///         .map_err(AnyError::from)
///         .service(reqwest::Client::new());
///     Ok(stack.oneshot(request).await?.text().await?)
/// }
/// # fn is_spawnable(request: reqwest::Request) {
/// #     let _ = async move { tokio::spawn(async move { text(request).await }).await };
/// # }
/// ```
///
/// The types stay as they are, at the price of a box for each body.
pub struct WatchBodyLayer<R> {
    classifier: Classifier<R>,
}

impl<R> WatchBodyLayer<R> {
    /// Bodies are judged by `classifier`.
    #[must_use]
    pub const fn new(classifier: Classifier<R>) -> Self {
        Self { classifier }
    }
}

impl<S, R> Layer<S> for WatchBodyLayer<R> {
    type Service = WatchBodies<S, R>;

    fn layer(&self, inner: S) -> WatchBodies<S, R> {
        WatchBodies { inner, classifier: PerThread::new(self.classifier.clone()) }
    }
}

/// The service that [`WatchBodyLayer`] makes.
pub struct WatchBodies<S, R> {
    inner: S,
    classifier: PerThread<Classifier<R>>,
}

impl<S, R, Req> Service<Req> for WatchBodies<S, R>
where
    S: Service<Req, Response = Response>,
    Req: Outgoing,
    R: Describe<Req> + Classify<http::Response<()>, reqwest::Error> + Send + Sync + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = WatchFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let operation = self.classifier.rules().operation(&request);
        let classifier = Some(self.classifier.hold());
        WatchFuture { inner: self.inner.call(request), operation, classifier }
    }
}

pin_project! {
    /// The future of [`WatchBodies`].
    pub struct WatchFuture<F, R> {
        #[pin]
        inner: F,
        operation: Operation,
        // Given to the body.
        classifier: Option<Held<Classifier<R>>>,
    }
}

impl<F, E, R> Future for WatchFuture<F, R>
where
    F: Future<Output = Result<Response, E>>,
    R: Classify<http::Response<()>, reqwest::Error> + Send + Sync + 'static,
{
    type Output = Result<Response, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        let classifier = this.classifier.take().expect("polled after it was ready");
        Poll::Ready(Ok(watched(response, *this.operation, classifier)))
    }
}

/// The same response, with its URL, which the way through `http::Response` drops unless it is put into
/// the extensions.
fn watched<R>(response: Response, operation: Operation, classifier: Held<Classifier<R>>) -> Response
where
    R: Classify<http::Response<()>, reqwest::Error> + Send + Sync + 'static,
{
    let url = http::Response::builder().url(response.url().clone()).body(());
    let (mut head, body) = http::Response::<Body>::from(response).into_parts();
    if let Ok(with_url) = url {
        head.extensions.extend(with_url.into_parts().0.extensions);
    }
    let body = WatchedBody::new(body, head.status, operation, classifier);
    http::Response::from_parts(head, Body::wrap(body)).into()
}

impl<R> Clone for WatchBodyLayer<R> {
    fn clone(&self) -> Self {
        Self { classifier: self.classifier.clone() }
    }
}

impl<S: Clone, R> Clone for WatchBodies<S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), classifier: self.classifier.clone() }
    }
}

impl<R> fmt::Debug for WatchBodyLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBodyLayer").finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, R> fmt::Debug for WatchBodies<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBodies").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<F: fmt::Debug, R> fmt::Debug for WatchFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchFuture").field("inner", &self.inner).finish_non_exhaustive()
    }
}
