//! Plain successes, counted by each thread for itself.

use crate::sync::{AtomicU64, Cells, Ordering};

/// What one thread has seen. Written by that thread only, so that counting is a load and a store;
/// read by whoever holds the circuit's lock.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Successes ever.
    total: AtomicU64,
    /// The era of the latest of them.
    era: AtomicU64,
    /// How many there were before that era.
    before: AtomicU64,
}

/// The successes of all threads.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    threads: Cells<Own>,
}

impl Tally {
    /// Counts a success of `era`. `false` if this thread has no counter of its own.
    #[inline]
    pub(crate) fn add(&self, era: u32) -> bool {
        match self.threads.own() {
            Some(own) => {
                own.add(era.into());
                true
            }
            None => false,
        }
    }

    /// Successes of `era`, which is the present one: it cannot change meanwhile.
    pub(crate) fn of(&self, era: u32) -> u64 {
        self.threads.iter().map(|own| own.of(era.into())).sum()
    }

    /// Successes of all eras.
    pub(crate) fn total(&self) -> u64 {
        self.threads.iter().map(|own| own.total.load(Ordering::Acquire)).sum()
    }
}

impl Own {
    #[inline]
    fn add(&self, era: u64) {
        let total = self.total.load(Ordering::Relaxed);
        if self.era.load(Ordering::Relaxed) != era {
            // In this order: whoever sees the era sees where it began, and whoever sees its first
            // success sees the era.
            self.before.store(total, Ordering::Relaxed);
            self.era.store(era, Ordering::Release);
        }
        self.total.store(total + 1, Ordering::Release);
    }

    fn of(&self, era: u64) -> u64 {
        if self.era.load(Ordering::Acquire) != era {
            return 0;
        }
        self.total.load(Ordering::Acquire) - self.before.load(Ordering::Relaxed)
    }
}

/// What the circuit has been told of a tally.
#[derive(Debug, Default)]
pub(crate) struct Told {
    of_era: u64,
    ever: u64,
}

impl Told {
    /// Successes of the present era that the circuit has not been told of; it is told now.
    pub(crate) fn fresh(&mut self, tally: &Tally, era: u32) -> u64 {
        let fresh = tally.of(era) - self.of_era;
        self.of_era += fresh;
        self.ever += fresh;
        fresh
    }

    /// A new era has begun.
    pub(crate) const fn begin_era(&mut self) {
        self.of_era = 0;
    }

    /// Of `total` successes, those that came when their era was over.
    pub(crate) const fn late(&self, total: u64) -> u64 {
        total.saturating_sub(self.ever)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_era_and_in_all() {
        let (tally, mut told) = (Tally::default(), Told::default());
        assert!(tally.add(0) && tally.add(0));
        assert_eq!((told.fresh(&tally, 0), told.fresh(&tally, 0)), (2, 0));
        // One that was on its way when the era ended.
        assert!(tally.add(0));
        told.begin_era();
        assert_eq!((tally.of(1), told.fresh(&tally, 1)), (0, 0));
        assert!(tally.add(1));
        assert_eq!(told.fresh(&tally, 1), 1);
        assert_eq!((tally.total(), told.late(tally.total())), (4, 1));
    }

    #[test]
    fn threads_add_up() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| assert!(tally.add(3))));
            }
        });
        assert_eq!((tally.of(3), tally.of(4), tally.total()), (2000, 0, 2000));
    }
}
