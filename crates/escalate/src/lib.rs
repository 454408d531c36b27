//! No failure ends unheard: what nothing below could solve reaches somebody who can act, with the
//! whole story attached, once per request.
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves};
//! use tower_triage_escalate::{
//!     ChannelSink, Desk, EscalateLayer, LogSink, Receiver, Route, Routes, When,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (channel, mut inbox) = ChannelSink::new(64)?;
//! let routes = Routes::new(Route::new(["operator"], "human_required"))
//!     .rule(When::from("worker-*"), Route::new(["orchestrator"], "task_blocked"));
//! let desk = Desk::new(routes, [
//!     Receiver::new("operator").record(LogSink),
//!     Receiver::new("orchestrator").record(channel).record(LogSink), // the log if nobody listens
//! ])?;
//!
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let worker = ServiceBuilder::new()
//!     .layer(EscalateLayer::new(classifier, desk).from("worker-7"))
//!     .service(service_fn(|_job: u32| async {
//!         Err::<(), _>(AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)))
//!     }));
//!
//! assert!(worker.oneshot(1).await.is_err()); // the caller gets the failure as it was
//! let told = inbox.recv().await.unwrap();
//! assert_eq!((told.class, told.task_type.as_str()), (ErrorClass::Transient, "task_blocked"));
//! # Ok(()) }
//! ```
//!
//! # When it acts
//!
//! | the call | somebody is told |
//! |---|---|
//! | ends with a failure whose class escalates ([`ErrorClass::escalate`](tower_triage_core::ErrorClass::escalate)) | yes |
//! | is rescued, but met a class that escalates at once (`Quota`, `Internal`, `Auth` without a refresh that helped) | yes, as recovered |
//! | is rescued otherwise | only with [`record_recovered`](EscalatePolicy::record_recovered) |
//! | opened a breaker | yes, whatever becomes of it |
//! | is dropped by its caller | only of what escalates at once, as abandoned |
//!
//! [`EscalatePolicy::when`] says otherwise per class.
//!
//! The caller gets the original failure, or, with [`finish_with`](EscalateLayer::finish_with), an
//! answer built from what is known and marked as such.
//!
//! # Where it sits
//!
//! Outermost: it hears of what retry, breaker and fallback left unsolved, and it can wait for the
//! desk (at most [`EscalatePolicy::wait`]) so that the incident says what came of it: *escalated*,
//! *not recorded* (every sink failed, or the queue had no room), or neither (it takes longer; the
//! desk's [`counts`](Desk::counts) will tell).
//!
//! Below another layer of ours it leaves the escalation with the call: a retry or a fallback above
//! that goes on withdraws it, else it goes to the desk's queue when the call ends. The incident then
//! says *escalated* as soon as it is queued. Two of these layers around one call tell once: the
//! outer one does.
//!
//! A readiness error of the inner service is kept and is the outcome of the next call. For that the
//! layer's type names the error type, so use [`AnyError`](tower_triage_core::AnyError): a stack whose
//! type mentions `Box<dyn Error>` does not compile inside `tokio::spawn(async move { .. })`. Above
//! tower's `timeout` or `buffer` put `.map_err(AnyError::from_boxed)` in between.
//!
//! # Receivers and sinks
//!
//! A [`Desk`] sends each escalation along its [`Routes`] to one or more [`Receiver`]s. A receiver has
//! sinks for *records*, which get everything, and sinks for *notifications*, which get one per kind
//! of failure and window, with the count since. In both lists the first sink that takes it is enough; one that
//! fails is tried a bounded number of times. A sink is any `Service<Escalation, Response = ()>`
//! ([`IntoSink`]), so it can be wrapped in layers, ours too. Given: [`LogSink`], [`ChannelSink`],
//! [`JsonLinesSink`]; in `tower-triage-receivers` webhooks (CloudEvents, PagerDuty, Alertmanager,
//! Slack).
//!
//! When no failure of a kind has come for a while, whoever was notified of it gets a resolve with
//! the count of what they were not told yet ([`DeskPolicy::resolve_after`]).
//!
//! # Never lost
//!
//! A receiver whose first sink is a [`StoreSink`](store::StoreSink) keeps every record as a
//! [`Letter`](store::Letter) in a [`Store`](store::Store): `tower-triage-dead-letter-sqlite` (a file),
//! `tower-triage-dead-letter-postgres` (shared by many processes), or [in
//! memory](store::MemoryStore) for tests. The last sink is a file
//! ([`JsonLinesSink`]): what had to go there is put into the store at the next start
//! ([`JsonLinesSink::replay`]).
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use tower_triage_core::{AnyOk, Chain, Classifier, ConfigError, Halves};
//! use tower_triage_escalate::store::{MemoryStore, Store, StoreSink};
//! use tower_triage_escalate::*;
//!
//! # async fn start(path: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//! JsonLinesSink::replay(path, &*store).await?;
//! let operator = Receiver::new("operator")
//!     .record(StoreSink::new(store.clone()))
//!     .record(JsonLinesSink::open(path)?);
//! let policy = DeskPolicy::new().tries(2).sink_timeout(Duration::from_secs(1));
//! let routes = Routes::new(Route::new(["operator"], "human_required"));
//! let desk = Desk::with_policy(policy, routes, [operator])?;
//!
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let layer: EscalateLayer<_> = EscalateLayer::new(classifier, desk)
//!     // Two tries of a second each, and the file: the caller hears the truth within five.
//!     .policy(EscalatePolicy::new().wait(Duration::from_secs(5)));
//! # Ok(()) }
//! ```
//!
//! The caller is told when the record is stored ([`Recording::Durable`], the default), or when it
//! has a place in the queue ([`Recording::Background`]). With [`capture`](EscalateLayer::capture) the
//! letter holds the request too, without its secrets, and [`redrive`] drives it again when the
//! dependency is back.
//!
//! # Asking
//!
//! With [`ask`](EscalateLayer::ask) a call that fails asks somebody and waits, with a deadline and
//! level after level, for a [`Decision`]: send the request again, as it was or changed; respond with
//! a value; give up. Whoever answers does it at the store
//! ([`Change::Answered`](store::Change::Answered); the command `triage decide`), from whatever
//! process; the first answer wins. A question outlives its process, and so does the answer.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | the caller is held up | at most 250 ms, until the record is with its receivers |
//! | requests | not captured |
//! | decisions | not asked for; [`Asking`]: 5 min, then give up; 100 calls wait at a time |
//! | rescued calls | not recorded |
//! | tries per sink | 3, 30 s each; waits 100 ms doubling up to 5 s, full jitter |
//! | notifications | one per fingerprint and 60 s; a resolve after 5 min of quiet; 1024 fingerprints remembered per receiver |
//! | queue | 1024 deliveries, 16 at work, the newest is dropped when it is full |
//! | priorities | [`Priorities`] |
//!
//! # What a record holds
//!
//! See [`Escalation`]. It never holds a header, a body, or a URL's query; [`enrich`](EscalateLayer::enrich)
//! adds what you decide to tell. What goes through a request's own id ([`Describe::request_id`](tower_triage_core::Describe::request_id))
//! has the same record id whenever it fails.
//!
//! # What it does not do
//!
//! A record that is still in the queue does not survive a crash: durable is what a durable sink took
//! while the caller waited. Nor is the end of a trouble told that is still open when the desk is
//! dropped. A question that nobody answers costs its caller the whole deadline.

mod ask;
mod capture;
mod cloud_event;
mod desk;
pub mod ending;
mod escalation;
pub mod future;
mod later;
mod layer;
pub mod part;
mod policy;
mod question;
pub mod redrive;
mod report;
mod routes;
mod service;
mod sink;
pub mod store;
mod storm;
mod timestamp;
mod wall_clock;
mod write;

pub use self::{
    ask::Asking,
    capture::{CaptureError, Captured, Codec, JsonCodec, RedactJson},
    cloud_event::CloudEvent,
    desk::{Delivered, Delivery, Desk, DeskCounts, DeskPolicy, Overflow, Receiver},
    ending::{Ending, Failed, KeepFailure, Set, Unset},
    escalation::{Attempt, Context, Escalation, Outcome},
    layer::{Core, EscalateLayer},
    policy::{EscalatePolicy, Recording},
    question::{Accepts, Answer, Choice, Decision, Level, Question},
    redrive::{Redrive, RedrivePolicy},
    routes::{Priorities, Priority, Route, Routes, Rule, When},
    service::Escalate,
    sink::{
        ChannelClosed, ChannelSink, GivenUp, IntoSink, JsonLinesError, JsonLinesSink, LogSink,
        ReplayError, Replayed, Sink,
    },
    timestamp::Timestamp,
    wall_clock::WallClock,
};

pub use tower_triage_core::redact::Redactor;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
