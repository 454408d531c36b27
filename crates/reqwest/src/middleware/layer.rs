//! A middleware of theirs as a layer of ours.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Client, Request, Response};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next, Result};
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::{AnyError, Note, Notes};

use super::errors::{from_middleware, into_middleware};
use crate::outgoing::Outgoing;

/// Middleware of reqwest-middleware as one layer, anywhere in a stack over [`reqwest::Request`] or
/// [`Marked`](crate::Marked): tracing, authentication, a cache, above our retry or below it.
///
/// ```
/// use reqwest_middleware::{Middleware, Next};
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_triage_core::{AnyError, Classifier};
/// use tower_triage_reqwest::{MiddlewareLayer, ReqwestReplay, reqwest};
/// use tower_triage_retry::RetryLayer;
///
/// struct Token;
///
/// #[async_trait::async_trait]
/// impl Middleware for Token {
///     async fn handle(
///         &self,
///         mut request: reqwest::Request,
///         extensions: &mut http::Extensions,
///         next: Next<'_>,
///     ) -> reqwest_middleware::Result<reqwest::Response> {
///         request.headers_mut().insert("authorization", "Bearer fresh".parse().unwrap());
///         next.run(request, extensions).await
///     }
/// }
///
/// # async fn send(request: reqwest::Request) -> Result<reqwest::Response, AnyError> {
/// let client = reqwest::Client::new();
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::new(Classifier::new(reqwest())).replay(ReqwestReplay::new()))
///     .layer(MiddlewareLayer::new(&client).with(Token)) // once per attempt
///     .map_err(AnyError::from)
///     .service(client);
/// stack.oneshot(request).await
/// # }
/// # fn is_spawnable(request: reqwest::Request) {
/// #     let _ = async move { tokio::spawn(async move { send(request).await }).await };
/// # }
/// ```
///
/// The marks of a [`Marked`](crate::Marked) request are the middleware's extensions.
///
/// A call below it is not a member of the call above it: layers of ours on both sides of it have
/// incidents of their own, and a retry does not see the marks of one below.
#[derive(Clone)]
pub struct MiddlewareLayer {
    client: Client,
    middleware: Vec<Arc<dyn Middleware>>,
}

impl MiddlewareLayer {
    /// No middleware yet. `client` sends nothing: reqwest-middleware cannot run a chain without one.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), middleware: Vec::new() }
    }

    /// Adds `middleware`, inside of those that were added before.
    #[must_use]
    pub fn with(self, middleware: impl Middleware) -> Self {
        self.with_arc(Arc::new(middleware))
    }

    /// Adds `middleware` that is shared.
    #[must_use]
    pub fn with_arc(mut self, middleware: Arc<dyn Middleware>) -> Self {
        self.middleware.push(middleware);
        self
    }
}

impl<S> Layer<S> for MiddlewareLayer {
    type Service = MiddlewareService<S>;

    fn layer(&self, inner: S) -> MiddlewareService<S> {
        MiddlewareService { inner, chain: self.clone() }
    }
}

/// The service that [`MiddlewareLayer`] makes.
///
/// # Cancel safety
/// A call that is dropped drops the middleware's work and the inner call.
#[derive(Clone)]
pub struct MiddlewareService<S> {
    inner: S,
    chain: MiddlewareLayer,
}

impl<S, Req> Service<Req> for MiddlewareService<S>
where
    S: Service<Req, Response = Response, Error = AnyError> + Clone + Send + 'static,
    S::Future: Send,
    Req: Outgoing + Send + 'static,
{
    type Response = Response;
    type Error = AnyError;
    type Future = MiddlewareFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), AnyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> MiddlewareFuture {
        let clone = self.inner.clone();
        let readied = mem::replace(&mut self.inner, clone);
        let end: Arc<dyn Middleware> = Arc::new(Terminal::<S, Req>::new(readied));
        let MiddlewareLayer { client, mut middleware } = self.chain.clone();
        middleware.push(end);
        let client = ClientWithMiddleware::new(client, middleware);
        let (request, mut extensions) = request.into_parts();
        MiddlewareFuture(Box::pin(async move {
            let outcome = client.execute_with_extensions(request, &mut extensions).await;
            outcome.map_err(|error| {
                let mut error = from_middleware(error);
                // A middleware's error has no place for them.
                let notes = extensions.remove::<Notes>();
                if let Some(incident) = notes.and_then(|notes| notes.incident) {
                    error.annotate(&Note::Incident(incident));
                }
                error
            })
        }))
    }
}

/// The end of a chain: it calls the inner service, and leaves `next`, the client, alone.
struct Terminal<S, Req> {
    slot: Mutex<Slot<S>>,
    request: std::marker::PhantomData<fn(Req)>,
}

struct Slot<S> {
    service: S,
    ready: bool,
}

impl<S: Clone, Req> Terminal<S, Req> {
    const fn new(readied: S) -> Self {
        let slot = Slot { service: readied, ready: true };
        Self { slot: Mutex::new(slot), request: std::marker::PhantomData }
    }

    /// The readied instance for the first call of the chain, and then clones of it, which are not.
    fn take(&self) -> Slot<S> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let clone = Slot { service: slot.service.clone(), ready: false };
        mem::replace(&mut *slot, clone)
    }
}

#[async_trait]
impl<S, Req> Middleware for Terminal<S, Req>
where
    S: Service<Req, Response = Response, Error = AnyError> + Clone + Send + 'static,
    S::Future: Send,
    Req: Outgoing + Send + 'static,
{
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        _next: Next<'_>,
    ) -> Result<Response> {
        // What an earlier call of the chain left there is not this one's.
        extensions.remove::<Notes>();
        let Slot { mut service, ready } = self.take();
        let outcome = async {
            if !ready {
                poll_fn(|cx| service.poll_ready(cx)).await?;
            }
            service.call(Req::from_parts(request, extensions.clone())).await
        };
        outcome.await.map_err(|error| {
            if error.incident().is_some() {
                extensions.insert::<Notes>(error.notes().clone());
            }
            into_middleware(error)
        })
    }
}

/// The future of [`MiddlewareService`]; boxed, as reqwest-middleware's own are.
pub struct MiddlewareFuture(
    Pin<Box<dyn Future<Output = std::result::Result<Response, AnyError>> + Send>>,
);

impl Future for MiddlewareFuture {
    type Output = std::result::Result<Response, AnyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for MiddlewareLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MiddlewareLayer")
            .field("middleware", &self.middleware.len())
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for MiddlewareService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MiddlewareService")
            .field("inner", &self.inner)
            .field("chain", &self.chain)
            .finish()
    }
}

impl fmt::Debug for MiddlewareFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MiddlewareFuture").finish_non_exhaustive()
    }
}
