//! An async function in place of the service.

use std::fmt;
use std::future::Future;

use tower_service::Service;

use crate::chain::{Call, Step};
use crate::failed::Failed;
use crate::keep::{Keep, KeepsRequest};

/// Runs a function of the failure; from `or_call`.
pub struct CallStep<F> {
    run: F,
}

/// Runs a function of request and failure; from `or_call_with`.
pub struct CallWithStep<F> {
    run: F,
}

// === impl CallStep ===

impl<F> CallStep<F> {
    pub(crate) const fn new(run: F) -> Self {
        Self { run }
    }
}

impl<F, Fut, S, Req, K> Step<S, Req, K> for CallStep<F>
where
    S: Service<Req>,
    K: Keep<S, Req>,
    F: Fn(Failed<'_, S::Response, S::Error>) -> Fut,
    Fut: Future<Output = Result<S::Response, S::Error>>,
{
    const KIND: &'static str = "call";
    type Future = Fut;

    fn start(
        &self,
        _call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Fut, &'static str> {
        Ok((self.run)(failed))
    }
}

impl<F> fmt::Debug for CallStep<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallStep").finish_non_exhaustive()
    }
}

// === impl CallWithStep ===

impl<F> CallWithStep<F> {
    pub(crate) const fn new(run: F) -> Self {
        Self { run }
    }
}

impl<F, Fut, S, Req, K> Step<S, Req, K> for CallWithStep<F>
where
    S: Service<Req>,
    K: KeepsRequest<S, Req>,
    F: Fn(Req, Failed<'_, S::Response, S::Error>) -> Fut,
    Fut: Future<Output = Result<S::Response, S::Error>>,
{
    const KIND: &'static str = "call";
    type Future = Fut;

    fn start(
        &self,
        call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Fut, &'static str> {
        Ok((self.run)(call.copy_request()?, failed))
    }
}

impl<F> fmt::Debug for CallWithStep<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallWithStep").finish_non_exhaustive()
    }
}
