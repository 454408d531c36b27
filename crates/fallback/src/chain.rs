//! The chain of steps as a type, and the one future that runs any step of it.

use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower_service::Service;
use tower_triage_core::{ClassSet, Operation};

use crate::failed::Failed;
use crate::keep::{Keep, KeepsRequest, KeepsService};

/// A chain without a step: the start of every chain, and no [`Layer`](tower_layer::Layer). `MAX`
/// is how many steps the chain may get.
#[derive(Clone, Copy, Debug)]
pub struct End<const MAX: usize = 2>;

/// The chain `T`, then the step `X`.
pub struct Then<T, X> {
    pub(crate) earlier: T,
    pub(crate) step: Arc<X>,
    pub(crate) classes: ClassSet,
    pub(crate) limit: Option<Duration>,
    pub(crate) failures: u32,
}

/// How long a chain is and may become.
pub trait Depth: Clone {
    /// Steps so far.
    const STEPS: usize;
    /// Steps allowed.
    const MAX: usize;
}

/// What a step may know of the call, beside the failure.
pub struct Call<'a, S: Service<Req>, Req, K: Keep<S, Req>> {
    /// What is being done.
    pub operation: &'a Operation,
    pub(crate) keep: &'a K,
    pub(crate) kept: &'a K::Kept,
}

/// Why a step is skipped whose call has kept nothing.
const NOT_KEPT: &str = "the service is not kept";

/// Why a step is skipped that needs a request which cannot be copied.
pub(crate) const NOT_COPYABLE: &str = "the request cannot be copied";

/// One way to an answer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in for a service of `{Req}`",
    note = "a backup service and every answer must have the response and error types of the service that it stands in for; a step's closure takes what its `or_*` method documents"
)]
pub trait Step<S: Service<Req>, Req, K: Keep<S, Req>> {
    /// A fixed name for records and metrics.
    const KIND: &'static str;
    /// Runs the step.
    type Future: Future<Output = Result<S::Response, S::Error>>;

    /// Starts the step.
    ///
    /// # Errors
    /// Why it cannot be tried (the request cannot be copied, no kept answer is young enough): the
    /// next step gets its turn.
    fn start(
        &self,
        call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str>;

    /// Does it [`learn`](Self::learn)?
    const LEARNS: bool = false;

    /// Sees a successful primary response. Only the last good answer has a use for it.
    fn learn(&self, _call: &Call<'_, S, Req, K>, _response: &S::Response) {}
}

/// A chain of steps, reached by their position from 0.
pub trait Steps<S: Service<Req>, Req, K: Keep<S, Req>>: Depth {
    /// Runs whichever step was started.
    type Future: Future<Output = Result<S::Response, S::Error>>;

    /// The step at `index`, or `None` behind the last one.
    fn about(&self, index: usize) -> Option<About>;

    /// Starts the step at `index`.
    ///
    /// # Errors
    /// Why it cannot be tried.
    fn start(
        &self,
        index: usize,
        call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str>;

    /// Does a step learn from successful responses?
    const LEARNS: bool;

    /// Shows a successful primary response to every step.
    fn learn(&self, call: &Call<'_, S, Req, K>, response: &S::Response);
}

/// What the layer must know of a step before it starts it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The classes it is for.
    pub classes: ClassSet,
    /// How long it may take, readiness included.
    pub limit: Option<Duration>,
    /// How many attempts of the call must have failed alike before it is tried.
    pub failures: u32,
    /// Its fixed name.
    pub kind: &'static str,
}

pin_project! {
    /// The future of a chain: of its last step, or of an earlier one.
    pub struct ChainFuture<A, B> {
        #[pin]
        running: Running<A, B>,
    }
}

pin_project! {
    #[project = RunningProj]
    enum Running<A, B> {
        Earlier { #[pin] future: A },
        Last { #[pin] future: B },
    }
}

/// The future of a chain without steps; there is none.
pub struct Never<Res, E> {
    never: std::convert::Infallible,
    output: PhantomData<fn() -> (Res, E)>,
}

// === impl Call ===

impl<S: Service<Req>, Req, K: Keep<S, Req>> Call<'_, S, Req, K> {
    /// A copy of the request, or why there is none.
    ///
    /// # Errors
    /// The request cannot be copied.
    pub fn copy_request(&self) -> Result<Req, &'static str>
    where
        K: KeepsRequest<S, Req>,
    {
        self.keep.again(self.kept).ok_or(NOT_COPYABLE)
    }

    /// The kept request, if it could be copied.
    #[must_use]
    pub fn request(&self) -> Option<&Req>
    where
        K: KeepsRequest<S, Req>,
    {
        self.keep.request(self.kept)
    }

    /// A clone of the service, not yet ready, or why there is none.
    ///
    /// # Errors
    /// The call has kept none.
    pub fn service(&self) -> Result<S, &'static str>
    where
        K: KeepsService<S, Req>,
    {
        self.keep.service(self.kept).ok_or(NOT_KEPT)
    }
}

impl<S: Service<Req>, Req, K: Keep<S, Req>> fmt::Debug for Call<'_, S, Req, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("operation", &self.operation).finish_non_exhaustive()
    }
}

// === impl End ===

impl<const MAX: usize> Depth for End<MAX> {
    const STEPS: usize = 0;
    const MAX: usize = MAX;
}

impl<const MAX: usize, S, Req, K> Steps<S, Req, K> for End<MAX>
where
    S: Service<Req>,
    K: Keep<S, Req>,
{
    type Future = Never<S::Response, S::Error>;
    const LEARNS: bool = false;

    fn about(&self, _index: usize) -> Option<About> {
        None
    }

    fn start(
        &self,
        _index: usize,
        _call: &Call<'_, S, Req, K>,
        _failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        Err("no such step")
    }

    fn learn(&self, _call: &Call<'_, S, Req, K>, _response: &S::Response) {}
}

impl<Res, E> Future for Never<Res, E> {
    type Output = Result<Res, E>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.never {}
    }
}

impl<Res, E> fmt::Debug for Never<Res, E> {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

// === impl Then ===

impl<T: Depth, X> Depth for Then<T, X> {
    const STEPS: usize = T::STEPS + 1;
    const MAX: usize = T::MAX;
}

impl<T, X, S, Req, K> Steps<S, Req, K> for Then<T, X>
where
    T: Steps<S, Req, K>,
    X: Step<S, Req, K>,
    S: Service<Req>,
    K: Keep<S, Req>,
{
    type Future = ChainFuture<T::Future, X::Future>;
    const LEARNS: bool = T::LEARNS || X::LEARNS;

    fn about(&self, index: usize) -> Option<About> {
        match index.cmp(&T::STEPS) {
            Ordering::Less => self.earlier.about(index),
            Ordering::Equal => {
                let Self { classes, limit, failures, .. } = *self;
                Some(About { classes, limit, failures, kind: X::KIND })
            }
            Ordering::Greater => None,
        }
    }

    fn start(
        &self,
        index: usize,
        call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        if index < T::STEPS {
            let future = self.earlier.start(index, call, failed)?;
            return Ok(ChainFuture { running: Running::Earlier { future } });
        }
        let future = self.step.start(call, failed)?;
        Ok(ChainFuture { running: Running::Last { future } })
    }

    fn learn(&self, call: &Call<'_, S, Req, K>, response: &S::Response) {
        self.earlier.learn(call, response);
        self.step.learn(call, response);
    }
}

impl<T: Clone, X> Clone for Then<T, X> {
    fn clone(&self) -> Self {
        Self {
            earlier: self.earlier.clone(),
            step: self.step.clone(),
            classes: self.classes,
            limit: self.limit,
            failures: self.failures,
        }
    }
}

impl<T: fmt::Debug, X> fmt::Debug for Then<T, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Then")
            .field("earlier", &self.earlier)
            .field("classes", &self.classes)
            .field("limit", &self.limit)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

// === impl ChainFuture ===

impl<A, B> Future for ChainFuture<A, B>
where
    A: Future,
    B: Future<Output = A::Output>,
{
    type Output = A::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().running.project() {
            RunningProj::Earlier { future } => future.poll(cx),
            RunningProj::Last { future } => future.poll(cx),
        }
    }
}

impl<A, B> fmt::Debug for ChainFuture<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainFuture").finish_non_exhaustive()
    }
}
