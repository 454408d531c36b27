//! How many of the same alarms reach a person: a pure core, stepped with `now`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tower_triage_core::Fingerprint;

/// Lets one notification per fingerprint and window through, and counts the rest for the next one.
///
/// At most `capacity` fingerprints are remembered; for one more the fingerprint that was notified
/// longest ago is forgotten (its next failure is notified at once, and what was counted since its
/// last notification is told to nobody; records are not touched by any of this).
#[derive(Debug)]
pub(crate) struct Storm {
    window: Duration,
    capacity: usize,
    entries: HashMap<Fingerprint, Entry>,
    /// Fingerprints by the order in which their windows began, to find the oldest.
    by_age: BTreeMap<u64, Fingerprint>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    age: u64,
    /// When the next notification may go out.
    until: Duration,
    /// Failures that nobody has been told of, and when the first of them was.
    untold: Untold,
}

/// What a notification stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Failures since the last notification, this one included.
    pub(crate) count: u64,
    /// When the first of them happened.
    pub(crate) first: Duration,
}

impl Storm {
    pub(crate) fn new(window: Duration, capacity: usize) -> Self {
        Self { window, capacity, entries: HashMap::new(), by_age: BTreeMap::new(), next: 0 }
    }

    /// A failure happened: what to tell about it now, or `None` if a person was told within the
    /// window.
    pub(crate) fn failed(&mut self, fingerprint: Fingerprint, now: Duration) -> Option<Untold> {
        let mut told = Untold { count: 1, first: now };
        if let Some(entry) = self.entries.get_mut(&fingerprint) {
            if entry.untold.count > 0 {
                told = Untold { count: entry.untold.count.saturating_add(1), ..entry.untold };
            }
            if now < entry.until {
                entry.untold = told;
                return None;
            }
            self.by_age.remove(&entry.age);
        } else if self.entries.len() >= self.capacity {
            if let Some((_, oldest)) = self.by_age.pop_first() {
                self.entries.remove(&oldest);
            }
        }
        let age = self.next;
        self.next += 1;
        let until = now.saturating_add(self.window);
        let untold = Untold { count: 0, first: now };
        self.by_age.insert(age, fingerprint);
        self.entries.insert(fingerprint, Entry { age, until, untold });
        Some(told)
    }

    /// The notification did not get through: the window is open again, and what it stood for
    /// belongs to the next one.
    pub(crate) fn not_told(&mut self, fingerprint: Fingerprint, told: Untold) {
        if let Some(entry) = self.entries.get_mut(&fingerprint) {
            entry.until = Duration::ZERO;
            entry.untold =
                Untold { count: entry.untold.count.saturating_add(told.count), first: told.first };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tower_triage_core::{ErrorClass, Operation};

    const SECOND: Duration = Duration::from_secs(1);

    fn print(n: usize) -> Fingerprint {
        let operation = Operation::new(&format!("op{n}"));
        Fingerprint::of(&operation, &ErrorClass::Transient.into(), "")
    }

    #[test]
    fn the_first_at_once_and_the_next_after_the_window_with_the_count() {
        let mut storm = Storm::new(60 * SECOND, 8);
        assert_eq!(storm.failed(print(0), SECOND), Some(Untold { count: 1, first: SECOND }));
        assert_eq!(storm.failed(print(0), 2 * SECOND), None);
        assert_eq!(storm.failed(print(0), 60 * SECOND), None);
        assert!(storm.failed(print(1), 60 * SECOND).is_some(), "another failure is another alarm");
        let told = storm.failed(print(0), 61 * SECOND);
        assert_eq!(told, Some(Untold { count: 3, first: 2 * SECOND }));
        assert_eq!(storm.failed(print(0), 62 * SECOND), None);
    }

    #[test]
    fn a_notification_that_got_lost_is_made_up_for() {
        let mut storm = Storm::new(60 * SECOND, 8);
        let told = storm.failed(print(0), SECOND).unwrap();
        assert_eq!(storm.failed(print(0), 2 * SECOND), None);
        storm.not_told(print(0), told);
        assert_eq!(storm.failed(print(0), 3 * SECOND), Some(Untold { count: 3, first: SECOND }));
    }

    proptest! {
        /// Whatever happens: the memory is bounded, no window has two notifications of one kind
        /// while it is remembered, and no failure is counted twice or lost.
        #[test]
        fn bounded_and_exact(
            events in prop::collection::vec((0_usize..6, 0_u64..30), 1..200),
            capacity in 1_usize..8,
        ) {
            let mut storm = Storm::new(60 * SECOND, capacity);
            let mut now = Duration::ZERO;
            let mut happened = [0_u64; 6];
            let mut told = [0_u64; 6];
            let mut last = [None::<Duration>; 6];
            for (kind, wait) in events {
                now += Duration::from_secs(wait);
                happened[kind] += 1;
                if let Some(untold) = storm.failed(print(kind), now) {
                    told[kind] += untold.count;
                    if capacity >= 6 {
                        prop_assert!(last[kind].is_none_or(|at| now - at >= 60 * SECOND));
                        prop_assert_eq!(told[kind], happened[kind]);
                    }
                    prop_assert!(told[kind] <= happened[kind]);
                    last[kind] = Some(now);
                }
                prop_assert!(storm.entries.len() <= capacity);
                prop_assert_eq!(storm.by_age.len(), storm.entries.len());
            }
        }
    }
}
