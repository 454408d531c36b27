//! A sink's last word.

use std::fmt;

use tower_triage_core::BoxError;

/// The error of a sink that is of no use to try again with this escalation: it has made its own
/// tries, or was told that it is wrong. The desk goes on to the next sink at once.
///
/// `Display` and `source` are those of the error inside.
#[derive(Debug)]
pub struct GivenUp(BoxError);

impl GivenUp {
    /// `why` is what the sink failed with.
    #[must_use]
    pub fn new(why: impl Into<BoxError>) -> Self {
        Self(why.into())
    }

    /// What the sink failed with.
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        self.0
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for GivenUp {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
