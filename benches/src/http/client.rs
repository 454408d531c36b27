//! The clients that are compared: one connection each, without and with our four layers.

use std::future::poll_fn;

use ::http::Uri;
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::ServiceBuilder;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage::Triage;
use tower_triage_circuit_breaker::KeyedSettings;
use tower_triage_core::{AnyError, Classifier, Clock};
use tower_triage_http::{HttpRules, http};

use super::layers::{Four, four};
use super::load::Get;
use super::{Body, Request};

/// The protocol that clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without TLS.
    Http2,
}

/// An answer: the server's, or a fallback's.
pub type Answer = ::http::Response<Either<Incoming, Body>>;

/// A client that can be measured.
pub trait Calls:
    Service<Request, Response = Answer, Error = AnyError, Future: Send> + Clone + Send + 'static
{
}

impl<S> Calls for S where
    S: Service<Request, Response = Answer, Error = AnyError, Future: Send> + Clone + Send + 'static
{
}

/// A client of hyper's, bare or in layers.
#[derive(Clone, Debug)]
pub struct Hyper<C>(pub C);

impl<C: Calls> Get for Hyper<C> {
    async fn get(&mut self, uri: &Uri) -> usize {
        let mut request = Request::new(Body::default());
        *request.uri_mut() = uri.clone();
        poll_fn(|cx| self.0.poll_ready(cx)).await.expect("the client is ready");
        let response = self.0.call(request).await.expect("the server answers");
        response.into_body().collect().await.expect("the server sends its body").to_bytes().len()
    }
}

/// A client with its own pool: called one call at a time, it keeps one connection.
#[must_use]
pub fn bare(protocol: Protocol) -> impl Calls {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Body> = Client::builder(TokioExecutor::new())
        .http2_only(protocol == Protocol::Http2)
        .build(connector);
    ServiceBuilder::new()
        .map_response(|response: ::http::Response<Incoming>| response.map(Either::Left))
        .map_err(AnyError::from)
        .service(client)
}

/// Our four layers, as an HTTP client has them: one value of each for all clients.
#[derive(Debug)]
pub struct Stack {
    classifier: Classifier<HttpRules>,
    layers: Four<Answer, AnyError>,
}

impl Stack {
    /// Layers whose breaker reads `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let classifier = Classifier::new(http());
        let layers = four(&classifier, |_| ::http::Response::new(Either::Right(Body::default())));
        let layers = layers.breaker(|breaker| breaker.clock(clock).keyed(KeyedSettings::default()));
        Self { classifier, layers }
    }

    /// The layers around `client`.
    pub fn around<C: Calls>(&self, client: C) -> impl Calls + use<C> {
        self.layers.layer(client)
    }

    /// The same, leaked, as a client that is built once may have them.
    pub fn leaked_around<C: Calls>(&self, client: C) -> impl Calls + use<C> {
        let Triage { escalate, fallback, retry, breaker } = self.layers.clone();
        let service = retry.leak().layer(breaker.leak().layer(client));
        escalate.leak().layer(fallback.leak().layer(service))
    }

    /// The layers as one around `client`.
    pub fn fused_around<C: Calls>(&self, client: C) -> impl Calls + use<C> {
        self.layers.clone().fused(self.classifier.clone()).layer(client)
    }

    /// The same, leaked.
    pub fn fused_leaked_around<C: Calls>(&self, client: C) -> impl Calls + use<C> {
        self.layers.clone().fused(self.classifier.clone()).leak().layer(client)
    }
}
