//! The HTTP rules: status half, how to adjust it, and what it reads from requests.

use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;
use tower_triage_core::{
    ClassifyResponse, Describe, ErrorClass, Failure, Halves, Key, Label, Note, Notes, Operation,
    Stamp, Target, TraceParent, Verdict, wall_clock,
};

use crate::decision::HttpFacts;
use crate::errors::HttpErrors;
use crate::marks::{BodyPrefix, Deadline};
use crate::request::{REQUEST_ID, RequestHead, TRACEPARENT};

/// The rules for HTTP: [`HttpStatus`] for responses and requests, and a half for errors.
pub type HttpRules<Q = HttpErrors> = Halves<HttpStatus, Q>;

/// The rules for HTTP with their defaults.
///
/// Adjust them before they are shared ([`HttpRulesExt`]), then put them into a
/// [`Classifier`](tower_triage_core::Classifier):
///
/// ```
/// use tower_triage_core::{Classifier, Classify, ErrorClass};
/// use tower_triage_http::{HttpErrors, HttpRulesExt, http};
///
/// let rules = http().status(404, ErrorClass::Transient);
///
/// let response = ::http::Response::builder().status(404).body(()).unwrap();
/// let outcome: Result<_, &std::convert::Infallible> = Ok(&response);
/// assert_eq!(rules.classify(outcome).failure().unwrap().class, ErrorClass::Transient);
/// let classifier = Classifier::new(rules);
/// # let _ = classifier;
/// ```
#[must_use]
pub fn http() -> HttpRules {
    HttpRules::default()
}

/// Reads a fact from a request.
type ReadFrom<Fact> = dyn Fn(RequestHead<'_>) -> Fact + Send + Sync;

/// Judges a response by its head; `None` leaves it to the rules.
type JudgeResponse = dyn Fn(ResponseHead<'_>) -> Option<Verdict> + Send + Sync;

/// The parts of a response that the rules look at: all but the body.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// Extensions.
    pub extensions: &'a Extensions,
}

/// Judges any `http::Response`, whatever its body, by status and headers, and reads the facts of
/// any `http::Request`.
///
/// It never touches a body. What a `ClassifyLayer` stamped is believed first; a [`BodyPrefix`]
/// extension, where a peeking layer left one, is read for error codes.
#[derive(Clone, Default)]
pub struct HttpStatus {
    /// Few, so a search is as fast as anything.
    overrides: Vec<(u16, Option<ErrorClass>)>,
    operation: Option<Arc<ReadFrom<Option<Operation>>>>,
    key: Option<Arc<ReadFrom<Key>>>,
    response: Option<Arc<JudgeResponse>>,
    fallback_header: Option<HeaderName>,
}

/// Adjusts the rules before they are shared. An extension trait, because the rules are core's
/// [`Halves`].
pub trait HttpRulesExt: Sized {
    /// Changes the status half.
    #[must_use]
    fn adjust_status(self, change: impl FnOnce(&mut HttpStatus)) -> Self;

    /// Every answer with `status` is a failure of `class`, whatever its headers and body say. It
    /// then has the class's own vote and disposition; the server's hints are read as for the class.
    #[must_use]
    fn status(self, status: u16, class: ErrorClass) -> Self {
        self.adjust_status(|half| half.set(status, Some(class)))
    }

    /// Every answer with `status` is a success: a 404 that means "not there, as hoped".
    #[must_use]
    fn success(self, status: u16) -> Self {
        self.adjust_status(|half| half.set(status, None))
    }

    /// Judges responses with `f`, whatever their body's type; where it gives `None` the rules decide.
    /// Comes before overrides by status.
    ///
    /// ```
    /// use tower_triage_core::{ErrorClass, Verdict};
    /// use tower_triage_http::{HttpRulesExt, ResponseHead, http};
    ///
    /// let rules = http().response_by(|response: ResponseHead<'_>| {
    ///     let failed = response.headers.contains_key("x-failed");
    ///     failed.then(|| Verdict::from(ErrorClass::Transient))
    /// });
    /// # let _ = rules;
    /// ```
    #[must_use]
    fn response_by(
        self,
        f: impl Fn(ResponseHead<'_>) -> Option<Verdict> + Send + Sync + 'static,
    ) -> Self {
        self.adjust_status(|half| half.response = Some(Arc::new(f)))
    }

    /// Names operations with `f`, for instance by a router's matched path; where it gives `None`
    /// the default stands. The names must come from a small set: never the raw path.
    ///
    /// ```
    /// use tower_triage_core::Operation;
    /// use tower_triage_http::{HttpRulesExt, RequestHead, http};
    ///
    /// #[derive(Clone)]
    /// struct MatchedPath(&'static str);
    ///
    /// let rules = http().operation_by(|request: RequestHead<'_>| {
    ///     let path = request.extensions.get::<MatchedPath>()?;
    ///     Some(Operation::from_parts(&[request.method.as_str(), " ", path.0]))
    /// });
    /// # let _ = rules;
    /// ```
    #[must_use]
    fn operation_by(
        self,
        f: impl Fn(RequestHead<'_>) -> Option<Operation> + Send + Sync + 'static,
    ) -> Self {
        self.adjust_status(|half| half.operation = Some(Arc::new(f)))
    }

    /// Takes the key of keyed breakers from `f`. Default: the host, in lower case, with its port if
    /// one is named.
    #[must_use]
    fn key_by(self, f: impl Fn(RequestHead<'_>) -> Key + Send + Sync + 'static) -> Self {
        self.adjust_status(|half| half.key = Some(Arc::new(f)))
    }

    /// Marks an answer that a fallback gave with this header, whose value is the class that it
    /// covers up. Default: no header; the mark is a response extension only.
    #[must_use]
    fn fallback_header(self, name: HeaderName) -> Self {
        self.adjust_status(|half| half.fallback_header = Some(name))
    }
}

/// For [`HttpStatus`], and for whatever has one inside (the rules of an HTTP client's own types).
impl<P: AsMut<HttpStatus>, Q> HttpRulesExt for Halves<P, Q> {
    fn adjust_status(mut self, change: impl FnOnce(&mut HttpStatus)) -> Self {
        change(self.response.as_mut());
        self
    }
}

impl AsMut<Self> for HttpStatus {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// For types of an HTTP client's own, which no `http::Response` can be borrowed from.
impl HttpStatus {
    /// The verdict on a response with this head: what is [`adjusted`](Self::adjusted), else the rules'.
    #[inline]
    pub fn judge(&self, head: ResponseHead<'_>) -> Verdict {
        if let Some(verdict) = self.adjusted(head) {
            return verdict;
        }
        if (100..400).contains(&head.status.as_u16()) {
            return Verdict::Success;
        }
        Self::failed(head)
    }

    /// The verdict of the rules on a status that tells of a failure. The happy path reads no clock.
    #[cold]
    fn failed(head: ResponseHead<'_>) -> Verdict {
        let status = head.status.as_u16();
        let body_prefix = head.extensions.get::<BodyPrefix>().map_or(&[][..], |prefix| &prefix.0);
        let facts = HttpFacts { status, headers: head.headers, body_prefix, now: wall_clock() };
        facts.verdict()
    }

    /// The name of what is done: by [`HttpRulesExt::operation_by`], else by the head itself.
    #[must_use]
    pub fn operation_of(&self, head: RequestHead<'_>) -> Operation {
        self.operation.as_ref().and_then(|f| f(head)).unwrap_or_else(|| head.operation())
    }

    /// The key of the breaker: by [`HttpRulesExt::key_by`], else the host.
    #[must_use]
    pub fn key_of(&self, head: RequestHead<'_>) -> Key {
        self.key.as_ref().map_or_else(|| head.host_key(), |f| f(head))
    }

    /// Is there a function of the user's that reads requests? Else [`operation_of`](Self::operation_of)
    /// looks at no target, so that none has to be made for it.
    #[must_use]
    pub const fn reads_requests(&self) -> bool {
        self.operation.is_some() || self.key.is_some()
    }

    /// The header that marks an answer with `note`, if there is one
    /// ([`HttpRulesExt::fallback_header`]).
    #[must_use]
    pub fn header_of(&self, note: &Note) -> Option<(HeaderName, HeaderValue)> {
        let Note::Fallback(class) = note else { return None };
        Some((self.fallback_header.clone()?, HeaderValue::from_static(class.as_str())))
    }
}

impl HttpStatus {
    fn set(&mut self, status: u16, class: Option<ErrorClass>) {
        self.overrides.retain(|(known, _)| *known != status);
        self.overrides.push((status, class));
    }

    /// What is decided before any rule: the stamp of a `ClassifyLayer`, the word of
    /// [`response_by`](HttpRulesExt::response_by), an override by status; `None` leaves it to the
    /// rules. For rules of other protocols that are built on these.
    #[must_use]
    #[inline]
    pub fn adjusted(&self, head: ResponseHead<'_>) -> Option<Verdict> {
        let plain = head.extensions.is_empty() && self.response.is_none();
        if plain && self.overrides.is_empty() { None } else { self.adjusted_by(head) }
    }

    fn adjusted_by(&self, head: ResponseHead<'_>) -> Option<Verdict> {
        if let Some(verdict) = head.extensions.get::<Notes>().and_then(|notes| notes.verdict) {
            return Some(verdict);
        }
        if let Some(verdict) = self.response.as_ref().and_then(|f| f(head)) {
            return Some(verdict);
        }
        let status = head.status.as_u16();
        let (_, class) = self.overrides.iter().find(|(known, _)| *known == status)?;
        Some(class.map_or(Verdict::Success, |class| {
            let failure = Failure::new(class).reason("http_status_override");
            let facts =
                HttpFacts { status, headers: head.headers, body_prefix: &[], now: wall_clock() };
            facts.with_hints(failure, None).into()
        }))
    }
}

impl<'a, B> From<&'a http::Response<B>> for ResponseHead<'a> {
    fn from(response: &'a http::Response<B>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }
}

impl<B> ClassifyResponse<http::Response<B>> for HttpStatus {
    fn response(&self, response: &http::Response<B>) -> Verdict {
        self.judge(response.into())
    }

    fn annotate(&self, response: &mut http::Response<B>, note: &Note) -> bool {
        if let Some((name, value)) = self.header_of(note) {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().get_or_insert_default::<Notes>().add(note);
        true
    }

    fn explain(&self, response: &http::Response<B>, out: &mut dyn fmt::Write) {
        // What cannot be written is not read either.
        let _ = write!(out, "{}", response.status());
    }
}

impl<B> Stamp<http::Response<B>> for HttpStatus {}

impl<B> Describe<http::Request<B>> for HttpStatus {
    fn operation(&self, request: &http::Request<B>) -> Operation {
        self.operation_of(RequestHead::from(request))
    }

    fn repeatable(&self, request: &http::Request<B>) -> bool {
        RequestHead::from(request).repeatable()
    }

    fn unit_of_work(&self, request: &http::Request<B>) -> bool {
        RequestHead::from(request).unit_of_work()
    }

    fn key(&self, request: &http::Request<B>) -> Key {
        self.key_of(RequestHead::from(request))
    }

    fn deadline(&self, request: &http::Request<B>) -> Option<Instant> {
        request.extensions().get::<Deadline>().map(|deadline| deadline.0)
    }

    fn request_id(&self, request: &http::Request<B>) -> Option<Label> {
        RequestHead::from(request).label(&REQUEST_ID)
    }

    fn trace(&self, request: &http::Request<B>) -> Option<TraceParent> {
        RequestHead::from(request).text(&TRACEPARENT).and_then(TraceParent::parse)
    }

    fn target(&self, request: &http::Request<B>) -> Target {
        RequestHead::from(request).target()
    }
}

impl fmt::Debug for HttpStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStatus")
            .field("overrides", &self.overrides)
            .field("fallback_header", &self.fallback_header)
            .finish_non_exhaustive()
    }
}
