//! Levels 2 to 4 as a chain of fallback steps: each is tried at most once in a call.

use tower_layer::Identity;
use tower_triage_core::Classifier;
use tower_triage_fallback::FallbackLayer;
use tower_triage_fallback::chain::{Depth, End, Then};
use tower_triage_fallback::keep::{Keeping, Nothing};

use crate::action::Changed;
use crate::level::Level;

/// Levels 2 to 4 as far as they were given, so that another one can stand on them.
#[diagnostic::on_unimplemented(
    message = "nothing of levels 2 to 4 can be added above `{Self}`",
    note = "levels are given from the bottom up: `nudge`, `replan`, `fallback`; leave out what you do not need"
)]
pub trait Climb<R, E> {
    /// The steps so far.
    type Steps: Depth;
    /// What a call keeps for them.
    type Keep: Keeping<Error = E>;
    /// The highest level so far.
    const TOP: Level;

    /// As a chain.
    fn chain(self, classifier: &Classifier<R>) -> FallbackLayer<R, Self::Steps, Self::Keep>;
}

impl<R, E> Climb<R, E> for Identity {
    type Steps = End<3>;
    type Keep = Nothing<E>;
    const TOP: Level = Level::Retry;

    fn chain(self, classifier: &Classifier<R>) -> FallbackLayer<R, End<3>, Nothing<E>> {
        FallbackLayer::new(classifier.clone()).max_steps::<3>()
    }
}

impl<R, E, T, X, K, const NUDGE: bool> Climb<R, E>
    for FallbackLayer<R, Then<T, Changed<X, NUDGE>>, K>
where
    T: Depth,
    K: Keeping<Error = E>,
{
    type Steps = Then<T, Changed<X, NUDGE>>;
    type Keep = K;
    const TOP: Level = if NUDGE { Level::Nudge } else { Level::Replan };

    fn chain(self, _classifier: &Classifier<R>) -> Self {
        self
    }
}
