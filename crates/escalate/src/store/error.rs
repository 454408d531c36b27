//! What can go wrong with a store.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tower_triage_core::incident::IncidentId;
use tower_triage_core::{BoxError, ErrorClass, Failure, ToFailure};

use crate::store::Refused;

/// Why a store did not do what it was asked. `Clone`, because many callers may share one write.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such letter.
    NotFound(IncidentId),
    /// The letter is not in a state for it.
    Refused(IncidentId, Refused),
    /// The store itself failed: out of reach, disk full, locked. Nothing is known to be stored.
    Unavailable(Arc<dyn Error + Send + Sync>),
    /// What is in the store cannot be read.
    Corrupt(String),
}

impl StoreError {
    /// The store failed with `error`.
    pub fn unavailable(error: impl Into<BoxError>) -> Self {
        Self::Unavailable(Arc::from(error.into()))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(id) => write!(f, "there is no letter {id}"),
            Self::Refused(id, why) => write!(f, "letter {id}: {why}"),
            Self::Unavailable(error) => write!(f, "the store failed: {error}"),
            Self::Corrupt(what) => write!(f, "the store holds what cannot be read: {what}"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(&**error),
            Self::Refused(_, why) => Some(why),
            Self::NotFound(_) | Self::Corrupt(_) => None,
        }
    }
}

/// A store can be a service's failure like any other.
impl ToFailure for StoreError {
    fn to_failure(&self) -> Failure {
        match self {
            Self::NotFound(_) => Failure::new(ErrorClass::Permanent).reason("no_such_letter"),
            Self::Refused(..) => Failure::new(ErrorClass::Contention).reason("letter_changed"),
            Self::Unavailable(_) => Failure::new(ErrorClass::Transient).reason("store_failed"),
            Self::Corrupt(_) => Failure::new(ErrorClass::Internal).reason("letter_unreadable"),
        }
    }
}
