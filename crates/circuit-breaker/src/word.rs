//! The one word that the happy path reads.

use crate::circuit::Circuit;
use crate::state::State;

/// State, era, whether successes are watched, and plain successes of this era that the circuit has
/// not been told of yet, of threads without a [`Tally`](crate::tally::Tally): all in one word, so
/// that such a success compares and counts in one step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

/// State and era: what a word is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Word {
    const FRESH: u64 = u32::MAX as u64;
    const STAMP: u32 = 32;
    /// Set while plain successes are not merely counted: while the circuit itself must see them,
    /// and while somebody looks at it.
    pub(crate) const WATCH: u64 = 1 << (Self::STAMP + Circuit::ERA_BITS);
    const STATE: u32 = Circuit::ERA_BITS + 1;

    /// Without fresh successes.
    pub(crate) const fn new(state: State, era: u32, watch: bool) -> Self {
        let word = (Stamp::new(state, era).0 as u64) << Self::STAMP;
        Self(if watch { word | Self::WATCH } else { word })
    }

    /// Do calls pass without asking the circuit?
    #[inline]
    pub(crate) const fn is_passable(self) -> bool {
        self.stamp().0 >> Self::STATE < 3
    }

    /// As it is compared; nothing is equal to it while successes are watched.
    #[inline]
    const fn upper(self) -> Stamp {
        Stamp((self.0 >> Self::STAMP) as u32)
    }

    #[inline]
    pub(crate) const fn stamp(self) -> Stamp {
        Stamp(self.upper().0 & !((Self::WATCH >> Self::STAMP) as u32))
    }

    pub(crate) const fn state(self) -> State {
        match self.upper().0 >> Self::STATE {
            0 => State::Closed,
            1 => State::ForcedClosed,
            2 => State::Disabled,
            3 => State::Open,
            4 => State::HalfOpen,
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
    pub(crate) fn counts(self, stamp: Stamp) -> bool {
        self.upper() == stamp && self.is_passable()
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
            State::Closed => 0,
            State::ForcedClosed => 1,
            State::Disabled => 2,
            State::Open => 3,
            State::HalfOpen => 4,
            State::ForcedOpen => 5,
        };
        Self(state << Word::STATE | era)
    }

    pub(crate) const fn era(self) -> u32 {
        self.0 & ((1 << Circuit::ERA_BITS) - 1)
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
                let word = Word::new(state, era, watch);
                let stamp = word.stamp();
                assert_eq!((word.state(), stamp.era(), word.fresh()), (state, era, 0));
                assert_eq!(stamp, Stamp::new(state, era), "watched or not");
                let passes = matches!(state, Closed | ForcedClosed | Disabled);
                assert_eq!(word.is_passable(), passes);
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
        assert_eq!((full.fresh(), full.stamp()), (u32::MAX.into(), stamp));
    }
}
