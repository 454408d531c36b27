//! The state behind one layer: one circuit, or one per key.

use std::sync::Arc;
use std::time::Duration;

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

/// What a call holds of its circuit.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The key's circuit; `None` if there is only one.
    entry: Option<Arc<Entry>>,
    /// Goes back exactly once. `None` for a call that was refused.
    permit: Option<Permit>,
}

impl Breakers {
    pub(crate) fn new(config: Config) -> Self {
        let settings = Settings::new(&config);
        let which = match config.keyed {
            None => Which::One(Breaker::single(config.name, &settings)),
            Some(limits) => Which::ByKey(Keyed::new(limits, config.name, &settings)),
        };
        Self { settings, which, config }
    }

    /// The only circuit, if there are no keys.
    #[inline]
    pub(crate) const fn only(&self) -> Option<&Breaker> {
        match &self.which {
            Which::One(breaker) => Some(breaker),
            Which::ByKey(_) => None,
        }
    }

    /// The circuit that speaks where no key is known.
    #[inline]
    pub(crate) fn unkeyed(&self) -> &Breaker {
        match &self.which {
            Which::One(breaker) => breaker,
            Which::ByKey(keyed) => &keyed.overflow().breaker,
        }
    }

    /// Lets a call in, or refuses it and says what is left of the open time.
    #[inline]
    pub(crate) fn admit(&self, key: impl FnOnce() -> Key) -> (Admission, Option<Duration>) {
        let entry = match &self.which {
            Which::One(_) => None,
            Which::ByKey(keyed) => Some(keyed.entry(&key(), &self.settings)),
        };
        match self.of(entry.as_ref()).admit(&self.settings) {
            Ok(permit) => (Admission { entry, permit: Some(permit) }, None),
            Err(left) => {
                self.of(entry.as_ref()).count_rejection();
                (Admission { entry, permit: None }, Some(left))
            }
        }
    }

    /// Refuses a call that was readied to be refused.
    #[cold]
    pub(crate) fn refuse(&self) -> (Admission, Option<Duration>) {
        let breaker = self.unkeyed();
        breaker.count_rejection();
        let left = breaker.time_left(&self.settings);
        (Admission { entry: None, permit: None }, Some(left))
    }

    /// What a refused call is told.
    pub(crate) fn rejection(&self, admission: &Admission, left: Duration) -> CircuitOpen {
        CircuitOpen::new(self.of(admission.entry.as_ref()).name(), left)
    }

    /// An admitted call ended with `verdict`; counts once.
    #[inline]
    pub(crate) fn settle(
        &self,
        admission: &mut Admission,
        verdict: &Verdict,
    ) -> Option<Transition> {
        let permit = admission.permit.take()?;
        self.of(admission.entry.as_ref()).settle(&self.settings, permit, verdict)
    }

    /// A call is dropped: what it still holds is given back.
    #[inline]
    pub(crate) fn abandon(&self, admission: &mut Admission) {
        if let Some(permit) = admission.permit.take() {
            self.abandon_permit(admission, permit);
        }
    }

    #[cold]
    fn abandon_permit(&self, admission: &Admission, permit: Permit) {
        let breaker = self.of(admission.entry.as_ref());
        breaker.ended_neutral(&self.settings, permit, Outcome::Abandoned);
    }

    #[inline]
    fn of<'a>(&'a self, entry: Option<&'a Arc<Entry>>) -> &'a Breaker {
        entry.map_or_else(|| self.unkeyed(), |entry| &entry.breaker)
    }
}
