//! Which levels a call went through, and why: read from its incident.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tower_triage_core::incident::{LayerKind, Resolution};
use tower_triage_core::{ErrorClass, Failure, Incident, Step, StepKind};

use crate::level::Level;

/// One change of level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// Since the call began.
    pub at: Duration,
    /// The level that did not help; `None` for the call itself.
    pub from: Option<Level>,
    /// The level that was entered.
    pub to: Level,
    /// What happened at the level that was left.
    pub class: ErrorClass,
    /// The same for a person, without secrets.
    pub reason: String,
}

/// Every change of level of one call, oldest first: read from the steps that the layers of a
/// [`Rungs`](crate::Rungs) record. `Display` writes a line for each.
///
/// From an incident that has not yet ended, as in a [`finish`](crate::Rungs::finish), the last one,
/// to the finish itself, is still missing. A fallback layer of your own, below the ladder or in its
/// level 4, records the same steps and is not told apart. Of an incident so long that its oldest steps
/// [collapsed](Incident::collapsed), the first changes may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// The changes of this call.
    #[must_use]
    pub fn of(incident: &Incident) -> Self {
        let mut walk = Walk::default();
        let steps: Vec<_> = incident.steps.iter().filter(|step| !step.nested).collect();
        for (index, step) in steps.iter().enumerate() {
            walk.pass(step, &steps[index + 1..]);
        }
        use Resolution::{Escalated, Failed, ForcedFinish};
        if matches!(incident.resolution, ForcedFinish | Escalated | Failed) {
            walk.enter(Level::Finish);
        }
        Self(walk.changes)
    }

    /// As a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[Change] {
        &self.0
    }
}

/// A walk along the steps.
#[derive(Default)]
struct Walk {
    changes: Vec<Change>,
    level: Option<Level>,
    /// What happened last at this level, and when.
    why: Option<(Duration, ErrorClass, String)>,
    /// Level 1 was left: what fails now fails inside a higher one.
    above: bool,
}

impl Walk {
    fn pass(&mut self, step: &Step, later: &[&Step]) {
        match &step.kind {
            StepKind::Failed { attempt, failure, detail } if !self.above => {
                self.failed(step.at, failure, detail.to_string());
                // By a layer above the retry, which has no say in it any more.
                self.above = matches!(step.layer, LayerKind::Timeout | LayerKind::Fallback)
                    && !retry_is_next(*attempt, later);
            }
            StepKind::Waiting { .. } if !self.above => self.enter(Level::Retry),
            StepKind::NotRetried { .. } => self.above = true,
            StepKind::FallbackFailed { by, failure, detail, .. } => {
                self.enter_step(by);
                self.failed(step.at, failure, detail.to_string());
            }
            StepKind::FallbackAnswered { by, .. } => self.enter_step(by),
            _ => {}
        }
    }

    fn failed(&mut self, at: Duration, failure: &Failure, detail: String) {
        let reason = if detail.is_empty() { failure.reason.to_owned() } else { detail };
        self.why = Some((at, failure.class, reason));
    }

    fn enter_step(&mut self, by: &str) {
        self.above = true;
        match by {
            "nudge" => self.enter(Level::Nudge),
            "replan" => self.enter(Level::Replan),
            "service" => self.enter(Level::Fallback),
            _ => {}
        }
    }

    fn enter(&mut self, to: Level) {
        if self.level.is_some_and(|level| level >= to) {
            return;
        }
        let Some((at, class, reason)) = self.why.clone() else { return };
        self.changes.push(Change { at, from: self.level, to, class, reason });
        self.level = Some(to);
    }
}

/// Does the retry decide on this failed attempt? It may have to note it first, where the verdict has
/// changed on the way up.
fn retry_is_next(failed: u32, later: &[&Step]) -> bool {
    let mut later = later.iter().filter(|s| !matches!(s.kind, StepKind::CircuitOpened { .. }));
    later.next().is_some_and(|step| {
        let other = matches!(step.kind, StepKind::Failed { attempt, .. } if attempt != failed);
        step.layer == LayerKind::Retry && !other
    })
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|change| writeln!(f, "{change}"))
    }
}

/// One line.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, from, to, class, reason } = self;
        let from = from.map_or("call", Level::as_str);
        write!(f, "{at:?}: {from} -> {to}: {class} ({reason})")
    }
}
