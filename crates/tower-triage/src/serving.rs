//! Readable compiler messages for a stack.

use tower_service::Service;

/// Returns `service` as it is, and checks here, with the whole reason, that it serves `Req`.
///
/// Methods such as `oneshot` say only that their bounds are not met when a stack is wrong. Put the
/// stack through this function to be told why: which layer, which type, and what to do.
///
/// ```compile_fail
/// use std::convert::Infallible;
/// use tower::{ServiceBuilder, service_fn};
/// use tower_triage::{AnyOk, Chain, CircuitBreakerLayer, Classifier, Halves, serving};
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let stack = ServiceBuilder::new()
///     .layer(CircuitBreakerLayer::new(classifier))
///     .service(service_fn(async |n: u32| Ok::<u32, Infallible>(n)));
/// // error: an open circuit cannot become a `Result<u32, Infallible>` by `AsError`
/// //  = note: `AsError`, the default, needs `Infallible: From<CircuitOpen>`: add a variant with
/// //          `#[from] CircuitOpen`, or map the error below the layer (`.map_err(AnyError::from)`)
/// //  = note: or say what the caller gets: `.reject_with(reject_fn(|open| ..))`
/// serving::<u32, _>(stack);
/// ```
///
/// A request that the retry cannot copy:
///
/// ```compile_fail
/// use tower::{ServiceBuilder, service_fn};
/// use tower_triage::{AnyError, AnyOk, Chain, Classifier, Halves, RetryLayer, serving};
///
/// struct Job; // not `Clone`
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::new(classifier))
///     .service(service_fn(async |_: Job| Ok::<(), AnyError>(())));
/// // error: `ByClone` cannot send a `Job` a second time
/// //  = note: `ByClone`, the default of `RetryLayer`, needs `Job: Clone` ..
/// //  = note: where copying may fail use `.replay(replay_fn(try_clone))`, and to send each request
/// //          once `.replay(Never)`
/// serving::<Job, _>(stack);
/// ```
pub const fn serving<Req, S: Service<Req>>(service: S) -> S {
    service
}
