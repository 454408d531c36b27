//! Seeing and commanding a breaker from outside the stack.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_triage_core::{Key, Label};

use crate::breaker::Breaker;
use crate::breakers::Breakers;
use crate::circuit::{Chance, Circuit};
use crate::keyed::{Entry, Keyed};
use crate::state::{Counts, Sample, State, Transition};

/// Sees and commands one circuit: for admin tasks, health checks and metrics. Cheap to clone; it
/// works wherever the services are, and however they are boxed.
///
/// Of a keyed breaker, the layer's own handle speaks of the circuit that keys without room share;
/// [`key`](Self::key) gives a key's.
#[derive(Clone)]
pub struct BreakerHandle {
    breakers: Arc<Breakers>,
    entry: Option<Arc<Entry>>,
}

impl BreakerHandle {
    pub(crate) const fn new(breakers: Arc<Breakers>) -> Self {
        Self { breakers, entry: None }
    }

    fn breaker(&self) -> &Breaker {
        self.entry.as_ref().map_or(&self.breakers.own, |entry| &entry.breaker)
    }

    /// The breaker's name, or its key.
    #[must_use]
    pub fn name(&self) -> Label {
        self.breaker().name()
    }

    /// The state. An open circuit whose time is over stays open until a call is admitted.
    #[must_use]
    pub fn state(&self) -> State {
        self.breaker().state()
    }

    /// Lifetime counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.breaker().counts(&self.breakers.settings)
    }

    /// Share of successes among all successes and failures so far; 1 without traffic.
    #[must_use]
    pub fn success_rate(&self) -> f64 {
        self.counts().success_rate()
    }

    /// What the window holds now: what the trip rules look at. Empty unless closed, and without a
    /// window.
    #[must_use]
    pub fn window(&self) -> Sample {
        self.breaker().sample(&self.breakers.settings)
    }

    /// How long calls are still rejected by time. `None` if time is not what decides: calls pass,
    /// a probe is in flight, or somebody forced the state. Zero if a probe is due.
    #[must_use]
    pub fn time_to_next_probe(&self) -> Option<Duration> {
        match (self.state(), self.breaker().chance(&self.breakers.settings)) {
            (State::Open | State::HalfOpen, Chance::Now) => Some(Duration::ZERO),
            (_, Chance::After(left)) => Some(left),
            (_, Chance::Now | Chance::Unknown) => None,
        }
    }

    fn command(&self, order: fn(&mut Circuit) -> crate::circuit::Change) {
        self.breaker().command(&self.breakers.settings, order);
    }

    /// Rejects every call, whatever the time, until another command.
    pub fn force_open(&self) {
        self.command(Circuit::force_open);
    }

    /// Admits every call and records nothing, until another command.
    pub fn force_closed(&self) {
        self.command(Circuit::force_closed);
    }

    /// Admits and counts every call and never trips, until another command.
    pub fn disable(&self) {
        self.command(Circuit::disable);
    }

    /// Back to an ordinary closed circuit that remembers nothing but its lifetime counts. What is
    /// in flight no longer matters to it.
    pub fn reset(&self) {
        self.command(Circuit::reset);
    }

    /// Calls `callback` at each change of state, of every key. It runs outside every lock, on the
    /// thread of the call that caused the change, so it may use this handle but must not block; a
    /// panic in it is caught and logged. Two changes from two threads may arrive in either order.
    ///
    /// ```
    /// # use tower_triage_circuit_breaker::CircuitBreakerLayer;
    /// # use tower_triage_core::{AnyOk, Chain, Classifier, Halves};
    /// # let layer = CircuitBreakerLayer::new(Classifier::new(Halves { response: AnyOk, error: Chain }));
    /// let (changes, seen) = std::sync::mpsc::channel();
    /// layer.handle().subscribe(move |change| _ = changes.send(*change));
    /// layer.handle().force_open();
    /// assert_eq!(seen.recv()?.to.as_str(), "forced_open");
    /// # Ok::<_, std::sync::mpsc::RecvError>(())
    /// ```
    pub fn subscribe(&self, callback: impl Fn(&Transition) + Send + Sync + 'static) {
        self.breakers.settings.watchers.add(callback);
    }

    /// The circuit of `key`, if the breaker is keyed and knows it. A key that is forgotten gets a
    /// new circuit when it comes back; the handle of the old one no longer matters.
    #[must_use]
    pub fn key(&self, key: &Key) -> Option<Self> {
        let entry = self.breakers.keyed.as_ref()?.get(key)?;
        Some(self.at(entry))
    }

    /// The circuits of all keys, in no order; idle ones are forgotten now. Empty if not keyed.
    #[must_use]
    pub fn keys(&self) -> Vec<Self> {
        let entries = |keyed: &Keyed| keyed.entries(&self.breakers.settings);
        let entries = self.breakers.keyed.as_ref().map_or_else(Vec::new, entries);
        entries.into_iter().map(|entry| self.at(entry)).collect()
    }

    /// How many calls had to share one circuit because there was no room for their key.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.breakers.keyed.as_ref().map_or(0, Keyed::overflowed)
    }

    fn at(&self, entry: Arc<Entry>) -> Self {
        Self { breakers: Arc::clone(&self.breakers), entry: Some(entry) }
    }
}

impl fmt::Debug for BreakerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerHandle")
            .field("name", &self.name())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
