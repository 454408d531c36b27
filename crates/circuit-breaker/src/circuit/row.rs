//! Failures in a row.

use std::collections::VecDeque;
use std::time::Duration;

use crate::policy::BreakerPolicy;

/// The current row of failures.
#[derive(Debug, Default)]
pub(crate) struct Row {
    length: u32,
    /// When those came that may still count; kept only where the row is limited in time.
    times: VecDeque<Duration>,
}

impl Row {
    /// Is there no row, so that a success changes nothing?
    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn success(&mut self) {
        *self = Self::default();
    }

    /// Adds a failure. Does the row trip the circuit?
    pub(crate) fn failure(&mut self, policy: &BreakerPolicy, now: Duration) -> bool {
        let Some(limit) = policy.consecutive_failures else { return false };
        self.length = self.length.saturating_add(1);
        let Some(within) = policy.consecutive_within else { return self.length >= limit };
        // What is too old for this failure is too old for every later one. So there are never more
        // than the limit: with so many the circuit trips, and a new row begins.
        while self.times.front().is_some_and(|first| now.saturating_sub(*first) > within) {
            self.times.pop_front();
        }
        self.times.push_back(now);
        self.times.len() >= limit as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_limited_in_time_slides() {
        let policy = BreakerPolicy::new()
            .consecutive_failures(3)
            .consecutive_within(Duration::from_secs(10));
        let mut row = Row::default();
        let mut at = |s| row.failure(&policy, Duration::from_secs(s));
        assert!(!at(0) && !at(8) && !at(11) && at(18));
    }

    #[test]
    fn a_row_that_never_trips_does_not_grow() {
        let policy = BreakerPolicy::new()
            .consecutive_failures(u32::MAX)
            .consecutive_within(Duration::from_millis(1));
        let mut row = Row::default();
        for micros in 0..100_000 {
            assert!(!row.failure(&policy, Duration::from_micros(micros)));
        }
        assert!(!row.is_empty());
        assert_eq!(row.times.len(), 1001);
        assert!(row.times.capacity() < 4096);
    }
}
