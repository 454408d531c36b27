//! Who waits for the rate, and in which order: pure, with the time as an argument.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use crate::adaptive::rate::SendRate;

/// A rate, and those who wait because it is used up: first come, first served.
///
/// How long somebody waits is worked out anew each time they ask, so a rate that grows lets them go
/// sooner and one that shrinks later. `W` is what wakes one of them. Methods return whom to wake, for
/// the caller to do so once its lock is gone: those who were served; and who is first in line now,
/// because a time that was worked out before may be too long. No `W` is dropped here: that is foreign
/// code, and may drop somebody else who stands in this line.
///
/// Everybody has a time of their own to ask again at, and serves all whose turn has come: one who is
/// woken and does not ask keeps nobody waiting.
#[derive(Debug)]
pub(super) struct Line<W> {
    pub(super) rate: SendRate,
    /// By number; they are given out in order.
    waiting: BTreeMap<u64, W>,
    next: u64,
    /// When everybody was served whose turn had come.
    served: Duration,
}

impl<W: Clone> Line<W> {
    /// The right to send, if it is there and nobody waits for it.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        if !self.waiting.is_empty() {
            return false;
        }
        // Nobody's turn came in the meantime, however long that was.
        self.served = now;
        self.rate.take(now).is_zero()
    }

    /// A place at the end of the line.
    pub(super) fn join(&mut self, waiter: W) -> u64 {
        let place = self.next;
        self.next += 1;
        self.waiting.insert(place, waiter);
        place
    }

    /// Gives everybody their turn that has come by now, at the time when it came: the rate keeps no
    /// more than a second's worth, and what came while nobody asked is theirs all the same.
    pub(super) fn serve(&mut self, now: Duration) -> Vec<W> {
        let mut woken = Vec::new();
        let mut at = mem::replace(&mut self.served, now).min(now);
        while !self.waiting.is_empty() {
            let wait = self.rate.take(at);
            if wait.is_zero() {
                woken.extend(self.waiting.pop_first().map(|(_, waiter)| waiter));
            } else if at < now {
                at = at.saturating_add(wait).min(now);
            } else {
                break;
            }
        }
        if !woken.is_empty() {
            woken.extend(self.first());
        }
        woken
    }

    /// How long it will be at most, as the rate is now, until it is the turn of `place`; `None` if it
    /// was served. `waiter` is woken then, and becomes the one that was to be woken before.
    ///
    /// Exact for the first, and for all as long as nobody has left from the middle.
    pub(super) fn wait(&mut self, place: u64, waiter: &mut W, now: Duration) -> Option<Duration> {
        mem::swap(self.waiting.get_mut(&place)?, waiter);
        let (first, _) = self.waiting.first_key_value()?;
        // Not counted one by one: a crowd would keep each other at the lock.
        let before = (place - first).min(self.waiting.len() as u64 - 1);
        Some(self.rate.wait_for(before as f64 + 1.0, now))
    }

    /// Nobody waits at `place` any more. What it was served is given back. Whoever was to be woken
    /// there is given too.
    pub(super) fn leave(&mut self, place: u64, now: Duration) -> (Vec<W>, Option<W>) {
        let was_first = self.waiting.keys().next() == Some(&place);
        let gone = self.waiting.remove(&place);
        let woken = match gone {
            None => self.give_back(now),
            Some(_) if was_first => self.first().into_iter().collect(),
            Some(_) => Vec::new(),
        };
        (woken, gone)
    }

    /// What was taken was not used.
    pub(super) fn give_back(&mut self, now: Duration) -> Vec<W> {
        self.rate.give_back();
        self.serve(now)
    }

    /// A request was answered, and `throttled` or not.
    pub(super) fn observe(&mut self, throttled: bool, now: Duration) -> Vec<W> {
        let mut woken = self.serve(now);
        let before = self.rate.fill_rate();
        self.rate.observe(throttled, now);
        // Who is too early for a rate that shrank finds out by asking.
        if woken.is_empty() && self.rate.fill_rate() > before {
            woken.extend(self.first());
        }
        woken
    }

    fn first(&self) -> Option<W> {
        self.waiting.values().next().cloned()
    }
}

// By hand: `W` needs no default.
impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            rate: SendRate::default(),
            waiting: BTreeMap::new(),
            next: 0,
            served: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Half a request a second, and none left.
    fn slow() -> Line<u64> {
        let mut line = Line::default();
        line.observe(true, secs(10));
        assert_eq!(line.rate.per_second(), Some(0.5));
        line
    }

    fn waits(line: &mut Line<u64>, now: Duration) -> Vec<Option<u64>> {
        let places = 0..line.next;
        let wait = |mut place| line.wait(place, &mut place, now).map(|wait| wait.as_secs());
        places.map(wait).collect()
    }

    #[test]
    fn who_waits_is_served_in_order_and_nobody_gets_past() {
        let mut line = slow();
        for place in 0..3 {
            assert!(!line.take(secs(10)));
            assert_eq!(line.join(place), place);
        }
        assert_eq!(waits(&mut line, secs(10)), [Some(2), Some(4), Some(6)]);
        assert!(line.serve(secs(11)).is_empty());
        assert!(!line.take(secs(12)), "others were here before");
        assert_eq!(line.serve(secs(12)), [0, 1], "one is served, and the next told");
        assert_eq!(waits(&mut line, secs(12)), [None, Some(2), Some(4)]);
    }

    #[test]
    fn who_leaves_frees_their_turn() {
        let mut line = slow();
        for place in 0..4 {
            line.join(place);
        }
        assert!(line.leave(1, secs(10)).0.is_empty(), "nobody's turn is the next one now");
        assert_eq!(line.leave(0, secs(10)).0, [2], "told that they are first");
        assert_eq!(waits(&mut line, secs(10)), [None, None, Some(2), Some(4)]);
        assert_eq!(line.serve(secs(12)), [2, 3]);
        // Served, and gone without a look: the turn is the next one's.
        assert_eq!(line.leave(2, secs(12)).0, [3]);
        assert_eq!(waits(&mut line, secs(12)), [None; 4]);
    }

    #[test]
    fn a_rate_that_changes_changes_every_wait() {
        let at = |tenths: u64| secs(10) + Duration::from_millis(100 * tenths);
        let mut line = slow();
        (0..50).for_each(|place| _ = line.join(place));
        let wait = |line: &mut Line<u64>, now| line.wait(49, &mut 49, now).unwrap();
        assert_eq!(wait(&mut line, at(0)).as_secs(), 100);
        // Ten a second that were sent before are answered, and none is throttled.
        let woken: Vec<_> = (0..25).flat_map(|n| line.observe(false, at(n))).collect();
        assert!(woken.starts_with(&[0]) && woken.is_sorted(), "{woken:?}");
        let faster = wait(&mut line, at(25));
        assert!(faster < secs(15), "{faster:?}");
        assert!(line.observe(true, at(25)).is_empty());
        assert!(wait(&mut line, at(25)) > faster);
    }

    /// Who sits in front and does not ask takes their own turn, and no one else's.
    #[test]
    fn a_turn_is_given_when_it_came_however_late_anybody_asks() {
        let mut line = slow();
        for place in 0..9 {
            line.join(place);
        }
        assert_eq!(line.serve(secs(10 + 2 * 7 + 1)), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(waits(&mut line, secs(10 + 2 * 7 + 1))[7..], [Some(1), Some(3)]);
    }

    /// What wakes somebody may be all that is left of a task, with another one in it who stands here.
    #[test]
    fn whoever_is_no_longer_to_be_woken_is_given_back() {
        let [one, other] = [(); 2].map(Rc::new);
        let mut line = Line::default();
        line.observe(true, secs(10));
        let place = line.join(Rc::clone(&one));
        let mut given = Rc::clone(&other);
        assert!(line.wait(place, &mut given, secs(10)).is_some());
        assert!(Rc::ptr_eq(&given, &one));
        assert!(line.leave(place, secs(10)).1.is_some_and(|given| Rc::ptr_eq(&given, &other)));
    }

    /// After a year without a request, a thousand a second: the year is not gone through again.
    #[test]
    fn an_empty_line_owes_nobody_a_turn() {
        let at = |millis| secs(10) + Duration::from_millis(millis);
        let mut line = Line::<u64>::default();
        (0..2000).for_each(|n| drop(line.observe(false, at(n))));
        line.observe(true, at(2000));
        let later = secs(365 * 24 * 3600);
        while line.take(later) {}
        line.join(0);
        assert!(line.serve(later).is_empty());
        assert_eq!(line.serve(later + secs(1)), [0]);
    }

    /// A crowd, in which each asks without counting all the others, and of which most give up.
    #[test]
    fn the_last_one_does_not_wait_for_those_who_left() {
        let mut line = slow();
        (0..100_000).for_each(|place| _ = line.join(place));
        for place in 0..100_000 {
            assert!(line.wait(place, &mut { place }, secs(10)).is_some());
        }
        (1..99_999).for_each(|place| _ = line.leave(place, secs(10)));
        let last = line.wait(99_999, &mut 99_999, secs(10));
        assert_eq!(last.map(|wait| wait.as_secs()), Some(4));
    }

    /// Someone in line of the property test.
    #[derive(Clone, Copy)]
    struct Asks {
        place: u64,
        at: Duration,
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Comes,
        Leaves(usize),
        Answered { throttled: bool },
        GivenBack,
        Passes(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => Just(Event::Comes),
            1 => (0usize..20).prop_map(Event::Leaves),
            3 => any::<bool>().prop_map(|throttled| Event::Answered { throttled }),
            1 => Just(Event::GivenBack),
            3 => (0u64..3000).prop_map(Event::Passes),
        ]
    }

    proptest! {
        /// Everybody asks when woken and when their time has come, and at no other time. All are
        /// served, in order, and no later than the least rate allows.
        #[test]
        fn no_one_is_forgotten(events in prop::collection::vec(event(), 1..80)) {
            let mut line = slow();
            let mut now = secs(10);
            let (mut asking, mut served): (Vec<Asks>, Vec<u64>) = (Vec::new(), Vec::new());
            let mut ask = |line: &mut Line<u64>, asking: &mut Vec<Asks>, now, mut woken: Vec<u64>| {
                while let Some(place) = woken.pop() {
                    let Some(at) = asking.iter().position(|asks| asks.place == place) else { continue };
                    woken.extend(line.serve(now));
                    match line.wait(place, &mut { place }, now) {
                        Some(wait) => asking[at].at = now + wait,
                        None => {
                            asking.remove(at);
                            served.push(place);
                        }
                    }
                }
            };
            let end = Event::Passes(2_000 * 80);
            for event in events.into_iter().chain([end]) {
                match event {
                    Event::Comes if line.take(now) => {
                        prop_assert!(asking.is_empty(), "someone was here before");
                    }
                    Event::Comes => {
                        let next = line.next;
                        let place = line.join(next);
                        asking.push(Asks { place, at: now });
                        ask(&mut line, &mut asking, now, vec![place]);
                    }
                    Event::Leaves(number) if number < asking.len() => {
                        let gone = asking.remove(number);
                        let (woken, _) = line.leave(gone.place, now);
                        ask(&mut line, &mut asking, now, woken);
                    }
                    Event::Leaves(_) => {}
                    Event::Answered { throttled } => {
                        let woken = line.observe(throttled, now);
                        ask(&mut line, &mut asking, now, woken);
                    }
                    Event::GivenBack => {
                        let woken = line.give_back(now);
                        ask(&mut line, &mut asking, now, woken);
                    }
                    Event::Passes(millis) => {
                        let until = now + Duration::from_millis(millis);
                        while let Some(next) = asking.iter().min_by_key(|asks| asks.at).copied() {
                            if next.at > until {
                                break;
                            }
                            now = now.max(next.at);
                            ask(&mut line, &mut asking, now, vec![next.place]);
                        }
                        now = until;
                    }
                }
            }
            prop_assert!(asking.is_empty(), "{} wait for ever", asking.len());
            prop_assert!(served.is_sorted(), "{served:?}");
        }
    }
}
