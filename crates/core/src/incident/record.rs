//! An incident that is being written.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::class::{ClassSet, ErrorClass};
use crate::elapsed::Elapsed;
use crate::incident::{
    Deferred, Handover, Incident, IncidentId, Labels, LayerKind, Observer, Resolution, Step,
    StepKind,
};
use crate::label::{Label, Operation};
use crate::verdict::Failure;

/// The observers of one classifier.
pub(crate) type Observers = Vec<Arc<dyn Observer>>;

/// The heap part of a scope: made at the first failure.
pub(crate) struct Record {
    pub(crate) incident: Incident,
    /// Names this record among others; the incident's own id may yet be given another value.
    pub(crate) key: IncidentId,
    pub(crate) begun: Instant,
    /// Whose incident it is: set by the first step of the call's own, so that a record made only of
    /// the steps of nested calls is not reported to the nested calls' observers.
    pub(crate) observers: Option<Arc<Observers>>,
    /// What is said of the outcome on its way up.
    pub(crate) told: Told,
    /// Work for the end of the call that nothing takes back.
    pub(crate) urgent: Option<Box<dyn Deferred>>,
    /// How many fallback steps are being polled, one inside another: what fails in them does not
    /// decide.
    pub(crate) fallbacks: u32,
    pub(crate) ended_by: EndedBy,
    /// A breaker opened during this call.
    pub(crate) circuit_opened: bool,
}

/// What the layers below say of one outcome. It goes where the outcome goes: a retry or a fallback
/// that keeps an outcome keeps this with it.
#[derive(Default)]
pub(crate) struct Told {
    /// Is it recorded and counted?
    pub(crate) noted: Noted,
    /// A retry used up what it had.
    pub(crate) exhausted: bool,
    /// A breaker of ours made it: it refused to send.
    pub(crate) rejected: bool,
    /// It opened a breaker, which lets nothing pass for so long.
    pub(crate) blocked: Option<Duration>,
    /// Work for the end of the call, should it end with this outcome.
    pub(crate) deferred: Option<Box<dyn Deferred>>,
}

impl Told {
    /// The outcome that this was said of is replaced by one that a time limit of ours makes, to be
    /// recorded in its own right. That a retry below gave up stays true.
    fn cut_off(&mut self) {
        if self.noted != Noted::Nothing {
            self.noted = Noted::Replaced;
        }
        self.rejected = false;
    }
}

/// Which outcome was recorded last, as far as layers can tell: one made by a layer in between (a
/// time limit, a mapping) has another class, and is recorded in its own right.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Noted {
    #[default]
    Nothing,
    Failed(ErrorClass),
    Succeeded,
    /// One that was recorded, and is now replaced.
    Replaced,
}

/// What made the success that the call ends with.
#[derive(Clone, Copy, Default)]
pub(crate) struct EndedBy {
    pub(crate) fallback: bool,
    pub(crate) forced: bool,
    pub(crate) escalated: bool,
}

impl Record {
    /// A record of the call that began at `begun`; it is `now`.
    pub(crate) fn new(operation: Operation, begun: Instant, now: Instant) -> Box<Self> {
        let elapsed = now.saturating_duration_since(begun);
        let date = crate::clock::wall_clock();
        let id = IncidentId::random();
        Box::new(Self {
            key: id,
            incident: Incident {
                id,
                operation,
                started: date.checked_sub(elapsed).unwrap_or(SystemTime::UNIX_EPOCH),
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
            told: Told::default(),
            urgent: None,
            fallbacks: 0,
            ended_by: EndedBy::default(),
            circuit_opened: false,
        })
    }

    /// Adds a step, keeps the books that the resolution is made from, and tells the observers.
    pub(crate) fn push(
        &mut self,
        observers: &Arc<Observers>,
        layer: LayerKind,
        kind: StepKind,
        now: Instant,
    ) {
        if self.observers.is_none() {
            self.observers = Some(Arc::clone(observers));
        }
        let incident = &mut self.incident;
        incident.elapsed = now.saturating_duration_since(self.begun);
        match &kind {
            StepKind::Failed { attempt, failure, .. } => {
                incident.attempts = incident.attempts.max(*attempt);
                if self.fallbacks == 0 {
                    incident.failure = Some(*failure);
                }
                incident.classes = incident.classes.with(failure.class);
            }
            StepKind::Succeeded { attempt } => {
                incident.attempts = incident.attempts.max(*attempt);
            }
            // Whatever was on its way up below is gone.
            StepKind::TimedOut { soft: false, .. } => {
                self.told.cut_off();
                incident.classes = incident.classes.with(ErrorClass::Timeout);
                // For an attempt that was begun, its failure follows.
                incident.failure.get_or_insert(Elapsed::not_sent().failure());
            }
            StepKind::Rejected { .. } => {
                incident.classes = incident.classes.with(ErrorClass::Rejected);
                incident.failure.get_or_insert(Failure::new(ErrorClass::Rejected));
            }
            StepKind::FallbackFailed { failure, .. } => {
                incident.classes = incident.classes.with(failure.class);
            }
            StepKind::FallbackAnswered { .. } => self.ended_by.fallback = true,
            StepKind::CircuitOpened { .. } => self.circuit_opened = true,
            StepKind::Escalated { .. } => self.ended_by.escalated = true,
            StepKind::NotRecorded => incident.not_recorded = true,
            StepKind::ForcedFinish => self.ended_by.forced = true,
            StepKind::TimedOut { soft: true, .. }
            | StepKind::Waiting { .. }
            | StepKind::NotRetried { .. }
            | StepKind::Nudged { .. }
            | StepKind::Released { .. }
            | StepKind::FallbackSkipped { .. }
            | StepKind::Decided { .. } => {}
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
            true if self.ended_by.forced => Resolution::ForcedFinish,
            true if self.ended_by.fallback => Resolution::AnsweredByFallback,
            true if self.incident.failure.is_none() => Resolution::Succeeded,
            true => Resolution::RecoveredByRetry,
            false if self.ended_by.escalated => Resolution::Escalated,
            false => Resolution::Failed,
        }
    }

    /// Ends the incident: deferred work runs, observers hear of it.
    pub(crate) fn end(&mut self, resolution: Resolution) {
        self.incident.resolution = resolution;
        self.incident.elapsed = self.begun.elapsed();
        let failed = matches!(resolution, Resolution::Failed | Resolution::Escalated);
        let last = self.told.deferred.take().filter(|_| failed);
        if let Some(work) = self.urgent.take().or(last) {
            self.hand_over(work);
        }
        if let Some(observers) = &self.observers {
            tell(observers, |observer| observer.incident(&self.incident));
        }
    }

    /// Runs the work that was left for the end, and writes down what came of it.
    fn hand_over(&mut self, work: Box<dyn Deferred>) {
        let step = match guarded(|| work.run(&self.incident)) {
            Some(Handover::NotDue) => return,
            Some(Handover::Told(receivers)) => StepKind::Escalated { receivers },
            Some(Handover::Lost) | None => StepKind::NotRecorded,
        };
        if let (StepKind::Escalated { .. }, Resolution::Failed) = (&step, self.incident.resolution)
        {
            self.incident.resolution = Resolution::Escalated;
        }
        crate::classifier::emit(&self.incident.operation, LayerKind::Escalate, &step);
        let observers = self.observers.clone().unwrap_or_default();
        self.push(&observers, LayerKind::Escalate, step, Instant::now());
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
pub(crate) fn guarded<T>(f: impl FnOnce() -> T) -> Option<T> {
    let run = std::panic::AssertUnwindSafe(|| crate::incident::run_detached(f));
    let result = std::panic::catch_unwind(run);
    if result.is_err() {
        tracing::error!(
            "tower-triage: an observer, an advisor or an escalation panicked; the call goes on"
        );
    }
    result.ok()
}
