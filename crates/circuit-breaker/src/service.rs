//! Readiness and calls.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};
use tower_service::Service;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{Classify, Counted, Describe, Operation, Sharing};

use crate::circuit::Chance;
use crate::future::ResponseFuture;
use crate::keyed::Latest;
use crate::parked::Seat;
use crate::reject::Reject;
use crate::ticket::{Core, Ticket};

/// Calls the inner service while its circuit lets it; see [`CircuitBreakerLayer`](crate::CircuitBreakerLayer).
///
/// Readiness: while the circuit rejects, this service is ready at once, does not touch the inner
/// service, and the next call is rejected. Otherwise it is ready when the inner service is.
/// Readiness only looks; the call decides, and takes the probe slot.
pub struct CircuitBreaker<S, R, J, M: Sharing<Core<R, J>> = Counted> {
    pub(crate) inner: S,
    pub(crate) core: M::Handle,
    ready: Ready,
    wait: Wait,
    pub(crate) latest: Latest,
}

/// What this instance has been readied for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ready {
    No,
    /// To call the inner service, which is ready.
    Inner,
    /// To be rejected; the inner service was not asked.
    Rejecting,
}

/// How this instance waits for readiness.
#[derive(Debug, Default)]
struct Wait {
    seat: Option<Arc<Seat>>,
    sits: bool,
    /// Below a balancer: until the next probe is due.
    due: Option<Pin<Box<Sleep>>>,
}

impl<S, R, J, M: Sharing<Core<R, J>>> CircuitBreaker<S, R, J, M> {
    pub(crate) fn new(inner: S, core: Core<R, J>) -> Self {
        Self {
            inner,
            core: M::share(core),
            ready: Ready::No,
            wait: Wait::default(),
            latest: Latest::default(),
        }
    }

    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Is the inner service ready for a call?
    #[inline]
    pub(crate) fn is_readied(&self) -> bool {
        self.ready == Ready::Inner
    }

    /// A call is made.
    #[inline]
    pub(crate) const fn use_up_readiness(&mut self) {
        self.ready = Ready::No;
    }

    /// When the next call may pass; a keyed breaker knows only in the call.
    #[inline]
    fn chance(&self) -> Chance {
        let breakers = &self.core.breakers;
        breakers.only().map_or(Chance::Now, |breaker| breaker.chance(&breakers.settings))
    }

    /// Waits to be woken when the circuit's answer may have changed.
    fn sit(&mut self, cx: &Context<'_>) {
        let parked = &self.core.breakers.settings.parked;
        self.wait.seat.get_or_insert_with(|| parked.seat()).sit(cx.waker());
        self.wait.sits = true;
    }

    /// Readied, in whatever way: waits no longer.
    #[inline]
    fn stand_up(&mut self) {
        if self.wait.sits {
            self.wait.end();
        }
    }

    /// Waits until a call may pass, as a balancer wants it: others are favoured meanwhile.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sit(cx);
        match self.chance() {
            Chance::Now => Poll::Ready(()),
            Chance::Unknown => Poll::Pending,
            Chance::After(left) => {
                let now = Instant::now();
                // A clock that cannot tell a time so far away need not wake anybody then.
                let Some(at) = now.checked_add(left) else { return Poll::Pending };
                let due =
                    self.wait.due.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
                if due.deadline() != at {
                    due.as_mut().reset(at);
                }
                due.as_mut().poll(cx)
            }
        }
    }

    fn poll_inner<Req>(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
    {
        self.ready = Ready::No;
        match ready!(self.inner.poll_ready(cx)) {
            Ok(()) => {
                self.ready = Ready::Inner;
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.core.not_ready::<S::Response, _>(&error);
                Poll::Ready(Err(error))
            }
        }
    }
}

impl Wait {
    #[cold]
    fn end(&mut self) {
        self.sits = false;
        if let Some(seat) = &self.seat {
            seat.leave();
        }
        self.due = None;
    }
}

impl<R, J> Core<R, J> {
    /// The inner service failed to become ready: to the circuit a call that failed at once. There is
    /// no call yet, so it is no incident and not counted: whoever gives the error as the outcome of
    /// a call notes it then.
    #[cold]
    fn not_ready<Res, E>(&self, error: &E)
    where
        R: Classify<Res, E>,
    {
        let verdict = self.classifier.judge(&Operation::EMPTY, Err(error));
        let settings = &self.breakers.settings;
        let transition = self.breakers.only().and_then(|breaker| {
            let permit = breaker.admit(settings).ok()?;
            breaker.settle(settings, permit, &verdict)
        });
        if let Some(transition) = transition {
            self.tell(&Operation::EMPTY, transition);
        }
    }
}

impl<S, R, J, M, Req> Service<Req> for CircuitBreaker<S, R, J, M>
where
    S: Service<Req>,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    J: Reject<S::Response, S::Error>,
    M: Sharing<Core<R, J>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, J, M>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        loop {
            if self.chance() == Chance::Now {
                if let Poll::Ready(result) = self.poll_inner(cx) {
                    self.stand_up();
                    return Poll::Ready(result);
                }
                self.sit(cx);
                if self.chance() == Chance::Now {
                    return Poll::Pending;
                }
                // It opened meanwhile, maybe before this caller could be woken.
            } else if self.core.breakers.config.below_balancer {
                ready!(self.poll_due(cx));
            } else {
                if self.ready == Ready::No {
                    self.ready = Ready::Rejecting;
                }
                self.stand_up();
                return Poll::Ready(Ok(()));
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn call(&mut self, request: Req) -> Self::Future {
        let scope = Scope::join();
        let core = M::hold(&mut self.core);
        let facts = core.classifier.rules();
        let operation = facts.operation(&request);
        let (admission, refused) = match self.ready {
            Ready::Inner => core.breakers.admit(|| facts.key(&request), &mut self.latest),
            // Never an inner service that is not ready.
            Ready::Rejecting | Ready::No => core.breakers.refuse(),
        };
        let ticket = Ticket::new(core, admission);
        match refused {
            None => {
                self.use_up_readiness();
                let future = incident::call(&mut self.inner, request);
                ResponseFuture::calling(future, ticket, scope, operation)
            }
            Some(left) => {
                // An inner service that is ready stays so for the next call.
                if self.ready == Ready::Rejecting {
                    self.ready = Ready::No;
                }
                ResponseFuture::rejected(left, ticket, scope, operation)
            }
        }
    }
}

/// Readiness belongs to one instance: a clone has none.
impl<S: Clone, R, J, M: Sharing<Core<R, J>>> Clone for CircuitBreaker<S, R, J, M> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            core: self.core.clone(),
            ready: Ready::No,
            wait: Wait::default(),
            latest: Latest::default(),
        }
    }
}

impl<S: fmt::Debug, R, J, M: Sharing<Core<R, J>>> fmt::Debug for CircuitBreaker<S, R, J, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("inner", &self.inner)
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}
