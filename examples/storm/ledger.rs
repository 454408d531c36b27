//! Accounts for each request exactly once, in two independent books.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use http::Response;
use hyper::body::Incoming;
use tower_triage::escalate::Escalation;
use tower_triage::{AnyError, Incident, Notes, Observer, Resolution};

/// What became of a request, as its caller saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    FirstTry,
    Retry,
    Fallback,
    Escalated,
    Refused,
}

impl Fate {
    pub(crate) const ALL: [Self; 5] =
        [Self::FirstTry, Self::Retry, Self::Fallback, Self::Escalated, Self::Refused];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FirstTry => "first try",
            Self::Retry => "recovered by retry",
            Self::Fallback => "answered by fallback",
            Self::Escalated => "escalated",
            Self::Refused => "refused (a definite no)",
        }
    }

    /// Read from what the caller holds in its hands: the outcome and the notes it carries.
    pub(crate) fn of(outcome: &Result<Response<Incoming>, AnyError>) -> Self {
        let (notes, ok) = match outcome {
            Ok(response) => (response.extensions().get::<Notes>(), response.status().is_success()),
            Err(error) => (Some(error.notes()), false),
        };
        let resolution =
            notes.and_then(|notes| notes.incident.as_ref()).map(|incident| incident.resolution);
        match resolution {
            None if ok => Self::FirstTry,
            // The answer came at the first try; what is told happened beside: it was the one that
            // made up the number of calls at which the breaker judges, and opens.
            Some(Resolution::Succeeded) => Self::FirstTry,
            Some(Resolution::RecoveredByRetry) => Self::Retry,
            Some(Resolution::AnsweredByFallback) => Self::Fallback,
            Some(Resolution::Escalated) => Self::Escalated,
            // No other ending leaves this stack; if one did, the books would disagree.
            _ => Self::Refused,
        }
    }
}

/// The second book: what the observers of the shared classifier were told.
#[derive(Clone, Default)]
pub(crate) struct Incidents(Arc<Mutex<Vec<Incident>>>);

impl Incidents {
    pub(crate) fn all(&self) -> Vec<Incident> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Incidents {
    fn incident(&self, incident: &Incident) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(incident.clone());
    }
}

/// Every difference between the books, in words; empty if they agree.
pub(crate) fn differences(
    sent: usize,
    fates: &BTreeMap<Fate, usize>,
    incidents: &[Incident],
    letters: &[Escalation],
) -> Vec<String> {
    let mut found = Vec::new();
    let mut expect = |what: &str, left: usize, right: usize| {
        if left != right {
            found.push(format!("{what}: {left} against {right}"));
        }
    };
    let fate = |fate: Fate| fates.get(&fate).copied().unwrap_or(0);
    let ended = |resolution| incidents.iter().filter(|i| i.resolution == resolution).count();

    expect("requests sent and accounted for", sent, fates.values().sum());
    expect("recovered by retry", fate(Fate::Retry), ended(Resolution::RecoveredByRetry));
    expect("answered by fallback", fate(Fate::Fallback), ended(Resolution::AnsweredByFallback));
    expect("escalated", fate(Fate::Escalated), ended(Resolution::Escalated));
    expect("refused", fate(Fate::Refused), ended(Resolution::Failed));
    let others = sent - fate(Fate::FirstTry) + ended(Resolution::Succeeded);
    expect("incidents", others, incidents.len());

    let told =
        |incident: &&Incident| incident.steps.iter().any(|s| s.kind.outcome() == "escalated");
    expect("records written and told", letters.len(), incidents.iter().filter(told).count());
    let mut ids: Vec<_> = letters.iter().map(|letter| letter.id.to_string()).collect();
    ids.sort_unstable();
    ids.dedup();
    expect("records and their ids", letters.len(), ids.len());
    found
}

/// The escalations in the file.
pub(crate) fn read(path: &Path) -> Result<Vec<Escalation>, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
