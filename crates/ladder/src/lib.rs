//! Five levels of recovery from one readable description: a failure enters at the level that its class
//! decides, each level has its time, and what does not help is left upwards, to an output at the top.
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
//! use tower_triage_escalate::{Desk, Failed};
//! use tower_triage_ladder::{Changes, Ladder};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let writer = service_fn(async |pages: u32| match pages {
//!     0..=10 => Ok(format!("{pages} pages")),
//!     _ => Err(AnyError::msg("lost the thread")), // which no rule knows
//! });
//!
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let ladder = Ladder::default()
//!     .build(classifier, Desk::log())?
//!     .nudge(|pages: u32, _failed| pages / 2)
//!     .replan(|_pages: u32, _failed| 1)
//!     .finish(|failed: Failed<'_, String, AnyError>| {
//!         format!("nothing yet: {}", Changes::of(failed.incident))
//!     });
//! let mut stack = ServiceBuilder::new().layer(ladder).service(writer);
//!
//! // What is ambiguous is not repeated as it is; the nudge helped.
//! assert_eq!(stack.ready().await?.call(20).await?, "10 pages");
//! // The nudge did not help; another plan did.
//! assert_eq!(stack.ready().await?.call(40).await?, "1 pages");
//! # use tower::Service;
//! # Ok(()) }
//! ```
//!
//! # Levels
//!
//! | level | does | given by | is |
//! |---|---|---|---|
//! | 1 retry | the same again, if it may be repeated | the description | a [`RetryLayer`](tower_triage_retry::RetryLayer) in a [`TimeoutLayer`](tower_triage_timeout::TimeoutLayer) |
//! | 2 nudge | the same approach, adjusted | [`nudge`](Rungs::nudge) | steps of a |
//! | 3 replan | another approach to the same goal | [`replan`](Rungs::replan) | [`FallbackLayer`](tower_triage_fallback::FallbackLayer), |
//! | 4 fallback | somebody else: an agent, a model, a service | [`fallback`](Rungs::fallback) | each with its limit |
//! | 5 finish | what there is, with an explanation | [`finish`](Rungs::finish) | an [`EscalateLayer`](tower_triage_escalate::EscalateLayer) |
//!
//! A level that is not given is passed over. The class of the failure that the call itself ends with
//! (after its retries, if it has any) decides where one enters ([`Entry`]); from there each level is
//! tried once, up to the one that answers. What a nudge or a replan sends is an action of its own: it
//! has the retries of level 1, within the time of its own level.
//!
//! When the time of a level passes, what is in flight is dropped and the next level starts. No call
//! takes longer than [`Ladder::longest`].
//!
//! What climbs to the top reaches somebody through the [`Desk`](tower_triage_escalate::Desk), once,
//! whatever its class. With a finish the caller gets an output instead of the failure, marked as a
//! forced finish; without one, the failure.
//!
//! Not only errors enter: what the classifier calls a failure does. A reviewer's verdict or an
//! unexpected output is a rule ([`RulesExt::adjust`](tower_triage_core::RulesExt::adjust)), a call
//! that takes longer than expected a `TimeoutLayer` below the ladder, a loop a judge that is asked
//! about each failure ([`ClassifyLayer`](tower_triage_core::ClassifyLayer)).
//!
//! # The record
//!
//! [`Changes::of`] reads every change of level from an incident: when, from where, to where, why. An
//! observer of the classifier, a finish and an escalation get that incident.
//!
//! # Where it sits
//!
//! Outermost of our layers: it brings those above the breaker itself. A circuit breaker, a time limit
//! of each attempt and the classifying of slow judges go below it.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | waits of level 1 | 1 s, 2 s, 4 s: at most 3 retries; a server's hint is a lower bound |
//! | time of a level | retry 30 s, nudge 60 s, replan 120 s, fallback 60 s |
//! | time of the finish | 250 ms to have somebody told; the output is there at once |
//! | enter at retry | Transient, Timeout, Throttled, Contention |
//! | enter at nudge | Unknown |
//! | enter at replan | Permanent |
//! | enter at fallback | Declined, Quota, Internal, Rejected |
//! | enter at finish | Auth, Cancelled |
//! | mode | balanced |
//! | retry budget | that of the retry layer ([`Rungs::retry`] changes it) |
//!
//! # What it does not do
//!
//! It has no retry loop of its own, and decides nothing that its layers do not. The mode is data for
//! whoever acts on confidence (a [`Learner`](https://docs.rs/tower-triage-learn), a report): the levels
//! do not ask it. A request and the service are cloned for each call, as a replan needs them.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

pub mod action;
mod changes;
pub mod climb;
mod ladder;
mod level;
mod rungs;

pub use self::{
    changes::{Change, Changes},
    ladder::Ladder,
    level::{Entry, Level},
    rungs::{Again, Elsewhere, Rungs},
};
#[doc(no_inline)]
pub use tower_triage_learn::Mode;
