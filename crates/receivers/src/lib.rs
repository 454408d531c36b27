//! Where people hear of it: sinks that post escalations to the systems that page, group and show
//! them, so guarded that a receiver which is down, slow or busy costs a bounded time and no word is
//! lost silently.
//!
//! | sink | speaks | a repeat | a resolve |
//! |---|---|---|---|
//! | [`WebhookSink`] | CloudEvents 1.0, structured JSON | an event with the record's id | an event of type [`CloudEvent::RESOLVED`](tower_triage_escalate::CloudEvent::RESOLVED) |
//! | [`PagerDuty`] | Events API v2 | `trigger` with the same `dedup_key` | `resolve` |
//! | [`Alertmanager`] | API v2 | the same labels, a later `endsAt` | `endsAt` now |
//! | [`Slack`] | incoming webhook | a message | a message |
//!
//! ```
//! use tower_triage_escalate::{Desk, LogSink, Receiver, Route, Routes};
//! use tower_triage_receivers::{Alertmanager, Client, PagerDuty};
//!
//! # fn main() -> Result<(), tower_triage_core::ConfigError> {
//! # let tls_client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
//! let pager = PagerDuty::with_client(Client::new(tls_client), "R0UTINGKEY00000000000000000000AB")?;
//! let alerts = Alertmanager::new("http://alertmanager.internal:9093")?.label("team", "shop")?;
//! let desk = Desk::new(
//!     Routes::new(Route::new(["on-call", "alerts"], "human_required")),
//!     [
//!         // The log hears of it if the pager does not.
//!         Receiver::new("on-call").notify(pager.clone()).notify(LogSink),
//!         Receiver::new("alerts").notify(alerts),
//!     ],
//! )?;
//! # drop(desk);
//! assert!(!format!("{pager:?}").contains("R0UTINGKEY")); // keys and addresses are not shown
//! # Ok(()) }
//! ```
//!
//! # Where it sits
//!
//! Each is a `tower::Service<Escalation, Response = ()>`: a sink for notifications
//! ([`Receiver::notify`](tower_triage_escalate::Receiver::notify)), below the desk's storm control,
//! which sees to one notification per fingerprint and window and to the resolve. As a sink for
//! records ([`Receiver::record`](tower_triage_escalate::Receiver::record)) it gets every escalation
//! and no resolve: of use for [`WebhookSink`] only.
//!
//! All four are one thing, [`HttpSink`], with a [`Format`] each. For another system write a format.
//!
//! # Protection
//!
//! By default ([`Client::new`], and the client that `new` of each sink makes) a sending goes through
//! our own retry, circuit breaker and time limit, by the rules of `tower-triage-http`: 429 and 5xx
//! are repeated, no sooner than `Retry-After` says; a 400 is not. What is left then is final
//! ([`GivenUp`](tower_triage_escalate::GivenUp)): the desk goes on to the next sink without tries of
//! its own, so tries do not multiply. [`Client::bare`] takes a stack of yours as it is; there the desk
//! tries again what time can heal.
//!
//! | setting | default |
//! |---|---|
//! | attempts | 5, of what time can heal: `Transient`, `Timeout`, `Throttled`, `Contention` |
//! | waits | 500 ms (`Throttled` 1 s) doubling up to 8 s, full jitter; at least `Retry-After` |
//! | one attempt | 8 s |
//! | all attempts and waits | 25 s: less than the desk's limit for a sink; a wait that does not fit is not begun |
//! | breaker | per host; opens for 30 s, and longer each time, after 5 failures in a row |
//! | Slack | one message a second |
//! | Alertmanager's `endsAt` | 15 min after the last failure, until the resolve |
//! | TLS | feature `tls`; without it bring a client of yours for `https` addresses |
//!
//! # Secrets
//!
//! Routing keys and addresses (Slack's is its own key) are in no `Debug`, error or log line of ours.
//! Errors ([`SendError`]) say the status or the class and never the text of a client or a server,
//! which may quote an address. What is sent is what a record holds: no header, no body, no query.
//!
//! # What it does not do
//!
//! It takes no decisions back: messages carry a link ([`Slack::link`](HttpSink::link)) to where one
//! can be made. It does not know whether anybody was woken: PagerDuty's 202 says that the event is
//! queued. It does not repeat alerts of its own accord; the desk's windows do as long as failures
//! come, and see [`Alertmanager`] for what that means there.

mod alertmanager;
mod client;
mod cloud_events;
mod error;
mod format;
mod http_sink;
mod link;
mod pace;
mod pager_duty;
#[cfg(test)]
mod sample;
mod slack;
mod text;

pub use self::{
    alertmanager::{Alertmanager, AlertmanagerAlerts},
    client::Client,
    cloud_events::{CloudEvents, WebhookSink},
    error::SendError,
    format::Format,
    http_sink::HttpSink,
    pager_duty::{PagerDuty, PagerDutyEvents},
    slack::{Slack, SlackMessages},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
