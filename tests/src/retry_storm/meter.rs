//! What is counted, by tenths of a second.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::model::Model;

const SLOT: Duration = Duration::from_millis(100);
const SLOTS_PER_SECOND: usize = 10;

/// Counts while the simulation runs.
#[derive(Debug)]
pub(super) struct Meter {
    begun: Instant,
    arrived: Vec<AtomicU32>,
    answered: Vec<AtomicU32>,
    wasted: Vec<AtomicU32>,
}

impl Meter {
    pub(super) fn new(model: &Model) -> Self {
        let slots = (model.length.as_millis() / SLOT.as_millis()) as usize;
        let zeros = || (0..slots).map(|_| AtomicU32::new(0)).collect();
        Self { begun: Instant::now(), arrived: zeros(), answered: zeros(), wasted: zeros() }
    }

    /// An attempt reached the service.
    pub(super) fn arrived(&self) {
        self.count(&self.arrived);
    }

    /// A client has its answer.
    pub(super) fn answered(&self) {
        self.count(&self.answered);
    }

    /// The service did what nobody waits for.
    pub(super) fn wasted(&self) {
        self.count(&self.wasted);
    }

    fn count(&self, counts: &[AtomicU32]) {
        let slot = (self.begun.elapsed().as_millis() / SLOT.as_millis()) as usize;
        if let Some(count) = counts.get(slot) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> Curves {
        let series = |counts: &[AtomicU32]| {
            Series(counts.iter().map(|count| count.load(Ordering::Relaxed)).collect())
        };
        Curves {
            load: series(&self.arrived),
            goodput: series(&self.answered),
            wasted: series(&self.wasted),
        }
    }
}

/// What one run showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curves {
    /// Attempts that reached the service.
    pub load: Series,
    /// Requests that were answered while their client waited.
    pub goodput: Series,
    /// What the service did for nobody.
    pub wasted: Series,
}

/// Counts over time, by tenths of a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series(Vec<u32>);

impl Series {
    /// Per second, over each second from the begin.
    #[must_use]
    pub fn by_second(&self) -> Vec<f64> {
        self.0.chunks(SLOTS_PER_SECOND).map(sum).collect()
    }

    /// The highest rate per second over any stretch of this many seconds.
    #[must_use]
    pub fn peak_over(&self, seconds: usize) -> f64 {
        let rates = self.0.windows(seconds * SLOTS_PER_SECOND).map(sum);
        rates.fold(0.0, f64::max) / seconds as f64
    }

    /// The rate per second between two times.
    #[must_use]
    pub fn rate_between(&self, from: Duration, to: Duration) -> f64 {
        let slot = |at: Duration| ((at.as_millis() / SLOT.as_millis()) as usize).min(self.0.len());
        sum(&self.0[slot(from)..slot(to)]) / to.saturating_sub(from).as_secs_f64()
    }

    /// From when on the rate over a second never falls below `least` again; `None` if it ends below.
    #[must_use]
    pub fn stays_above(&self, least: f64) -> Option<Duration> {
        let mut from = None;
        for (slot, second) in self.0.windows(SLOTS_PER_SECOND).enumerate() {
            from = if sum(second) < least { None } else { from.or(Some(slot)) };
        }
        from.map(|slot| SLOT * slot as u32)
    }
}

fn sum(counts: &[u32]) -> f64 {
    f64::from(counts.iter().sum::<u32>())
}
