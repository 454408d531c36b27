//! The same thing again: `RetryLayer` repeats what time can heal, and nothing else, within a number
//! of attempts, a deadline, a budget and the server's word.
//!
//! ```
//! use std::time::Duration;
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
//! use tower_triage_retry::{RetryLayer, RetryPolicy};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! # let calls = Arc::new(AtomicU32::new(0));
//! # let counter = Arc::clone(&calls);
//! # let orders = service_fn(move |id: u32| {
//! #     let call = counter.fetch_add(1, Ordering::SeqCst);
//! #     async move {
//! #         match call {
//! #             0 => Err(AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset))),
//! #             _ => Ok(format!("order {id}")),
//! #         }
//! #     }
//! # });
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let policy = RetryPolicy::default().attempts(4).deadline(Duration::from_secs(5)).build()?;
//!
//! let mut service = ServiceBuilder::new()
//!     .layer(RetryLayer::new(classifier).policy(policy))
//!     .service(orders); // its first answer is a connection reset
//!
//! assert_eq!(service.ready().await?.call(7).await?, "order 7");
//! assert_eq!(calls.load(Ordering::SeqCst), 2);
//! # Ok(()) }
//! ```
//!
//! # What is repeated
//!
//! The shared classifier says what happened; these questions follow, in this order, and the first
//! "no" is the reason that the incident gives ([`Refusal`](tower_triage_core::Refusal)):
//!
//! 1. Does the [policy](RetryPolicy) have a rule for the class?
//! 2. Did the server forbid it? (If it demanded it, class and safety are not asked.)
//! 3. Has response data reached the caller already?
//! 4. Can the request be sent again at all? See [`Replay`].
//! 5. Is it safe? The peer vouches that it did nothing, or the request is
//!    [repeatable](tower_triage_core::Describe::repeatable); after lost races it must be the whole
//!    unit of work.
//! 6. Are attempts left, and did no retry below give up on this very call?
//! 7. Is the server's hint within cap and deadline? A hint is a lower bound, a gRPC pushback exact.
//! 8. Does the wait end before the deadline? If not, the failure is returned now, not after a sleep.
//! 9. Does the [budget] allow it?
//!
//! The decision is a pure function that can be asked by itself: [`RetryPolicy::decide`],
//! [`RetryPolicy::would_retry`].
//!
//! # What is returned
//!
//! The last outcome, as it was: types and values of response and error are the service's own, and
//! the story is in the incident. Before the wait a failed response is let go ([`Release`]); a failed
//! attempt's error is kept until the next attempt has an outcome. If a circuit breaker below rejects
//! that one, the kept error is returned, and the rejection is a step of the incident. A readiness
//! error before a further attempt ends the call.
//!
//! # Where it sits
//!
//! ```text
//! escalate > fallback > retry > circuit breaker > attempt timeout > service
//! ```
//!
//! Retry outside the breaker: the breaker counts attempts, and when it opens the retry stops there.
//! Breaker outside the retry: it counts one failure per logical call. Both are legal. A timeout
//! below limits an attempt; one above cuts off the whole call, waits included, so prefer
//! [`RetryPolicy::deadline`], which returns the real error early. Credentials, dates and signatures
//! belong below: each attempt starts from the request as it came in and passes the layers below
//! again.
//!
//! Nested retries do not multiply: one that gives up marks the call, and those above honour it.
//!
//! Where a dependency throttles often, an [`AdaptiveLayer`] directly below the retry lengthens the
//! waits by themselves, and shortens them again when it ceases.
//!
//! What an identical repeat does not heal (a prompt that is too long) is repeated only changed:
//! [`ClassRule::if_changed`].
//!
//! Work in steps saves a [`Checkpoint`] after each; a [nudge](RetryLayer::nudge) resumes from it.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | attempts, the first call included | 3 in total; `Timeout` and `Contention` 2 |
//! | classes | `Transient`, `Timeout`, `Throttled`, `Contention`; `Auth` once, after a [refresh](RetryLayer::refresh) |
//! | wait | exponential, base 100 ms (`Throttled` 1 s), factor 2, cap 30 s, full jitter |
//! | server's hint | the longer of hint and own wait, and up to a tenth of the hint on top; over 60 s: returned at once |
//! | deadline | the request's own, if it has one |
//! | budget | a bucket: 0.1 retries per request, at most 20, 10 at the start |
//! | requests kept | all, by clone; none for a single attempt |
//! | failed responses | dropped before the wait |
//! | shutdown signal | none |
//!
//! # What it does not do
//!
//! It does not cut off an attempt that hangs (put a timeout below), hedge, or send another request
//! or ask another service (that is `tower-triage-fallback`; but see [nudges](RetryLayer::nudge)). It
//! acts on outcomes: what fails in a response's body after the response was returned is the caller's
//! to see.
//!
//! # Cost
//!
//! Without a failure: one reference count, one clone of the request where a second attempt is
//! possible, and what the budget takes. No lock of ours and no allocation; the service is cloned and
//! state for further attempts allocated at the first failure, and a timer is set only for a wait.
//!
//! Each attempt has a `tracing` span `attempt` with its number, the class of the failure before it
//! and the wait; it is a child of the span that the call was made in. Each retry is one warning with
//! operation, attempt, maximum, wait and class.

mod adaptive;
mod aws;
mod begin;
pub mod budget;
mod checkpoint;
mod decision;
pub mod future;
mod layer;
mod nudge;
pub mod part;
mod pause;
mod policy;
mod refresh;
mod replay;
mod request_policy;
mod service;
mod span;
mod sync;

pub use self::{
    adaptive::{Adaptive, AdaptiveFuture, AdaptiveLayer, Cubic, SendRate},
    aws::AwsStandard,
    budget::Budget,
    checkpoint::Checkpoint,
    decision::{Decision, Facts, Progress},
    layer::RetryLayer,
    nudge::{NoNudge, Nudge, NudgeFn},
    policy::{ClassRule, RetryPlan, RetryPolicy},
    refresh::{NoRefresh, Refresh, RefreshFn},
    replay::{Attempt, ByClone, Never, Release, Releasing, Replay, ReplayFn, replay_fn},
    request_policy::RequestPolicy,
    service::{Retry, Stock},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
