//! The rules for reqwest's types: those of HTTP, over another request and response.

use std::fmt;

use http::{Extensions, Uri};
use tokio::time::Instant;
use tower_triage_core::{
    ClassifyResponse, Describe, Halves, Key, Label, Note, Notes, Operation, Stamp, Target,
    TraceParent, Verdict,
};
use tower_triage_http::{Deadline, HttpStatus, RequestHead, ResponseHead};

use crate::errors::ReqwestErrors;
use crate::outgoing::Outgoing;

/// The rules for a reqwest client.
pub type ReqwestRules<Q = ReqwestErrors> = Halves<ReqwestStatus, Q>;

/// The rules for a reqwest client, with the defaults of HTTP.
///
/// Adjust them before they are shared, with the same methods as `tower_triage_http::http()`
/// ([`HttpRulesExt`](tower_triage_http::HttpRulesExt)):
///
/// ```
/// use tower_triage_core::{Classifier, ErrorClass};
/// use tower_triage_http::HttpRulesExt;
/// use tower_triage_reqwest::reqwest;
///
/// let classifier = Classifier::new(reqwest().status(404, ErrorClass::Transient));
/// # let _ = classifier;
/// ```
#[must_use]
pub fn reqwest() -> ReqwestRules {
    ReqwestRules::default()
}

/// Judges each `reqwest::Response` by status and headers, and reads the facts of requests: a
/// [`reqwest::Request`]'s method, headers and URL, and the marks of a [`Marked`](crate::Marked) one.
#[derive(Clone, Debug, Default)]
pub struct ReqwestStatus {
    http: HttpStatus,
}

impl AsMut<HttpStatus> for ReqwestStatus {
    fn as_mut(&mut self) -> &mut HttpStatus {
        &mut self.http
    }
}

impl ClassifyResponse<reqwest::Response> for ReqwestStatus {
    fn response(&self, response: &reqwest::Response) -> Verdict {
        self.http.judge(ResponseHead {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        })
    }

    fn annotate(&self, response: &mut reqwest::Response, note: &Note) -> bool {
        if let Some((name, value)) = self.http.header_of(note) {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().get_or_insert_default::<Notes>().add(note);
        true
    }

    fn explain(&self, response: &reqwest::Response, out: &mut dyn fmt::Write) {
        // What cannot be written is not read either.
        let _ = write!(out, "{}", response.status());
    }
}

impl Stamp<reqwest::Response> for ReqwestStatus {}

/// The head of a response, for whoever has only that: a body's watcher.
impl<B> ClassifyResponse<http::Response<B>> for ReqwestStatus {
    fn response(&self, response: &http::Response<B>) -> Verdict {
        self.http.response(response)
    }

    fn annotate(&self, response: &mut http::Response<B>, note: &Note) -> bool {
        self.http.annotate(response, note)
    }

    fn explain(&self, response: &http::Response<B>, out: &mut dyn fmt::Write) {
        self.http.explain(response, out);
    }
}

/// What to look at of a request, with a target for whoever asks for one.
fn head<T>(request: &impl Outgoing, uri: &Uri, f: impl FnOnce(RequestHead<'_>) -> T) -> T {
    let none = Extensions::new();
    let extensions = request.extensions().unwrap_or(&none);
    let request = request.request();
    f(RequestHead { method: request.method(), uri, headers: request.headers(), extensions })
}

/// The head without its target, which costs nothing.
fn bare_head<T>(request: &impl Outgoing, f: impl FnOnce(RequestHead<'_>) -> T) -> T {
    head(request, &Uri::default(), f)
}

/// The head with its target: made anew, for functions of the user's that may read it.
fn whole_head<T>(request: &impl Outgoing, f: impl FnOnce(RequestHead<'_>) -> T) -> T {
    // A URL that is no URI cannot be sent either.
    let uri = request.request().url().as_str().parse().unwrap_or_default();
    head(request, &uri, f)
}

/// The host, which a URL has in lower case already, with its port if one is named; without what may
/// be a password.
fn host(request: &impl Outgoing) -> &str {
    let authority = request.request().url().authority();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

impl<T: Outgoing> Describe<T> for ReqwestStatus {
    fn operation(&self, request: &T) -> Operation {
        if self.http.reads_requests() {
            return whole_head(request, |head| self.http.operation_of(head));
        }
        bare_head(request, |head| head.operation())
    }

    fn repeatable(&self, request: &T) -> bool {
        bare_head(request, |head| head.repeatable())
    }

    fn unit_of_work(&self, request: &T) -> bool {
        bare_head(request, |head| head.unit_of_work())
    }

    fn key(&self, request: &T) -> Key {
        if self.http.reads_requests() {
            return whole_head(request, |head| self.http.key_of(head));
        }
        Key::new(host(request))
    }

    fn deadline(&self, request: &T) -> Option<Instant> {
        request.extensions()?.get::<Deadline>().map(|deadline| deadline.0)
    }

    fn request_id(&self, request: &T) -> Option<Label> {
        bare_head(request, |head| head.label("x-request-id"))
    }

    fn trace(&self, request: &T) -> Option<TraceParent> {
        let text = request.request().headers().get("traceparent")?.to_str().ok()?;
        TraceParent::parse(text)
    }

    fn target(&self, request: &T) -> Target {
        let (method, path) = (request.request().method(), request.request().url().path());
        Target::from_parts(&[method.as_str(), " ", host(request), path])
    }
}
