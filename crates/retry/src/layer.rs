//! What is configured.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_triage_core::{Classifier, Clock, Counted, Failure, Leaked, Random, Sharing};

use crate::budget::Budget;
use crate::nudge::{NoNudge, NudgeFn};
use crate::policy::RetryPlan;
use crate::refresh::{NoRefresh, RefreshFn};
use crate::replay::{Attempt, ByClone, Releasing};
use crate::service::{Retry, Stock};

/// Repeats what time can heal: by one shared classifier's verdict, within attempts, deadline and
/// budget, and as the server's hints say.
///
/// One layer value has one budget, which all services made from it share, and their clones. See the
/// [crate's documentation](crate) for an example and the defaults.
///
/// `P` keeps requests ([`Replay`](crate::Replay)), `N` changes them ([`Nudge`](crate::Nudge)), `F`
/// obtains new credentials ([`Refresh`](crate::Refresh)), `M` is how a call holds the layer's state
/// ([`share`](tower_triage_core::share)).
pub struct RetryLayer<R, P = ByClone, N = NoNudge, F = NoRefresh, M = Counted> {
    core: Arc<Core<R, P, N, F>>,
    sharing: PhantomData<M>,
}

/// What all services of one layer value share.
pub(crate) struct Core<R, P, N, F> {
    pub(crate) classifier: Classifier<R>,
    pub(crate) plan: RetryPlan,
    pub(crate) budget: Budget,
    /// The budget was given, not made with the policy.
    budget_given: bool,
    clock: Clock,
    pub(crate) random: Arc<Random>,
    pub(crate) replay: Arc<P>,
    pub(crate) nudge: Arc<N>,
    pub(crate) refresh: Arc<F>,
    pub(crate) shutdown: Option<watch::Receiver<bool>>,
}

impl<R> RetryLayer<R> {
    /// Repeats by the verdicts of `classifier` and the default [`RetryPolicy`](crate::RetryPolicy),
    /// with a budget of its own ([`Budget::default`]).
    #[must_use]
    pub fn new(classifier: Classifier<R>) -> Self {
        Self::from_core(Core {
            classifier,
            plan: RetryPlan::default(),
            budget: Budget::default(),
            budget_given: false,
            clock: Clock::new(),
            random: Arc::default(),
            replay: Arc::new(ByClone),
            nudge: Arc::new(NoNudge),
            refresh: Arc::new(NoRefresh),
            shutdown: None,
        })
    }
}

impl<R, P, N, F, M> RetryLayer<R, P, N, F, M> {
    fn from_core(core: Core<R, P, N, F>) -> Self {
        Self { core: Arc::new(core), sharing: PhantomData }
    }

    fn change(&self, change: impl FnOnce(&mut Core<R, P, N, F>)) -> Self {
        let mut core = Core::clone(&self.core);
        change(&mut core);
        Self::from_core(core)
    }

    /// Keeps the state for the rest of the process, so that calls count no references: see
    /// [`Leaked`] for when that is right.
    #[must_use]
    pub fn leak(self) -> RetryLayer<R, P, N, F, Leaked> {
        RetryLayer { core: self.core, sharing: PhantomData }
    }

    /// When to repeat, how often and for how long. Unless a budget was given, a fresh one begins.
    #[must_use]
    pub fn policy(self, plan: RetryPlan) -> Self {
        self.change(|core| {
            core.plan = plan;
            if !core.budget_given {
                core.budget = Budget::default();
            }
        })
    }

    /// How much of the traffic may be retries. Clones of one budget, in several layers, are one
    /// budget.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        self.change(|core| (core.budget, core.budget_given) = (budget, true))
    }

    /// The clock of a budget that needs one (a window). Default: tokio's ([`Clock::new`]). A coarse
    /// one is cheaper; it does not know of tokio's paused time.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        self.change(|core| core.clock = clock)
    }

    /// Where jitter comes from. Default: the thread's generator.
    #[must_use]
    pub fn random(self, random: Random) -> Self {
        self.change(|core| core.random = Arc::new(random))
    }

    /// Once the signal is `true` every wait ends at once with the last outcome, and no further
    /// attempt is begun. So that there is one to return, a failed response is then kept during the
    /// wait, undrained, instead of being released. A signal whose sender is gone never comes.
    #[must_use]
    pub fn shutdown(self, signal: watch::Receiver<bool>) -> Self {
        self.change(|core| core.shutdown = Some(signal))
    }

    /// How requests are kept and responses let go. Default: [`ByClone`].
    #[must_use]
    pub fn replay<P2>(self, replay: P2) -> RetryLayer<R, P2, N, F, M> {
        let core = &self.core;
        RetryLayer::from_core(core.with_hooks(
            Arc::new(replay),
            Arc::clone(&core.nudge),
            Arc::clone(&core.refresh),
        ))
    }

    /// How failed responses are let go before the next attempt ([`Release`](crate::Release)):
    /// drained within limits, so that a connection can be reused. Default: the replay policy's way,
    /// which for [`ByClone`] is to drop them. Comes after [`replay`](Self::replay), whose
    /// [`hint`](crate::Release::hint) is then not asked.
    #[must_use]
    pub fn release<Res, Fut, G>(self, release: G) -> RetryLayer<R, Releasing<P, G>, N, F, M>
    where
        G: Fn(Res) -> Fut,
        Fut: Future<Output = ()>,
    {
        let replay = Releasing::new(Arc::clone(&self.core.replay), release);
        self.replay(replay)
    }

    /// Changes the request before a further attempt; see [`Nudge`](crate::Nudge). The closure says
    /// whether it changed anything.
    ///
    /// ```
    /// # use tower_triage_core::{AnyOk, Chain, Classifier, Halves};
    /// # use tower_triage_retry::RetryLayer;
    /// # let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    /// struct Prompt { max_tokens: u32 }
    ///
    /// let layer = RetryLayer::new(classifier).nudge(|prompt: &mut Prompt, attempt, failed| {
    ///     let _: Result<&String, &std::io::Error> = failed;
    ///     prompt.max_tokens /= attempt.number;
    ///     true
    /// });
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn nudge<Req, Res, E, G>(self, nudge: G) -> RetryLayer<R, P, NudgeFn<G>, F, M>
    where
        G: Fn(&mut Req, &Attempt, Result<&Res, &E>) -> bool,
    {
        let core = &self.core;
        RetryLayer::from_core(core.with_hooks(
            Arc::clone(&core.replay),
            Arc::new(NudgeFn::new(nudge)),
            Arc::clone(&core.refresh),
        ))
    }

    /// Obtains new credentials after an `Auth` failure, and says whether there are any; then the
    /// request is sent once more. See [`Refresh`](crate::Refresh).
    #[must_use]
    pub fn refresh<Fut, G>(self, refresh: G) -> RetryLayer<R, P, N, RefreshFn<G>, M>
    where
        G: Fn(Failure) -> Fut,
        Fut: Future<Output = bool>,
    {
        let core = &self.core;
        RetryLayer::from_core(core.with_hooks(
            Arc::clone(&core.replay),
            Arc::clone(&core.nudge),
            Arc::new(RefreshFn::new(refresh)),
        ))
    }
}

impl<R, P, N, F> Core<R, P, N, F> {
    /// The same settings and state with other hooks.
    fn with_hooks<P2, N2, F2>(
        &self,
        replay: Arc<P2>,
        nudge: Arc<N2>,
        refresh: Arc<F2>,
    ) -> Core<R, P2, N2, F2> {
        Core {
            classifier: self.classifier.clone(),
            plan: self.plan.clone(),
            budget: self.budget.clone(),
            budget_given: self.budget_given,
            clock: self.clock,
            random: Arc::clone(&self.random),
            replay,
            nudge,
            refresh,
            shutdown: self.shutdown.clone(),
        }
    }

    /// The time, for a budget that asks for it.
    #[inline]
    pub(crate) fn budget_now(&self) -> Duration {
        if self.budget.needs_clock() { self.clock.recent() } else { Duration::ZERO }
    }

    /// The moment at which a call that begins now has used up its time.
    #[inline]
    pub(crate) fn deadline(plan: &RetryPlan, of_request: Option<Instant>) -> Option<Instant> {
        // A time that no clock reaches is no deadline.
        let own = plan.max_elapsed().and_then(|time| Instant::now().checked_add(time));
        match (own, of_request) {
            (Some(own), Some(request)) => Some(own.min(request)),
            (own, request) => own.or(request),
        }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.as_ref().is_some_and(|signal| *signal.borrow())
    }
}

impl<S, R, P, N, F, M> Layer<S> for RetryLayer<R, P, N, F, M>
where
    S: Clone,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    type Service = Retry<S, R, P, N, F, M>;

    fn layer(&self, inner: S) -> Self::Service {
        Retry::new(inner, Core::clone(&self.core))
    }
}

impl<R, P, N, F> Clone for Core<R, P, N, F> {
    fn clone(&self) -> Self {
        let Self { replay, nudge, refresh, .. } = self;
        self.with_hooks(Arc::clone(replay), Arc::clone(nudge), Arc::clone(refresh))
    }
}

impl<R, P, N, F, M> Clone for RetryLayer<R, P, N, F, M> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), sharing: PhantomData }
    }
}

impl<R: fmt::Debug, P: fmt::Debug, N: fmt::Debug, F: fmt::Debug, M> fmt::Debug
    for RetryLayer<R, P, N, F, M>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &*self.core;
        f.debug_struct("RetryLayer")
            .field("classifier", &core.classifier)
            .field("policy", &*core.plan)
            .field("budget", &core.budget)
            .field("replay", &core.replay)
            .field("nudge", &core.nudge)
            .field("refresh", &core.refresh)
            .finish_non_exhaustive()
    }
}
