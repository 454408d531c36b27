//! Experience for the shared classifier: which remedy solved which kind of failure is remembered, and
//! an unknown failure whose remedy is known well enough is treated so by every layer.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves};
//! use tower_triage_fallback::FallbackLayer;
//! use tower_triage_learn::{LearnPolicy, Learner, Mode, Remedy};
//! use tower_triage_retry::RetryLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), AnyError> {
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let learner = Learner::new(
//!     LearnPolicy::default()
//!         .mode(Mode::Aggressive)
//!         .remedies([
//!             Remedy::new("retry", ErrorClass::Transient),
//!             Remedy::new("fallback/service", ErrorClass::Declined),
//!         ])
//!         .explore(true)
//!         .build()?,
//! );
//! learner.attach(&classifier);
//!
//! // Fails in a way that no rule knows, and that only the backup can help against.
//! static CALLS: AtomicU32 = AtomicU32::new(0);
//! let primary = service_fn(async |_job: u32| {
//!     let call = CALLS.fetch_add(1, SeqCst);
//!     Err::<u32, _>(AnyError::msg(format!("shard {call} is moving")))
//! });
//! let backup = service_fn(async |job: u32| Ok::<_, AnyError>(job));
//! let mut stack = ServiceBuilder::new()
//!     .layer(FallbackLayer::new(classifier.clone()).or_service(ErrorClass::Declined, backup))
//!     .layer(RetryLayer::new(classifier))
//!     .service(primary);
//!
//! // To repeat it was tried once, in vain; from then on the failure went straight to the backup.
//! assert!(stack.ready().await?.call(1).await.is_err());
//! let before = CALLS.load(SeqCst);
//! for job in 2..=10 {
//!     assert_eq!(stack.ready().await?.call(job).await?, job);
//! }
//! assert_eq!(CALLS.load(SeqCst) - before, 9);
//! # Ok(()) }
//! ```
//!
//! # What is learned
//!
//! A [`Learner`] is an observer of the classifier: it reads from each incident what was tried on
//! an unknown failure (another attempt: `retry`; a changed one: `nudge`; a step of the fallback:
//! `fallback/service`, `fallback/replan` ..) and whether that solved the call. It remembers this by
//! [`Fingerprint`](tower_triage_core::Fingerprint): operation, reason and text without numbers, ids
//! and quoted parts. What the layers know nothing of (a human's decision, a decomposition) is put
//! down with [`Learner::record`], under any name.
//!
//! # What is done with it
//!
//! The classifier asks it about each failure that the rules cannot tell. If a remedy's confidence
//! reaches the threshold of the [`Mode`], the failure is treated as of the [`Remedy`]'s class, in
//! every layer; what is known of the work behind it (its disposition) stays as it was, so nothing is
//! repeated that is not safe to repeat. Otherwise it stays `Unknown`, unless you allow
//! it to [explore](LearnPolicy::explore). Failures that the rules know are never looked up.
//!
//! Confidence is the lower bound of a proportion (Wilson's interval, one-sided, 95 %) over counts that
//! fade. From nothing but successes it takes 3 to act in mode aggressive, 7 in balanced, 34 in
//! cautious. What stops working is no longer done after at most 12 calls, however long it worked.
//!
//! Unless it may explore it learns only from what the stack does with an `Unknown` failure anyway:
//! repeat it once, if the retry has a rule for that, and go to the fallback. The only gain is then
//! that attempts in vain are left out; what needs another class is never found.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | mode | balanced: from 0.7 |
//! | remedies that the stack has | none declared: another attempt is for `Transient` |
//! | exploring | no |
//! | experience halves in | 7 days |
//! | a success makes older trials fade by | 1/50; a failure by 1/10 |
//! | kinds of failure | 1024, of each 8 remedies; the least useful goes first |
//! | file | none; else replaced at most every 5 s, `fsync` before the rename |
//!
//! # Where it sits
//!
//! Beside the stack: [`Learner::attach`] to the classifier that its layers share. Layers that look at
//! one outcome at two moments between which something is learned may see two verdicts, and count
//! it as two. Where that matters put a [`ClassifyLayer`](tower_triage_core::ClassifyLayer) at the
//! bottom, with a clone of the learner as its judge and without `attach`, but observe with it: then
//! each outcome is judged once.
//!
//! # What it does not do
//!
//! It invents no remedy, and changes no rule: it only chooses between what the stack can do. It is no
//! place for secrets or texts: fingerprints, names and counts are all that it keeps. Calls in
//! flight at one time try the same remedy; the budget of the retry limits what that costs.
//!
//! # Cost
//!
//! Nothing where nothing fails. An unknown failure costs its text, a short lock and a look-up in
//! each layer; an incident with something to learn a second lock at its end. Where memory is full, a
//! new kind of failure looks through all of it for the least useful one.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod file;
mod learner;
mod lesson;
mod memory;
mod mode;
mod policy;
mod remedy;
mod tally;
mod text;

pub use self::{
    file::{OpenError, Opened, SaveError},
    learner::Learner,
    memory::{Advice, Known, Memory},
    mode::Mode,
    policy::{LearnPlan, LearnPolicy},
    remedy::Remedy,
    text::{ImportError, Imported},
};
