//! One action with its retries: within the time of level 1 if it is what was asked for, within the
//! time of its own level if a nudge or a replan made it.

use std::fmt;
use std::task::{Context, Poll};

use tower_service::Service;
use tower_triage_fallback::Failed;
use tower_triage_fallback::chain::{Call, Step};
use tower_triage_fallback::keep::KeepsService;
use tower_triage_fallback::steps::OneCall;

/// The service that levels 2 to 4 stand on: calls `L`, which is `A` in the time limit of level 1.
#[derive(Clone, Debug)]
pub struct Action<L, A> {
    limited: L,
    repeated: A,
}

/// A step that sends the request again as a function makes it: a nudge, or else a replan.
pub struct Changed<X, const NUDGE: bool> {
    change: X,
}

impl<L, A> Action<L, A> {
    pub(crate) const fn new(limited: L, repeated: A) -> Self {
        Self { limited, repeated }
    }
}

impl<L, A, Req> Service<Req> for Action<L, A>
where
    L: Service<Req>,
{
    type Response = L::Response;
    type Error = L::Error;
    type Future = L::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), L::Error>> {
        self.limited.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> L::Future {
        self.limited.call(request)
    }
}

impl<X, const NUDGE: bool> Changed<X, NUDGE> {
    pub(crate) const fn new(change: X) -> Self {
        Self { change }
    }
}

impl<X, const NUDGE: bool, L, A, Req, K> Step<Action<L, A>, Req, K> for Changed<X, NUDGE>
where
    L: Service<Req>,
    A: Service<Req, Response = L::Response, Error = L::Error>,
    K: KeepsService<Action<L, A>, Req>,
    X: Fn(Req, Failed<'_, L::Response, L::Error>) -> Req,
{
    const KIND: &'static str = if NUDGE { "nudge" } else { "replan" };
    type Future = OneCall<A, Req>;

    fn start(
        &self,
        call: &Call<'_, Action<L, A>, Req, K>,
        failed: Failed<'_, L::Response, L::Error>,
    ) -> Result<Self::Future, &'static str> {
        let request = (self.change)(call.copy_request()?, failed);
        Ok(OneCall::new(call.service()?.repeated, request))
    }
}

impl<X, const NUDGE: bool> fmt::Debug for Changed<X, NUDGE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("nudge", &NUDGE).finish_non_exhaustive()
    }
}
