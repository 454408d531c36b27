//! An incident that is being written.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::class::{ClassSet, ErrorClass};
use crate::incident::scope::Deferred;
use crate::incident::{
    Incident, IncidentId, Labels, LayerKind, Observer, Resolution, Step, StepKind,
};
use crate::label::{Label, Operation};
use crate::verdict::Failure;

/// The observers of one classifier.
pub(crate) type Observers = Vec<Arc<dyn Observer>>;

/// The heap part of a scope: made at the first failure.
pub(crate) struct Record {
    pub(crate) incident: Incident,
    pub(crate) begun: Instant,
    /// Whose incident it is: set by the first step of the call's own, so that a record made only of
    /// the steps of nested calls is not reported to the nested calls' observers.
    pub(crate) observers: Option<Arc<Observers>>,
    pub(crate) deferred: Option<Box<dyn Deferred>>,
    pub(crate) marks: Marks,
}

/// What the layers of one call tell each other.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The outcome that is on its way up has been recorded and counted.
    pub(crate) noted: bool,
    /// What the layers below say of the outcome on its way up.
    pub(crate) told: Told,
    /// A fallback is being tried; holds what was told of the primary.
    pub(crate) in_fallback: Option<Told>,
    /// A breaker opened during this call.
    pub(crate) circuit_opened: bool,
    pub(crate) fallback: bool,
    pub(crate) forced: bool,
    pub(crate) escalated: bool,
}

/// What the layers below say of one outcome, for a retry above.
#[derive(Clone, Copy, Default)]
pub(crate) struct Told {
    /// A retry used up what it had.
    pub(crate) exhausted: bool,
    /// A breaker of ours refused to send.
    pub(crate) rejected: bool,
    /// A breaker opened, and lets nothing pass for so long.
    pub(crate) blocked: Option<Duration>,
}

impl Record {
    pub(crate) fn new(operation: Operation, begun: Instant) -> Box<Self> {
        let elapsed = begun.elapsed();
        let now = crate::clock::wall_clock();
        Box::new(Self {
            incident: Incident {
                id: IncidentId::random(),
                operation,
                started: now.checked_sub(elapsed).unwrap_or(SystemTime::UNIX_EPOCH),
                elapsed,
                steps: Vec::new(),
                collapsed: 0,
                attempts: 0,
                failure: None,
                classes: ClassSet::NONE,
                resolution: Resolution::Open,
                not_recorded: false,
            },
            begun,
            observers: None,
            deferred: None,
            marks: Marks::default(),
        })
    }

    /// Adds a step, keeps the books that the resolution is made from, and tells the observers.
    pub(crate) fn push(&mut self, observers: &Arc<Observers>, layer: LayerKind, kind: StepKind) {
        if self.observers.is_none() {
            self.observers = Some(Arc::clone(observers));
        }
        let incident = &mut self.incident;
        incident.elapsed = self.begun.elapsed();
        match &kind {
            StepKind::Failed { attempt, failure, .. } => {
                incident.attempts = incident.attempts.max(*attempt);
                if self.marks.in_fallback.is_none() {
                    incident.failure = Some(*failure);
                }
                incident.classes = incident.classes.with(failure.class);
            }
            StepKind::Succeeded { attempt } => {
                incident.attempts = incident.attempts.max(*attempt);
            }
            StepKind::Rejected { .. } => {
                incident.classes = incident.classes.with(ErrorClass::Rejected);
                incident.failure.get_or_insert(Failure::new(ErrorClass::Rejected));
            }
            StepKind::FallbackFailed { failure, .. } => {
                incident.classes = incident.classes.with(failure.class);
            }
            StepKind::FallbackAnswered { .. } => self.marks.fallback = true,
            StepKind::CircuitOpened { .. } => self.marks.circuit_opened = true,
            StepKind::Escalated { .. } => self.marks.escalated = true,
            StepKind::NotRecorded => incident.not_recorded = true,
            StepKind::ForcedFinish => self.marks.forced = true,
            StepKind::Waiting { .. }
            | StepKind::NotRetried { .. }
            | StepKind::Nudged { .. }
            | StepKind::Released { .. }
            | StepKind::FallbackSkipped { .. } => {}
        }
        let name = match &kind {
            StepKind::Rejected { breaker, .. } | StepKind::CircuitOpened { breaker, .. } => {
                *breaker
            }
            _ => Label::EMPTY,
        };
        let labels = Labels {
            layer,
            name,
            operation: incident.operation,
            class: kind.class(),
            outcome: kind.outcome(),
            reason: kind.reason(),
        };
        let step = Step::new(incident.elapsed, layer, kind);
        tell(observers, |observer| observer.step(&labels, &step));
        incident.add(step);
    }

    /// The resolution of a call that ended with `success`.
    pub(crate) fn resolution(&self, success: bool) -> Resolution {
        match success {
            true if self.marks.forced => Resolution::ForcedFinish,
            true if self.marks.fallback => Resolution::AnsweredByFallback,
            true if self.incident.failure.is_none() => Resolution::Nested,
            true => Resolution::RecoveredByRetry,
            false if self.marks.escalated => Resolution::Escalated,
            false => Resolution::Failed,
        }
    }

    /// Ends the incident: deferred work runs, observers hear of it.
    pub(crate) fn end(&mut self, resolution: Resolution) -> Incident {
        let failed = matches!(resolution, Resolution::Failed | Resolution::Escalated);
        self.incident.resolution = resolution;
        self.incident.elapsed = self.begun.elapsed();
        if let Some(work) = self.deferred.take().filter(|work| failed || work.urgent()) {
            if resolution == Resolution::Failed {
                self.incident.resolution = Resolution::Escalated;
            }
            guarded(|| work.run(&self.incident));
        }
        if let Some(observers) = &self.observers {
            tell(observers, |observer| observer.incident(&self.incident));
        }
        self.incident.clone()
    }
}

impl Incident {
    pub(crate) fn add(&mut self, step: Step) {
        if self.steps.len() >= Self::MAX_STEPS {
            // Half at a time, so that a long incident costs no more per step than a short one.
            let gone = Self::MAX_STEPS / 2;
            self.steps.drain(..gone);
            self.collapsed = self.collapsed.saturating_add(gone as u32);
        }
        self.steps.push(step);
    }
}

fn tell(observers: &Observers, f: impl Fn(&dyn Observer)) {
    for observer in observers {
        guarded(|| f(&**observer));
    }
}

/// Runs foreign code outside the scope; a panic in it must not become the caller's.
fn guarded(f: impl FnOnce()) {
    let run = std::panic::AssertUnwindSafe(|| crate::incident::run_detached(f));
    if std::panic::catch_unwind(run).is_err() {
        tracing::error!("tower-triage: an observer or an escalation panicked; the call goes on");
    }
}
