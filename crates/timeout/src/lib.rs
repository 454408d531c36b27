//! Gives each attempt its time: a signal first, then a grace, then the end.
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ConfigError, Elapsed, Halves};
//! use tower_triage_timeout::TimeoutLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), ConfigError> {
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let stack = ServiceBuilder::new()
//!     .layer(TimeoutLayer::new(classifier, Duration::from_secs(30))?)
//!     .service(service_fn(async |_: ()| std::future::pending::<Result<(), AnyError>>().await));
//!
//! let error = stack.oneshot(()).await.unwrap_err();
//! let elapsed = error.downcast_ref::<Elapsed>().unwrap();
//! assert_eq!(elapsed.after(), Duration::from_secs(33)); // 30 s and a tenth of grace
//! # Ok(()) }
//! ```
//!
//! # What happens when
//!
//! 1. At the limit the attempt can see that its time is up ([`soft_limit`](soft_limit())), and the
//!    incident says so. It goes on: it may save a checkpoint, or answer with what it has.
//! 2. Once the grace has passed too, the attempt is dropped, and the caller gets an
//!    [`Elapsed`](tower_triage_core::Elapsed): a `Timeout`, after which the work may have been done
//!    all the same.
//!
//! No attempt outlives its request's own deadline
//! ([`Describe::deadline`](tower_triage_core::Describe::deadline)): the smaller of the hard limit and
//! the time left counts. If that is the time left, the signal still comes before the end
//! ([`TimeoutPlan::limits`]). A deadline that has passed fails the call at once; the inner service is
//! not called.
//!
//! An attempt that reached its limit may be repeated; one that reached the deadline may not, as
//! nobody waits for the answer ([`Elapsed::failure`](tower_triage_core::Elapsed::failure)).
//!
//! An answer that is there counts, however late it is: time is looked at when the attempt is
//! pending. Responses are limited until their head; a body that streams afterwards is not.
//!
//! # Where it sits
//!
//! ```text
//! escalate > fallback > retry > circuit breaker > time limit > service
//! ```
//!
//! Below the retry and the breaker it limits each attempt, which the breaker then judges. Above the
//! retry it limits the whole call, waits included, and what was wrong with the attempts is only in
//! the incident: prefer a deadline, or the retry's own, which return the last failure early and start
//! no wait that cannot fit. Both at once is fine; the attempt sees the earlier of both limits.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | limit | none: you name it |
//! | grace | a tenth of the limit, at most 10 s |
//! | deadline | the request's own, if it has one |
//! | what callers get | [`Elapsed`](tower_triage_core::Elapsed) as an error |
//! | what the request is told | nothing |
//!
//! # What it does not do
//!
//! It stops nothing that the attempt spawned, and nothing at the peer: what is dropped here may still
//! be worked on there. It does not limit how long the service takes to become ready, and cannot
//! interrupt an attempt that blocks its thread.
//!
//! # Cost
//!
//! One reference count and one reading of the clock for a call.
//! No lock, no box and no allocation; a timer only once the attempt is pending.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

pub mod future;
mod layer;
mod policy;
mod reject;
mod service;
mod soft;
mod tell;

pub use self::{
    layer::{Core, TimeoutLayer},
    policy::{TimeoutPlan, TimeoutPolicy},
    reject::{AsError, Reject, RejectFn, reject_fn},
    service::Timeout,
    soft::{SoftLimit, soft_limit},
    tell::{NoTell, Tell, TellFn},
};
