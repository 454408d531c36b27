//! The one word that the happy path reads.

use std::num::NonZeroU32;

use crate::circuit::Circuit;
use crate::state::State;

/// State, era, whether successes are watched, and plain successes of this era that the circuit has
/// not been told of yet, of threads without a [`Tally`](crate::tally::Tally): all in one word, so
/// that such a success compares and counts in one step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

/// State and era: what a word is compared by. Never zero, because states are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(NonZeroU32);

impl Word {
    const FRESH: u64 = u32::MAX as u64;
    const STAMP: u32 = 32;
    /// Set while plain successes are not merely counted: while the circuit itself must see them,
    /// and while somebody looks at it.
    pub(crate) const WATCH: u64 = 1 << (Self::STAMP + Circuit::ERA_BITS);
    const STATE: u32 = Circuit::ERA_BITS + 1;
    /// The first word of a state in which calls do not pass unasked.
    const BARRED: u64 = 4 << (Self::STAMP + Self::STATE);

    /// Without fresh successes.
    pub(crate) const fn new(state: State, era: u32, watch: bool) -> Self {
        let word = (Stamp::new(state, era).0.get() as u64) << Self::STAMP;
        Self(if watch { word | Self::WATCH } else { word })
    }

    /// The stamp of a call that is let in without asking the circuit; `None` if it must be asked.
    #[inline]
    pub(crate) const fn pass(self) -> Option<Stamp> {
        if self.0 >= Self::BARRED {
            return None;
        }
        match NonZeroU32::new(((self.0 & !Self::WATCH) >> Self::STAMP) as u32) {
            Some(stamp) => Some(Stamp(stamp)),
            None => None,
        }
    }

    pub(crate) const fn state(self) -> State {
        match self.0 >> (Self::STAMP + Self::STATE) {
            0 | 1 => State::Closed,
            2 => State::ForcedClosed,
            3 => State::Disabled,
            4 => State::Open,
            5 => State::HalfOpen,
            _ => State::ForcedOpen,
        }
    }

    /// Successes that the circuit has not been told of.
    pub(crate) const fn fresh(self) -> u64 {
        self.0 & Self::FRESH
    }

    /// Is a plain success of a call that was let in at `stamp` merely counted? `false` if the circuit
    /// itself must see it.
    #[inline]
    pub(crate) const fn counts(self, stamp: Stamp) -> bool {
        self.0 < Self::BARRED && (self.0 >> Self::STAMP) as u32 == stamp.0.get()
    }

    /// With one more success; `None` if the circuit itself must see it.
    pub(crate) fn with_success(self, stamp: Stamp) -> Option<Self> {
        (self.counts(stamp) && self.fresh() < Self::FRESH).then_some(Self(self.0 + 1))
    }
}

impl Stamp {
    pub(crate) const fn new(state: State, era: u32) -> Self {
        // Those that let calls pass come first.
        let state = match state {
            State::Closed => 1,
            State::ForcedClosed => 2,
            State::Disabled => 3,
            State::Open => 4,
            State::HalfOpen => 5,
            State::ForcedOpen => 6,
        };
        match NonZeroU32::new(state << Word::STATE | era) {
            Some(stamp) => Self(stamp),
            None => unreachable!(),
        }
    }

    #[inline]
    pub(crate) const fn era(self) -> u32 {
        self.0.get() & ((1 << Circuit::ERA_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_its_parts_apart() {
        use State::{Closed, Disabled, ForcedClosed, ForcedOpen, HalfOpen, Open};
        let last = (1 << Circuit::ERA_BITS) - 1;
        for state in [Closed, Open, HalfOpen, ForcedOpen, ForcedClosed, Disabled] {
            for (era, watch) in [(0, false), (last, true), (last, false), (7, true)] {
                let (word, stamp) = (Word::new(state, era, watch), Stamp::new(state, era));
                assert_eq!((word.state(), stamp.era(), word.fresh()), (state, era, 0));
                let passes = matches!(state, Closed | ForcedClosed | Disabled);
                assert_eq!(word.pass(), passes.then_some(stamp), "watched or not");
                assert_eq!(word.counts(stamp), passes && !watch);
                assert_eq!(word.with_success(stamp).is_some(), passes && !watch);
                assert!(!word.counts(Stamp::new(state, era ^ 1)));
            }
        }
    }

    #[test]
    fn a_full_count_does_not_run_into_the_era() {
        let stamp = Stamp::new(State::Closed, 5);
        let full = Word(Word::new(State::Closed, 5, false).0 | Word::FRESH);
        assert!(full.with_success(stamp).is_none());
        assert_eq!((full.fresh(), full.pass()), (u32::MAX.into(), Some(stamp)));
    }
}
