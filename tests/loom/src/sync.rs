//! What the crates' own `sync` modules take from std. Reference counts stay std's: loom has no
//! `Weak`, and no protocol here is one of counts.

pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use loom::sync::{Mutex, MutexGuard};
