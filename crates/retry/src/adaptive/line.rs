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
/// because a time that was worked out before may be too long.
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
        self.waiting.is_empty() && self.rate.take(now).is_zero()
    }

    /// A place at the end of the line.
    pub(super) fn join(&mut self, waiter: &W) -> u64 {
        let place = self.next;
        self.next += 1;
        self.waiting.insert(place, waiter.clone());
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

    /// How long it will be, as the rate is now, until it is the turn of `place`, and whom to wake
    /// then; `None` if it was served.
    pub(super) fn wait(&mut self, place: u64, waiter: &W, now: Duration) -> Option<Duration> {
        self.waiting.get_mut(&place)?.clone_from(waiter);
        let before = self.waiting.range(..place).count();
        Some(self.rate.wait_for(before as f64 + 1.0, now))
    }

    /// Nobody waits at `place` any more. What it was served is given back.
    pub(super) fn leave(&mut self, place: u64, now: Duration) -> Vec<W> {
        let was_first = self.waiting.keys().next() == Some(&place);
        match self.waiting.remove(&place) {
            None => self.give_back(now),
            Some(_) if was_first => self.first().into_iter().collect(),
            Some(_) => Vec::new(),
        }
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
        places.map(|place| line.wait(place, &place, now).map(|wait| wait.as_secs())).collect()
    }

    #[test]
    fn who_waits_is_served_in_order_and_nobody_gets_past() {
        let mut line = slow();
        for place in 0..3 {
            assert!(!line.take(secs(10)));
            assert_eq!(line.join(&place), place);
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
            line.join(&place);
        }
        assert!(line.leave(1, secs(10)).is_empty(), "nobody's turn is the next one now");
        assert_eq!(line.leave(0, secs(10)), [2], "told that they are first");
        assert_eq!(waits(&mut line, secs(10)), [None, None, Some(2), Some(4)]);
        assert_eq!(line.serve(secs(12)), [2, 3]);
        // Served, and gone without a look: the turn is the next one's.
        assert_eq!(line.leave(2, secs(12)), [3]);
        assert_eq!(waits(&mut line, secs(12)), [None; 4]);
    }

    #[test]
    fn a_rate_that_changes_changes_every_wait() {
        let at = |tenths: u64| secs(10) + Duration::from_millis(100 * tenths);
        let mut line = slow();
        (0..50).for_each(|place| _ = line.join(&place));
        let wait = |line: &mut Line<u64>, now| line.wait(49, &49, now).unwrap();
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
            line.join(&place);
        }
        assert_eq!(line.serve(secs(10 + 2 * 7 + 1)), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(waits(&mut line, secs(10 + 2 * 7 + 1))[7..], [Some(1), Some(3)]);
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
                    match line.wait(place, &place, now) {
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
                        let place = line.join(&next);
                        asking.push(Asks { place, at: now });
                        ask(&mut line, &mut asking, now, vec![place]);
                    }
                    Event::Leaves(number) if number < asking.len() => {
                        let gone = asking.remove(number);
                        let woken = line.leave(gone.place, now);
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
