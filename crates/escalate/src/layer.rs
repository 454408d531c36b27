//! Configuration.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::Value;
use tower_layer::Layer;
use tower_triage_core::{AnyError, Classifier, ConfigError, Counted, Leaked, Sharing};

use crate::ask::Asking;
use crate::desk::Desk;
use crate::ending::{Ending, Failed, KeepFailure, Set};
use crate::escalation::Escalation;
use crate::policy::EscalatePolicy;
use crate::report::Reporter;
use crate::service::Escalate;

/// Has somebody told of the failures that nothing below could solve.
///
/// `E` is the error type of the service it is put around, inferred there: a readiness error is kept
/// until the next call. All services made from one layer share its desk.
///
/// `D` is what becomes of a call that failed ([`Ending`]), `M` is how a call holds the layer's state
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
    pub(crate) ending: D,
}

impl<R, E> EscalateLayer<R, KeepFailure, E> {
    /// Tells `desk` of failures as `classifier` sees them, with the default policy.
    #[must_use]
    pub fn new(classifier: Classifier<R>, desk: Desk) -> Self {
        let (from, policy) = (String::new(), EscalatePolicy::default());
        let reporter = Reporter { desk, from, policy, enrich: None };
        let core = Core { classifier, reporter, ending: Ending::new() };
        Self { core, types: PhantomData }
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
}

impl<R, F, A, C, G, E, M> EscalateLayer<R, Ending<F, A, C, G>, E, M> {
    /// Forced finish: what the caller gets instead of a failure that escalates, built from what is
    /// known. `None` leaves the failure. The answer is marked
    /// ([`Note::ForcedFinish`](tower_triage_core::Note::ForcedFinish), a step of the incident), and
    /// somebody is told all the same; nobody is asked. A retry above sees a success, so put this
    /// layer outermost.
    #[must_use]
    pub fn finish_with<Res, T>(self, f: T) -> EscalateLayer<R, Ending<Set<T>, A, C, G>, E, M>
    where
        T: Fn(Failed<'_, Res, E>) -> Option<Res>,
    {
        self.ending(|Ending { respond, codec, change, asking, .. }| Ending {
            finish: Set::new(f),
            respond,
            codec,
            change,
            asking,
        })
    }

    /// Keeps a copy of each request, and puts what `codec` makes of it with the record of a call that
    /// fails, so that it can be driven again. The copy is made on every call, for
    /// which the request has to be `Clone`; it is encoded only if the call is told of.
    #[must_use]
    pub fn capture<T>(self, codec: T) -> EscalateLayer<R, Ending<F, A, Set<T>, G>, E, M> {
        self.ending(|Ending { finish, respond, change, asking, .. }| Ending {
            finish,
            respond,
            codec: Set::new(codec),
            change,
            asking,
        })
    }

    /// Asks somebody what to do when a call ends with a failure, and waits for the answer, not for
    /// ever. Without more, the answer can only be to give up; see
    /// [`respond_with`](Self::respond_with) and [`retry_with`](Self::retry_with).
    ///
    /// Each call asks at most once. The question is part of the record; [`enrich`](Self::enrich) can
    /// change its text and offer answers to choose from. This layer has to be the outermost of ours:
    /// below another nobody is asked. While it waits the failed outcome is kept. A request with the id
    /// of one that has its letter already, open and maybe asked about, is not asked about again.
    ///
    /// # Errors
    /// What [`Asking`] refuses.
    pub fn ask(mut self, asking: Asking) -> Result<Self, ConfigError> {
        asking.check(&self.core.reporter.desk)?;
        self.core.ending.asking = Some(asking);
        Ok(self)
    }

    /// What the caller gets if somebody decides to [respond](crate::Decision::Respond): made of their
    /// value. `None` if that cannot be, then it is the failure. The answer is marked as a forced
    /// finish.
    #[must_use]
    pub fn respond_with<Res, T>(self, f: T) -> EscalateLayer<R, Ending<F, Set<T>, C, G>, E, M>
    where
        T: Fn(&Value, Failed<'_, Res, E>) -> Option<Res>,
    {
        self.ending(|Ending { finish, codec, change, asking, .. }| Ending {
            finish,
            respond: Set::new(f),
            codec,
            change,
            asking,
        })
    }

    /// Lets somebody decide to send the request [again](crate::Decision::Retry), as it was or
    /// [changed](crate::Decision::RetryWith): `f` makes the change, and gives `None` if it cannot: then the
    /// call ends with its failure, and the letter stays open.
    /// For this each call keeps a copy of the request and a clone of the service.
    #[must_use]
    pub fn retry_with<Req, T>(self, f: T) -> EscalateLayer<R, Ending<F, A, C, Set<T>>, E, M>
    where
        T: Fn(Req, &Value) -> Option<Req>,
    {
        self.ending(|Ending { finish, respond, codec, asking, .. }| Ending {
            finish,
            respond,
            codec,
            change: Set::new(f),
            asking,
        })
    }

    fn ending<D>(self, f: impl FnOnce(Ending<F, A, C, G>) -> D) -> EscalateLayer<R, D, E, M> {
        let Core { classifier, reporter, ending } = self.core;
        let core = Core { classifier, reporter, ending: f(ending) };
        EscalateLayer { core, types: PhantomData }
    }
}

impl<S, R, D: Clone, E, M: Sharing<Core<R, D>>> Layer<S> for EscalateLayer<R, D, E, M> {
    type Service = Escalate<S, R, D, E, M>;

    fn layer(&self, inner: S) -> Self::Service {
        Escalate::new(inner, self.core.clone())
    }
}

// === impl Clone and Debug: without bounds on what is shared ===

impl<R, D: Clone> Clone for Core<R, D> {
    fn clone(&self) -> Self {
        Self {
            classifier: self.classifier.clone(),
            reporter: self.reporter.clone(),
            ending: self.ending.clone(),
        }
    }
}

impl<R, D: Clone, E, M> Clone for EscalateLayer<R, D, E, M> {
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
