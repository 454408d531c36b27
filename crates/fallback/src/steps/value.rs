//! A fixed value in place of an answer.

use std::fmt;
use std::future::{Ready, ready};

use tower_service::Service;

use crate::chain::{Call, Step};
use crate::failed::Failed;
use crate::keep::Keep;

/// Answers with a value made from the failure; from `or_value`.
pub struct ValueStep<F> {
    value: F,
}

impl<F> ValueStep<F> {
    pub(crate) const fn new(value: F) -> Self {
        Self { value }
    }
}

impl<F, S, Req, K> Step<S, Req, K> for ValueStep<F>
where
    S: Service<Req>,
    K: Keep<S, Req>,
    F: Fn(Failed<'_, S::Response, S::Error>) -> S::Response,
{
    const KIND: &'static str = "value";
    type Future = Ready<Result<S::Response, S::Error>>;

    fn start(
        &self,
        _call: &Call<'_, S, Req, K>,
        failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        Ok(ready(Ok((self.value)(failed))))
    }
}

impl<F> fmt::Debug for ValueStep<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueStep").finish_non_exhaustive()
    }
}
