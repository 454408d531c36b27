//! Watches over the bodies of the responses that leave a stack.

use std::fmt;
use std::task::{Context, Poll};

use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::share::PerThread;
use tower_triage_core::{Classifier, Describe};

use super::{WatchFuture, WatchedBody};

/// Watches over the bodies of all responses that leave the stack: each `Response<B>` becomes a
/// `Response<WatchedBody<B, R>>`. Belongs above every other layer.
///
/// A response is returned with its head; if its body breaks off later, no layer may repeat the request
/// or answer in its place, and none of them would hear of it. This one does: the failure is classified
/// and counted, logged, and an incident of its own goes to the classifier's observers.
///
/// It gives no breaker a vote and escalates nothing: an observer does, where that is wanted.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Empty;
/// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_triage_core::{AnyError, Classifier};
/// use tower_triage_http::{HttpReplay, WatchBodyLayer, http};
/// use tower_triage_retry::RetryLayer;
///
/// async fn get(request: http::Request<Empty<Bytes>>) -> Result<http::StatusCode, AnyError> {
///     let classifier = Classifier::new(http());
///     let stack = ServiceBuilder::new()
///         .layer(WatchBodyLayer::new(classifier.clone()))
///         .layer(RetryLayer::new(classifier).replay(HttpReplay::new()))
///         .map_err(AnyError::from)
///         .service(Client::builder(TokioExecutor::new()).build_http());
///     Ok(stack.oneshot(request).await?.status())
/// }
/// # fn is_spawnable(request: http::Request<Empty<Bytes>>) {
/// #     let _ = async move { tokio::spawn(async move { get(request).await }).await };
/// # }
/// ```
///
/// The rules must know the body's error (`hyper::Error`, `AnyError`, `BoxError`, `io::Error` ..).
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

impl<S, R, ReqB, B> Service<http::Request<ReqB>> for WatchBodies<S, R>
where
    S: Service<http::Request<ReqB>, Response = http::Response<B>>,
    B: Body,
    R: Describe<http::Request<ReqB>>,
{
    type Response = http::Response<WatchedBody<B, R>>;
    type Error = S::Error;
    type Future = WatchFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<ReqB>) -> Self::Future {
        let operation = self.classifier.rules().operation(&request);
        WatchFuture::new(self.inner.call(request), operation, self.classifier.hold())
    }
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
