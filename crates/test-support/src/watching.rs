//! An observer that remembers.

use std::sync::{Arc, Mutex, MutexGuard};

use tower_triage_core::incident::Labels;
use tower_triage_core::{Incident, Observer, Step};

/// Remembers the steps and incidents of every layer that shares the classifier it watches
/// (`classifier.observe(seen.clone())`).
#[derive(Clone, Debug, Default)]
pub struct Seen {
    shared: Arc<Mutex<Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    steps: Vec<(Labels, Step)>,
    incidents: Vec<Incident>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The incidents that ended so far.
    #[must_use]
    pub fn incidents(&self) -> Vec<Incident> {
        self.lock().incidents.clone()
    }

    /// The last incident that ended.
    ///
    /// # Panics
    /// If there was none: the test expected one.
    #[must_use]
    pub fn last(&self) -> Incident {
        self.lock().incidents.last().cloned().expect("an incident has ended")
    }

    /// The steps so far, with their labels.
    #[must_use]
    pub fn steps(&self) -> Vec<(Labels, Step)> {
        self.lock().steps.clone()
    }

    /// What happened, by the fixed names of the steps.
    #[must_use]
    pub fn outcomes(&self) -> Vec<&'static str> {
        self.lock().steps.iter().map(|(labels, _)| labels.outcome).collect()
    }
}

impl Observer for Seen {
    fn step(&self, labels: &Labels, step: &Step) {
        self.lock().steps.push((*labels, step.clone()));
    }

    fn incident(&self, incident: &Incident) {
        self.lock().incidents.push(incident.clone());
    }
}
