//! What a layer does to have somebody told, without its type parameters.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tower_triage_core::Incident;
use tower_triage_core::incident::{self, Deferred, Handover};

use crate::capture::Captured;
use crate::desk::Desk;
use crate::escalation::{Escalation, Outcome};
use crate::policy::EscalatePolicy;
use crate::write::{self, Facts, Told};

/// Adds what the user knows to an escalation.
pub(crate) type Enrich = Arc<dyn Fn(&mut Escalation) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) desk: Desk,
    pub(crate) from: String,
    pub(crate) policy: EscalatePolicy,
    pub(crate) enrich: Option<Enrich>,
}

impl Reporter {
    /// Fixes the id of the incident, and gives it as it is now.
    pub(crate) fn incident(&self, facts: &Facts) -> Option<Incident> {
        if let Some(id) = facts.id(&self.from) {
            incident::identify(id);
        }
        incident::snapshot()
    }

    pub(crate) fn write(&self, facts: &Facts, incident: &Incident, told: Told) -> Escalation {
        let mut escalation = write::escalation(&self.from, facts, incident, told);
        let opened = write::circuit_opened(incident);
        escalation.priority = self.desk.priority(escalation.class, opened);
        if let Some(enrich) = &self.enrich {
            // Maybe from a `Drop`, even while unwinding: a panic here would abort the process.
            let run = AssertUnwindSafe(|| incident::run_detached(|| enrich(&mut escalation)));
            if catch_unwind(run).is_err() {
                tracing::error!("tower-triage: enrich panicked; the escalation goes on without it");
            }
        }
        escalation
    }

    /// The caller dropped the call: what must be told at once goes to the queue. To be asked within
    /// the scope.
    pub(crate) fn abandoned(
        &self,
        facts: impl FnOnce() -> Facts,
        captured: impl FnOnce() -> Option<Captured>,
    ) {
        if !self.policy.concerns(incident::seen(), incident::circuit_opened()) {
            return;
        }
        let facts = &facts();
        let Some(incident) = self.incident(facts) else { return };
        if let Some(failure) = self.policy.due(&incident, None, Outcome::Abandoned) {
            incident::take_over();
            let request = captured().map(Arc::new);
            let told = Told { request, ..Told::of(failure, Outcome::Abandoned) };
            let escalation = self.write(facts, &incident, told);
            // The incident ends as abandoned whatever comes of it; the desk's counters tell.
            _ = self.desk.enqueue(escalation);
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter")
            .field("desk", &self.desk)
            .field("from", &self.from)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// An escalation left with the scope by a layer that is not the outermost of its call.
pub(crate) struct LeftBehind {
    pub(crate) reporter: Reporter,
    pub(crate) facts: Facts,
    pub(crate) request: Option<Arc<Captured>>,
    pub(crate) urgent: bool,
}

impl Deferred for LeftBehind {
    fn urgent(&self) -> bool {
        self.urgent
    }

    fn run(self: Box<Self>, incident: &Incident) -> Handover {
        let Self { reporter, facts, request, .. } = *self;
        let outcome = Outcome::of(incident.resolution);
        let leaving = match outcome {
            Outcome::Failed | Outcome::Forced => incident.failure,
            Outcome::Recovered | Outcome::Abandoned => None,
        };
        match reporter.policy.due(incident, leaving, outcome) {
            None => Handover::NotDue,
            Some(failure) => {
                let told = Told { request, ..Told::of(failure, outcome) };
                let escalation = reporter.write(&facts, incident, told);
                match reporter.desk.enqueue(escalation) {
                    0 => Handover::Lost,
                    receivers => Handover::Told(receivers),
                }
            }
        }
    }
}
