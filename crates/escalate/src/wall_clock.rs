//! The calendar's time, for what outlives a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::timestamp::Timestamp;

/// Where a store reads the time: the system's clock, or one that tests step. Clones of a stepped
/// clock show the same time.
#[derive(Clone, Debug, Default)]
pub struct WallClock(Option<Arc<AtomicU64>>);

impl WallClock {
    /// The system's clock.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// A clock that stands at `at` until it is stepped.
    #[must_use]
    pub fn stepped(at: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicU64::new(at.as_millis()))))
    }

    /// Steps on. Nothing happens to the system's clock.
    pub fn step(&self, by: Duration) {
        if let Some(clock) = &self.0 {
            let on = Timestamp::from_millis(clock.load(Ordering::SeqCst)).plus(by);
            clock.store(on.as_millis(), Ordering::SeqCst);
        }
    }

    /// The time a stepped clock shows; `None` for the system's clock. For a store whose server has
    /// a clock of its own, which all processes share.
    #[must_use]
    pub fn fixed(&self) -> Option<Timestamp> {
        self.0.as_ref().map(|clock| Timestamp::from_millis(clock.load(Ordering::SeqCst)))
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.fixed().unwrap_or_else(|| SystemTime::now().into())
    }
}
