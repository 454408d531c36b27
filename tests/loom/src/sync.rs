//! What the crates' own `sync` modules take from std. Reference counts stay std's: loom has no
//! `Weak`, and no protocol here is one of counts.

use std::sync;

pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use loom::sync::{Mutex, MutexGuard};

pub(crate) use crate::share::Cells;

/// As std's, with what a thread that is early may see of it: nothing yet, or all of it.
pub(crate) struct OnceLock<T> {
    made: AtomicU32,
    making: Mutex<()>,
    value: sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { made: AtomicU32::new(0), making: Mutex::new(()), value: sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.made.load(Ordering::Acquire) == 1 { self.value.get() } else { None }
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let making = self.making.lock();
        let value = self.value.get_or_init(make);
        self.made.store(1, Ordering::Release);
        drop(making);
        value
    }
}
