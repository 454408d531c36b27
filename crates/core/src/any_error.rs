//! An error of any type, with room for notes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::incident::Incident;
use crate::note::{Note, Notes};
use crate::verdict::Verdict;

/// A boxed error of any type.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The recommended error type of a stack: made from any error (`.map_err(AnyError::from)`), turned
/// back into it ([`AnyError::into_inner`], `Into<BoxError>`), found by type
/// ([`AnyError::downcast_ref`]), and able to carry what the layers know about it.
///
/// Why not `BoxError`: rustc forgets `'static` of a `dyn Error` that is mentioned in a stack's type
/// inside an async block, so a stack over `BoxError` does not compile inside
/// `tokio::spawn(async move { .. })`. A nominal type does.
///
/// ```
/// use std::io;
/// use tower_triage_core::AnyError;
///
/// let error = AnyError::from(io::Error::from(io::ErrorKind::ConnectionReset));
/// assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::ConnectionReset);
/// ```
pub struct AnyError(Box<Inner>);

struct Inner {
    error: BoxError,
    notes: Notes,
}

impl AnyError {
    /// From an error that is boxed already (above tower's `buffer` or `timeout`): the box is kept,
    /// so what is inside is still found by type. An `AnyError` that was boxed as itself is unpacked.
    #[must_use]
    pub fn from_boxed(error: BoxError) -> Self {
        Self(Box::new(Inner { error, notes: Notes::default() }))
    }

    /// From a text: an error that nothing can downcast to.
    #[must_use]
    pub fn msg(text: impl Into<String>) -> Self {
        Self::from_boxed(text.into().into())
    }

    /// The error itself, if it is a `T`; sources are not searched (see [`AnyError::find`]).
    #[must_use]
    pub fn downcast_ref<T: Error + 'static>(&self) -> Option<&T> {
        self.0.error.downcast_ref()
    }

    /// The first `T` along the chain of sources, the error itself included.
    #[must_use]
    pub fn find<T: Error + 'static>(&self) -> Option<&T> {
        crate::chain::find(self.as_error())
    }

    /// The error as a trait object, to walk its sources.
    #[must_use]
    pub fn as_error(&self) -> &(dyn Error + 'static) {
        &*self.0.error
    }

    /// The boxed error back, notes dropped.
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        self.0.error
    }

    /// What the layers noted.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        &self.0.notes
    }

    /// The verdict that a `ClassifyLayer` stamped on it.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.0.notes.verdict
    }

    /// The story of the call that ended with it: attempts, waits, refusals, fallbacks, escalation.
    #[must_use]
    pub fn incident(&self) -> Option<&Arc<Incident>> {
        self.0.notes.incident.as_ref()
    }

    /// Adds a note.
    pub fn annotate(&mut self, note: &Note) {
        self.0.notes.add(note);
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for AnyError {
    fn from(error: E) -> Self {
        Self::from_boxed(error.into())
    }
}

impl From<AnyError> for BoxError {
    fn from(error: AnyError) -> Self {
        error.into_inner()
    }
}

/// So that `?` works in a `main` that returns `Box<dyn Error>`.
impl From<AnyError> for Box<dyn Error> {
    fn from(error: AnyError) -> Self {
        error.into_inner()
    }
}

impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.error.fmt(f)
    }
}

/// The error's text; with `{:#}` the whole chain.
impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            crate::chain::write_chain(self.as_error(), f);
            return Ok(());
        }
        self.0.error.fmt(f)
    }
}
