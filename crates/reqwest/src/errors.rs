//! The error half of the rules for a reqwest client.

use std::error::Error;
use std::fmt;

use http::HeaderMap;
use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, ClassifyError, Disposition, ErrorClass, Failure, Note, Phase,
    Stamp, Verdict, Vote, causes, local_failure, stamped, wall_clock,
};
use tower_triage_http::{HttpFacts, transport_failure};

/// Judges a reqwest client's errors, bare, boxed, or in an [`AnyError`], and what lies around them:
/// our own rejections, timers, and (feature `middleware`) the errors of reqwest-middleware.
///
/// | error | class |
/// |---|---|
/// | connecting failed (`is_connect`) | Transient, not sent; with a timer inside Timeout, not sent |
/// | hyper, h2 and I/O errors inside | as `tower-triage-http` has them |
/// | a timeout of reqwest's own (`is_timeout`) | Timeout |
/// | `error_for_status` | by the status |
/// | a request that cannot be built (`is_builder`) | Permanent, not sent, no breaker vote |
/// | redirects that do not end, or not allowed (`is_redirect`) | Permanent, may be processed |
/// | a body that cannot be decoded (`is_decode`), an upgrade refused | Internal |
///
/// For an error type of your own implement [`ClassifyError`] for it on this type, or swap this half
/// (`reqwest().errors(OwnError)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReqwestErrors;

/// Classifies `error` by the types along its chain of sources, reqwest's among them. Pure; never by
/// text.
pub fn reqwest_failure(error: &(dyn Error + 'static)) -> Failure {
    for cause in causes(error) {
        if let Some(error) = cause.downcast_ref::<reqwest::Error>() {
            return of_reqwest(error);
        }
        if let Some(failure) = middleware_failure(cause) {
            return failure;
        }
        if local_failure(cause).is_some() {
            // It decides, and how far the request came is the transport's to say.
            break;
        }
    }
    transport_failure(error, Phase::Unknown)
}

fn of_reqwest(error: &reqwest::Error) -> Failure {
    use ErrorClass as C;

    if let Some(status) = error.status() {
        return of_status(status.as_u16());
    }
    if error.is_builder() {
        // Nothing was learned about the peer.
        return Failure::new(C::Permanent)
            .disposition(Disposition::NotSent)
            .vote(Vote::Ignore)
            .reason("reqwest_builder");
    }
    let late = Failure::new(C::Timeout).reason("reqwest_timeout");
    if error.is_connect() && error.is_timeout() {
        return late.disposition(Disposition::NotSent);
    }
    // What is inside says more than reqwest's own kind, where a type of it is known.
    let inside = error.source().map(|inside| transport_failure(inside, Phase::Unknown));
    match inside.filter(|inside| inside.class != C::Unknown) {
        Some(inside) => inside,
        None if error.is_timeout() => late,
        // The hops before the last one were answered.
        None if error.is_redirect() => Failure::new(C::Permanent)
            .disposition(Disposition::MaybeProcessed)
            .reason("reqwest_redirect"),
        None if error.is_decode() => Failure::new(C::Internal).reason("reqwest_decode"),
        None if error.is_upgrade() => Failure::new(C::Internal).reason("reqwest_upgrade"),
        None => Failure::new(C::Unknown).reason("reqwest"),
    }
}

/// What the status alone says: `error_for_status` drops the headers.
fn of_status(status: u16) -> Failure {
    let headers = HeaderMap::new();
    let facts = HttpFacts { status, headers: &headers, body_prefix: &[], now: wall_clock() };
    match facts.verdict() {
        Verdict::Failure(failure) => failure,
        // Made by hand for a status that is none: an error all the same.
        Verdict::Success => Failure::new(ErrorClass::Unknown).reason("reqwest_status"),
    }
}

/// reqwest-middleware's error stands for the one inside, which is not among its sources.
#[cfg(feature = "middleware")]
fn middleware_failure(cause: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(gone) = cause.downcast_ref::<crate::Gone>() {
        return Some(tower_triage_core::ToFailure::to_failure(gone));
    }
    Some(match cause.downcast_ref()? {
        reqwest_middleware::Error::Reqwest(error) => of_reqwest(error),
        reqwest_middleware::Error::Middleware(error) => {
            let error: &(dyn Error + Send + Sync + 'static) = error.as_ref();
            reqwest_failure(error)
        }
    })
}

#[cfg(not(feature = "middleware"))]
fn middleware_failure(_cause: &(dyn Error + 'static)) -> Option<Failure> {
    None
}

impl ClassifyError<AnyError> for ReqwestErrors {
    fn error(&self, error: &AnyError) -> Failure {
        stamped(error).unwrap_or_else(|| reqwest_failure(error.as_error()))
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        error.annotate(note);
        true
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        explain(error.as_error(), out);
    }
}

impl Stamp<AnyError> for ReqwestErrors {}

impl ClassifyError<BoxError> for ReqwestErrors {
    fn error(&self, error: &BoxError) -> Failure {
        reqwest_failure(&**error)
    }

    fn explain(&self, error: &BoxError, out: &mut dyn fmt::Write) {
        explain(&**error, out);
    }
}

impl ClassifyError<reqwest::Error> for ReqwestErrors {
    fn error(&self, error: &reqwest::Error) -> Failure {
        reqwest_failure(error)
    }

    fn explain(&self, error: &reqwest::Error, out: &mut dyn fmt::Write) {
        explain(error, out);
    }
}

#[cfg(feature = "middleware")]
impl ClassifyError<reqwest_middleware::Error> for ReqwestErrors {
    fn error(&self, error: &reqwest_middleware::Error) -> Failure {
        reqwest_failure(error)
    }

    fn explain(&self, error: &reqwest_middleware::Error, out: &mut dyn fmt::Write) {
        explain(error, out);
    }
}

impl ClassifyError<CircuitOpen> for ReqwestErrors {
    fn error(&self, error: &CircuitOpen) -> Failure {
        reqwest_failure(error)
    }

    fn explain(&self, error: &CircuitOpen, out: &mut dyn fmt::Write) {
        explain(error, out);
    }
}

/// The chain's texts, outermost first, without the URL that reqwest adds to its own: a query may hold
/// secrets.
fn explain(error: &(dyn Error + 'static), out: &mut dyn fmt::Write) {
    const DEPTH: usize = 16;
    let mut last = String::new();
    for cause in causes(error).take(DEPTH) {
        let text = text_of(cause);
        if last.ends_with(&text) {
            continue;
        }
        let colon = if last.is_empty() { "" } else { ": " };
        // What cannot be written is not read either.
        let _ = write!(out, "{colon}{text}");
        last = text;
    }
}

fn text_of(cause: &(dyn Error + 'static)) -> String {
    let text = cause.to_string();
    let url = reqwest_error(cause).and_then(reqwest::Error::url);
    let Some(url) = url else { return text };
    text.strip_suffix(&format!(" for url ({url})")).map_or_else(String::new, str::to_owned)
}

#[cfg(feature = "middleware")]
fn reqwest_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a reqwest::Error> {
    match cause.downcast_ref() {
        Some(reqwest_middleware::Error::Reqwest(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}

#[cfg(not(feature = "middleware"))]
fn reqwest_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a reqwest::Error> {
    cause.downcast_ref()
}
