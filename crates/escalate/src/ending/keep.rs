//! What a call keeps, so that the request can be captured, or sent again when somebody says so.

use std::future::Future;
use std::task::{Context, Poll, ready};

use serde_json::Value;
use tower_service::Service;
use tower_triage_core::incident;

use crate::capture::{CaptureError, Captured, Codec};
use crate::ending::{Ending, Set, Unset};

/// What is kept of each call. Nothing, unless the layer captures requests or may send them again.
pub trait Keep<S: Service<Req>, Req> {
    /// What is kept for one call; by default nothing.
    type Kept: Kept<Self, S::Future, S::Error> + Default;

    /// Keeps, before the call.
    fn keep(&self, inner: &S, request: &Req) -> Self::Kept;
}

/// What was kept of a call of a layer with ending `D`, whose service has futures `F`.
pub trait Kept<D: ?Sized, F, E> {
    /// The request as data, if it is captured.
    fn captured(&self, ending: &D) -> Option<Captured>;

    /// Readies the kept service and calls it with the kept request, changed as `change` says.
    /// `None` if that is not possible.
    fn poll_again(
        &mut self,
        ending: &D,
        change: Option<&Value>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<F, E>>>;
}

/// A codec, or none.
pub trait MaybeCodec<Req> {
    /// The request as data.
    fn capture(&self, request: &Req) -> Option<Captured>;
}

/// How a decision changes a request; see [`EscalateLayer::retry_with`](crate::EscalateLayer::retry_with).
pub trait ChangeRequest<Req> {
    /// The request, changed as the value says; `None` if it cannot be.
    fn change(&self, request: Req, change: &Value) -> Option<Req>;
}

/// Can the request be sent again?
pub trait MaybeRetry {
    /// Can it?
    const RETRIES: bool;
}

/// A copy of the request.
#[derive(Clone, Copy)]
pub struct KeptRequest<Req>(Option<Req>);

/// A copy of the request and a clone of the service.
#[derive(Clone, Copy)]
pub struct KeptCall<S, Req> {
    service: Option<S>,
    request: Option<Req>,
}

impl MaybeRetry for Unset {
    const RETRIES: bool = false;
}

impl<G> MaybeRetry for Set<G> {
    const RETRIES: bool = true;
}

impl<Req> MaybeCodec<Req> for Unset {
    fn capture(&self, _request: &Req) -> Option<Captured> {
        None
    }
}

impl<Req, C: Codec<Req>> MaybeCodec<Req> for Set<C> {
    fn capture(&self, request: &Req) -> Option<Captured> {
        let captured: Result<Captured, CaptureError> = self.0.encode(request);
        captured
            .map_err(|error| tracing::warn!(%error, "the request of an escalation is not captured"))
            .ok()
    }
}

impl<Req, G: Fn(Req, &Value) -> Option<Req>> ChangeRequest<Req> for Set<G> {
    fn change(&self, request: Req, change: &Value) -> Option<Req> {
        (self.0)(request, change)
    }
}

// === impl Keep: nothing, the request, or both ===

impl<S: Service<Req>, Req, F, A> Keep<S, Req> for Ending<F, A, Unset, Unset> {
    type Kept = ();

    #[inline]
    fn keep(&self, _inner: &S, _request: &Req) {}
}

impl<S, Req, F, A, C> Keep<S, Req> for Ending<F, A, Set<C>, Unset>
where
    S: Service<Req>,
    Req: Clone,
    C: Codec<Req>,
{
    type Kept = KeptRequest<Req>;

    fn keep(&self, _inner: &S, request: &Req) -> Self::Kept {
        KeptRequest(Some(request.clone()))
    }
}

impl<S, Req, F, A, C, G> Keep<S, Req> for Ending<F, A, C, Set<G>>
where
    S: Service<Req> + Clone,
    Req: Clone,
    C: MaybeCodec<Req>,
    Set<G>: ChangeRequest<Req>,
{
    type Kept = KeptCall<S, Req>;

    fn keep(&self, inner: &S, request: &Req) -> Self::Kept {
        KeptCall { service: Some(inner.clone()), request: Some(request.clone()) }
    }
}

// === impl Kept ===

impl<D: ?Sized, F, E> Kept<D, F, E> for () {
    fn captured(&self, _ending: &D) -> Option<Captured> {
        None
    }

    fn poll_again(
        &mut self,
        _ending: &D,
        _change: Option<&Value>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<F, E>>> {
        Poll::Ready(None)
    }
}

impl<Req, Fi, A, C, F, E> Kept<Ending<Fi, A, Set<C>, Unset>, F, E> for KeptRequest<Req>
where
    C: Codec<Req>,
{
    fn captured(&self, ending: &Ending<Fi, A, Set<C>, Unset>) -> Option<Captured> {
        self.0.as_ref().and_then(|request| ending.codec.capture(request))
    }

    fn poll_again(
        &mut self,
        _ending: &Ending<Fi, A, Set<C>, Unset>,
        _change: Option<&Value>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<F, E>>> {
        Poll::Ready(None)
    }
}

impl<S, Req, Fi, A, C, G, F, E> Kept<Ending<Fi, A, C, Set<G>>, F, E> for KeptCall<S, Req>
where
    S: Service<Req, Future = F, Error = E>,
    F: Future,
    C: MaybeCodec<Req>,
    Set<G>: ChangeRequest<Req>,
{
    fn captured(&self, ending: &Ending<Fi, A, C, Set<G>>) -> Option<Captured> {
        self.request.as_ref().and_then(|request| ending.codec.capture(request))
    }

    fn poll_again(
        &mut self,
        ending: &Ending<Fi, A, C, Set<G>>,
        change: Option<&Value>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<F, E>>> {
        let Some(service) = &mut self.service else { return Poll::Ready(None) };
        if let Err(error) = ready!(service.poll_ready(cx)) {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(request) = self.request.take() else { return Poll::Ready(None) };
        let changed = match change {
            Some(change) => ending.change.change(request, change),
            None => Some(request),
        };
        Poll::Ready(changed.map(|request| Ok(incident::call(service, request))))
    }
}

impl<Req> Default for KeptRequest<Req> {
    fn default() -> Self {
        Self(None)
    }
}

impl<S, Req> Default for KeptCall<S, Req> {
    fn default() -> Self {
        Self { service: None, request: None }
    }
}

/// Without the request.
impl<Req> std::fmt::Debug for KeptRequest<Req> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptRequest")
    }
}

/// Without the request.
impl<S, Req> std::fmt::Debug for KeptCall<S, Req> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptCall")
    }
}
