//! The atomics and locks of the budgets: those of std. `tests/loom` compiles the same source files
//! over loom's, and tries their interleavings.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
