//! Escalations as CloudEvents over HTTP.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower_service::Service;
use tower_triage_core::{BoxError, ConfigError};

use crate::{CloudEvent, Escalation};

/// The client that [`WebhookSink::new`] uses: hyper over plain TCP.
pub type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// Posts each escalation as a [`CloudEvent`]. Any answer but 2xx is an error, and so is none within
/// the time limit (10 s; the desk has a limit of its own, the shorter one decides).
///
/// The same escalation has the same event id whenever it is sent, so a receiver that keeps one event
/// per id has no duplicates.
#[derive(Clone)]
pub struct WebhookSink<C = HttpClient> {
    client: C,
    uri: Uri,
    limit: Duration,
}

impl WebhookSink {
    /// Posts to an `http` address.
    ///
    /// # Errors
    /// Not a URI, no host, or another scheme: for `https` bring a client of your own
    /// ([`WebhookSink::with_client`]).
    pub fn new(uri: &str) -> Result<Self, ConfigError> {
        let sink = Self::with_client(Client::builder(TokioExecutor::new()).build_http(), uri)?;
        if sink.uri.scheme_str() == Some("http") {
            return Ok(sink);
        }
        Err(ConfigError::new("uri", sink.host(), "without a client of yours only `http://` works"))
    }
}

impl<C> WebhookSink<C> {
    /// Posts through `client`: a client with TLS, with credentials, with our own layers around it.
    ///
    /// # Errors
    /// Not a URI, or one without scheme and host.
    pub fn with_client(client: C, uri: &str) -> Result<Self, ConfigError> {
        // A webhook's address is often its secret, so errors do not repeat it.
        let bad = |problem| ConfigError::new("uri", "not usable", problem);
        let uri: Uri = uri.parse().map_err(|_| bad("not a URI"))?;
        if uri.scheme().is_none() || uri.host().is_none() {
            return Err(bad("scheme and host are needed"));
        }
        Ok(Self { client, uri, limit: Duration::from_secs(10) })
    }

    /// The longest time one sending may take. Default: 10 s.
    #[must_use]
    pub const fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    fn request(&self, escalation: &Escalation) -> Result<Request<Full<Bytes>>, BoxError> {
        let body = serde_json::to_vec(&CloudEvent::new(escalation))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(header::CONTENT_TYPE, CloudEvent::CONTENT_TYPE)
            .body(Full::from(body))?;
        Ok(request)
    }
}

impl<C, B> Service<Escalation> for WebhookSink<C>
where
    C: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    C::Future: Send,
    C::Error: Into<BoxError>,
    B: Send,
{
    type Response = ();
    type Error = WebhookError;
    type Future = Pin<Box<dyn Future<Output = Result<(), WebhookError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), WebhookError>> {
        // The client's readiness is part of the sending, so that the time limit holds for it too.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let mut client = self.client.clone();
        let request = self.request(&escalation);
        let limit = self.limit;
        Box::pin(async move {
            let sending = async {
                let request = request?;
                poll_fn(|cx| client.poll_ready(cx)).await.map_err(Into::into)?;
                let response = client.call(request).await.map_err(Into::into)?;
                Ok(response.status())
            };
            let sent: Result<StatusCode, BoxError> =
                tokio::time::timeout(limit, sending).await.map_err(|_| WebhookError::TimedOut)?;
            match sent.map_err(WebhookError::NotSent)? {
                status if status.is_success() => Ok(()),
                status => Err(WebhookError::Refused(status)),
            }
        })
    }
}

/// Where it goes to is often a secret: only the host is shown.
impl<C> fmt::Debug for WebhookSink<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSink")
            .field("host", &self.host())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Why an escalation was not taken.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebhookError {
    /// The answer was not 2xx.
    Refused(StatusCode),
    /// No answer within the time limit.
    TimedOut,
    /// The request failed.
    NotSent(BoxError),
}

impl fmt::Display for WebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the webhook answered {status}"),
            Self::TimedOut => f.write_str("the webhook did not answer in time"),
            Self::NotSent(_) => f.write_str("the webhook could not be reached"),
        }
    }
}

impl std::error::Error for WebhookError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotSent(error) => Some(&**error),
            Self::Refused(_) | Self::TimedOut => None,
        }
    }
}
