//! What one call holds of its layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_triage_core::incident;
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
    /// The outcome of this call changed the circuit.
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

    /// The call succeeded: counts it, if that is all that there is to it. `false` if it has to be
    /// [concluded](Self::conclude).
    #[inline]
    pub(crate) fn count_plain(&mut self) -> bool {
        self.core.breakers.count_plain(&mut self.admission)
    }

    /// The call ended with `verdict`: counts once, and writes down what came of it.
    #[cold]
    pub(crate) fn conclude<Res, E>(
        &mut self,
        operation: &Operation,
        verdict: &Verdict,
        outcome: &Result<Res, E>,
    ) where
        R: Classify<Res, E>,
    {
        let transition = self.core.breakers.settle(&mut self.admission, verdict);
        let (core, layer) = (self.core(), LayerKind::CircuitBreaker);
        match verdict {
            Verdict::Success => core.classifier.note_success(operation, layer),
            Verdict::Failure(failure) => {
                core.classifier.note_failure(operation, layer, *failure, outcome.as_ref());
            }
        }
        if let Some(transition) = transition {
            core.changed(operation, transition);
        }
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
