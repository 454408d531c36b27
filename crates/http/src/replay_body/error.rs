//! How reading a replayable body fails.

use std::error::Error;
use std::fmt;

use tower_triage_core::BoxError;

/// Reading a [`ReplayBody`](crate::ReplayBody) failed: either the body inside did (its error is the
/// source), or this clone has nothing to give.
#[derive(Debug)]
pub struct ReplayError(Kind);

#[derive(Debug)]
enum Kind {
    Body(BoxError),
    Refused(&'static str),
}

impl ReplayError {
    pub(super) fn of_body(error: impl Into<BoxError>) -> Self {
        Self(Kind::Body(error.into()))
    }

    pub(super) const fn refused(why: &'static str) -> Self {
        Self(Kind::Refused(why))
    }

    /// Why the clone could not be read, if that was it and not the body inside.
    #[must_use]
    pub const fn not_replayable(&self) -> Option<&'static str> {
        match self.0 {
            Kind::Refused(why) => Some(why),
            Kind::Body(_) => None,
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Body(_) => f.write_str("request body failed"),
            Kind::Refused(why) => write!(f, "not replayable: {why}"),
        }
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Kind::Body(error) => Some(&**error),
            Kind::Refused(_) => None,
        }
    }
}
