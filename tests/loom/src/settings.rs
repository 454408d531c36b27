//! The breaker's settings, with a clock that stands until the model moves it: loom needs each
//! interleaving to come out the same way again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_triage_core::{Label, Random};

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
    pub(crate) reads_clock: bool,
}

/// Nanoseconds, in an atomic of std: reading the time orders nothing between threads.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn recent(&self) -> Duration {
        self.now()
    }

    pub(crate) const fn lag(&self) -> Duration {
        Duration::ZERO
    }

    pub(crate) fn set(&self, millis: u64) {
        self.0.store(millis * 1_000_000, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) policy: BreakerPlan,
    pub(crate) name: Label,
    pub(crate) random: Arc<Random>,
    /// The layer's, which the models do without.
    pub(crate) clock: tower_triage_core::Clock,
    pub(crate) keyed: Option<crate::KeyedSettings>,
    pub(crate) below_balancer: bool,
}

impl Settings {
    pub(crate) fn time_of_success(&self) -> Option<Duration> {
        self.reads_clock.then(|| self.clock.now())
    }

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
            clock: Clock::default(),
            random: Arc::clone(&config.random),
            watchers: Watchers::default(),
            parked: Parked::default(),
            reads_clock,
        }
    }
}
