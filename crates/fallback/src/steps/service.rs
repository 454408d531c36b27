//! A call of a service: another one (a backup), or the same one with another request (a replan).

use std::fmt;

use tower_service::Service;

use crate::chain::{Call, Step};
use crate::failed::Failed;
use crate::keep::{KeepsRequest, KeepsService};
use crate::steps::OneCall;

/// Calls the backup `B` with the request that `M` makes; from `or_service`.
pub struct ServiceStep<B, M> {
    backup: B,
    make: M,
}

/// A [`ServiceStep`] with a function; from `or_service_with`.
pub type ServiceWithStep<B, F> = ServiceStep<B, MakeWith<F>>;

/// Calls the same service with the request that `F` makes; from `or_replan`. A nudge is told from a
/// replan in the record, and by nothing else.
pub struct ReplanStep<F, const NUDGE: bool = false> {
    make: F,
}

/// A [`ReplanStep`] that adjusts; from `or_nudge`.
pub type NudgeStep<F> = ReplanStep<F, true>;

/// What a backup is asked.
pub trait MakeRequest<Req, Res, E> {
    /// The backup's request.
    type Out;

    /// Made from the primary's request and failure.
    fn make(&self, request: Req, failed: Failed<'_, Res, E>) -> Self::Out;
}

/// Asks the backup the same as the primary.
#[derive(Clone, Copy, Debug)]
pub struct SameRequest;

/// Asks the backup what a function makes of request and failure.
pub struct MakeWith<F>(pub(crate) F);

impl<Req, Res, E> MakeRequest<Req, Res, E> for SameRequest {
    type Out = Req;

    fn make(&self, request: Req, _failed: Failed<'_, Res, E>) -> Req {
        request
    }
}

impl<Req, Res, E, Out, F> MakeRequest<Req, Res, E> for MakeWith<F>
where
    F: Fn(Req, Failed<'_, Res, E>) -> Out,
{
    type Out = Out;

    fn make(&self, request: Req, failed: Failed<'_, Res, E>) -> Out {
        (self.0)(request, failed)
    }
}

// === impl ServiceStep ===

impl<B, M> ServiceStep<B, M> {
    pub(crate) const fn new(backup: B, make: M) -> Self {
        Self { backup, make }
    }
}

impl<B, M, S, Req, K> Step<S, Req, K> for ServiceStep<B, M>
where
    S: Service<Req>,
    K: KeepsRequest<S, Req>,
    M: MakeRequest<Req, S::Response, S::Error>,
    B: Service<M::Out, Response = S::Response, Error = S::Error> + Clone,
{
    const KIND: &'static str = "service";
    type Future = OneCall<B, M::Out>;

    fn start(
        &self,
        call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        let request = self.make.make(call.copy_request()?, failed);
        Ok(OneCall::new(self.backup.clone(), request))
    }
}

impl<B, M> fmt::Debug for ServiceStep<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceStep").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for MakeWith<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MakeWith({})", std::any::type_name::<F>())
    }
}

// === impl ReplanStep ===

impl<F, const NUDGE: bool> ReplanStep<F, NUDGE> {
    pub(crate) const fn new(make: F) -> Self {
        Self { make }
    }
}

impl<F, const NUDGE: bool, S, Req, K> Step<S, Req, K> for ReplanStep<F, NUDGE>
where
    S: Service<Req>,
    K: KeepsService<S, Req>,
    F: Fn(Req, Failed<'_, S::Response, S::Error>) -> Req,
{
    const KIND: &'static str = if NUDGE { "nudge" } else { "replan" };
    type Future = OneCall<S, Req>;

    fn start(
        &self,
        call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        let request = (self.make)(call.copy_request()?, failed);
        Ok(OneCall::new(call.service()?, request))
    }
}

impl<F, const NUDGE: bool> fmt::Debug for ReplanStep<F, NUDGE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplanStep").finish_non_exhaustive()
    }
}
