//! A stack of ours as a middleware.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::{AnyError, Notes};

use super::errors::into_middleware;
use super::next::{NextService, Uplink};
use crate::outgoing::Marked;

/// Layers of ours as one middleware of reqwest-middleware: breaker, budget and classifier are built
/// once and shared by all requests, wherever in the chain it stands.
///
/// What comes after it in the chain is run once per attempt, with the extensions as they came in; so a
/// middleware that adds a token belongs there. Requests are [`Marked`]: put marks on with
/// `RequestBuilder::with_extension(Repeatable)`.
///
/// ```
/// use reqwest_middleware::ClientBuilder;
/// use tower::ServiceBuilder;
/// use tower_triage_circuit_breaker::CircuitBreakerLayer;
/// use tower_triage_core::Classifier;
/// use tower_triage_reqwest::{ReqwestReplay, StackMiddleware, reqwest};
/// use tower_triage_retry::RetryLayer;
///
/// let classifier = Classifier::new(reqwest());
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::new(classifier.clone()).replay(ReqwestReplay::new()))
///     .layer(CircuitBreakerLayer::new(classifier));
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(StackMiddleware::new(stack.into_inner()))
///     .build();
/// # let _ = client;
/// ```
///
/// # Outcomes
/// Responses and the client's errors leave as they are; a rejection of ours is an
/// `Error::Middleware` that downcasts to `CircuitOpen` or `Elapsed`. The incident of a call that met a
/// failure is in the response's extensions, and for an error in those of reqwest-middleware
/// ([`Notes`]).
///
/// # Cancel safety
/// A call that is dropped drops its attempts. Nothing is spawned.
#[derive(Clone)]
pub struct StackMiddleware<S> {
    stack: S,
}

impl<S> StackMiddleware<S> {
    /// Puts `layer` around the rest of the chain.
    pub fn new<L: Layer<NextService, Service = S>>(layer: L) -> Self {
        Self { stack: layer.layer(NextService) }
    }
}

#[async_trait]
impl<S> Middleware for StackMiddleware<S>
where
    S: Service<Marked, Response = Response, Error = AnyError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        // What an earlier call left there is not this one's.
        extensions.remove::<Notes>();
        let (uplink, mut jobs) = Uplink::new();
        let request = Marked { request, extensions: extensions.clone() }.with(uplink);
        let mut stack = self.stack.clone();
        let mut answer = pin!(async move {
            poll_fn(|cx| stack.poll_ready(cx)).await?;
            stack.call(request).await
        });
        // Usually one at a time; a stack may send several.
        let mut running = FuturesUnordered::new();
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut answer => break outcome,
                Some(job) = jobs.recv() => running.push(job.run(next.clone())),
                Some(left) = running.next(), if !running.is_empty() => {
                    // Whoever is outside sees what the last attempt's chain left.
                    if let Some(left) = left {
                        *extensions = left;
                    }
                }
            }
        };
        outcome.map_err(|error| {
            if error.incident().is_some() {
                extensions.insert::<Notes>(error.notes().clone());
            }
            into_middleware(error)
        })
    }
}

impl<S> fmt::Debug for StackMiddleware<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackMiddleware").finish_non_exhaustive()
    }
}
