//! Configuration.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;
use tower_triage_core::{Classifier, Counted, Leaked, Sharing};

use crate::policy::TimeoutPlan;
use crate::reject::AsError;
use crate::service::Timeout;
use crate::soft::SoftLimit;
use crate::tell::{NoTell, TellFn};

/// Limits the time of each call: first a signal, then the end.
///
/// See the [crate docs](crate) for an example.
///
/// `J` makes what callers get when time is up, `T` tells requests, `M` is how a call holds the
/// layer's state ([`share`](tower_triage_core::share)).
pub struct TimeoutLayer<R, J = AsError, T = NoTell, M = Counted> {
    core: Core<R, J, T>,
    sharing: PhantomData<M>,
}

/// What all services made from one layer value share. Opaque: it is named in the types of service
/// and future.
pub struct Core<R, J, T> {
    pub(crate) classifier: Classifier<R>,
    pub(crate) plan: TimeoutPlan,
    pub(crate) reject: Arc<J>,
    pub(crate) tell: Arc<T>,
}

impl<R> TimeoutLayer<R> {
    /// Tells an attempt after `limit` and drops it a tenth later (at most 10 s), as `Timeout` by
    /// `classifier`. With a limit of zero only what is ready at once is an answer.
    #[must_use]
    pub fn new(classifier: Classifier<R>, limit: Duration) -> Self {
        let plan = TimeoutPlan::of(limit);
        let (reject, tell) = (Arc::new(AsError), Arc::new(NoTell));
        Self { core: Core { classifier, plan, reject, tell }, sharing: PhantomData }
    }
}

impl<R, J, T, M> TimeoutLayer<R, J, T, M> {
    /// Limit and grace ([`TimeoutPolicy::build`](crate::TimeoutPolicy::build)).
    #[must_use]
    pub fn policy(mut self, policy: TimeoutPlan) -> Self {
        self.core.plan = policy;
        self
    }

    /// What callers get when time is up. Default: [`AsError`].
    #[must_use]
    pub fn reject_with<J2>(self, reject: J2) -> TimeoutLayer<R, J2, T, M> {
        let Core { classifier, plan, tell, .. } = self.core;
        let core = Core { classifier, plan, reject: Arc::new(reject), tell };
        TimeoutLayer { core, sharing: PhantomData }
    }

    /// Keeps the state for the rest of the process, so that calls count no references: see
    /// [`Leaked`] for when that is right.
    #[must_use]
    pub fn leak(self) -> TimeoutLayer<R, J, T, Leaked> {
        TimeoutLayer { core: self.core, sharing: PhantomData }
    }

    /// Tells each request how much time its attempt has, for whoever cannot ask
    /// [`soft_limit`](crate::soft_limit()): a handler on another task, a peer that reads a header.
    /// Default: requests are left as they are.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_triage_core::{AnyOk, Chain, Classifier, Halves};
    /// use tower_triage_timeout::{SoftLimit, TimeoutLayer};
    ///
    /// struct Job { milliseconds_left: u128 }
    ///
    /// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    /// let layer = TimeoutLayer::new(classifier, Duration::from_secs(4))
    ///     .tell(|job: &mut Job, limit: &SoftLimit| {
    ///         job.milliseconds_left = limit.time_until_dropped().as_millis();
    ///     });
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn tell<Req, F>(self, f: F) -> TimeoutLayer<R, J, TellFn<F>, M>
    where
        F: Fn(&mut Req, &SoftLimit),
    {
        let Core { classifier, plan, reject, .. } = self.core;
        let core = Core { classifier, plan, reject, tell: Arc::new(TellFn::new(f)) };
        TimeoutLayer { core, sharing: PhantomData }
    }
}

impl<S, R, J, T, M: Sharing<Core<R, J, T>>> Layer<S> for TimeoutLayer<R, J, T, M> {
    type Service = Timeout<S, R, J, T, M>;

    fn layer(&self, inner: S) -> Self::Service {
        Timeout::new(inner, self.core.clone())
    }
}

impl<R, J, T> Clone for Core<R, J, T> {
    fn clone(&self) -> Self {
        Self {
            classifier: self.classifier.clone(),
            plan: self.plan,
            reject: Arc::clone(&self.reject),
            tell: Arc::clone(&self.tell),
        }
    }
}

impl<R, J, T, M> Clone for TimeoutLayer<R, J, T, M> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), sharing: PhantomData }
    }
}

impl<R, J, T> fmt::Debug for Core<R, J, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("policy", &self.plan).finish_non_exhaustive()
    }
}

impl<R, J, T, M> fmt::Debug for TimeoutLayer<R, J, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeoutLayer").field("policy", &self.core.plan).finish_non_exhaustive()
    }
}
