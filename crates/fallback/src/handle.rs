//! What a layer's fallbacks did so far, readable after the stack is built and boxed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_triage_core::ErrorClass;

/// Counts of one layer value, by the class of the primary failure. Taken from
/// [`FallbackLayer::handle`](crate::FallbackLayer::handle); cheap to clone.
#[derive(Clone, Default)]
pub struct FallbackHandle {
    counts: Arc<Counts>,
}

/// Touched on the failure path only.
#[derive(Default)]
struct Counts {
    answered: [AtomicU64; 12],
    failed: [AtomicU64; 12],
}

impl FallbackHandle {
    /// How many failures of `class` a fallback answered.
    #[must_use]
    pub fn answered(&self, class: ErrorClass) -> u64 {
        self.counts.answered[class.index()].load(Ordering::Relaxed)
    }

    /// How many failures of `class` the chain was tried for without an answer.
    #[must_use]
    pub fn failed(&self, class: ErrorClass) -> u64 {
        self.counts.failed[class.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, class: ErrorClass, answered: bool) {
        let counts = if answered { &self.counts.answered } else { &self.counts.failed };
        counts[class.index()].fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for FallbackHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackHandle").finish_non_exhaustive()
    }
}
