//! What one call holds of its layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_triage_core::incident::{self, Entered};
use tower_triage_core::{
    CircuitOpen, Classifier, Classify, LayerKind, Operation, Sharing, StepKind, Verdict,
};

use crate::breakers::{Admission, Breakers};
use crate::state::Transition;

/// What all services made from one layer value share. Opaque: it is named in the types of service
/// and future.
pub struct Core<R, J> {
    pub(crate) classifier: Classifier<R>,
    pub(crate) reject: Arc<J>,
    pub(crate) breakers: Arc<Breakers>,
}

impl<R, J> Core<R, J> {
    /// Writes down what came of an attempt, and ends the call if this layer is the outermost.
    #[inline]
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
        if let Some(transition) = transition {
            self.changed(operation, transition);
        }
        self.classifier.finish(entered, verdict.is_success(), outcome);
    }

    /// The outcome of this call changed the circuit.
    #[cold]
    fn changed(&self, operation: &Operation, transition: Transition) {
        if let Some(open_for) = self.tell(operation, transition) {
            if !self.breakers.config.below_balancer {
                incident::mark_blocked(open_for);
            }
        }
    }

    /// Tells that the circuit opened, and gives for how long, if it did.
    pub(crate) fn tell(&self, operation: &Operation, transition: Transition) -> Option<Duration> {
        let Transition { breaker, open_for, .. } = transition;
        let opened = StepKind::CircuitOpened { breaker, open_for: open_for? };
        self.classifier.step(operation, LayerKind::CircuitBreaker, opened);
        open_for
    }
}

/// A call's part in the layer, and its admission: what is still held when this is dropped (the
/// caller dropped the future, or the inner service panicked) is given back.
pub(crate) struct Ticket<R, J, M: Sharing<Core<R, J>>> {
    core: M::Held,
    admission: Admission,
}

impl<R, J, M: Sharing<Core<R, J>>> Ticket<R, J, M> {
    #[inline]
    pub(crate) const fn new(core: M::Held, admission: Admission) -> Self {
        Self { core, admission }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core<R, J> {
        &self.core
    }

    /// The call ended with `verdict`; counts once.
    #[inline]
    pub(crate) fn settle(&mut self, verdict: &Verdict) -> Option<Transition> {
        self.core.breakers.settle(&mut self.admission, verdict)
    }

    /// What a refused call is told.
    pub(crate) fn rejection(&self, left: Duration) -> CircuitOpen {
        self.core.breakers.rejection(&self.admission, left)
    }
}

impl<R, J, M: Sharing<Core<R, J>>> Drop for Ticket<R, J, M> {
    #[inline]
    fn drop(&mut self) {
        self.core.breakers.abandon(&mut self.admission);
    }
}

impl<R, J> fmt::Debug for Core<R, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("config", &self.breakers.config).finish_non_exhaustive()
    }
}

impl<R, J, M: Sharing<Core<R, J>>> fmt::Debug for Ticket<R, J, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("admission", &self.admission).finish_non_exhaustive()
    }
}
