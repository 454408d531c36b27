//! What a request's head says about repeating it.

use http::header::AsHeaderName;
use http::{Extensions, HeaderMap, HeaderName, Method, Uri};
use tower_triage_core::{Key, Label, Operation, Target};

use crate::marks::{Repeatable, RouteTemplate, UnitOfWork};

/// Names that are looked up for every request: made once, not read from text each time.
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The parts of a request that the rules look at: all but the body.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// Extensions, with the marks of callers and routers.
    pub extensions: &'a Extensions,
}

impl<'a, B> From<&'a http::Request<B>> for RequestHead<'a> {
    fn from(request: &'a http::Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> RequestHead<'a> {
    /// May it be sent again although the peer may have worked on it? By its method (RFC 9110,
    /// section 9.2.2), an `Idempotency-Key`, or a [`Repeatable`] mark.
    #[must_use]
    pub fn repeatable(self) -> bool {
        is_idempotent(self.method)
            || self.has_idempotency_key()
            || self.extensions.get::<Repeatable>().is_some()
    }

    /// Is it the complete unit of work? With an `Idempotency-Key` (the server's 409 then says that
    /// the first one is still running) or an [`UnitOfWork`] mark.
    #[must_use]
    pub fn unit_of_work(self) -> bool {
        self.has_idempotency_key() || self.extensions.get::<UnitOfWork>().is_some()
    }

    fn has_idempotency_key(self) -> bool {
        self.headers.get(&IDEMPOTENCY_KEY).is_some_and(|key| !key.is_empty())
    }

    /// The host with its port, if one is named; empty if the request names no host.
    #[must_use]
    pub fn host(self) -> &'a str {
        let authority = self.uri.authority().map(http::uri::Authority::as_str);
        let named = || self.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = authority.or_else(named).unwrap_or_default();
        // Before an `@` there may be a password. Few bytes, so a plain loop is the fastest search.
        if host.bytes().fold(false, |found, byte| found | (byte == b'@')) {
            return host.rsplit_once('@').map_or(host, |(_, host)| host);
        }
        host
    }

    /// The method and the [`RouteTemplate`], if the request carries one: `GET /orders/{id}`. Never
    /// the raw path. A method that nobody registered is `_OTHER`.
    #[must_use]
    #[inline]
    pub fn operation(self) -> Operation {
        let method = method_name(self.method);
        match self.extensions.get::<RouteTemplate>() {
            None => *method,
            Some(RouteTemplate(template)) => {
                Operation::from_parts(&[method.as_str(), " ", template.as_str()])
            }
        }
    }

    /// The host in lower case, as the key of a breaker.
    #[must_use]
    pub fn host_key(self) -> Key {
        let host = self.host();
        if host.bytes().fold(false, |found, byte| found | byte.is_ascii_uppercase()) {
            return Key::new(&host.to_ascii_lowercase());
        }
        Key::new(host)
    }

    /// Method, host and path, without the query.
    #[must_use]
    pub fn target(self) -> Target {
        Target::from_parts(&[self.method.as_str(), " ", self.host(), self.uri.path()])
    }

    /// A header's value as a label, if it is text.
    #[must_use]
    pub fn label(self, name: impl AsHeaderName) -> Option<Label> {
        let text = self.text(name)?;
        (!text.is_empty()).then(|| Label::new(text))
    }

    /// A header's value, if it is text.
    pub(crate) fn text(self, name: impl AsHeaderName) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The methods that RFC 9110 (section 9.2.2) calls idempotent.
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// The method as the name of an operation; made once, because every layer asks for it.
fn method_name(method: &Method) -> &'static Operation {
    const GET: &Operation = &Operation::literal("GET");
    const POST: &Operation = &Operation::literal("POST");
    const PUT: &Operation = &Operation::literal("PUT");
    const DELETE: &Operation = &Operation::literal("DELETE");
    const HEAD: &Operation = &Operation::literal("HEAD");
    const OPTIONS: &Operation = &Operation::literal("OPTIONS");
    const PATCH: &Operation = &Operation::literal("PATCH");
    const CONNECT: &Operation = &Operation::literal("CONNECT");
    const TRACE: &Operation = &Operation::literal("TRACE");
    const OTHER: &Operation = &Operation::literal("_OTHER");
    match *method {
        Method::GET => GET,
        Method::POST => POST,
        Method::PUT => PUT,
        Method::DELETE => DELETE,
        Method::HEAD => HEAD,
        Method::OPTIONS => OPTIONS,
        Method::PATCH => PATCH,
        Method::CONNECT => CONNECT,
        Method::TRACE => TRACE,
        _ => OTHER,
    }
}
