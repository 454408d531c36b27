//! What a call keeps for its fallback steps: nothing, the request, or the request and the service.
//!
//! Each `or_*` raises the kind to what its step needs and never lowers it, so that `Req: Clone`
//! and `S: Clone` are asked for only by a chain with a step that needs them.

use std::fmt;
use std::marker::PhantomData;

use tower_service::Service;

/// Keeps nothing: no bound on request, response or service.
///
/// `E` is the error type of the wrapped service, in all three kinds: the service holds a readiness
/// error of that type until the next call.
pub struct Nothing<E>(PhantomData<fn() -> E>);

/// Keeps a copy of the request, made by `P`, until the primary outcome is a success or the chain
/// has ended.
pub struct KeepRequest<P, E> {
    copy: P,
    error: PhantomData<fn() -> E>,
}

/// Keeps a copy of the request, made by `P`, and the service.
pub struct KeepBoth<P, E> {
    copy: P,
    error: PhantomData<fn() -> E>,
}

/// Copies requests by `Clone`. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByClone;

/// Copies requests with a function that may refuse; see [`copy_fn`].
#[derive(Clone, Copy)]
pub struct CopyFn<F>(F);

/// Copies requests with `f`, for types that are not `Clone`; `None` if this one cannot be copied
/// (`reqwest::Request::try_clone` with a streaming body). The function itself has to be `Clone`: let
/// it capture an `Arc` rather than a value.
pub const fn copy_fn<Req, F>(f: F) -> CopyFn<F>
where
    F: Fn(&Req) -> Option<Req>,
{
    CopyFn(f)
}

/// How a request is copied for the steps that send it again.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot copy a `{Req}` for a fallback step that sends it again",
    note = "the request needs `Clone`; for one that cannot have it, `.copy_requests(copy_fn(|request| ..))` behind the step; steps that only look at the failure (`or_call`, `or_value`, `or_last_good`) need no copy"
)]
pub trait CopyRequest<Req> {
    /// A copy, or `None` if this request cannot be copied: steps that need it are skipped.
    fn copy(&self, request: &Req) -> Option<Req>;
}

#[diagnostic::do_not_recommend]
impl<Req: Clone> CopyRequest<Req> for ByClone {
    fn copy(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

impl<Req, F: Fn(&Req) -> Option<Req>> CopyRequest<Req> for CopyFn<F> {
    fn copy(&self, request: &Req) -> Option<Req> {
        (self.0)(request)
    }
}

/// A kind of keeping, and what it becomes when a step needs more.
pub trait Keeping: Clone {
    /// The error type of the wrapped service.
    type Error;
    /// The kind that keeps the request as well.
    type WithRequest: Keeping<Error = Self::Error>;
    /// The kind that keeps request and service.
    type WithBoth: Keeping<Error = Self::Error>;

    /// Raised for a step that sends the request again.
    fn with_request(self) -> Self::WithRequest;

    /// Raised for a step that calls the service again.
    fn with_both(self) -> Self::WithBoth;
}

/// A kind that keeps the request, so that how it is copied can be chosen.
#[diagnostic::on_unimplemented(
    message = "no step of this chain sends the request again, so nothing copies it",
    note = "add the step (`or_service`, `or_call_with`, `or_replan`) before `.copy_requests(..)`; the copying function must be `Clone`"
)]
pub trait Copying<P>: Keeping {
    /// The same kind, with copies made by `P`.
    type By: Keeping<Error = Self::Error>;

    /// From now on copies are made by `copy`.
    fn by(self, copy: P) -> Self::By;
}

/// Keeps what the chain needs.
pub trait Keep<S: Service<Req>, Req>: Keeping<Error = S::Error> {
    /// What is kept for one call; by default nothing.
    type Kept: Default;

    /// Keeps, before `request` is sent to `inner`.
    fn copy(&self, inner: &S, request: &Req) -> Self::Kept;

    /// Keeps, for a call that is not sent because the service was not ready.
    fn keep(&self, inner: &S, request: Req) -> Self::Kept;
}

/// A kind from which a step gets the request.
#[diagnostic::on_unimplemented(
    message = "this step needs the request, which `{Self}` does not keep for a `{Req}`"
)]
pub trait KeepsRequest<S: Service<Req>, Req>: Keep<S, Req> {
    /// The kept request; `None` if it could not be copied.
    fn request<'a>(&self, kept: &'a Self::Kept) -> Option<&'a Req>;

    /// A copy of the kept request; `None` if it cannot be copied.
    fn again(&self, kept: &Self::Kept) -> Option<Req>;
}

/// A kind from which a step gets the service.
#[diagnostic::on_unimplemented(
    message = "this step needs request and service, which `{Self}` does not keep for a `{Req}`"
)]
pub trait KeepsService<S: Service<Req>, Req>: KeepsRequest<S, Req> {
    /// A clone of the kept service. It has yet to be polled ready.
    fn service(&self, kept: &Self::Kept) -> Option<S>;
}

// === impl Nothing ===

impl<E> Nothing<E> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<E> Keeping for Nothing<E> {
    type Error = E;
    type WithRequest = KeepRequest<ByClone, E>;
    type WithBoth = KeepBoth<ByClone, E>;

    fn with_request(self) -> Self::WithRequest {
        KeepRequest { copy: ByClone, error: PhantomData }
    }

    fn with_both(self) -> Self::WithBoth {
        KeepBoth { copy: ByClone, error: PhantomData }
    }
}

impl<S: Service<Req>, Req> Keep<S, Req> for Nothing<S::Error> {
    type Kept = ();

    #[inline]
    fn copy(&self, _inner: &S, _request: &Req) {}

    fn keep(&self, _inner: &S, _request: Req) {}
}

// === impl KeepRequest ===

impl<P: Clone, E> Keeping for KeepRequest<P, E> {
    type Error = E;
    type WithRequest = Self;
    type WithBoth = KeepBoth<P, E>;

    fn with_request(self) -> Self {
        self
    }

    fn with_both(self) -> Self::WithBoth {
        KeepBoth { copy: self.copy, error: PhantomData }
    }
}

impl<P: Clone, Q: Clone, E> Copying<Q> for KeepRequest<P, E> {
    type By = KeepRequest<Q, E>;

    fn by(self, copy: Q) -> Self::By {
        KeepRequest { copy, error: PhantomData }
    }
}

impl<S, Req, P> Keep<S, Req> for KeepRequest<P, S::Error>
where
    S: Service<Req>,
    P: CopyRequest<Req> + Clone,
{
    type Kept = Option<Req>;

    #[inline]
    fn copy(&self, _inner: &S, request: &Req) -> Self::Kept {
        self.copy.copy(request)
    }

    fn keep(&self, _inner: &S, request: Req) -> Self::Kept {
        Some(request)
    }
}

impl<S, Req, P> KeepsRequest<S, Req> for KeepRequest<P, S::Error>
where
    S: Service<Req>,
    P: CopyRequest<Req> + Clone,
{
    fn request<'a>(&self, kept: &'a Self::Kept) -> Option<&'a Req> {
        kept.as_ref()
    }

    fn again(&self, kept: &Self::Kept) -> Option<Req> {
        self.copy.copy(kept.as_ref()?)
    }
}

// === impl KeepBoth ===

impl<P: Clone, E> Keeping for KeepBoth<P, E> {
    type Error = E;
    type WithRequest = Self;
    type WithBoth = Self;

    fn with_request(self) -> Self {
        self
    }

    fn with_both(self) -> Self {
        self
    }
}

impl<P: Clone, Q: Clone, E> Copying<Q> for KeepBoth<P, E> {
    type By = KeepBoth<Q, E>;

    fn by(self, copy: Q) -> Self::By {
        KeepBoth { copy, error: PhantomData }
    }
}

impl<S, Req, P> Keep<S, Req> for KeepBoth<P, S::Error>
where
    S: Service<Req> + Clone,
    P: CopyRequest<Req> + Clone,
{
    type Kept = (Option<Req>, Option<S>);

    fn copy(&self, inner: &S, request: &Req) -> Self::Kept {
        (self.copy.copy(request), Some(inner.clone()))
    }

    fn keep(&self, inner: &S, request: Req) -> Self::Kept {
        (Some(request), Some(inner.clone()))
    }
}

impl<S, Req, P> KeepsRequest<S, Req> for KeepBoth<P, S::Error>
where
    S: Service<Req> + Clone,
    P: CopyRequest<Req> + Clone,
{
    fn request<'a>(&self, kept: &'a Self::Kept) -> Option<&'a Req> {
        kept.0.as_ref()
    }

    fn again(&self, kept: &Self::Kept) -> Option<Req> {
        self.copy.copy(kept.0.as_ref()?)
    }
}

impl<S, Req, P> KeepsService<S, Req> for KeepBoth<P, S::Error>
where
    S: Service<Req> + Clone,
    P: CopyRequest<Req> + Clone,
{
    fn service(&self, kept: &Self::Kept) -> Option<S> {
        kept.1.clone()
    }
}

// === Clone and Debug, without bounds on the error ===

impl<E> Clone for Nothing<E> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<P: Clone, E> Clone for KeepRequest<P, E> {
    fn clone(&self) -> Self {
        Self { copy: self.copy.clone(), error: PhantomData }
    }
}

impl<P: Clone, E> Clone for KeepBoth<P, E> {
    fn clone(&self) -> Self {
        Self { copy: self.copy.clone(), error: PhantomData }
    }
}

impl<E> fmt::Debug for Nothing<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nothing")
    }
}

impl<P: fmt::Debug, E> fmt::Debug for KeepRequest<P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeepRequest").field(&self.copy).finish()
    }
}

impl<P: fmt::Debug, E> fmt::Debug for KeepBoth<P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeepBoth").field(&self.copy).finish()
    }
}

impl<F> fmt::Debug for CopyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyFn({})", std::any::type_name::<F>())
    }
}
