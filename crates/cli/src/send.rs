//! Where requests go, and what is added to them.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use tower::Service;
use tower_triage_core::AnyError;

use crate::exit::Exit;

type Request = http::Request<Full<Bytes>>;

/// So much of an answer is read, for its connection to be used again.
const DRAIN: usize = 64 * 1024;

/// Where requests go, and what is added to them.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    to: Option<Uri>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Requests {
    /// To `to`, with headers as the command line gives them.
    pub(crate) fn new(
        to: Option<Uri>,
        headers: &[String],
        header_envs: &[String],
    ) -> Result<Self, Exit> {
        if let Some(to) = &to {
            let is_http = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&to.scheme());
            if !is_http || to.authority().is_none() || to.query().is_some() {
                return Err(Exit::Usage(
                    "--to is the beginning of a URL: http or https, a host, maybe a path"
                        .to_owned(),
                ));
            }
        }
        let written = headers.iter().map(|text| {
            let (name, value) = text.split_once(':').ok_or("a header is written `name: value`")?;
            header(name, value)
        });
        let read = header_envs.iter().map(|text| {
            let (name, variable) =
                text.split_once('=').ok_or("--header-env is written `name=VARIABLE`")?;
            let value = std::env::var(variable.trim())
                .map_err(|_| "the variable of a --header-env is not set")?;
            header(name, &value)
        });
        let headers: Result<_, &str> = written.chain(read).collect();
        let headers = headers.map_err(|problem| Exit::Usage(problem.to_owned()))?;
        Ok(Self { to, headers })
    }

    /// The request as it is sent.
    pub(crate) fn aim(&self, mut request: Request) -> Result<Request, &'static str> {
        if let Some(to) = &self.to {
            let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
            let path = format!("{}{path}", to.path().trim_end_matches('/'));
            let mut parts = to.clone().into_parts();
            parts.path_and_query = Some(path.parse().map_err(|_| "its path does not fit to --to")?);
            *request.uri_mut() =
                Uri::from_parts(parts).map_err(|_| "its path does not fit to --to")?;
        }
        if request.uri().authority().is_none() {
            return Err("it was captured without its host: say where to with --to");
        }
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }

    /// Headers that are added may be credentials: they must not go wherever a letter says.
    pub(crate) fn check<'a>(
        &self,
        requests: impl Iterator<Item = &'a Request>,
    ) -> Result<(), Exit> {
        let mut hosts = BTreeSet::new();
        for request in requests {
            let aimed = self
                .aim(request.clone())
                .map_err(|problem| Exit::Usage(format!("a request cannot be sent: {problem}")))?;
            let (scheme, authority) = (aimed.uri().scheme_str(), aimed.uri().authority());
            hosts.insert((scheme.map(str::to_owned), authority.map(ToString::to_string)));
        }
        if hosts.len() > 1 && !self.headers.is_empty() {
            return Err(Exit::Usage(
                "the requests go to more than one server, and all would see the added headers: \
                 choose one with --to or a filter"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = name.trim().parse().map_err(|_| "a header's name is none")?;
    let mut value: HeaderValue = value.trim().parse().map_err(|_| "a header's value is none")?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Sends requests over HTTP/1.1, and reads what comes back.
#[derive(Clone)]
pub(crate) struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    requests: Requests,
}

impl Sender {
    pub(crate) fn new(requests: Requests) -> Result<Self, Exit> {
        let provider = rustls::crypto::ring::default_provider();
        let trusted = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider);
        let builder = match trusted {
            Ok(builder) => builder,
            Err(_) => HttpsConnectorBuilder::new().with_tls_config(nobody_trusted()?),
        };
        let connector = builder.https_or_http().enable_http1().build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), requests })
    }
}

/// A system without root certificates trusts nobody, and can still do without TLS.
fn nobody_trusted() -> Result<ClientConfig, Exit> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Exit::Usage(error.to_string()))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

impl Service<Request> for Sender {
    type Response = http::Response<()>;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<()>, AnyError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let sent = self.requests.aim(request).map(|request| self.client.request(request));
        Box::pin(async move {
            let response = sent.map_err(AnyError::msg)?.await.map_err(AnyError::from)?;
            let (head, mut body) = response.into_parts();
            let mut left = DRAIN;
            // The head is the answer; what becomes of the rest changes nothing.
            while let Some(Ok(frame)) = body.frame().await {
                let read = frame.data_ref().map_or(0, Bytes::len);
                match left.checked_sub(read) {
                    Some(rest) => left = rest,
                    None => break,
                }
            }
            Ok(http::Response::from_parts(head, ()))
        })
    }
}
