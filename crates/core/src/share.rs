//! How a layer shares its state: the one place that decides it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What all services made from one layer value share: classifier, policy and state behind one
/// reference count, so that a call touches one count per layer.
///
/// The layers know only `new`, `clone` and `deref`; how the sharing is done is exchanged here.
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Starts sharing `value`.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
