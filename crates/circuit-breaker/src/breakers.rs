//! The state behind one layer: one circuit, or one per key.

use std::sync::Arc;

use tower_triage_core::{CircuitOpen, Key, Verdict};

use crate::breaker::{Breaker, Permit};
use crate::circuit::Outcome;
use crate::keyed::{Entry, Keyed};
use crate::settings::{Config, Settings};
use crate::state::Transition;

#[derive(Debug)]
pub(crate) struct Breakers {
    pub(crate) settings: Settings,
    pub(crate) which: Which,
    pub(crate) config: Config,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per layer; a box would cost each call a hop")]
pub(crate) enum Which {
    One(Breaker),
    ByKey(Keyed),
}

/// What an admitted call holds: it goes back exactly once.
#[derive(Debug)]
pub(crate) struct Admission {
    permit: Permit,
    /// The key's circuit; `None` if there is only one.
    entry: Option<Arc<Entry>>,
}

impl Breakers {
    pub(crate) fn new(config: Config) -> Self {
        let settings = Settings::new(&config);
        let which = match config.keyed {
            None => Which::One(Breaker::new(config.name, &settings)),
            Some(limits) => Which::ByKey(Keyed::new(limits, config.name, &settings)),
        };
        Self { settings, which, config }
    }

    /// The only circuit, if there are no keys.
    pub(crate) const fn only(&self) -> Option<&Breaker> {
        match &self.which {
            Which::One(breaker) => Some(breaker),
            Which::ByKey(_) => None,
        }
    }

    /// The circuit that speaks where no key is known.
    pub(crate) fn unkeyed(&self) -> &Breaker {
        match &self.which {
            Which::One(breaker) => breaker,
            Which::ByKey(keyed) => &keyed.overflow().breaker,
        }
    }

    /// Lets a call in, or refuses it.
    pub(crate) fn admit(&self, key: impl FnOnce() -> Key) -> Result<Admission, CircuitOpen> {
        let entry = match &self.which {
            Which::One(_) => None,
            Which::ByKey(keyed) => Some(keyed.entry(&key(), &self.settings)),
        };
        let breaker = self.of(entry.as_ref());
        match breaker.admit(&self.settings) {
            Ok(permit) => Ok(Admission { permit, entry }),
            Err(left) => {
                breaker.count_rejection();
                Err(CircuitOpen::new(breaker.name(), left))
            }
        }
    }

    /// Refuses a call that was readied to be refused.
    pub(crate) fn reject(&self) -> CircuitOpen {
        let breaker = self.unkeyed();
        breaker.count_rejection();
        CircuitOpen::new(breaker.name(), breaker.time_left(&self.settings))
    }

    /// An admitted call ended with `verdict`.
    pub(crate) fn settle(&self, admission: &Admission, verdict: &Verdict) -> Option<Transition> {
        let breaker = self.of(admission.entry.as_ref());
        breaker.settle(&self.settings, admission.permit, verdict)
    }

    /// An admitted call was dropped.
    #[cold]
    pub(crate) fn abandon(&self, admission: &Admission) {
        let breaker = self.of(admission.entry.as_ref());
        breaker.ended_neutral(&self.settings, admission.permit, Outcome::Abandoned);
    }

    fn of<'a>(&'a self, entry: Option<&'a Arc<Entry>>) -> &'a Breaker {
        entry.map_or_else(|| self.unkeyed(), |entry| &entry.breaker)
    }
}
