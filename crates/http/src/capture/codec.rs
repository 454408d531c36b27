//! The codec: what is captured of a request, and how it is made again.

use std::collections::BTreeSet;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::{CaptureError, Captured, Codec, Redactor};

use super::body::CaptureBody;
use super::form;

/// What the data is called.
const NAME: &str = "http";
/// The header that tells a receiver which requests are the same.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Headers that say what the request means, and not who sends it.
const HEADERS: [&str; 15] = [
    "accept",
    "accept-language",
    "content-encoding",
    "content-language",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "prefer",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-request-id",
];

/// Captures HTTP requests: method, target, chosen headers, and the body up to a limit.
///
/// | setting | default |
/// |---|---|
/// | [`header`](Self::header) | `accept`, `accept-language`, `content-encoding`, `content-language`, `content-type`, `idempotency-key`, `if-*`, `prefer`, `traceparent`, `tracestate`, `user-agent`, `x-request-id` |
/// | [`body_limit`](Self::body_limit) | 64 KiB |
/// | [`limit`](Self::limit) of the whole | 256 KiB |
/// | [`redactor`](Self::redactor) | [`Redactor::new`] |
///
/// Credentials are never captured: whoever drives the request again brings their own (a layer of the
/// service that it is sent through). Their names are noted. A header that the redactor calls a
/// secret is left out even if it is chosen; [`Redactor::keep`] it if it is none.
///
/// Secrets in target and body are taken out, and then the request cannot be driven again
/// ([`CaptureError::Redacted`]). JSON bodies are looked through by their fields; a body without
/// secrets is kept to the byte. What is compressed or encrypted is not looked into.
///
/// A request without a body at hand ([`CaptureBody`]), with one that is too long, or with a
/// multipart body, is captured without it: one can see what it was, but not drive it again
/// ([`CaptureError::Incomplete`]).
///
/// The request is made again with the letter's id as `Idempotency-Key`, unless it had one of its own
/// ([`Codec::identified`]). HTTP version and extensions are not captured; `host` and
/// `content-length` are the client's to add.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use tower_triage_escalate::Codec;
/// use tower_triage_http::HttpCodec;
///
/// let codec = HttpCodec::new();
/// let request = http::Request::post("https://shop.example/orders")
///     .header("content-type", "application/json")
///     .header("authorization", "Bearer s3cr3t")
///     .body(Full::new(Bytes::from(r#"{"item": 7}"#)))
///     .unwrap();
/// let captured = codec.encode(&request).unwrap();
/// assert!(!captured.data.to_string().contains("s3cr3t"));
///
/// let again: http::Request<Full<Bytes>> = codec.decode(&captured).unwrap();
/// assert_eq!((again.method(), again.uri()), (request.method(), request.uri()));
/// assert_eq!(again.headers().len(), 1);
/// assert_eq!(again.into_body().into_inner().unwrap(), r#"{"item": 7}"#);
/// ```
#[derive(Clone, Debug)]
pub struct HttpCodec {
    headers: BTreeSet<String>,
    body_limit: usize,
    limit: usize,
    redactor: Redactor,
}

/// The data's form.
#[derive(Serialize, Deserialize)]
struct Data {
    method: String,
    target: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// Names of those that were left out because they are secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    credentials: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Value>,
    /// Why the request is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

impl HttpCodec {
    /// With the defaults.
    #[must_use]
    pub fn new() -> Self {
        let headers = HEADERS.map(str::to_owned).into();
        let (body_limit, limit) = (64 * 1024, 256 * 1024);
        Self { headers, body_limit, limit, redactor: Redactor::new() }
    }

    /// Captures this header too.
    #[must_use]
    pub fn header(mut self, name: &HeaderName) -> Self {
        self.headers.insert(name.as_str().to_owned());
        self
    }

    /// Does not capture this header.
    #[must_use]
    pub fn without_header(mut self, name: &HeaderName) -> Self {
        self.headers.remove(name.as_str());
        self
    }

    /// A request with a longer body is captured without it; in bytes.
    #[must_use]
    pub const fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// What becomes longer is not captured; in bytes of JSON.
    #[must_use]
    pub const fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// What is taken out.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    fn chosen(&self, all: &HeaderMap) -> Chosen {
        let secret = |name: &&HeaderName| self.redactor.is_secret(name.as_str());
        let credentials = all.keys().filter(secret).map(ToString::to_string).collect();
        let mut chosen =
            Chosen { headers: Vec::new(), credentials, redacted: Vec::new(), whole: true };
        let is_chosen = |name: &HeaderName| self.headers.contains(name.as_str()) && !secret(&name);
        for (name, value) in all.iter().filter(|(name, _)| is_chosen(name)) {
            let Ok(text) = value.to_str() else {
                chosen.whole = false;
                continue;
            };
            let clean = self.redactor.text(text);
            if clean != text {
                chosen.redacted.push(format!("headers.{name}"));
            }
            chosen.headers.push((name.to_string(), clean.into_owned()));
        }
        chosen
    }
}

/// What is captured of headers.
struct Chosen {
    headers: Vec<(String, String)>,
    /// Names only.
    credentials: Vec<String>,
    /// Where something was taken out.
    redacted: Vec<String>,
    /// No chosen one was left out.
    whole: bool,
}

impl<B: CaptureBody> Codec<http::Request<B>> for HttpCodec {
    fn encode(&self, request: &http::Request<B>) -> Result<Captured, CaptureError> {
        let Chosen { headers, credentials, mut redacted, whole } = self.chosen(request.headers());
        let mut missing = (!whole).then(|| "a header is no text".to_owned());
        let target = request.uri().to_string();
        let clean = self.redactor.text(&target).into_owned();
        if clean != target {
            redacted.push("target".to_owned());
        }
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let stored = request.body().captured().map_err(str::to_owned).and_then(|bytes| {
            if bytes.len() > self.body_limit {
                let (length, limit) = (bytes.len(), self.body_limit);
                return Err(format!("the body has {length} bytes, and {limit} are captured"));
            }
            form::store(&bytes, content_type, &self.redactor).map_err(str::to_owned)
        });
        let body = match stored {
            Ok(stored) => {
                redacted.extend(stored.redacted);
                stored.body
            }
            Err(why) => {
                missing = Some(why);
                None
            }
        };
        let method = request.method().to_string();
        let data = Data { method, target: clean, headers, credentials, body, missing };
        let data = serde_json::to_value(data)
            .map_err(|error| CaptureError::Unreadable(error.to_string()))?;
        if data.to_string().len() > self.limit {
            return Err(CaptureError::TooLarge { limit: self.limit });
        }
        let mut captured = Captured::new(NAME, data);
        captured.redacted = redacted;
        Ok(captured)
    }

    fn decode(&self, captured: &Captured) -> Result<http::Request<B>, CaptureError> {
        captured.is_whole(NAME)?;
        let unreadable = |what: &str| CaptureError::Unreadable(what.to_owned());
        let data = Data::deserialize(&captured.data)
            .map_err(|_| unreadable("it has not the form of an HTTP request"))?;
        if let Some(missing) = data.missing {
            return Err(CaptureError::Incomplete(missing));
        }
        let body = form::restore(data.body.as_ref()).map_err(unreadable)?;
        let mut request = http::Request::new(B::restored(body));
        *request.method_mut() =
            data.method.parse().map_err(|_| unreadable("its method is none"))?;
        *request.uri_mut() = data.target.parse().map_err(|_| unreadable("its target is none"))?;
        for (name, value) in &data.headers {
            let name = name.parse::<HeaderName>();
            let value = value.parse::<HeaderValue>();
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(unreadable("one of its headers is none"));
            };
            request.headers_mut().append(name, value);
        }
        Ok(request)
    }

    fn identified(&self, mut request: http::Request<B>, id: IncidentId) -> http::Request<B> {
        // An id is hexadecimal digits and dashes.
        if let Ok(value) = id.to_string().parse::<HeaderValue>() {
            request.headers_mut().entry(IDEMPOTENCY_KEY).or_insert(value);
        }
        request
    }
}

impl Default for HttpCodec {
    fn default() -> Self {
        Self::new()
    }
}
