//! The one sink that posts: a format, an address, a client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, Uri, header};
use http_body_util::Full;
use tower_service::Service;
use tower_triage_core::{AnyError, BoxError, Classify, ConfigError, ErrorClass};
use tower_triage_escalate::{Escalation, GivenUp};
use tower_triage_http::{Repeatable, RouteTemplate, http};

use crate::client::Client;
use crate::error::SendError;
use crate::format::Format;
use crate::pace::Pace;

/// Posts each escalation in the form `F`: [`WebhookSink`](crate::WebhookSink),
/// [`PagerDuty`](crate::PagerDuty), [`Alertmanager`](crate::Alertmanager), [`Slack`](crate::Slack), or
/// one of yours. Clones share client, breaker and pace.
///
/// `Debug` shows the host, and neither the rest of the address nor keys.
///
/// ```
/// use tower_triage_escalate::Escalation;
/// use tower_triage_receivers::{Format, HttpSink};
///
/// #[derive(Clone)]
/// struct OneLine;
///
/// impl Format for OneLine {
///     const NAME: &'static str = "one-line";
///     const CONTENT_TYPE: &'static str = "text/plain";
///
///     fn body(&self, escalation: &Escalation) -> Result<Vec<u8>, serde_json::Error> {
///         let over = if escalation.resolved.is_some() { "over: " } else { "" };
///         Ok(format!("{over}{}", escalation.summary).into_bytes())
///     }
/// }
///
/// let sink = HttpSink::posting(OneLine, "http://lines.internal/hook")?;
/// # let _ = sink;
/// # Ok::<_, tower_triage_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct HttpSink<F> {
    pub(crate) format: F,
    uri: Uri,
    client: Client,
    pace: Pace,
}

impl<F: Format> HttpSink<F> {
    /// Posts to `uri` through a client of our own, protected.
    ///
    /// # Errors
    /// Not a URI, no host, or a scheme that our client does not speak: `http`, and with the feature
    /// `tls` `https`.
    pub fn posting(format: F, uri: &str) -> Result<Self, ConfigError> {
        let uri = parse(uri)?;
        let client = Client::reaching(uri.scheme_str().unwrap_or_default())?;
        Ok(Self::of(format, uri, client))
    }

    /// Posts to `uri` through `client`.
    ///
    /// # Errors
    /// Not a URI, or one without scheme and host.
    pub fn posting_through(client: Client, format: F, uri: &str) -> Result<Self, ConfigError> {
        Ok(Self::of(format, parse(uri)?, client))
    }

    /// The same, but posting to `uri`.
    pub(crate) fn at(self, uri: &str) -> Result<Self, ConfigError> {
        Ok(Self { uri: parse(uri)?, ..self })
    }

    fn of(format: F, uri: Uri, client: Client) -> Self {
        Self { format, uri, client, pace: Pace::new(F::GAP) }
    }

    fn request(&self, escalation: &Escalation) -> Result<Request<Full<Bytes>>, SendError> {
        let body = self.format.body(escalation).map_err(|_| SendError::Form)?;
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let content_type = header::HeaderValue::from_static(F::CONTENT_TYPE);
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        // The same message twice is what every receiver has to live with: at least once.
        request.extensions_mut().insert(Repeatable);
        request.extensions_mut().insert(RouteTemplate::new(F::NAME));
        Ok(request)
    }
}

/// A receiver's address is often its secret, so errors do not repeat it.
fn parse(uri: &str) -> Result<Uri, ConfigError> {
    let bad = |problem| ConfigError::new("uri", "not usable", problem);
    let uri: Uri = uri.parse().map_err(|_| bad("not a URI"))?;
    if uri.scheme().is_none() || uri.host().is_none() {
        return Err(bad("scheme and host are needed"));
    }
    Ok(uri)
}

/// Was it taken? If not: why, and is another try of any use?
fn judge<F: Format, B>(outcome: &Result<Response<B>, AnyError>) -> Result<(), (SendError, bool)> {
    let failure = http().classify(outcome.as_ref()).failure();
    let class = failure.map_or(ErrorClass::Permanent, |failure| failure.class);
    let error = match outcome {
        Ok(response) if F::takes(response.status()) => return Ok(()),
        Ok(response) => SendError::Refused(response.status()),
        Err(_) => {
            let reason = failure.map_or("", |failure| failure.reason);
            SendError::NoAnswer { class, reason }
        }
    };
    let heals = matches!(
        class,
        ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::Throttled
            | ErrorClass::Contention
            | ErrorClass::Rejected
    );
    Err((error, heals))
}

/// A [`SendError`], in a [`GivenUp`] if it is final.
impl<F: Format> Service<Escalation> for HttpSink<F> {
    type Response = ();
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The client's readiness is part of the sending, so that its time limit holds for it too.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let (client, pace) = (self.client.clone(), self.pace.clone());
        let request = self.request(&escalation);
        Box::pin(async move {
            let request = request.map_err(GivenUp::new)?;
            pace.turn().await;
            let tries = client.tries;
            match judge::<F, _>(&client.send(request).await) {
                Ok(()) => Ok(()),
                Err((error, true)) if !tries => Err(error.into()),
                Err((error, _)) => Err(GivenUp::new(error).into()),
            }
        })
    }
}

impl<F: Format> fmt::Debug for HttpSink<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSink")
            .field("format", &F::NAME)
            .field("host", &self.uri.host().unwrap_or_default())
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
