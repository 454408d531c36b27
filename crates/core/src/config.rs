//! The one error of a configuration that cannot work.

use std::fmt;

/// A value of a configuration that cannot work: which field, which value, and why.
///
/// Returned by every `build()` of this workspace, so that wrong configuration fails when it is
/// built and never in production.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: &'static str,
    value: String,
    problem: &'static str,
}

impl ConfigError {
    /// `field` has `value`, which does not work because of `problem`; the problem says what would.
    pub fn new(field: &'static str, value: impl fmt::Display, problem: &'static str) -> Self {
        Self { field, value: value.to_string(), problem }
    }

    /// The field's name, as its setter is called.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}: {}", self.field, self.value, self.problem)
    }
}

impl std::error::Error for ConfigError {}
