//! A capped bucket that gains a fraction of a retry with every request.

use std::sync::PoisonError;

use tower_triage_core::ConfigError;

use super::fixed::{ONE, units};
use crate::sync::{AtomicU64, Cells, Mutex, MutexGuard, Ordering};

/// A bucket that gains [`gain`](Self::gain) retries per request, holds at most
/// [`capacity`](Self::capacity) and starts with [`initial`](Self::initial). It needs no clock, and
/// nothing expires: what a quiet night left is the capacity, no more.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct BucketSettings {
    /// Retries gained per request, from 0 to 1000. Default: 0.1.
    pub gain: f64,
    /// Retries held at most; at least 1. Default: 20. When everything begins to fail, so many are
    /// made on top of what is gained.
    pub capacity: u32,
    /// Retries at the start; at most the capacity. Default: 10.
    pub initial: u32,
}

impl Default for BucketSettings {
    fn default() -> Self {
        Self { gain: 0.1, capacity: 20, initial: 10 }
    }
}

/// The shared bucket. Requests are only counted; what they brought is worked out when a retry is
/// asked for. That is exact, because between two withdrawals there are only deposits, and
/// stepping up to a cap one by one ends where one large step up to the cap ends.
#[derive(Debug)]
pub(super) struct Bucket {
    requests: Requests,
    ledger: Mutex<Ledger>,
}

/// How many requests there were, ever.
#[derive(Debug, Default)]
struct Requests {
    /// By thread: written by that thread only, so that counting is a load and a store.
    threads: Cells<AtomicU64>,
    /// Those of threads without a counter of their own.
    others: AtomicU64,
}

// Relaxed throughout: the counts order nothing else.
impl Requests {
    #[inline]
    fn count(&self) {
        match self.threads.own() {
            Some(own) => own.store(own.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed),
            None => _ = self.others.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn sum(&self) -> u64 {
        let others = self.others.load(Ordering::Relaxed);
        let counts = self.threads.iter().map(|own| own.load(Ordering::Relaxed));
        counts.fold(others, u64::wrapping_add)
    }
}

impl Bucket {
    pub(super) fn new(settings: &BucketSettings) -> Result<Self, ConfigError> {
        let ledger = Mutex::new(Ledger::new(settings)?);
        Ok(Self { requests: Requests::default(), ledger })
    }

    /// A request: no lock, and no line that another thread writes to.
    #[inline]
    pub(super) fn deposit(&self) {
        self.requests.count();
    }

    pub(super) fn withdraw(&self) -> bool {
        self.settled().withdraw()
    }

    pub(super) fn units(&self) -> u64 {
        self.settled().left
    }

    /// The ledger, with the deposits up to now in it.
    fn settled(&self) -> MutexGuard<'_, Ledger> {
        // Every state of the ledger is a valid one, a panicking holder's too.
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: the count must never be older than the one settled last.
        ledger.settle(self.requests.sum());
        ledger
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self { requests: Requests::default(), ledger: Mutex::new(Ledger::DEFAULT) }
    }
}

/// The bucket's arithmetic.
#[derive(Debug, PartialEq)]
struct Ledger {
    gain: u64,
    capacity: u64,
    left: u64,
    /// The count of requests that `left` includes.
    settled: u64,
}

impl Ledger {
    fn new(settings: &BucketSettings) -> Result<Self, ConfigError> {
        let gain = units("gain", settings.gain, 1000.0, "retries per request, from 0 to 1000")?;
        if settings.capacity == 0 {
            return Err(ConfigError::new("capacity", 0, "at least 1; `unlimited` has no limit"));
        }
        if settings.initial > settings.capacity {
            return Err(ConfigError::new("initial", settings.initial, "at most the capacity"));
        }
        Ok(Self {
            gain,
            capacity: u64::from(settings.capacity) * ONE,
            left: u64::from(settings.initial) * ONE,
            settled: 0,
        })
    }

    /// What the default settings give, for which no check is needed.
    const DEFAULT: Self = Self { gain: ONE / 10, capacity: 20 * ONE, left: 10 * ONE, settled: 0 };

    fn settle(&mut self, requests: u64) {
        // Wrapping, as the counter wraps.
        let new = requests.wrapping_sub(self.settled);
        self.settled = requests;
        self.left = new.saturating_mul(self.gain).saturating_add(self.left).min(self.capacity);
    }

    fn withdraw(&mut self) -> bool {
        match self.left.checked_sub(ONE) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(gain: f64, capacity: u32, initial: u32) -> Bucket {
        Bucket::new(&BucketSettings { gain, capacity, initial }).expect("sound settings")
    }

    #[test]
    fn a_ratio_is_that_ratio() {
        for (gain, allowed) in [(0.6, 600), (0.4, 400), (0.1, 100), (0.75, 750), (1.0, 1000)] {
            let bucket = bucket(gain, 1000, 0);
            let granted = (0..1000)
                .filter(|_| {
                    bucket.deposit();
                    bucket.withdraw()
                })
                .count();
            assert_eq!(granted, allowed, "gain {gain}");
        }
    }

    #[test]
    fn the_unchecked_default_is_the_documented_one() {
        assert_eq!(Ledger::new(&BucketSettings::default()), Ok(Ledger::DEFAULT));
    }

    #[test]
    fn a_quiet_night_fills_it_to_the_brim_and_no_further() {
        let bucket = bucket(1000.0, 5, 0);
        for _ in 0..100 {
            bucket.deposit();
        }
        assert_eq!((0..100).filter(|_| bucket.withdraw()).count(), 5);
    }

    #[test]
    fn wrong_settings_name_the_field() {
        let field = |gain, capacity, initial| {
            let settings = BucketSettings { gain, capacity, initial };
            Bucket::new(&settings).map(|_| ()).map_err(|error| error.field())
        };
        assert_eq!(field(f64::NAN, 1, 1), Err("gain"));
        assert_eq!(field(-0.1, 1, 1), Err("gain"));
        assert_eq!(field(0.1, 0, 0), Err("capacity"));
        assert_eq!(field(0.1, 3, 4), Err("initial"));
        assert_eq!(field(0.0, 3, 3), Ok(()));
    }

    proptest! {
        /// The lazy ledger against a bucket that is filled at every request.
        #[test]
        fn equals_a_bucket_filled_step_by_step(
            gain_milli in 0_u64..3000,
            capacity in 1_u32..20,
            initial in 0_u32..20,
            events in proptest::collection::vec(any::<bool>(), 0..400),
        ) {
            let initial = initial.min(capacity);
            let bucket = bucket(gain_milli as f64 / 1000.0, capacity, initial);
            let mut model = u64::from(initial) * 1000;
            for deposit in events {
                if deposit {
                    bucket.deposit();
                    model = (model + gain_milli).min(u64::from(capacity) * 1000);
                } else {
                    prop_assert_eq!(bucket.withdraw(), model >= 1000);
                    model = if model >= 1000 { model - 1000 } else { model };
                }
                prop_assert_eq!(bucket.units(), model * (ONE / 1000));
            }
        }
    }
}
