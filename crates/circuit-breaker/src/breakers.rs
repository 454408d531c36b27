//! The state behind one layer: one circuit, or one per key.

use std::sync::Arc;
use std::time::Duration;

use tower_triage_core::{CircuitOpen, Key, Verdict};

use crate::breaker::{Breaker, Permit};
use crate::keyed::{Entry, Keyed, Latest};
use crate::settings::{Config, Settings};
use crate::state::Transition;

#[derive(Debug)]
pub(crate) struct Breakers {
    pub(crate) settings: Settings,
    /// The only circuit, or the one that keys without room share.
    pub(crate) own: Breaker,
    pub(crate) keyed: Option<Keyed>,
    pub(crate) config: Config,
}

/// What a call holds of its circuit.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// The key's circuit, unless it is the layer's own.
    entry: Option<Arc<Entry>>,
    /// Goes back exactly once. `None` for a call that was refused.
    permit: Option<Permit>,
}

impl Breakers {
    pub(crate) fn new(config: Config) -> Self {
        let settings = Settings::new(&config);
        let own = Breaker::single(config.name, &settings);
        let keyed = config.keyed.map(Keyed::new);
        Self { settings, own, keyed, config }
    }

    /// The only circuit, if there are no keys.
    #[inline]
    pub(crate) const fn only(&self) -> Option<&Breaker> {
        match self.keyed {
            None => Some(&self.own),
            Some(_) => None,
        }
    }

    /// Lets a call in, or refuses it and says what is left of the open time.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn admit(
        &self,
        key: impl FnOnce() -> Key,
        latest: &mut Latest,
    ) -> (Admission, Option<Duration>) {
        let entry = match &self.keyed {
            None => None,
            Some(keyed) => keyed.entry(&key(), latest, &self.settings),
        };
        match self.of(entry.as_deref()).pass(&self.settings) {
            Some(permit) => (Admission { entry, permit: Some(permit) }, None),
            None => self.ask(entry),
        }
    }

    /// The circuit has to be asked.
    #[cold]
    fn ask(&self, entry: Option<Arc<Entry>>) -> (Admission, Option<Duration>) {
        self.is_used(entry.as_deref());
        let breaker = self.of(entry.as_deref());
        match breaker.ask(&self.settings) {
            Ok(permit) => (Admission { entry, permit: Some(permit) }, None),
            Err(left) => {
                breaker.count_rejection();
                (Admission { entry, permit: None }, Some(left))
            }
        }
    }

    /// Refuses a call that was readied to be refused.
    #[cold]
    pub(crate) fn refuse(&self) -> (Admission, Option<Duration>) {
        self.own.count_rejection();
        (Admission { entry: None, permit: None }, Some(self.own.time_left(&self.settings)))
    }

    /// What a refused call is told.
    pub(crate) fn rejection(&self, admission: &Admission, left: Duration) -> CircuitOpen {
        CircuitOpen::new(self.of(admission.entry.as_deref()).name(), left)
    }

    /// An admitted call succeeded: counts it, if that is all that there is to it. `false` if it has
    /// to be [settled](Self::settle).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn count_plain(&self, admission: &mut Admission) -> bool {
        let Some(permit) = &admission.permit else { return true };
        let now = self.settings.time_of_success();
        if let (Some(entry), Some(now)) = (&admission.entry, now) {
            entry.touch(now);
        }
        let breaker = self.of(admission.entry.as_deref());
        let plain = breaker.count_plain(&self.settings, permit, now);
        if plain {
            admission.permit = None;
        }
        plain
    }

    /// An admitted call ended with `verdict`; counts once.
    #[cold]
    pub(crate) fn settle(
        &self,
        admission: &mut Admission,
        verdict: &Verdict,
    ) -> Option<Transition> {
        let permit = admission.permit.take()?;
        self.is_used(admission.entry.as_deref());
        self.of(admission.entry.as_deref()).settle(&self.settings, permit, verdict)
    }

    /// A call is dropped: what it still holds is given back.
    #[inline]
    pub(crate) fn abandon(&self, admission: &mut Admission) {
        if let Some(permit) = admission.permit.take() {
            self.give_back(admission, permit);
        }
    }

    #[cold]
    fn give_back(&self, admission: &Admission, permit: Permit) {
        self.is_used(admission.entry.as_deref());
        self.of(admission.entry.as_deref()).abandon(&self.settings, permit);
    }

    /// A key's circuit is used now; one that is not for long is forgotten.
    fn is_used(&self, entry: Option<&Entry>) {
        if let Some(entry) = entry {
            entry.touch(self.settings.clock.recent());
        }
    }

    #[inline]
    fn of<'a>(&'a self, entry: Option<&'a Entry>) -> &'a Breaker {
        entry.map_or(&self.own, |entry| &entry.breaker)
    }
}
