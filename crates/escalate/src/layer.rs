//! Configuration.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tower_layer::Layer;
use tower_triage_core::{AnyError, Classifier, Counted, Leaked, Sharing};

use crate::desk::Desk;
use crate::escalation::Escalation;
use crate::finish::{Failed, FinishWith, KeepFailure};
use crate::policy::EscalatePolicy;
use crate::report::Reporter;
use crate::service::Escalate;

/// Has somebody told of the failures that nothing below could solve.
///
/// `E` is the error type of the service it is put around, inferred there: a readiness error is kept
/// until the next call. All services made from one layer share its desk.
///
/// `D` makes forced finishes, `M` is how a call holds the layer's state
/// ([`share`](tower_triage_core::share)).
pub struct EscalateLayer<R, D = KeepFailure, E = AnyError, M = Counted> {
    core: Core<R, D>,
    types: PhantomData<fn() -> (E, M)>,
}

/// What all services made from one layer value share. Opaque: it is named in the types of service
/// and future.
pub struct Core<R, D> {
    pub(crate) classifier: Classifier<R>,
    pub(crate) reporter: Reporter,
    pub(crate) finish: Arc<D>,
}

impl<R, E> EscalateLayer<R, KeepFailure, E> {
    /// Tells `desk` of failures as `classifier` sees them, with the default policy.
    #[must_use]
    pub fn new(classifier: Classifier<R>, desk: Desk) -> Self {
        let (from, policy) = (String::new(), EscalatePolicy::default());
        let reporter = Reporter { desk, from, policy, enrich: None };
        let finish = Arc::new(KeepFailure);
        Self { core: Core { classifier, reporter, finish }, types: PhantomData }
    }
}

impl<R, D, E, M> EscalateLayer<R, D, E, M> {
    /// Who failed, as routes know it: a service, an agent, `worker-7`. Default: empty.
    #[must_use]
    pub fn from(mut self, who: impl Into<String>) -> Self {
        self.core.reporter.from = who.into();
        self
    }

    /// When it acts, and how long it may hold up the caller.
    #[must_use]
    pub const fn policy(mut self, policy: EscalatePolicy) -> Self {
        self.core.reporter.policy = policy;
        self
    }

    /// Adds what you know to each escalation before it is addressed: fields of the context, impact,
    /// suggestion, another priority. Runs on the failure path, maybe from a `Drop`; must not block.
    /// A panic is caught and logged, and the escalation goes on as it is then.
    #[must_use]
    pub fn enrich(mut self, f: impl Fn(&mut Escalation) + Send + Sync + 'static) -> Self {
        self.core.reporter.enrich = Some(Arc::new(f));
        self
    }

    /// Keeps the state for the rest of the process, so that calls count no references: see
    /// [`Leaked`] for when that is right.
    #[must_use]
    pub fn leak(self) -> EscalateLayer<R, D, E, Leaked> {
        EscalateLayer { core: self.core, types: PhantomData }
    }

    /// Forced finish: what the caller gets instead of a failure that escalates, built from what is
    /// known. `None` leaves the failure. The answer is marked
    /// ([`Note::ForcedFinish`](tower_triage_core::Note::ForcedFinish), a step of the incident), and
    /// somebody is told all the same. A retry above sees a success, so put this layer outermost.
    #[must_use]
    pub fn finish_with<Res, F>(self, f: F) -> EscalateLayer<R, FinishWith<F>, E, M>
    where
        F: Fn(Failed<'_, Res, E>) -> Option<Res>,
    {
        let Core { classifier, reporter, .. } = self.core;
        let finish = Arc::new(FinishWith { f });
        EscalateLayer { core: Core { classifier, reporter, finish }, types: PhantomData }
    }
}

impl<S, R, D, E, M: Sharing<Core<R, D>>> Layer<S> for EscalateLayer<R, D, E, M> {
    type Service = Escalate<S, R, D, E, M>;

    fn layer(&self, inner: S) -> Self::Service {
        Escalate::new(inner, self.core.clone())
    }
}

// === impl Clone and Debug: without bounds on what is shared ===

impl<R, D> Clone for Core<R, D> {
    fn clone(&self) -> Self {
        Self {
            classifier: self.classifier.clone(),
            reporter: self.reporter.clone(),
            finish: Arc::clone(&self.finish),
        }
    }
}

impl<R, D, E, M> Clone for EscalateLayer<R, D, E, M> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), types: PhantomData }
    }
}

impl<R, D> fmt::Debug for Core<R, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("reporter", &self.reporter).finish_non_exhaustive()
    }
}

impl<R, D, E, M> fmt::Debug for EscalateLayer<R, D, E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EscalateLayer")
            .field("reporter", &self.core.reporter)
            .finish_non_exhaustive()
    }
}
