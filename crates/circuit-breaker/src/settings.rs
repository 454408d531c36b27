//! What all circuits of one layer share.

use std::sync::Arc;
use std::time::Duration;

use tower_triage_core::{Clock, Label, Random};

use crate::breaker::nanos;
use crate::parked::Parked;
use crate::policy::{BreakerPlan, Span};
use crate::watchers::Watchers;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) policy: BreakerPlan,
    pub(crate) clock: Clock,
    pub(crate) random: Arc<Random>,
    pub(crate) watchers: Watchers,
    pub(crate) parked: Parked,
    /// Does a success have to know the time, for its window, its slowness, or when its key was used?
    pub(crate) reads_clock: bool,
}

/// What a layer is made of before there is a state.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) policy: BreakerPlan,
    pub(crate) name: Label,
    pub(crate) random: Arc<Random>,
    pub(crate) clock: Clock,
    pub(crate) keyed: Option<crate::KeyedSettings>,
    pub(crate) below_balancer: bool,
}

impl Settings {
    /// The time at which a success is recorded; `None` where nobody asks. How long it took has to be
    /// exact, in which slice of a window it comes has not.
    #[inline]
    pub(crate) fn time_of_success(&self) -> Option<Duration> {
        let exact = self.policy.slow_call.is_some();
        let now = || if exact { self.clock.now() } else { self.clock.recent() };
        self.reads_clock.then(now)
    }

    /// When a call that is let in now began, in nanoseconds; zero where slowness does not matter.
    #[inline]
    pub(crate) fn started(&self) -> u64 {
        if self.policy.slow_call.is_some() { nanos(self.clock.now()) } else { 0 }
    }

    pub(crate) fn new(config: &Config) -> Self {
        let policy = config.policy.clone();
        let reads_clock = policy.slow_call.is_some()
            || matches!(policy.window, Some(Span::Time(_)))
            || config.keyed.is_some();
        Self {
            policy,
            clock: config.clock,
            random: Arc::clone(&config.random),
            watchers: Watchers::default(),
            parked: Parked::default(),
            reads_clock,
        }
    }
}
