//! The atomics and locks of what threads share: those of std. `tests/loom` compiles the same source
//! files over loom's, and tries their interleavings.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
