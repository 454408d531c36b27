//! The gRPC rules: the half for answers, how to adjust it, and what it reads from requests.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::time::Instant;
use tonic::Code;
use tower_triage_core::{
    ClassifyResponse, Describe, ErrorClass, Failure, Halves, Key, Label, Note, Notes, Operation,
    Stamp, Target, TraceParent, Verdict, wall_clock,
};
use tower_triage_http::{Deadline, Repeatable, RequestHead, UnitOfWork};

use crate::code::{code_of, reason};
use crate::decision::{GrpcFacts, STATUS};
use crate::errors::GrpcErrors;
use crate::peek::{DeadlinePassed, Peeked};
use crate::request::Method;
use crate::timeout::timeout_of;

/// The rules for gRPC: [`GrpcStatus`] for answers and requests, and a half for errors.
pub type GrpcRules<Q = GrpcErrors> = Halves<GrpcStatus, Q>;

/// The rules for gRPC with their defaults.
///
/// Adjust them before they are shared ([`GrpcRulesExt`]), then put them into a
/// [`Classifier`](tower_triage_core::Classifier):
///
/// ```
/// use tonic::Code;
/// use tower_triage_core::{Classifier, ErrorClass};
/// use tower_triage_grpc::{GrpcRulesExt, grpc};
///
/// let rules = grpc()
///     .repeatable_methods(["shop.Orders/Get", "shop.Catalogue"]) // a method; a whole service
///     .code(Code::FailedPrecondition, ErrorClass::Contention)
///     .success(Code::NotFound);
/// let classifier = Classifier::new(rules);
/// # let _ = classifier;
/// ```
#[must_use]
pub fn grpc() -> GrpcRules {
    GrpcRules::default()
}

/// Reads a fact from a request.
type ReadFrom<Fact> = dyn Fn(RequestHead<'_>) -> Fact + Send + Sync;

/// Judges any `http::Response` of a gRPC peer, whatever its body, by its status, and reads the facts
/// of any `http::Request`.
///
/// It never touches a body: what the trailers say it learns from a
/// [`PeekLayer`](crate::PeekLayer) at the bottom of the stack. What a `ClassifyLayer` stamped is
/// believed first.
#[derive(Clone, Default)]
pub struct GrpcStatus {
    /// Few, so a search is as fast as anything.
    overrides: Vec<(Code, Option<ErrorClass>)>,
    repeatable: Arc<[Box<str>]>,
    units: Arc<[Box<str>]>,
    operation: Option<Arc<ReadFrom<Option<Operation>>>>,
    key: Option<Arc<ReadFrom<Key>>>,
}

/// Adjusts the rules before they are shared. An extension trait, because the rules are core's
/// [`Halves`].
pub trait GrpcRulesExt: Sized {
    /// Changes the half for answers.
    #[must_use]
    fn adjust_status(self, change: impl FnOnce(&mut GrpcStatus)) -> Self;

    /// These methods may be called again although the peer may have worked on the first call: it is
    /// your promise that twice is as good as once. A name is `package.Service/Method`, or
    /// `package.Service` for all methods of a service. gRPC says nothing of it by itself; a single
    /// request carries a [`Repeatable`] as an extension.
    #[must_use]
    fn repeatable_methods<N: Into<Box<str>>>(self, names: impl IntoIterator<Item = N>) -> Self {
        let names = names.into_iter().map(Into::into);
        self.adjust_status(|half| {
            half.repeatable = half.repeatable.iter().cloned().chain(names).collect()
        })
    }

    /// A call of these methods is a complete unit of work, so it may run again after it lost a race
    /// (ABORTED). A single request carries a [`UnitOfWork`] as an extension.
    #[must_use]
    fn unit_of_work_methods<N: Into<Box<str>>>(self, names: impl IntoIterator<Item = N>) -> Self {
        let names = names.into_iter().map(Into::into);
        self.adjust_status(|half| half.units = half.units.iter().cloned().chain(names).collect())
    }

    /// Every answer with `code` is a failure of `class`, whatever its details say. It then has the
    /// class's own vote and disposition; the server's hints are read as for the class. A `Status` that
    /// comes as an error is judged by the other half.
    #[must_use]
    fn code(self, code: Code, class: ErrorClass) -> Self {
        self.adjust_status(|half| half.set(code, Some(class)))
    }

    /// Every answer with `code` is a success: a NOT_FOUND that means "not there, as hoped".
    #[must_use]
    fn success(self, code: Code) -> Self {
        self.adjust_status(|half| half.set(code, None))
    }

    /// Names operations with `f`; where it gives `None` the default stands. The names must come from
    /// a small set: a server that takes calls from anybody should name its own methods and nothing
    /// else.
    #[must_use]
    fn operation_by(
        self,
        f: impl Fn(RequestHead<'_>) -> Option<Operation> + Send + Sync + 'static,
    ) -> Self {
        self.adjust_status(|half| half.operation = Some(Arc::new(f)))
    }

    /// Takes the key of keyed breakers from `f`. Default: the operation.
    #[must_use]
    fn key_by(self, f: impl Fn(RequestHead<'_>) -> Key + Send + Sync + 'static) -> Self {
        self.adjust_status(|half| half.key = Some(Arc::new(f)))
    }
}

impl<Q> GrpcRulesExt for Halves<GrpcStatus, Q> {
    fn adjust_status(mut self, change: impl FnOnce(&mut GrpcStatus)) -> Self {
        change(&mut self.response);
        self
    }
}

impl GrpcStatus {
    fn set(&mut self, code: Code, class: Option<ErrorClass>) {
        self.overrides.retain(|(known, _)| *known != code);
        self.overrides.push((code, class));
    }

    fn verdict(&self, facts: &GrpcFacts<'_>) -> Verdict {
        let Verdict::Failure(failure) = facts.verdict() else { return Verdict::Success };
        let code = code_of(&failure);
        match self.overrides.iter().find(|(overridden, _)| *overridden == code) {
            None => failure.into(),
            Some((_, None)) => Verdict::Success,
            Some((_, Some(class))) => {
                facts.said().with_hints(Failure::new(*class).reason(reason(code))).into()
            }
        }
    }
}

/// What an answer says of itself so far; `None` while its status is still to come.
pub(crate) fn facts<B>(response: &http::Response<B>) -> Option<GrpcFacts<'_>> {
    let headers = response.headers();
    let http_status = response.status().as_u16();
    let trailers = match response.extensions().get::<Peeked>() {
        _ if headers.contains_key(STATUS) => None,
        Some(Peeked::Trailers(trailers)) => Some(trailers),
        Some(Peeked::End) => None,
        Some(Peeked::Failed(_)) | None if http_status == 200 && speaks_grpc(headers) => {
            return None;
        }
        _ => None,
    };
    let deadline_passed = response.extensions().get::<DeadlinePassed>().is_some();
    let now = wall_clock();
    Some(GrpcFacts { http_status, headers, trailers, deadline_passed, ..GrpcFacts::new(now) })
}

/// A proxy's page is no answer of gRPC, even with a 200.
fn speaks_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|value| value.as_bytes().starts_with(b"application/grpc"))
}

impl<B> ClassifyResponse<http::Response<B>> for GrpcStatus {
    fn response(&self, response: &http::Response<B>) -> Verdict {
        let extensions = response.extensions();
        if let Some(verdict) = extensions.get::<Notes>().and_then(|notes| notes.verdict) {
            return verdict;
        }
        if response.headers().get(STATUS).is_some_and(|status| status == "0") {
            // The happy path reads no clock.
            return Verdict::Success;
        }
        match (facts(response), extensions.get()) {
            (Some(facts), _) => self.verdict(&facts),
            (None, Some(Peeked::Failed(failure))) => Verdict::Failure(*failure),
            (None, _) => Verdict::Success,
        }
    }

    fn annotate(&self, response: &mut http::Response<B>, note: &Note) -> bool {
        response.extensions_mut().get_or_insert_default::<Notes>().add(note);
        true
    }

    fn explain(&self, response: &http::Response<B>, out: &mut dyn fmt::Write) {
        let said = facts(response).and_then(|facts| facts.verdict().failure());
        // What cannot be written is not read either.
        let _ = match said {
            Some(failure) if response.status() == 200 => write!(out, "{:?}", code_of(&failure)),
            Some(failure) => write!(out, "{:?} (HTTP {})", code_of(&failure), response.status()),
            None => out.write_str("the answer broke off before its first message"),
        };
    }
}

impl<B> Stamp<http::Response<B>> for GrpcStatus {}

/// When the time of a call is up: by the mark of a layer above, or by what its caller tells the peer.
pub(crate) fn deadline_of<B>(request: &http::Request<B>) -> Option<Instant> {
    let marked = request.extensions().get::<Deadline>().map(|deadline| deadline.0);
    let told = || Instant::now().checked_add(timeout_of(request.headers())?);
    marked.or_else(told)
}

/// Is the method of `request` one of `names`?
fn is_one_of<B>(request: &http::Request<B>, names: &[Box<str>]) -> bool {
    !names.is_empty()
        && Method::of(request).is_some_and(|method| names.iter().any(|name| method.is(name)))
}

impl<B> Describe<http::Request<B>> for GrpcStatus {
    fn operation(&self, request: &http::Request<B>) -> Operation {
        let named = self.operation.as_ref().and_then(|f| f(RequestHead::from(request)));
        named.unwrap_or_else(|| {
            Method::of(request).map_or(Operation::new("_OTHER"), Method::operation)
        })
    }

    fn repeatable(&self, request: &http::Request<B>) -> bool {
        request.extensions().get::<Repeatable>().is_some() || is_one_of(request, &self.repeatable)
    }

    fn unit_of_work(&self, request: &http::Request<B>) -> bool {
        request.extensions().get::<UnitOfWork>().is_some() || is_one_of(request, &self.units)
    }

    fn key(&self, request: &http::Request<B>) -> Key {
        let own = self.key.as_ref().map(|f| f(RequestHead::from(request)));
        own.unwrap_or_else(|| self.operation(request))
    }

    fn deadline(&self, request: &http::Request<B>) -> Option<Instant> {
        deadline_of(request)
    }

    fn request_id(&self, request: &http::Request<B>) -> Option<Label> {
        RequestHead::from(request).label("x-request-id")
    }

    fn trace(&self, request: &http::Request<B>) -> Option<TraceParent> {
        let text = request.headers().get("traceparent")?.to_str().ok()?;
        TraceParent::parse(text)
    }

    fn target(&self, request: &http::Request<B>) -> Target {
        let head = RequestHead::from(request);
        Target::from_parts(&[head.host(), head.uri.path()])
    }
}

impl fmt::Debug for GrpcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcStatus")
            .field("overrides", &self.overrides)
            .field("repeatable", &self.repeatable)
            .field("units", &self.units)
            .finish_non_exhaustive()
    }
}
