//! When the next call may begin. Pure: `now` is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::later::later;

/// A timer is late by up to so much; the calls behind it make up for that, and for no more.
const TICK: Duration = Duration::from_millis(1);

/// Spreads calls evenly: so many in a second, and no burst after a pause.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    next: Option<Instant>,
}

impl Pace {
    pub(super) fn new(per_second: f64) -> Self {
        // A rate above 0 that is too small for an interval is one call, and then none for ever.
        let interval = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX);
        Self { interval, next: None }
    }

    /// When the next call may begin.
    pub(super) fn next(&self, now: Instant) -> Instant {
        self.next.map_or(now, |next| next.max(now))
    }

    /// A call begins.
    pub(super) fn begin(&mut self, now: Instant) {
        let earliest = now.checked_sub(TICK).unwrap_or(now);
        let slot = self.next.map_or(now, |next| next.max(earliest));
        self.next = Some(later(slot, self.interval));
    }

    /// No call begins before.
    pub(super) fn pause(&mut self, until: Instant) {
        self.next = Some(self.next.map_or(until, |next| next.max(until)));
    }

    /// How many calls may begin within `time`, at least one.
    pub(super) fn within(&self, time: Duration) -> usize {
        if self.interval.is_zero() {
            return usize::MAX;
        }
        // Saturates.
        (time.as_secs_f64() / self.interval.as_secs_f64()).max(1.0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_second_however_late_each_timer_is() {
        let begun = Instant::now();
        for (rate, late_micros) in [(1.0, 0), (10.0, 900), (1000.0, 999), (3000.0, 999)] {
            let (mut pace, mut now) = (Pace::new(rate), begun);
            let calls = 10 * rate as u32;
            for _ in 0..calls {
                let next = pace.next(now);
                if next > now {
                    now = next + Duration::from_micros(late_micros);
                }
                pace.begin(now);
            }
            let took = now.duration_since(begun).as_secs_f64();
            let due = f64::from(calls - 1) / rate;
            assert!((took - due).abs() <= 0.002, "{rate}: {took} instead of {due}");
        }
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut pace = Pace::new(10.0);
        let now = Instant::now();
        pace.begin(now);
        let later = now + Duration::from_secs(60);
        pace.begin(later);
        assert!(pace.next(later) >= later + Duration::from_millis(99));
        pace.pause(later + Duration::from_secs(5));
        assert_eq!(pace.next(later), later + Duration::from_secs(5));
    }

    #[test]
    fn extremes_do_not_panic() {
        for rate in [f64::INFINITY, f64::MIN_POSITIVE, 1e-300, 1e300] {
            let mut pace = Pace::new(rate);
            pace.begin(Instant::now());
            assert!(pace.within(Duration::from_secs(15)) >= 1);
        }
    }
}
