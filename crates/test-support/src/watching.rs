//! An observer that remembers.

use std::sync::{Arc, Mutex, MutexGuard};

use tower_triage_core::incident::Labels;
use tower_triage_core::{Incident, Observer, Step};

/// Remembers the steps and incidents of every layer that shares the classifier it watches
/// (`classifier.observe(seen.clone())`).
#[derive(Clone, Debug, Default)]
pub struct Seen {
    shared: Arc<Mutex<(Vec<(Labels, Step)>, Vec<Incident>)>>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, (Vec<(Labels, Step)>, Vec<Incident>)> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The incidents that ended so far.
    #[must_use]
    pub fn incidents(&self) -> Vec<Incident> {
        self.lock().1.clone()
    }

    /// The last incident that ended.
    ///
    /// # Panics
    /// If there was none: the test expected one.
    #[must_use]
    pub fn last(&self) -> Incident {
        self.lock().1.last().cloned().expect("an incident has ended")
    }

    /// The steps so far, with their labels.
    #[must_use]
    pub fn steps(&self) -> Vec<(Labels, Step)> {
        self.lock().0.clone()
    }

    /// What happened, by the fixed names of the steps.
    #[must_use]
    pub fn outcomes(&self) -> Vec<&'static str> {
        self.lock().0.iter().map(|(labels, _)| labels.outcome).collect()
    }
}

impl Observer for Seen {
    fn step(&self, labels: &Labels, step: &Step) {
        self.lock().0.push((*labels, step.clone()));
    }

    fn incident(&self, incident: &Incident) {
        self.lock().1.push(incident.clone());
    }
}
