//! The layer: builds the chain.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;
use tower_triage_core::{ClassSet, Classifier, Counted, Leaked, Operation, Sharing};

use crate::chain::{Depth, End, Then};
use crate::failed::Failed;
use crate::handle::FallbackHandle;
use crate::keep::{Copying, Keeping, Nothing};
use crate::service::Fallback;
use crate::steps::{
    ByOperation, ByRequest, CallStep, CallWithStep, LastGood, LastGoodByStep, LastGoodStep,
    MakeWith, NudgeStep, ReplanStep, SameRequest, ServiceStep, ServiceWithStep, ValueStep,
};

/// Answers failures of the configured classes another way. See the [crate's page](crate) for an
/// example.
///
/// `R` are the classifier's rules, `T` is the chain so far, `K` what a call keeps for it. Steps are
/// tried in the order in which they were added; a step whose classes do not contain the primary
/// failure's class is passed over. What a step answers is judged by the same classifier: an answer
/// that it calls a failure is one, and the next step gets its turn.
///
/// A chain without a step is no layer:
///
/// ```compile_fail
/// use tower::{ServiceBuilder, service_fn};
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
/// use tower_triage_fallback::FallbackLayer;
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let empty = FallbackLayer::<_, _, tower_triage_fallback::keep::Nothing<AnyError>>::new(classifier);
/// ServiceBuilder::new()
///     .layer(empty) // error: `FallbackLayer<.., End, ..>` is not a `Layer`
///     .service(service_fn(|_: ()| async { Ok::<_, AnyError>(()) }));
/// ```
///
/// Nor does a chain compile with more steps than it may have:
///
/// ```compile_fail
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves};
/// use tower_triage_fallback::FallbackLayer;
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let layer: FallbackLayer<_, _, tower_triage_fallback::keep::Nothing<AnyError>> =
///     FallbackLayer::new(classifier) // error: .max_steps::<3>() is missing here
///         .or_value(ErrorClass::Transient, |_| 1)
///         .or_value(ErrorClass::Timeout, |_| 2)
///         .or_value(ErrorClass::Rejected, |_| 3);
/// ```
///
/// `M` is how a call holds the layer's state ([`share`](tower_triage_core::share)).
pub struct FallbackLayer<R, T, K, M = Counted> {
    core: Arc<Core<R, T, K>>,
    sharing: PhantomData<M>,
}

/// What all services of one layer value share. Opaque: it is named in the types of service and
/// future.
pub struct Core<R, T, K> {
    pub(crate) classifier: Classifier<R>,
    pub(crate) steps: T,
    pub(crate) keep: K,
    pub(crate) handle: FallbackHandle,
}

impl<R, E> FallbackLayer<R, End, Nothing<E>> {
    /// An empty chain of at most two steps. `E`, the error type of the wrapped service, is
    /// inferred from it.
    #[must_use]
    pub fn new(classifier: Classifier<R>) -> Self {
        let (keep, handle) = (Nothing::new(), FallbackHandle::default());
        Self::from_core(Core { classifier, steps: End, keep, handle })
    }
}

impl<R, T, K, M> FallbackLayer<R, T, K, M> {
    fn from_core(core: Core<R, T, K>) -> Self {
        Self { core: Arc::new(core), sharing: PhantomData }
    }

    /// Keeps the state for the rest of the process, so that calls count no references: see
    /// [`Leaked`] for when that is right.
    #[must_use]
    pub fn leak(self) -> FallbackLayer<R, T, K, Leaked> {
        FallbackLayer { core: self.core, sharing: PhantomData }
    }
}

impl<R, const MAX: usize, K: Keeping> FallbackLayer<R, End<MAX>, K> {
    /// Allows `N` steps. Each step adds its own load and waiting to a dependency that is in
    /// trouble; more than two are rarely worth it.
    #[must_use]
    pub fn max_steps<const N: usize>(self) -> FallbackLayer<R, End<N>, K> {
        self.rebuild(End::<N>, self.core.keep.clone())
    }
}

impl<R, T: Depth, K: Keeping> FallbackLayer<R, T, K> {
    /// Sends the request to `backup`, a service with the same response and error types.
    ///
    /// Keeps a copy of each request (`Req: Clone`, or [`copy_requests`](Self::copy_requests)). The
    /// backup is cloned when it is needed, polled ready and called once; layers of ours in it
    /// belong to the same call.
    #[must_use]
    pub fn or_service<B>(
        self,
        classes: impl Into<ClassSet>,
        backup: B,
    ) -> FallbackLayer<R, Then<T, ServiceStep<B, SameRequest>>, K::WithRequest> {
        let keep = self.core.keep.clone().with_request();
        self.push(classes, ServiceStep::new(backup, SameRequest), keep)
    }

    /// Sends to `backup` the request that `make` makes from the request and the failure; it may be
    /// of another type.
    #[must_use]
    pub fn or_service_with<B, F, Req, Res, Out>(
        self,
        classes: impl Into<ClassSet>,
        backup: B,
        make: F,
    ) -> FallbackLayer<R, Then<T, ServiceWithStep<B, F>>, K::WithRequest>
    where
        F: Fn(Req, Failed<'_, Res, K::Error>) -> Out,
    {
        let keep = self.core.keep.clone().with_request();
        self.push(classes, ServiceStep::new(backup, MakeWith(make)), keep)
    }

    /// Sends another request to the same service: the one that `replan` makes from the request and
    /// the failure.
    ///
    /// Keeps request and service (`Req: Clone`, `S: Clone`: one clone of each per call). The
    /// service is polled ready before the second call; an error of readiness is the step's failure.
    #[must_use]
    pub fn or_replan<F, Req, Res>(
        self,
        classes: impl Into<ClassSet>,
        replan: F,
    ) -> FallbackLayer<R, Then<T, ReplanStep<F>>, K::WithBoth>
    where
        F: Fn(Req, Failed<'_, Res, K::Error>) -> Req,
    {
        let keep = self.core.keep.clone().with_both();
        self.push(classes, ReplanStep::new(replan), keep)
    }

    /// As [`or_replan`](Self::or_replan), for a request that is only adjusted: the same approach, a
    /// shorter prompt, a smaller page. The record says `nudge`.
    #[must_use]
    pub fn or_nudge<F, Req, Res>(
        self,
        classes: impl Into<ClassSet>,
        adjust: F,
    ) -> FallbackLayer<R, Then<T, NudgeStep<F>>, K::WithBoth>
    where
        F: Fn(Req, Failed<'_, Res, K::Error>) -> Req,
    {
        let keep = self.core.keep.clone().with_both();
        self.push(classes, NudgeStep::new(adjust), keep)
    }

    /// Runs an async function of the failure. Keeps nothing.
    ///
    /// The future cannot borrow from [`Failed`]: `|failed| { let why = failed.failure.reason; async
    /// move { .. } }`.
    #[must_use]
    pub fn or_call<F, Fut, Res>(
        self,
        classes: impl Into<ClassSet>,
        run: F,
    ) -> FallbackLayer<R, Then<T, CallStep<F>>, K>
    where
        F: Fn(Failed<'_, Res, K::Error>) -> Fut,
        Fut: Future<Output = Result<Res, K::Error>>,
    {
        let keep = self.core.keep.clone();
        self.push(classes, CallStep::new(run), keep)
    }

    /// Runs an async function of request and failure. Keeps a copy of each request.
    #[must_use]
    pub fn or_call_with<F, Fut, Req, Res>(
        self,
        classes: impl Into<ClassSet>,
        run: F,
    ) -> FallbackLayer<R, Then<T, CallWithStep<F>>, K::WithRequest>
    where
        F: Fn(Req, Failed<'_, Res, K::Error>) -> Fut,
        Fut: Future<Output = Result<Res, K::Error>>,
    {
        let keep = self.core.keep.clone().with_request();
        self.push(classes, CallWithStep::new(run), keep)
    }

    /// Answers with a value made from the failure. Keeps nothing, and asks nothing of request,
    /// response or service.
    #[must_use]
    pub fn or_value<F, Res>(
        self,
        classes: impl Into<ClassSet>,
        value: F,
    ) -> FallbackLayer<R, Then<T, ValueStep<F>>, K>
    where
        F: Fn(Failed<'_, Res, K::Error>) -> Res,
    {
        let keep = self.core.keep.clone();
        self.push(classes, ValueStep::new(value), keep)
    }

    /// Answers with the last good answer of the primary to the same *operation*
    /// ([`Describe::operation`](tower_triage_core::Describe::operation)), if it is young enough.
    ///
    /// Right only where every request of an operation has the same answer (a report, a price
    /// list, a configuration); otherwise use [`or_last_good_by`](Self::or_last_good_by). Needs
    /// `Res: Clone`. Each success costs a clock read and a short lock; at most one per
    /// [`LastGood`] refresh period is cloned.
    #[must_use]
    pub fn or_last_good<Res>(
        self,
        classes: impl Into<ClassSet>,
        policy: LastGood,
    ) -> FallbackLayer<R, Then<T, LastGoodStep<Operation, Res, ByOperation>>, K> {
        let keep = self.core.keep.clone();
        self.push(classes, LastGoodStep::new(policy, ByOperation), keep)
    }

    /// Answers with the last good answer to a request with the same key, if it is young enough.
    /// Two requests with one key must be answerable by one answer: put the caller's identity in
    /// the key where answers depend on it.
    ///
    /// Needs `Res: Clone` and keeps a copy of each request; costs as
    /// [`or_last_good`](Self::or_last_good).
    #[expect(clippy::type_complexity, reason = "a chain is its type")]
    #[must_use]
    pub fn or_last_good_by<Key: Hash + Eq, Req, Res, F>(
        self,
        classes: impl Into<ClassSet>,
        policy: LastGood,
        key: F,
    ) -> FallbackLayer<R, Then<T, LastGoodByStep<Key, Res, F>>, K::WithRequest>
    where
        F: Fn(&Req) -> Key,
    {
        let keep = self.core.keep.clone().with_request();
        self.push(classes, LastGoodStep::new(policy, ByRequest(key)), keep)
    }

    /// Adds a step of your own ([`Step`](crate::chain::Step)). Keeps a copy of each request and a
    /// clone of the service, which it may use.
    #[must_use]
    pub fn or_step<X>(
        self,
        classes: impl Into<ClassSet>,
        step: X,
    ) -> FallbackLayer<R, Then<T, X>, K::WithBoth> {
        let keep = self.core.keep.clone().with_both();
        self.push(classes, step, keep)
    }

    /// Copies requests with `copy` instead of `Clone`: see [`copy_fn`](crate::copy_fn).
    #[must_use]
    pub fn copy_requests<P>(self, copy: P) -> FallbackLayer<R, T, K::By>
    where
        K: Copying<P>,
    {
        self.rebuild(self.core.steps.clone(), self.core.keep.clone().by(copy))
    }

    /// Counts of this layer value. Take it last: each step added afterwards starts afresh.
    #[must_use]
    pub fn handle(&self) -> FallbackHandle {
        self.core.handle.clone()
    }

    fn push<X, K2>(
        self,
        classes: impl Into<ClassSet>,
        step: X,
        keep: K2,
    ) -> FallbackLayer<R, Then<T, X>, K2> {
        const {
            assert!(
                T::STEPS < T::MAX,
                "too many fallback steps: allow more with `FallbackLayer::new(..).max_steps::<N>()`"
            );
        }
        let (earlier, step) = (self.core.steps.clone(), Arc::new(step));
        let (classes, limit, failures) = (classes.into(), None, 1);
        self.rebuild(Then { earlier, step, classes, limit, failures }, keep)
    }

    fn rebuild<T2, K2>(&self, steps: T2, keep: K2) -> FallbackLayer<R, T2, K2> {
        let (classifier, handle) = (self.core.classifier.clone(), FallbackHandle::default());
        FallbackLayer::from_core(Core { classifier, steps, keep, handle })
    }
}

impl<R, T: Depth, X, K: Keeping> FallbackLayer<R, Then<T, X>, K> {
    /// Gives the step that was added last at most `limit`, readiness included; then it has failed,
    /// its future is dropped, and the next step gets its turn. Zero takes only an answer that is
    /// there at once. Default: no limit.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        let steps = Then { limit: Some(limit), ..self.core.steps.clone() };
        self.rebuild(steps, self.core.keep.clone())
    }

    /// Tries the step that was added last only once so many attempts of the call have failed alike
    /// (one [`Fingerprint`](tower_triage_core::Fingerprint)): what fails in one way again and again
    /// needs another approach. Default: 1, and 0 is the same.
    ///
    /// Counted are attempts of the retries below, with those that somebody asked for
    /// ([a decision](https://docs.rs/tower-triage-escalate)). Those that a long incident has no room
    /// for any more are taken to be alike. A layer between this one and the retry must not word errors
    /// anew: none would be alike.
    #[must_use]
    pub fn after_failures(self, failures: u32) -> Self {
        let steps = Then { failures, ..self.core.steps.clone() };
        self.rebuild(steps, self.core.keep.clone())
    }
}

/// Only a chain with at least one step is a layer. Every service made from one layer value (and
/// its clones) shares its state: kept answers and counts.
impl<S, R, T, X, K, M> Layer<S> for FallbackLayer<R, Then<T, X>, K, M>
where
    T: Clone,
    K: Keeping,
    M: Sharing<Core<R, Then<T, X>, K>>,
{
    type Service = Fallback<S, R, Then<T, X>, K, M>;

    fn layer(&self, inner: S) -> Self::Service {
        Fallback::new(inner, Core::clone(&self.core))
    }
}

impl<R, T, K, M> Clone for FallbackLayer<R, T, K, M> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), sharing: PhantomData }
    }
}

impl<R, T: Clone, K: Clone> Clone for Core<R, T, K> {
    fn clone(&self) -> Self {
        Self {
            classifier: self.classifier.clone(),
            steps: self.steps.clone(),
            keep: self.keep.clone(),
            handle: self.handle.clone(),
        }
    }
}

impl<R, T: fmt::Debug, K: fmt::Debug, M> fmt::Debug for FallbackLayer<R, T, K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackLayer")
            .field("steps", &self.core.steps)
            .field("keep", &self.core.keep)
            .finish_non_exhaustive()
    }
}

impl<R, T: fmt::Debug, K: fmt::Debug> fmt::Debug for Core<R, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("steps", &self.steps)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}
