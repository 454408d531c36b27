//! gRPC for tower-triage, over tonic: every answer and every transport error gets one verdict, by
//! status code and type and never by text.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use tower_triage_core::{Classify, ErrorClass, RetryAfter};
//! use tower_triage_grpc::grpc;
//!
//! let rules = grpc();
//! let busy = http::Response::builder()
//!     .header("grpc-status", "14")
//!     .header("grpc-retry-pushback-ms", "250")
//!     .body(())
//!     .unwrap();
//! let outcome: Result<_, &Infallible> = Ok(&busy);
//! let failure = rules.classify(outcome).failure().unwrap();
//! assert_eq!(failure.class, ErrorClass::Transient);
//! assert!(matches!(failure.retry_after, Some(RetryAfter::Exactly(_))));
//! ```
//!
//! # Where it sits
//! Below everything: the layers hold a `Classifier` over these rules and ask it. [`PeekLayer`] goes
//! to the bottom of a client's stack, [`GrpcReplay`] into its retry layer, [`ReplayBodyLayer`] above
//! every layer that sends requests again, and [`with_status`] on top. [`Unavailable`] goes into the
//! circuit breaker of a server. The README shows both stacks.
//!
//! # How a verdict is found
//! An answer: the stamp of a `ClassifyLayer`, then `grpc-status` in the headers, else in the trailers
//! that a [`PeekLayer`] has seen, else the HTTP status (grpc/doc, http-grpc-status-mapping); then
//! what the server says about repeating. An answer that has begun with a message is a success to the
//! layers: what comes later is the caller's. An error: walked along its sources, outermost first; a
//! connector's error means that nothing was sent, and a [`Status`](tonic::Status) that tonic made of
//! something else is judged by that. The decisions are public and pure: [`GrpcFacts::verdict`],
//! [`grpc_failure`], [`Pushback::of_headers`], [`StatusDetails::of_headers`].
//!
//! | code | class | repeated | breaker |
//! |---|---|---|---|
//! | 0 OK | success | | success |
//! | 1 CANCELLED | Cancelled | no | ignored |
//! | 1 CANCELLED after the deadline | as 4 | | |
//! | 2 UNKNOWN; codes that nobody registered | Unknown | no | failure |
//! | 3, 5, 6, 7, 9, 11, 12 | Permanent | no | success |
//! | 4 DEADLINE_EXCEEDED | Timeout | if repeatable | failure |
//! | 8 RESOURCE_EXHAUSTED | Throttled | with a hint | ignored |
//! | 8 with a `QuotaFailure` and nothing that says when | Quota | no | ignored |
//! | 10 ABORTED | Contention | if the unit of work | success |
//! | 13 INTERNAL, 15 DATA_LOSS | Internal | no | failure |
//! | 14 UNAVAILABLE | Transient | if repeatable | failure |
//! | 16 UNAUTHENTICATED | Auth | after a refresh | ignored |
//! | none, HTTP 400 431 / 401 / 403 / 404 | as 13 / 16 / 7 / 12 | | |
//! | none, HTTP 429 502 503 504 | as 14 | | |
//! | none, any other HTTP status, also 200 | as 2 | | |
//!
//! Repeatable is what carries the mark [`Repeatable`], or is named by [`GrpcRulesExt::repeatable_methods`];
//! under a [`ServiceConfig`] the codes of a method's own policy decide.
//!
//! # Defaults
//! | what | default | changed by |
//! |---|---|---|
//! | operation | `package.Service/Method`, from [`tonic::GrpcMethod`] or the path | [`GrpcRulesExt::operation_by`] |
//! | breaker key | the operation | [`GrpcRulesExt::key_by`] |
//! | class of a code | the table above | [`GrpcRulesExt::code`], [`GrpcRulesExt::success`] |
//! | repeatable | nothing | [`GrpcRulesExt::repeatable_methods`] |
//! | deadline | `grpc-timeout`, or the extension [`Deadline`] | |
//! | headers held back for the first frame | 100 ms | [`PeekLayer::wait`] |
//! | attempts of a policy | 5 at most | [`AttemptLimit`] |
//! | time to wait, told by a rejection | `RetryInfo`, no pushback | [`Unavailable::pushback`] |
//!
//! # What it does not do
//! It does not hedge, keeps no stream of the caller's for a second attempt while the first one reads
//! it, and reads no message.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod code;
mod decision;
mod details;
mod errors;
mod method_policy;
mod peek;
mod pushback;
mod reject;
mod replay;
mod request;
mod rules;
mod service_config;
mod timeout;
mod wire;

pub use tower_triage_http::{
    Attempt, Deadline, Repeatable, ReplayBody, ReplayBodyLayer, RequestHead, UnitOfWork,
};

pub use self::{
    code::code_of,
    decision::GrpcFacts,
    details::StatusDetails,
    errors::{GrpcErrors, grpc_failure},
    method_policy::{A6Policy, AttemptLimit, MethodPolicy},
    peek::{Peek, PeekBody, PeekFuture, PeekLayer, Peeked},
    pushback::Pushback,
    reject::{AsStatus, Unavailable, circuit_open, with_status},
    replay::GrpcReplay,
    request::Method,
    rules::{GrpcRules, GrpcRulesExt, GrpcStatus, grpc},
    service_config::ServiceConfig,
    timeout::{set_timeout, timeout_of},
};
