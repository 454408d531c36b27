//! A small number for each live thread.

use std::cell::Cell;

use super::numbers::Numbers;
use crate::sync::AtomicU64;

thread_local! {
    /// Without a destructor, so that reading it needs no check.
    static NUMBER: Cell<u8> = const { Cell::new(UNKNOWN) };
    /// Touched once per thread: gives the number back at its end.
    static LEASE: Lease = const { Lease(Cell::new(Numbers::SHARED)) };
}

/// Not asked for yet.
const UNKNOWN: u8 = u8::MAX;

static NUMBERS: Numbers = Numbers { taken: AtomicU64::new(0), end: AtomicU64::new(0) };

struct Lease(Cell<u8>);

/// The number of this thread: below [`Numbers::COUNT`] it is no other live thread's, and
/// [`Numbers::SHARED`] is that of all further threads, and of a thread that is ending.
#[inline]
pub(crate) fn number() -> usize {
    match NUMBER.get() {
        UNKNOWN => assign(),
        number => number.into(),
    }
}

/// All numbers that threads ever had are below.
pub(crate) fn end() -> usize {
    NUMBERS.end()
}

#[cold]
fn assign() -> usize {
    let number = LEASE.try_with(Lease::take).unwrap_or(Numbers::SHARED);
    NUMBER.set(number);
    number.into()
}

impl Lease {
    fn take(&self) -> u8 {
        let number = NUMBERS.take();
        self.0.set(number);
        number
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // In this order: what other destructors of this thread still do, they do as one of the
        // crowd, because the number may be another thread's at once.
        NUMBER.set(Numbers::SHARED);
        NUMBERS.give_back(self.0.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_threads_have_different_numbers() {
        let mine = number();
        assert_eq!(number(), mine);
        let barrier = &std::sync::Barrier::new(3);
        let others: Vec<usize> = std::thread::scope(|scope| {
            let ask = || {
                let number = number();
                barrier.wait();
                number
            };
            let threads = [scope.spawn(ask), scope.spawn(ask), scope.spawn(ask)];
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let mut all = others;
        all.push(mine);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4, "{all:?}");
    }

    #[test]
    fn a_destructor_that_runs_late_is_one_of_the_crowd() {
        thread_local! {
            static EARLIER: Tells = const { Tells(Cell::new(None)) };
            static LATER: Tells = const { Tells(Cell::new(None)) };
        }
        struct Tells(Cell<Option<std::sync::mpsc::Sender<usize>>>);
        impl Drop for Tells {
            fn drop(&mut self) {
                if let Some(told) = self.0.take() {
                    told.send(number()).unwrap();
                }
            }
        }
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // One before the lease and one after it: in whatever order destructors run, the lease's
            // is between theirs.
            EARLIER.with(|earlier| earlier.0.set(Some(tell.clone())));
            number();
            LATER.with(|later| later.0.set(Some(tell)));
        })
        .join()
        .unwrap();
        let crowd = told.iter().filter(|number| *number == usize::from(Numbers::SHARED)).count();
        assert_eq!(crowd, 1, "of the two, the one that runs after the number was given back");
    }
}
