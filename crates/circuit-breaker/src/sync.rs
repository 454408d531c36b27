//! The atomics and locks of this crate's protocols: those of std, and core's. `tests/loom` compiles
//! the same source files over loom's, and tries their interleavings.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use tower_triage_core::share::Cells;
