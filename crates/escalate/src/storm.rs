//! How many of the same alarms reach a person, and when they hear that it is over: a pure core,
//! stepped with `now`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tower_triage_core::Fingerprint;

/// Lets one notification per fingerprint and window through, counts the rest for the next one, and
/// gives out one resolve when no failure has come for the quiet time.
///
/// What is let through is *under way* until [`told`](Self::told) or [`not_told`](Self::not_told),
/// a resolve until [`resolved`](Self::resolved) or [`not_resolved`](Self::not_resolved). Nothing of
/// the same fingerprint is let through meanwhile, so that no resolve overtakes a notification.
///
/// At most `capacity` fingerprints are remembered; for one more the fingerprint that was notified
/// longest ago is forgotten (its next failure is notified at once; what was counted since its last
/// notification, and its end, is told to nobody; records are not touched by any of this).
///
/// `T` is what people were told, kept for the resolve.
#[derive(Debug)]
pub(crate) struct Storm<T> {
    window: Duration,
    /// `None`: nobody is told of ends.
    quiet: Option<Duration>,
    capacity: usize,
    entries: HashMap<Fingerprint, Entry<T>>,
    /// Fingerprints by the order in which their windows began, to find the oldest.
    by_age: BTreeMap<u64, Fingerprint>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    /// Tells this entry from an earlier or later one of the same fingerprint.
    born: u64,
    age: u64,
    /// When the next notification may go out.
    until: Duration,
    /// When the last failure was.
    last: Duration,
    /// Failures that nobody has been told of, and when the first of them was.
    untold: Untold,
    /// Notifications and resolves under way.
    under_way: u32,
    /// What people were told last, as long as they believe that the trouble goes on.
    told: Option<T>,
}

/// What a notification stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Failures since the last notification, this one included.
    pub(crate) count: u64,
    /// When the first of them happened.
    pub(crate) first: Duration,
}

/// A notification to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    born: u64,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) untold: Untold,
}

/// A resolve to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over<T> {
    born: u64,
    pub(crate) fingerprint: Fingerprint,
    /// Failures that no notification told of; maybe none.
    pub(crate) untold: Untold,
    /// When the last failure was.
    pub(crate) last: Duration,
    /// What people were told last.
    pub(crate) told: T,
}

/// What becomes of the troubles that people were told of.
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// One is over.
    Over(Over<T>),
    /// None is before this time.
    At(Duration),
    /// There is none, or something about each is under way.
    Nothing,
}

impl Untold {
    fn and(self, other: Self) -> Self {
        match (self.count, other.count) {
            (_, 0) => self,
            (0, _) => other,
            (some, more) => {
                Self { count: some.saturating_add(more), first: self.first.min(other.first) }
            }
        }
    }
}

impl<T: Clone> Storm<T> {
    /// `quiet` is never less than `window`: else a trouble could be over while its window is not,
    /// and come back unheard.
    pub(crate) fn new(window: Duration, quiet: Option<Duration>, capacity: usize) -> Self {
        let quiet = quiet.map(|quiet| quiet.max(window));
        let (entries, by_age) = (HashMap::new(), BTreeMap::new());
        Self { window, quiet, capacity, entries, by_age, next: 0 }
    }

    /// A failure happened: what to tell about it now, or `None` if it is held back because a person
    /// was told within the window, or is being told. An `urgent` one is not held back.
    pub(crate) fn failed(
        &mut self,
        fingerprint: Fingerprint,
        now: Duration,
        urgent: bool,
    ) -> Option<Due> {
        let untold = Untold { count: 1, first: now };
        let age = self.next;
        let until = now.saturating_add(self.window);
        if let Some(entry) = self.entries.get_mut(&fingerprint) {
            entry.last = now;
            entry.untold = entry.untold.and(untold);
            if !urgent && (entry.under_way > 0 || now < entry.until) {
                return None;
            }
            let untold = std::mem::replace(&mut entry.untold, Untold { count: 0, first: now });
            self.by_age.remove(&entry.age);
            (entry.age, entry.until) = (age, until);
            entry.under_way += 1;
            self.next += 1;
            self.by_age.insert(age, fingerprint);
            return Some(Due { born: entry.born, fingerprint, untold });
        }
        if self.entries.len() >= self.capacity {
            if let Some((_, oldest)) = self.by_age.pop_first() {
                self.entries.remove(&oldest);
            }
        }
        let entry = Entry {
            born: age,
            age,
            until,
            last: now,
            untold: Untold { count: 0, first: now },
            under_way: 1,
            told: None,
        };
        self.next += 1;
        self.by_age.insert(age, fingerprint);
        self.entries.insert(fingerprint, entry);
        Some(Due { born: age, fingerprint, untold })
    }

    /// The notification got through, and said `what`.
    pub(crate) fn told(&mut self, due: &Due, what: T) {
        if let Some(entry) = self.entry(due.fingerprint, due.born) {
            entry.under_way -= 1;
            entry.told = Some(what);
        }
    }

    /// The notification did not get through: the window is open again, and what it stood for
    /// belongs to the next one.
    pub(crate) fn not_told(&mut self, due: &Due) {
        if let Some(entry) = self.entry(due.fingerprint, due.born) {
            entry.under_way -= 1;
        }
        if let Some(entry) = self.entries.get_mut(&due.fingerprint) {
            entry.until = Duration::ZERO;
            entry.untold = due.untold.and(entry.untold);
        }
    }

    /// Do people believe that this trouble goes on?
    pub(crate) fn is_told(&self, fingerprint: Fingerprint) -> bool {
        self.entries.get(&fingerprint).is_some_and(|entry| entry.told.is_some())
    }

    /// The trouble that has been quiet for longest, if it is over now. That one is under way then.
    pub(crate) fn over(&mut self, now: Duration) -> Next<T> {
        let Some(quiet) = self.quiet else { return Next::Nothing };
        let open = self.entries.iter_mut().filter_map(|(fingerprint, entry)| {
            let told = entry.told.clone().filter(|_| entry.under_way == 0)?;
            Some((*fingerprint, entry, told))
        });
        let Some((fingerprint, entry, told)) = open.min_by_key(|(_, entry, _)| entry.last) else {
            return Next::Nothing;
        };
        let at = entry.last.saturating_add(quiet);
        if now < at {
            return Next::At(at);
        }
        entry.under_way += 1;
        let untold = std::mem::replace(&mut entry.untold, Untold { count: 0, first: now });
        Next::Over(Over { born: entry.born, fingerprint, untold, last: entry.last, told })
    }

    /// The resolve got through, or was given up after its tries: the fingerprint is forgotten. If it
    /// failed again meanwhile, that trouble goes on: the next failure is notified at once, and if
    /// none comes, the next resolve tells.
    pub(crate) fn resolved(&mut self, over: &Over<T>) {
        let Some(entry) = self.entry(over.fingerprint, over.born) else { return };
        entry.under_way -= 1;
        entry.until = Duration::ZERO;
        if entry.untold.count == 0 {
            let age = entry.age;
            self.entries.remove(&over.fingerprint);
            self.by_age.remove(&age);
        }
    }

    /// The resolve was not sent: it is due again.
    pub(crate) fn not_resolved(&mut self, over: &Over<T>) {
        if let Some(entry) = self.entry(over.fingerprint, over.born) {
            entry.under_way -= 1;
            entry.untold = over.untold.and(entry.untold);
        }
    }

    fn entry(&mut self, fingerprint: Fingerprint, born: u64) -> Option<&mut Entry<T>> {
        self.entries.get_mut(&fingerprint).filter(|entry| entry.born == born)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tower_triage_core::{ErrorClass, Operation};

    const SECOND: Duration = Duration::from_secs(1);
    const WINDOW: Duration = Duration::from_secs(60);
    const QUIET: Duration = Duration::from_secs(300);

    fn print(n: usize) -> Fingerprint {
        let operation = Operation::new(&format!("op{n}"));
        Fingerprint::of(&operation, &ErrorClass::Transient.into(), "")
    }

    fn storm(capacity: usize) -> Storm<&'static str> {
        Storm::new(WINDOW, Some(QUIET), capacity)
    }

    /// A failure whose notification, if there is one, gets through.
    fn tell(storm: &mut Storm<&'static str>, n: usize, now: Duration) -> Option<Untold> {
        let due = storm.failed(print(n), now, false)?;
        storm.told(&due, "told");
        Some(due.untold)
    }

    fn over(storm: &mut Storm<&'static str>, now: Duration) -> Over<&'static str> {
        match storm.over(now) {
            Next::Over(over) => over,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_at_once_and_the_next_after_the_window_with_the_count() {
        let mut storm = storm(8);
        assert_eq!(tell(&mut storm, 0, SECOND), Some(Untold { count: 1, first: SECOND }));
        assert_eq!(tell(&mut storm, 0, 2 * SECOND), None);
        assert_eq!(tell(&mut storm, 0, 60 * SECOND), None);
        assert!(tell(&mut storm, 1, 60 * SECOND).is_some(), "another failure is another alarm");
        let told = tell(&mut storm, 0, 61 * SECOND);
        assert_eq!(told, Some(Untold { count: 3, first: 2 * SECOND }));
        assert_eq!(tell(&mut storm, 0, 62 * SECOND), None);
    }

    #[test]
    fn a_notification_that_got_lost_is_made_up_for() {
        let mut storm = storm(8);
        let due = storm.failed(print(0), SECOND, false).unwrap();
        assert_eq!(tell(&mut storm, 0, 2 * SECOND), None);
        storm.not_told(&due);
        assert_eq!(tell(&mut storm, 0, 3 * SECOND), Some(Untold { count: 3, first: SECOND }));
    }

    #[test]
    fn what_is_urgent_is_not_held_back() {
        let mut storm = storm(8);
        tell(&mut storm, 0, SECOND);
        assert_eq!(tell(&mut storm, 0, 2 * SECOND), None);
        let due = storm.failed(print(0), 3 * SECOND, true).unwrap();
        assert_eq!(due.untold, Untold { count: 2, first: 2 * SECOND });
    }

    #[test]
    fn after_the_quiet_time_it_is_over_once_with_what_was_not_told() {
        let mut storm = storm(8);
        assert!(matches!(storm.over(SECOND), Next::Nothing));
        tell(&mut storm, 0, SECOND);
        tell(&mut storm, 0, 10 * SECOND);
        assert!(matches!(storm.over(309 * SECOND), Next::At(at) if at == 310 * SECOND));
        let end = over(&mut storm, 310 * SECOND);
        assert_eq!((end.last, end.told), (10 * SECOND, "told"));
        assert_eq!(end.untold, Untold { count: 1, first: 10 * SECOND });
        assert!(matches!(storm.over(310 * SECOND), Next::Nothing), "it is under way");
        storm.resolved(&end);
        assert!(storm.entries.is_empty() && storm.by_age.is_empty());
        assert_eq!(tell(&mut storm, 0, 311 * SECOND).unwrap().count, 1, "a new trouble");
    }

    #[test]
    fn a_resolve_that_was_not_sent_is_due_again_and_the_count_is_kept() {
        let mut storm = storm(8);
        tell(&mut storm, 0, SECOND);
        tell(&mut storm, 0, 2 * SECOND);
        let end = over(&mut storm, 400 * SECOND);
        storm.not_resolved(&end);
        assert_eq!(over(&mut storm, 400 * SECOND), end);
    }

    #[test]
    fn no_resolve_overtakes_a_notification_nor_the_other_way_round() {
        let mut storm = storm(8);
        tell(&mut storm, 0, SECOND);
        let due = storm.failed(print(0), 70 * SECOND, false).unwrap();
        assert!(matches!(storm.over(900 * SECOND), Next::Nothing), "a notification is under way");
        storm.told(&due, "again");
        let end = over(&mut storm, 900 * SECOND);
        assert_eq!(storm.failed(print(0), 901 * SECOND, false), None, "a resolve is under way");
        storm.resolved(&end);
        let next = tell(&mut storm, 0, 902 * SECOND);
        assert_eq!(next, Some(Untold { count: 2, first: 901 * SECOND }));
    }

    #[test]
    fn a_failure_during_the_resolve_is_told_by_the_next_one_at_least() {
        let mut storm = storm(8);
        tell(&mut storm, 0, SECOND);
        let end = over(&mut storm, 301 * SECOND);
        assert_eq!(storm.failed(print(0), 302 * SECOND, false), None);
        storm.resolved(&end);
        assert_eq!(over(&mut storm, 602 * SECOND).untold.count, 1);
    }

    #[test]
    fn the_quiet_time_is_not_shorter_than_the_window_and_may_be_never() {
        let mut short = Storm::new(WINDOW, Some(SECOND), 8);
        let due = short.failed(print(0), SECOND, false).unwrap();
        short.told(&due, ());
        assert!(matches!(short.over(2 * SECOND), Next::At(at) if at == 61 * SECOND));
        let mut never = Storm::new(WINDOW, None, 8);
        let due = never.failed(print(0), SECOND, false).unwrap();
        never.told(&due, ());
        assert!(matches!(never.over(Duration::MAX), Next::Nothing));
    }

    /// What one forgotten is told has nothing to do with the next of its kind.
    #[test]
    fn an_answer_that_comes_too_late_changes_nothing() {
        let mut storm = storm(1);
        let first = storm.failed(print(0), SECOND, false).unwrap();
        assert!(tell(&mut storm, 1, 2 * SECOND).is_some());
        let second = storm.failed(print(0), 3 * SECOND, false).unwrap();
        storm.told(&first, "late");
        assert!(matches!(storm.over(900 * SECOND), Next::Nothing), "the second is under way");
        storm.told(&second, "second");
        assert_eq!(over(&mut storm, 900 * SECOND).told, "second");
    }

    #[derive(Clone, Debug)]
    enum Event {
        /// A failure; its notification takes `takes` events and gets through or not.
        Fails { kind: usize, takes: usize, gets_through: bool },
        /// Whatever is over is resolved, at once or after some events.
        Looks { takes: usize, sent: bool },
    }

    fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
        let fails = (0_usize..6, 0_usize..4, prop::bool::weighted(0.8))
            .prop_map(|(kind, takes, gets_through)| Event::Fails { kind, takes, gets_through });
        let looks = (0_usize..4, prop::bool::weighted(0.8))
            .prop_map(|(takes, sent)| Event::Looks { takes, sent });
        let wait = prop_oneof![4 => 0_u64..30, 1 => 250_u64..400];
        prop::collection::vec((wait, prop_oneof![3 => fails, 1 => looks]), 1..200)
    }

    proptest! {
        /// Whatever happens: the memory is bounded; no window has two notifications of one kind;
        /// no failure is told twice or lost; each trouble that was told is resolved once, and after
        /// the quiet time.
        #[test]
        fn bounded_and_exact(events in events(), capacity in 1_usize..8) {
            let mut storm = Storm::new(WINDOW, Some(QUIET), capacity);
            let mut now = Duration::ZERO;
            let (mut happened, mut told) = ([0_u64; 6], [0_u64; 6]);
            let mut window = [None::<Duration>; 6];
            let mut last_failed = [Duration::ZERO; 6];
            let mut open = [false; 6];
            let (mut notifying, mut resolving) = (Vec::new(), Vec::new());
            let kind_of = |fingerprint| (0..6).find(|kind| print(*kind) == fingerprint).unwrap();
            // What is under way at the end ends, and then everything gets quiet.
            let rest = (0..10).map(|_| (400, Event::Looks { takes: 0, sent: true }));
            for (wait, event) in events.into_iter().chain(rest.cycle().take(60)) {
                now += Duration::from_secs(wait);
                match event {
                    Event::Fails { kind, takes, gets_through } => {
                        happened[kind] += 1;
                        last_failed[kind] = now;
                        if let Some(due) = storm.failed(print(kind), now, false) {
                            let fresh = window[kind].is_none_or(|began| now - began >= WINDOW);
                            prop_assert!(capacity < 6 || fresh);
                            window[kind] = Some(now);
                            notifying.push((takes, gets_through, due));
                        }
                    }
                    Event::Looks { takes, sent } => {
                        if let Next::Over(over) = storm.over(now) {
                            let kind = kind_of(over.fingerprint);
                            prop_assert!(over.last + QUIET <= now);
                            if capacity >= 6 {
                                prop_assert_eq!(over.last, last_failed[kind]);
                                prop_assert!(open[kind] || over.untold.count > 0);
                            }
                            resolving.push((takes, sent, over));
                        }
                    }
                }
                notifying.retain_mut(|(takes, gets_through, due)| {
                    if *takes > 0 {
                        *takes -= 1;
                        return true;
                    }
                    let kind = kind_of(due.fingerprint);
                    if *gets_through {
                        storm.told(due, ());
                        told[kind] += due.untold.count;
                        open[kind] = true;
                    } else {
                        storm.not_told(due);
                        window[kind] = None;
                    }
                    false
                });
                resolving.retain_mut(|(takes, sent, over)| {
                    if *takes > 0 {
                        *takes -= 1;
                        return true;
                    }
                    let kind = kind_of(over.fingerprint);
                    if *sent {
                        storm.resolved(over);
                        told[kind] += over.untold.count;
                        open[kind] = false;
                    } else {
                        storm.not_resolved(over);
                    }
                    false
                });
                prop_assert!(storm.entries.len() <= capacity);
                prop_assert_eq!(storm.by_age.len(), storm.entries.len());
                for kind in 0..6 {
                    prop_assert!(told[kind] <= happened[kind]);
                }
            }
            if capacity >= 6 {
                for kind in 0..6 {
                    prop_assert!(!open[kind], "each is resolved");
                    let waiting = storm.entries.get(&print(kind)).map_or(0, |e| e.untold.count);
                    prop_assert_eq!(told[kind] + waiting, happened[kind]);
                    prop_assert!(waiting == 0 || storm.entries[&print(kind)].told.is_none());
                }
            }
        }
    }
}
