//! Time, as the pure cores see it.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A clock, read as the time since it was made. The pure cores (windows, budgets, open periods) take
/// such a `Duration` as their `now`, so a test steps it and nothing overflows.
///
/// By default it is tokio's, so that a paused runtime (`tokio::time::pause`) drives it. With the
/// feature `coarse-clock`, on Linux, there is also `Clock::coarse`, which costs a tenth where a
/// few milliseconds do not matter.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Tokio(Instant),
    #[cfg(all(feature = "coarse-clock", target_os = "linux"))]
    Coarse(coarse::Origin),
}

impl Clock {
    /// Tokio's clock. It reads zero now.
    #[must_use]
    pub fn new() -> Self {
        Self(Source::Tokio(Instant::now()))
    }

    /// The kernel's monotonic clock, whose [`recent`](Self::recent) is the time of its last tick
    /// (every 1 to 10 ms, as the kernel is configured). It reads zero now, and tokio's paused time
    /// does not move it.
    #[cfg(all(feature = "coarse-clock", target_os = "linux"))]
    #[must_use]
    pub fn coarse() -> Self {
        Self(Source::Coarse(coarse::Origin::now()))
    }

    /// Time since the clock was made.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Duration {
        match &self.0 {
            Source::Tokio(origin) => origin.elapsed(),
            #[cfg(all(feature = "coarse-clock", target_os = "linux"))]
            Source::Coarse(origin) => origin.elapsed(),
        }
    }

    /// Time since the clock was made, or a little less: never ahead of [`now`](Self::now), and at
    /// most [`lag`](Self::lag) behind it.
    #[inline]
    #[must_use]
    pub fn recent(&self) -> Duration {
        match &self.0 {
            Source::Tokio(origin) => origin.elapsed(),
            #[cfg(all(feature = "coarse-clock", target_os = "linux"))]
            Source::Coarse(origin) => origin.recently(),
        }
    }

    /// How far [`recent`](Self::recent) may be behind: zero, unless the clock is coarse.
    #[inline]
    #[must_use]
    pub const fn lag(&self) -> Duration {
        match &self.0 {
            Source::Tokio(_) => Duration::ZERO,
            #[cfg(all(feature = "coarse-clock", target_os = "linux"))]
            Source::Coarse(_) => coarse::LAG,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(feature = "coarse-clock", target_os = "linux"))]
mod coarse {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// Between two ticks of the slowest kernels (100 Hz).
    pub(super) const LAG: Duration = Duration::from_millis(10);

    /// Both clocks of the kernel count from one moment, and the coarse one is the exact one as it was
    /// at the last tick.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Origin(Duration);

    impl Origin {
        pub(super) fn now() -> Self {
            Self(read(ClockId::Monotonic))
        }

        pub(super) fn elapsed(self) -> Duration {
            read(ClockId::Monotonic).saturating_sub(self.0)
        }

        #[inline]
        pub(super) fn recently(self) -> Duration {
            read(ClockId::MonotonicCoarse).saturating_sub(self.0)
        }
    }

    #[inline]
    fn read(clock: ClockId) -> Duration {
        let time = clock_gettime(clock);
        // A monotonic clock does not go below zero.
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        Duration::new(seconds, u32::try_from(nanos).unwrap_or_default())
    }
}

/// The calendar's time, for records that people read and for dates in headers. Never used to
/// measure: it may jump.
#[must_use]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(all(test, feature = "coarse-clock", target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_recent_time_is_never_ahead_and_not_far_behind() {
        let clock = Clock::coarse();
        let mut last = Duration::ZERO;
        while clock.now() < Duration::from_millis(50) {
            let (before, recent, after) = (clock.now(), clock.recent(), clock.now());
            assert!(recent <= after, "{recent:?} is ahead of {after:?}");
            assert!(recent + clock.lag() >= before, "{recent:?} is far behind {before:?}");
            assert!(recent >= last);
            last = recent;
        }
        assert!(last > Duration::ZERO);
    }
}
