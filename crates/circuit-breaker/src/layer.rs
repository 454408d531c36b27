//! Configuration.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tower_layer::Layer;
use tower_triage_core::{Classifier, Clock, Counted, Label, Leaked, Random, Sharing};

use crate::breakers::Breakers;
use crate::handle::BreakerHandle;
use crate::keyed::KeyedSettings;
use crate::policy::BreakerPlan;
use crate::reject::AsError;
use crate::service::CircuitBreaker;
use crate::settings::Config;
use crate::ticket::Core;

/// Stops calling what is down, and finds out when it is back.
///
/// One layer value, its clones and all services made from it share one state; two layer values
/// share nothing. Every setter but [`reject_with`](Self::reject_with) starts a fresh state, so take
/// the [`handle`](Self::handle) last.
///
/// See the [crate docs](crate) for an example.
///
/// `J` makes rejections ([`Reject`](crate::Reject)); `M` is how a call holds the layer's state
/// ([`share`](tower_triage_core::share)).
pub struct CircuitBreakerLayer<R, J = AsError, M = Counted> {
    classifier: Classifier<R>,
    reject: Arc<J>,
    breakers: Arc<Breakers>,
    sharing: PhantomData<M>,
}

impl<R> CircuitBreakerLayer<R> {
    /// A breaker with the default policy, whose rejections are errors, judging by `classifier`.
    #[must_use]
    pub fn new(classifier: Classifier<R>) -> Self {
        let config = Config {
            policy: BreakerPlan::default(),
            name: Label::new("default"),
            random: Arc::new(Random::default()),
            clock: Clock::new(),
            keyed: None,
            below_balancer: false,
        };
        let breakers = Arc::new(Breakers::new(config));
        Self { classifier, reject: Arc::new(AsError), breakers, sharing: PhantomData }
    }
}

impl<R, J, M> CircuitBreakerLayer<R, J, M> {
    fn with(self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = self.breakers.config.clone();
        change(&mut config);
        Self { breakers: Arc::new(Breakers::new(config)), ..self }
    }

    /// When to trip and how to come back ([`BreakerPolicy::build`](crate::BreakerPolicy::build)).
    #[must_use]
    pub fn policy(self, policy: BreakerPlan) -> Self {
        self.with(|config| config.policy = policy)
    }

    /// The breaker's name in errors, incidents and logs. Default: `default`.
    #[must_use]
    pub fn name(self, name: impl Into<Label>) -> Self {
        let name = name.into();
        self.with(|config| config.name = name)
    }

    /// Where the jitter of open times comes from. Default: the thread's generator.
    #[must_use]
    pub fn random(self, random: Random) -> Self {
        self.with(|config| config.random = Arc::new(random))
    }

    /// The clock of windows and open times. Default: tokio's ([`Clock::new`]). A coarse one makes
    /// rejections and time windows cheaper; it does not know of tokio's paused time.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        self.with(|config| config.clock = clock)
    }

    /// One circuit per key ([`Describe::key`](tower_triage_core::Describe::key)): per host, per
    /// operation, per agent. The key is known only in the call, so readiness is the inner service's,
    /// and its readiness errors belong to no circuit.
    #[must_use]
    pub fn keyed(self, settings: KeyedSettings) -> Self {
        self.with(|config| config.keyed = Some(settings))
    }

    /// For a breaker around each endpoint below a balancer, which would favour a service that is
    /// always ready: while the circuit rejects, readiness is pending until a probe is due. Needs a
    /// tokio runtime with its timer. Without effect on a keyed breaker.
    ///
    /// If all endpoints are open at once, callers of the balancer wait.
    #[must_use]
    pub fn below_balancer(self) -> Self {
        self.with(|config| config.below_balancer = true)
    }

    /// What callers get while the circuit is open. Default: [`AsError`].
    #[must_use]
    pub fn reject_with<J2>(self, reject: J2) -> CircuitBreakerLayer<R, J2, M> {
        let Self { classifier, breakers, sharing, .. } = self;
        CircuitBreakerLayer { classifier, reject: Arc::new(reject), breakers, sharing }
    }

    /// Keeps the state for the rest of the process, so that calls count no references: see
    /// [`Leaked`] for when that is right.
    #[must_use]
    pub fn leak(self) -> CircuitBreakerLayer<R, J, Leaked> {
        let Self { classifier, reject, breakers, .. } = self;
        CircuitBreakerLayer { classifier, reject, breakers, sharing: PhantomData }
    }

    /// Sees and commands the state of this layer, however its services are boxed or moved.
    #[must_use]
    pub fn handle(&self) -> BreakerHandle {
        BreakerHandle::new(Arc::clone(&self.breakers))
    }
}

impl<S, R, J, M: Sharing<Core<R, J>>> Layer<S> for CircuitBreakerLayer<R, J, M> {
    type Service = CircuitBreaker<S, R, J, M>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { classifier, reject, breakers, .. } = self.clone();
        CircuitBreaker::new(inner, Core { classifier, reject, breakers })
    }
}

impl<R, J, M> Clone for CircuitBreakerLayer<R, J, M> {
    fn clone(&self) -> Self {
        Self {
            classifier: self.classifier.clone(),
            reject: Arc::clone(&self.reject),
            breakers: Arc::clone(&self.breakers),
            sharing: PhantomData,
        }
    }
}

impl<R, J, M> fmt::Debug for CircuitBreakerLayer<R, J, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreakerLayer")
            .field("config", &self.breakers.config)
            .finish_non_exhaustive()
    }
}
