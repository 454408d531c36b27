//! Makes the bodies of requests replayable.

use std::task::{Context, Poll};

use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{DEFAULT_LIMIT, ReplayBody};

/// Makes the bodies of all requests replayable, up to a limit: each `Request<B>` becomes a
/// `Request<ReplayBody<B>>`. Belongs above every layer that may send a request again.
///
/// Below the layers the body goes into the type that the transport wants:
/// `.map_request(|request: http::Request<_>| request.map(axum::body::Body::new))`; or the transport
/// takes it as it is, as hyper-util's `Client<_, ReplayBody<B>>` does.
///
/// ```
/// use axum::body::Body;
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_triage_core::{AnyError, Classifier};
/// use tower_triage_http::{HttpReplay, ReplayBodyLayer, http};
/// use tower_triage_retry::RetryLayer;
/// # use hyper_util::{client::legacy::Client, rt::TokioExecutor};
///
/// let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
/// let stack = ServiceBuilder::new()
///     .layer(ReplayBodyLayer::new())
///     .layer(RetryLayer::new(Classifier::new(http())).replay(HttpReplay::new()))
///     .map_request(|request: http::Request<_>| request.map(Body::new))
///     .map_err(AnyError::from)
///     .service(client);
/// # let _ = stack.oneshot(http::Request::new(Body::empty()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReplayBodyLayer {
    limit: u64,
}

impl ReplayBodyLayer {
    /// Keeps at most 64 KiB of each body.
    #[must_use]
    pub const fn new() -> Self {
        Self { limit: DEFAULT_LIMIT }
    }

    /// How many bytes of data are kept of each body; 0 makes only empty bodies replayable.
    #[must_use]
    pub const fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }
}

impl Default for ReplayBodyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ReplayBodyLayer {
    type Service = ReplayBodies<S>;

    fn layer(&self, inner: S) -> ReplayBodies<S> {
        ReplayBodies { inner, limit: self.limit }
    }
}

/// The service that [`ReplayBodyLayer`] makes. Its future is the inner service's.
#[derive(Clone, Copy, Debug)]
pub struct ReplayBodies<S> {
    inner: S,
    limit: u64,
}

impl<S, B> Service<http::Request<B>> for ReplayBodies<S>
where
    S: Service<http::Request<ReplayBody<B>>>,
    B: Body,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> S::Future {
        self.inner.call(request.map(|body| ReplayBody::with_limit(body, self.limit)))
    }
}
