//! Another way to the same goal: `FallbackLayer` answers the failures that can be bypassed, says
//! so, and otherwise returns the primary failure as it was.
//!
//! ```
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves};
//! use tower_triage_fallback::FallbackLayer;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let primary = service_fn(|_id: u32| async {
//!     Err::<String, _>(AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)))
//! });
//! let backup = service_fn(|id: u32| async move { Ok::<_, AnyError>(format!("{id} from the backup")) });
//!
//! let mut service = ServiceBuilder::new()
//!     .layer(
//!         FallbackLayer::new(classifier)
//!             .or_service([ErrorClass::Transient, ErrorClass::Rejected], backup)
//!             .or_value(ErrorClass::Quota, |_failed| "come back tomorrow".to_owned()),
//!     )
//!     .service(primary);
//!
//! assert_eq!(service.ready().await?.call(7).await?, "7 from the backup");
//! # Ok(()) }
//! ```
//!
//! # Steps
//!
//! | method | answers with | asks for |
//! |---|---|---|
//! | `or_service(classes, backup)` | another service, given the request | `Req: Clone` |
//! | `or_service_with(classes, backup, \|req, failed\| ..)` | another service, given what a function makes | `Req: Clone` |
//! | `or_nudge(classes, \|req, failed\| ..)` | the same service, given the request adjusted | `Req: Clone`, `S: Clone` |
//! | `or_replan(classes, \|req, failed\| ..)` | the same service, given another request | `Req: Clone`, `S: Clone` |
//! | `or_call(classes, \|failed\| async ..)` | an async function of the failure | nothing |
//! | `or_call_with(classes, \|req, failed\| async ..)` | an async function of request and failure | `Req: Clone` |
//! | `or_value(classes, \|failed\| ..)` | a value made from the failure | nothing |
//! | `or_last_good(classes, policy)` | the last good answer to the same operation | `Res: Clone` |
//! | `or_last_good_by(classes, policy, \|req\| key)` | the last good answer to the same key | `Req: Clone`, `Res: Clone` |
//! | `or_step(classes, step)` | a [`Step`](chain::Step) of your own | `Req: Clone`, `S: Clone` |
//!
//! A backup can be any service of the same types: [`decompose()`] makes one that splits the request,
//! runs the parts a few at a time, and merges; a `FallbackLayer` around a backup makes a chain, each
//! entry with its classes and, if it has one, its own breaker.
//!
//! `classes` is an [`ErrorClass`](tower_triage_core::ErrorClass), an array of them, or
//! [`ClassSet::bypassable()`](tower_triage_core::ClassSet::bypassable). Where a request is not
//! `Clone`, [`copy_requests`](FallbackLayer::copy_requests) copies it with a function.
//!
//! Each step sees the verdict and the primary outcome ([`Failed`]). Its answer is judged by the
//! same classifier; if that calls it a failure, the next step gets its turn. If no step answers,
//! the primary outcome is returned untouched and its class decides; the steps' failures are in the
//! incident.
//!
//! An answer is marked ([`Note::Fallback`](tower_triage_core::Note::Fallback): for HTTP a response
//! extension), logged at `warn` with the original error's text, recorded in the incident, and
//! counted by class ([`FallbackHandle`]). The primary failure stays a failure for whatever counts
//! it below: breaker, retry, metrics.
//!
//! # Where it sits
//!
//! Above retry and circuit breaker (what they could not solve, and what the breaker rejected,
//! arrives here), below `EscalateLayer` (which hears of what no step could answer). Below a
//! `Buffer` or around a `ConcurrencyLimit` it keeps the readiness contract; an inner service that
//! fails its *readiness* is answered too: the error is held and becomes the next call's outcome.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | steps | at most 2 (`.max_steps::<N>()` on the empty chain; more do not build; `cargo check` does not see it) |
//! | time limit of a step | none (`.within(limit)` behind the step) |
//! | attempts that must have failed alike before a step | 1 (`.after_failures(n)` behind the step) |
//! | copies of requests | by `Clone` |
//! | parts under way ([`decompose()`]) | 4 |
//! | kept answers ([`LastGood`]) | replaced at most every 1 s, at most 5 min old, at most 1024 |
//!
//! # What it does not do
//!
//! It acts on outcomes, not on what follows: once a response has been returned, a failure of its
//! body is the caller's to see. It does not retry a step, wait between steps, or hedge. It changes
//! neither response nor error type: a backup with other types is mapped to them.
//!
//! # Cost
//!
//! Without a failure: one reference count, the copy of the request if a step needs it, and a clone
//! of the service if a step is a replan. No lock and no allocation, except for the last good answer.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

pub mod chain;
pub mod decompose;
mod failed;
pub mod future;
mod handle;
pub mod keep;
mod layer;
mod part;
mod service;
pub mod steps;

pub use self::{
    decompose::{Decompose, decompose},
    failed::Failed,
    handle::FallbackHandle,
    keep::{ByClone, CopyFn, CopyRequest, copy_fn},
    layer::{Core, FallbackLayer},
    service::Fallback,
    steps::LastGood,
};
