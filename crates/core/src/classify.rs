//! Outcome → verdict. The rules come in two halves, joined here.
//!
//! One trait over the whole `Result` could not see into the error: a blanket over `E: Error` and
//! an impl for a boxed error conflict, and an adapter crate could not implement it for foreign
//! types. So a rule for responses and a rule for errors are separate traits, and [`Halves`] joins
//! them. An error type that no rule knows does not compile; it never becomes `Unknown` at run time.

use std::fmt;

use crate::describe::Describe;
use crate::note::{Note, Stamp};
use crate::verdict::{Failure, Verdict};

/// Outcome → verdict: pure, cheap, and asked by every layer that needs it.
///
/// Implemented by [`Halves`] (protocol rules), [`ClassifyFn`] (closures) and [`Adjusted`](crate::Adjusted).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot classify a `Result<{Res}, {E}>`",
    label = "no rule for this response or this error type",
    note = "map the error below the layer (`.map_err(AnyError::from)`), swap the error half (`rules.errors(OwnError)` with `impl ToFailure for {E}`), or classify with a closure (`classify_fn(|outcome| ..)`)"
)]
pub trait Classify<Res, E> {
    /// The verdict on `outcome`.
    fn classify(&self, outcome: Result<&Res, &E>) -> Verdict;

    /// Attaches `note` to the outcome, if its type can carry it. Default: it cannot.
    fn annotate(&self, _outcome: Result<&mut Res, &mut E>, _note: &Note) -> bool {
        false
    }

    /// Writes what a person should read about a failed outcome: the error's chain, or the status
    /// line. Never a body, never a header's value. Default: nothing.
    fn explain(&self, _outcome: Result<&Res, &E>, _out: &mut dyn fmt::Write) {}
}

/// The half of the rules that judges responses.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no rule for responses of type `{Res}`",
    note = "use the rules of the protocol (for HTTP: `tower_triage_http::http()`), `AnyOk` if every `Ok` is a success, or `classify_fn(|outcome| ..)`"
)]
pub trait ClassifyResponse<Res> {
    /// The verdict on a response.
    fn response(&self, response: &Res) -> Verdict;

    /// Attaches `note` to the response, if it can carry it. Default: it cannot.
    fn annotate(&self, _response: &mut Res, _note: &Note) -> bool {
        false
    }

    /// Writes what a person should read about a failed response. Default: nothing.
    fn explain(&self, _response: &Res, _out: &mut dyn fmt::Write) {}
}

/// The half of the rules that judges errors.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no rule for errors of type `{E}`",
    note = "map it below the layer (`.map_err(AnyError::from)`), or implement `ToFailure` for your own error and use `rules.errors(OwnError)`"
)]
pub trait ClassifyError<E> {
    /// What happened.
    fn error(&self, error: &E) -> Failure;

    /// Attaches `note` to the error, if it can carry it. Default: it cannot.
    fn annotate(&self, _error: &mut E, _note: &Note) -> bool {
        false
    }

    /// Writes what a person should read about the error. Default: nothing.
    fn explain(&self, _error: &E, _out: &mut dyn fmt::Write) {}
}

/// A rule for responses and a rule for errors, joined. The facts about requests come from the
/// response half, which belongs to the protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Halves<P, Q> {
    /// Judges responses and describes requests.
    pub response: P,
    /// Judges errors.
    pub error: Q,
}

impl<P, Q> Halves<P, Q> {
    /// The same rules with another half for errors.
    pub fn errors<Q2>(self, error: Q2) -> Halves<P, Q2> {
        Halves { response: self.response, error }
    }
}

#[diagnostic::do_not_recommend]
impl<Res, E, P: ClassifyResponse<Res>, Q: ClassifyError<E>> Classify<Res, E> for Halves<P, Q> {
    fn classify(&self, outcome: Result<&Res, &E>) -> Verdict {
        match outcome {
            Ok(response) => self.response.response(response),
            Err(error) => Verdict::Failure(self.error.error(error)),
        }
    }

    fn annotate(&self, outcome: Result<&mut Res, &mut E>, note: &Note) -> bool {
        match outcome {
            Ok(response) => self.response.annotate(response, note),
            Err(error) => self.error.annotate(error, note),
        }
    }

    fn explain(&self, outcome: Result<&Res, &E>, out: &mut dyn fmt::Write) {
        match outcome {
            Ok(response) => self.response.explain(response, out),
            Err(error) => self.error.explain(error, out),
        }
    }
}

impl<Res, E, P: Stamp<Res>, Q: Stamp<E>> crate::note::StampOutcome<Res, E> for Halves<P, Q> where
    Self: Classify<Res, E>
{
}

impl<Req, P: Describe<Req>, Q> Describe<Req> for Halves<P, Q> {
    fn operation(&self, request: &Req) -> crate::Operation {
        self.response.operation(request)
    }
    fn repeatable(&self, request: &Req) -> bool {
        self.response.repeatable(request)
    }
    fn unit_of_work(&self, request: &Req) -> bool {
        self.response.unit_of_work(request)
    }
    fn key(&self, request: &Req) -> crate::Key {
        self.response.key(request)
    }
    fn deadline(&self, request: &Req) -> Option<tokio::time::Instant> {
        self.response.deadline(request)
    }
    fn request_id(&self, request: &Req) -> Option<crate::Label> {
        self.response.request_id(request)
    }
    fn trace(&self, request: &Req) -> Option<crate::TraceParent> {
        self.response.trace(request)
    }
    fn target(&self, request: &Req) -> crate::Target {
        self.response.target(request)
    }
}

/// Response half: every `Ok` is a success. Its facts about requests are neutral.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyOk;

impl<Res> ClassifyResponse<Res> for AnyOk {
    fn response(&self, _response: &Res) -> Verdict {
        Verdict::Success
    }
}

impl<Req> Describe<Req> for AnyOk {}

/// Only failures are stamped, and under this rule no response is one.
impl<Res> Stamp<Res> for AnyOk {}

/// A user's own error type that knows its class. Use it with [`OwnError`].
///
/// ```
/// use std::fmt;
/// use tower_triage_core::{AnyOk, ErrorClass, Failure, Halves, OwnError, ToFailure};
///
/// #[derive(Debug)]
/// enum ShopError { Sold, Busy }
///
/// impl fmt::Display for ShopError {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{self:?}") }
/// }
/// impl std::error::Error for ShopError {}
/// impl ToFailure for ShopError {
///     fn to_failure(&self) -> Failure {
///         match self {
///             Self::Sold => ErrorClass::Permanent.into(),
///             Self::Busy => ErrorClass::Throttled.into(),
///         }
///     }
/// }
///
/// let rules = Halves { response: AnyOk, error: OwnError };
/// # let _ = rules;
/// ```
pub trait ToFailure: std::error::Error {
    /// What happened.
    fn to_failure(&self) -> Failure;

    /// Keeps `note` in the error, if it has a place for it. Default: it has none.
    fn annotate(&mut self, _note: &Note) -> bool {
        false
    }
}

/// Error half for types that know their own class ([`ToFailure`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnError;

impl<E: ToFailure> ClassifyError<E> for OwnError {
    fn error(&self, error: &E) -> Failure {
        error.to_failure()
    }

    fn annotate(&self, error: &mut E, note: &Note) -> bool {
        error.annotate(note)
    }

    fn explain(&self, error: &E, out: &mut dyn fmt::Write) {
        crate::chain::write_chain(error, out);
    }
}

/// Rules made from a closure; see [`classify_fn`]. Its facts about requests are neutral.
#[derive(Clone, Copy)]
pub struct ClassifyFn<F> {
    f: F,
}

/// Classifies with a closure over the whole outcome.
///
/// The bound sits on this constructor, so a bare `|outcome|` is enough to ask `is_ok()`; name the
/// side whose methods are called. For the protocol's facts with verdicts of your own, adjust the
/// protocol's rules instead ([`RulesExt::adjust`](crate::RulesExt::adjust)).
///
/// ```
/// use tower_triage_core::{classify_fn, Classify, ErrorClass, Verdict};
///
/// let rules = classify_fn(|outcome: Result<&u32, &String>| match outcome {
///     Ok(_) => Verdict::Success,
///     Err(text) if text.contains("busy") => ErrorClass::Throttled.into(),
///     Err(_) => ErrorClass::Transient.into(),
/// });
/// assert!(rules.classify(Ok(&1)).is_success());
/// ```
pub const fn classify_fn<Res, E, F>(f: F) -> ClassifyFn<F>
where
    F: Fn(Result<&Res, &E>) -> Verdict,
{
    ClassifyFn { f }
}

impl<Res, E, F> Classify<Res, E> for ClassifyFn<F>
where
    F: Fn(Result<&Res, &E>) -> Verdict,
{
    fn classify(&self, outcome: Result<&Res, &E>) -> Verdict {
        (self.f)(outcome)
    }
}

impl<Req, F> Describe<Req> for ClassifyFn<F> {}

impl<F> fmt::Debug for ClassifyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClassifyFn({})", std::any::type_name::<F>())
    }
}
