//! Stops calling what is down, and finds out when it is back.
//!
//! ```
//! use tower::{Service, ServiceBuilder, ServiceExt};
//! use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, State};
//! use tower_triage_core::{AnyError, AnyOk, Chain, CircuitOpen, Classifier, Halves};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let breaker = CircuitBreakerLayer::new(classifier)
//!     .name("shop")
//!     .policy(BreakerPolicy::new().consecutive_failures(2).build()?);
//! let handle = breaker.handle();
//!
//! let mut stack = ServiceBuilder::new().layer(breaker).service(tower::service_fn(
//!     async |_order: u32| Err::<(), _>(AnyError::from(std::io::Error::other("down"))),
//! ));
//! for order in 1..=2 {
//!     stack.ready().await?.call(order).await.unwrap_err();
//! }
//! assert_eq!(handle.state(), State::Open);
//!
//! let error = stack.ready().await?.call(3).await.unwrap_err();
//! assert_eq!(error.downcast_ref::<CircuitOpen>().unwrap().name(), "shop");
//! # Ok(()) }
//! ```
//!
//! # Where it sits
//!
//! Below a retry (each attempt asks the breaker, and an open circuit is not retried) and above an
//! attempt timeout (a call that hangs must end to be judged). Above a retry is legal too: then it
//! judges what is left after the retries. A fallback belongs above it, to answer while it is open.
//!
//! # What counts
//!
//! The classifier's verdict carries a vote ([`Failure::vote`](tower_triage_core::Failure)): failures
//! of the service count, mistakes of the client are successes, throttling and our own rejections say
//! nothing. A dropped call is neutral too. A result counts only in the state period its call was
//! admitted in. A readiness error of the inner service is to the circuit a call that failed at once;
//! what the classifier counts and records is the call, where the error becomes its outcome.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | trips at | 50 % failures of at least 20 calls within 10 s |
//! | stays open | 5 s ± 20 %, doubling at each reopening, at most 5 min; a `Retry-After` lengthens it, up to 5 min |
//! | half-open | one probe at a time; one success closes, one failure reopens |
//! | rejection | [`CircuitOpen`](tower_triage_core::CircuitOpen) as an error |
//! | keyed | no; with keys 1024 circuits at most, idle ones forgotten after 10 min |
//!
//! # What it does not do
//!
//! It does not limit time, rate or concurrency, does not retry, spawns nothing, and has no state
//! beyond this process. A service that is never called never closes: recovery needs traffic.
//!
//! Nor does it give back a readiness that it has: where the inner service was ready and the call was
//! rejected all the same (the circuit opened in between, or it is the key's), the instance keeps what
//! the inner service holds for it, such as the permit of a concurrency limit, for its next call. Call
//! again or drop the instance, as with any service that was readied; one kept idle keeps others out.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod breaker;
mod breakers;
mod circuit;
pub mod future;
mod handle;
mod keyed;
mod layer;
mod parked;
pub mod part;
mod policy;
mod reject;
mod service;
mod settings;
mod state;
mod sync;
mod tally;
mod ticket;
mod watchers;
mod word;

pub use self::{
    handle::BreakerHandle,
    keyed::KeyedSettings,
    layer::CircuitBreakerLayer,
    policy::{BreakerPlan, BreakerPolicy},
    reject::{AsError, Reject, RejectFn, reject_fn},
    service::CircuitBreaker,
    state::{Counts, Sample, State, Transition},
    ticket::Core,
};
