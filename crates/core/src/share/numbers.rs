//! Which numbers are taken.

use crate::sync::{AtomicU64, Ordering};

/// The numbers of live threads, one bit each.
#[derive(Debug)]
pub(crate) struct Numbers {
    taken: AtomicU64,
    /// All that were ever taken are below.
    end: AtomicU64,
}

impl Numbers {
    /// So many threads have a number of their own.
    pub(crate) const COUNT: usize = 64;

    /// The number of all others.
    pub(crate) const SHARED: u8 = Self::COUNT as u8;

    pub(crate) const fn new() -> Self {
        Self { taken: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    /// The lowest number that nobody has, or [`SHARED`](Self::SHARED).
    pub(crate) fn take(&self) -> u8 {
        // Acquire, and release below: what the last holder of the number wrote to its cells, the
        // next one sees.
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        match self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free) {
            Ok(before) => {
                let number = before.trailing_ones() as u8;
                self.end.fetch_max(u64::from(number) + 1, Ordering::Release);
                number
            }
            Err(_) => Self::SHARED,
        }
    }

    /// Whoever knows of something that a thread did with its number sees that number below this.
    pub(crate) fn end(&self) -> usize {
        self.end.load(Ordering::Acquire) as usize
    }

    /// The holder of `number` will not use it again.
    pub(crate) fn give_back(&self, number: u8) {
        if number < Self::SHARED {
            self.taken.fetch_and(!(1 << number), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_above_every_number_that_was_ever_taken() {
        let numbers = Numbers::new();
        assert_eq!(numbers.end(), 0);
        assert_eq!((numbers.take(), numbers.take(), numbers.end()), (0, 1, 2));
        numbers.give_back(1);
        assert_eq!((numbers.end(), numbers.take(), numbers.end()), (2, 1, 2));
    }

    #[test]
    fn the_lowest_free_number_first_and_then_the_crowd() {
        let numbers = Numbers::new();
        let all: Vec<u8> = (0..64).map(|_| numbers.take()).collect();
        assert_eq!(all, (0..64).collect::<Vec<u8>>());
        assert_eq!((numbers.take(), numbers.take()), (Numbers::SHARED, Numbers::SHARED));
        assert_eq!(numbers.end(), 64);
        numbers.give_back(7);
        numbers.give_back(3);
        numbers.give_back(Numbers::SHARED);
        assert_eq!((numbers.take(), numbers.take(), numbers.take()), (3, 7, Numbers::SHARED));
    }
}
