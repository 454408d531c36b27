//! What one call holds of its layer.

use tower_triage_core::incident::{self, Entered};
use tower_triage_core::{Classifier, Classify, LayerKind, Operation, Shared, StepKind, Verdict};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::breakers::{Admission, Breakers};
use crate::state::Transition;

/// What all services made from one layer value share.
pub(crate) struct Core<R, J> {
    pub(crate) classifier: Classifier<R>,
    pub(crate) reject: Arc<J>,
    pub(crate) breakers: Arc<Breakers>,
}

impl<R, J> Core<R, J> {
    /// Writes down what came of an attempt, and ends the call if this layer is the outermost.
    pub(crate) fn conclude<Res, E>(
        &self,
        entered: Entered<'_>,
        operation: &Operation,
        verdict: &Verdict,
        transition: Option<Transition>,
        outcome: &mut Result<Res, E>,
    ) where
        R: Classify<Res, E>,
    {
        match verdict {
            Verdict::Success => self.classifier.note_success(operation, LayerKind::CircuitBreaker),
            Verdict::Failure(failure) => self.classifier.note_failure(
                operation,
                LayerKind::CircuitBreaker,
                *failure,
                outcome.as_ref(),
            ),
        }
        if let Some(open_for) = self.tell(operation, transition) {
            if !self.breakers.config.below_balancer {
                incident::mark_blocked(open_for);
            }
        }
        self.classifier.finish(entered, verdict.is_success(), outcome);
    }

    /// Tells that the circuit opened, and gives for how long, if it did.
    pub(crate) fn tell(
        &self,
        operation: &Operation,
        transition: Option<Transition>,
    ) -> Option<Duration> {
        let Transition { breaker, open_for, .. } = transition?;
        let opened = StepKind::CircuitOpened { breaker, open_for: open_for? };
        self.classifier.step(operation, LayerKind::CircuitBreaker, opened);
        open_for
    }
}

/// A call's part in the layer, and its admission if it has one: what is still held when this is
/// dropped (the caller dropped the future, or the inner service panicked) is given back.
pub(crate) struct Ticket<R, J> {
    core: Shared<Core<R, J>>,
    admission: Option<Admission>,
}

impl<R, J> Ticket<R, J> {
    pub(crate) const fn new(core: Shared<Core<R, J>>, admission: Option<Admission>) -> Self {
        Self { core, admission }
    }

    pub(crate) fn core(&self) -> &Core<R, J> {
        &self.core
    }

    /// The call ended with `verdict`; counts once.
    pub(crate) fn settle(&mut self, verdict: &Verdict) -> Option<Transition> {
        let admission = self.admission.take()?;
        self.core.breakers.settle(&admission, verdict)
    }
}

impl<R, J> Drop for Ticket<R, J> {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            self.core.breakers.abandon(&admission);
        }
    }
}

impl<R, J> fmt::Debug for Ticket<R, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("admission", &self.admission).finish_non_exhaustive()
    }
}
