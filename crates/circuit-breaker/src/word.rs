//! The one word that the happy path reads and writes.

use crate::circuit::Circuit;
use crate::state::State;

/// State, era, whether successes are watched, and the plain successes of this era that the circuit
/// has not been told of yet: all in one word, so that a success compares and counts in one step and
/// none of an old era ever counts in a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    const FRESH: u64 = u32::MAX as u64;
    const ERA: u32 = 32;
    /// Set while the circuit itself must see successes, and while somebody looks at it.
    pub(crate) const WATCH: u64 = 1 << (Self::ERA + Circuit::ERA_BITS);
    const STATE: u32 = Self::ERA + Circuit::ERA_BITS + 1;

    /// Without fresh successes.
    pub(crate) fn new(state: State, era: u32, watch: bool) -> Self {
        let watch = if watch { Self::WATCH } else { 0 };
        Self((state as u64) << Self::STATE | watch | u64::from(era) << Self::ERA)
    }

    pub(crate) const fn state(self) -> State {
        match self.0 >> Self::STATE {
            0 => State::Closed,
            1 => State::Open,
            2 => State::HalfOpen,
            3 => State::ForcedOpen,
            4 => State::ForcedClosed,
            _ => State::Disabled,
        }
    }

    pub(crate) const fn era(self) -> u32 {
        (self.0 >> Self::ERA) as u32 & ((1 << Circuit::ERA_BITS) - 1)
    }

    /// Successes that the circuit has not been told of.
    pub(crate) const fn fresh(self) -> u64 {
        self.0 & Self::FRESH
    }

    /// With one more success of `era`; `None` if the circuit itself must see it.
    pub(crate) const fn with_success(self, era: u32) -> Option<Self> {
        let counts = matches!(self.state(), State::Closed | State::ForcedClosed | State::Disabled)
            && self.0 & Self::WATCH == 0
            && self.fresh() < Self::FRESH
            && self.era() == era;
        if counts { Some(Self(self.0 + 1)) } else { None }
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
                assert_eq!((word.state(), word.era(), word.fresh()), (state, era, 0));
                let counts = matches!(state, Closed | ForcedClosed | Disabled) && !watch;
                assert_eq!(word.with_success(era).is_some(), counts);
                assert!(word.with_success(era ^ 1).is_none());
            }
        }
    }

    #[test]
    fn a_full_count_does_not_run_into_the_era() {
        let full = Word(Word::new(State::Closed, 5, false).0 | Word::FRESH);
        assert!(full.with_success(5).is_none());
        assert_eq!((full.fresh(), full.era()), (u32::MAX.into(), 5));
    }
}
