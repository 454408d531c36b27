//! What an outcome can carry upward, where its type has a place for it.

use std::sync::Arc;

use crate::class::ErrorClass;
use crate::incident::Incident;
use crate::verdict::Verdict;

/// Something worth attaching to an outcome: a response extension, a field of
/// [`AnyError`](crate::AnyError), or a place in a user's own error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Note {
    /// The verdict of a `ClassifyLayer`: every layer above believes it.
    Verdict(Verdict),
    /// The whole story, attached by the outermost layer of a call that met a failure.
    Incident(Arc<Incident>),
    /// This answer is a fallback's; the primary failed with this class.
    Fallback(ErrorClass),
    /// This answer was built from what is known; it is not the dependency's.
    ForcedFinish(ErrorClass),
}

/// The notes that an outcome carries. Protocol crates keep it where the type has a place (an
/// `http::Extensions` entry); [`AnyError`](crate::AnyError) has it as a field.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The verdict stamped on this outcome.
    pub verdict: Option<Verdict>,
    /// The incident of the call that ended with this outcome.
    pub incident: Option<Arc<Incident>>,
    /// The class that the fallback covered up, if this is a fallback's answer.
    pub fallback: Option<ErrorClass>,
    /// The class that ended in a forced finish, if this is one.
    pub forced_finish: Option<ErrorClass>,
}

impl Notes {
    /// Adds one note.
    pub fn add(&mut self, note: &Note) {
        match note {
            Note::Verdict(verdict) => self.verdict = Some(*verdict),
            Note::Incident(incident) => self.incident = Some(Arc::clone(incident)),
            Note::Fallback(class) => self.fallback = Some(*class),
            Note::ForcedFinish(class) => self.forced_finish = Some(*class),
        }
    }
}

/// Half of some rules that really keeps a [`Note::Verdict`] on a `T` and believes it later. A
/// `ClassifyLayer` over types that cannot carry its verdict does not compile.
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot carry a verdict under the rules `{Self}`",
    note = "ClassifyLayer needs outcomes that carry its verdict upward: an `http::Response`, `AnyError` (`.map_err(AnyError::from)`), or an `Infallible` error"
)]
pub trait Stamp<T> {}

/// Rules under which both sides of an outcome can carry a verdict; see [`Stamp`].
#[diagnostic::on_unimplemented(
    message = "under the rules `{Self}` a `Result<{Res}, {E}>` cannot carry a verdict",
    note = "ClassifyLayer needs outcomes that carry its verdict upward: an `http::Response` and `AnyError` (`.map_err(AnyError::from)`) do"
)]
pub trait StampOutcome<Res, E>: crate::classify::Classify<Res, E> {}
