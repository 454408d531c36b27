//! Core's `thread` with loom's thread-locals: the threads of a model take turns on one of std's.

use std::cell::Cell;
use std::sync::Arc;

use super::numbers::Numbers;

loom::thread_local! {
    static LEASE: Lease = Lease::new();
}

loom::lazy_static! {
    static ref NUMBERS: Arc<Numbers> = Arc::new(Numbers::default());
}

/// Keeps the numbers alive, because a thread may end after the model.
struct Lease {
    numbers: Arc<Numbers>,
    number: Cell<Option<u8>>,
    lent: Cell<bool>,
}

/// As in core.
pub(crate) fn number() -> usize {
    LEASE.try_with(Lease::number).unwrap_or(Numbers::SHARED).into()
}

/// As in core.
pub(crate) fn end() -> usize {
    NUMBERS.end()
}

/// Runs `f` with a number that is taken now and never given back: for models that are not about
/// numbers, which would otherwise try each order of taking and giving.
pub(crate) fn numbered<T>(f: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let number = NUMBERS.take();
    move || {
        LEASE.with(|lease| {
            lease.number.set(Some(number));
            lease.lent.set(true);
        });
        f()
    }
}

impl Lease {
    fn new() -> Self {
        let numbers = Arc::clone(&NUMBERS);
        Self { numbers, number: Cell::new(None), lent: Cell::new(false) }
    }

    fn number(&self) -> u8 {
        self.number.get().unwrap_or_else(|| {
            let number = self.numbers.take();
            self.number.set(Some(number));
            number
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A model that failed is over, and nothing of loom can be used any more.
        if self.lent.get() || std::thread::panicking() {
            return;
        }
        if let Some(number) = self.number.get() {
            self.numbers.give_back(number);
        }
    }
}
