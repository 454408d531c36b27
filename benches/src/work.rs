//! The work that every case wraps, and the loop that drives a Tower service.

use std::fmt;
use std::future::{Ready, poll_fn, ready};
use std::hint::black_box;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::measure::Case;

/// The service at the bottom of every case: ready at once, answers at once, never fails.
#[derive(Clone, Copy, Debug)]
pub struct Work;

/// The error of [`Work`], which never happens but has to be handled by every layer.
#[derive(Clone, Copy, Debug)]
pub struct WorkFailed;

/// The answer of [`Work`] to `request`; also for peers that wrap functions.
pub fn answer(request: u64) -> Ready<Result<u64, WorkFailed>> {
    ready(Ok(request.wrapping_add(1)))
}

impl Service<u64> for Work {
    type Response = u64;
    type Error = WorkFailed;
    type Future = Ready<Result<u64, WorkFailed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), WorkFailed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        answer(black_box(request))
    }
}

impl fmt::Display for WorkFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the work failed")
    }
}

impl std::error::Error for WorkFailed {}

/// The case without any layer.
#[must_use]
pub fn bare() -> Case {
    tower_case("bare", Work)
}

/// A case that calls `service`, readiness first, one call after the other.
pub fn tower_case<S>(name: &'static str, service: S) -> Case
where
    S: Service<u64> + Clone + 'static,
{
    Case::new(name, move |calls| {
        let mut service = service.clone();
        async move {
            for request in 0..calls {
                let ready = poll_fn(|cx| service.poll_ready(cx)).await;
                assert!(ready.is_ok(), "{name}: not ready");
                let answer = service.call(black_box(request)).await;
                assert!(black_box(answer).is_ok(), "{name}: failed");
            }
        }
    })
}
