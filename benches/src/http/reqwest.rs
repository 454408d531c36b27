//! reqwest clients: bare, with reqwest-retry, with our retry.

use std::future::poll_fn;

use ::http::Uri;
use reqwest::{Client, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::Classifier;
use tower_triage_reqwest::{ReqwestReplay, ReqwestRules};
use tower_triage_retry::RetryLayer;

use super::load::Get;

/// A client with its own pool: called one call at a time, it keeps one connection.
fn client() -> Client {
    Client::builder().tcp_nodelay(true).no_proxy().build().expect("a client can be built here")
}

/// reqwest, nothing around it.
#[derive(Clone, Debug)]
pub struct Bare(Client);

impl Default for Bare {
    fn default() -> Self {
        Self(client())
    }
}

impl Get for Bare {
    async fn get(&mut self, uri: &Uri) -> usize {
        length(self.0.get(uri.to_string()).send().await.expect("the server answers")).await
    }
}

/// reqwest with reqwest-retry: up to two retries.
#[derive(Clone, Debug)]
pub struct ReqwestRetry(ClientWithMiddleware);

impl Default for ReqwestRetry {
    fn default() -> Self {
        let policy = ExponentialBackoff::builder().build_with_max_retries(2);
        let retry = RetryTransientMiddleware::new_with_policy(policy);
        Self(ClientBuilder::new(client()).with(retry).build())
    }
}

impl Get for ReqwestRetry {
    async fn get(&mut self, uri: &Uri) -> usize {
        length(self.0.get(uri.to_string()).send().await.expect("the server answers")).await
    }
}

/// reqwest in our retry, at its defaults.
#[derive(Clone, Debug)]
pub struct Ours<S> {
    client: Client,
    service: S,
}

/// A client in `retry`, which all clients share.
#[must_use]
pub fn ours(retry: &RetryLayer<ReqwestRules, ReqwestReplay>) -> impl Get + use<> {
    let client = client();
    Ours { service: retry.layer(client.clone()), client }
}

/// Our retry for reqwest.
#[must_use]
pub fn retry() -> RetryLayer<ReqwestRules, ReqwestReplay> {
    let classifier = Classifier::new(tower_triage_reqwest::reqwest());
    RetryLayer::new(classifier).replay(ReqwestReplay::new())
}

impl<S> Get for Ours<S>
where
    S: Service<Request, Response = Response, Error = reqwest::Error, Future: Send>
        + Clone
        + Send
        + 'static,
{
    async fn get(&mut self, uri: &Uri) -> usize {
        let request = self.client.get(uri.to_string()).build().expect("it is a URI");
        poll_fn(|cx| self.service.poll_ready(cx)).await.expect("the client is ready");
        length(self.service.call(request).await.expect("the server answers")).await
    }
}

async fn length(response: Response) -> usize {
    response.bytes().await.expect("the server sends its body").len()
}
