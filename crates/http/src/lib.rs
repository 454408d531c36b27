//! HTTP for tower-triage: every response and every transport error gets one verdict, by type and
//! never by text.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use tower_triage_core::{Classify, ErrorClass};
//! use tower_triage_http::http;
//!
//! let rules = http();
//! let busy = http::Response::builder().status(429).header("retry-after", "3").body(()).unwrap();
//! let outcome: Result<_, &Infallible> = Ok(&busy);
//! let failure = rules.classify(outcome).failure().unwrap();
//! assert_eq!(failure.class, ErrorClass::Throttled);
//! assert_eq!(failure.retry_after.unwrap().duration().as_secs(), 3);
//! ```
//!
//! # Where it sits
//! Below everything: the layers hold a `Classifier` over these rules and ask it. [`HttpReplay`] goes
//! into a retry layer, [`Unavailable`] into a circuit breaker, [`GatewayTimeout`] into a time limit.
//! [`ReplayBodyLayer`] goes above every layer that sends requests again, where bodies stream;
//! [`DeadlineLayer`] above every layer that looks at deadlines; [`WatchBodyLayer`] above them all. Map
//! the error of an opaque client below the layers, so that a rejection of ours has a way in:
//! `.map_err(AnyError::from)`.
//!
//! # How a verdict is found
//! A response: the stamp of a `ClassifyLayer`, an override ([`HttpRulesExt`]), an error code in type
//! header or body, the status with its correcting headers, and then the server's hints
//! ([`hints`]). An error: walked along its sources, outermost first; a connector's error means that
//! nothing was sent, whatever is inside; the kind of an I/O error decides last. Both decisions are
//! public and pure: [`HttpFacts::verdict`], [`TransportFact::failure`].
//!
//! | status | class | repeated | breaker |
//! |---|---|---|---|
//! | 1xx, 2xx, 3xx | success | | success |
//! | 401, 407, 511 | Auth | after a refresh | ignored |
//! | 402, 507 | Quota | no | ignored |
//! | 403, 413 with `Retry-After`; 403 with `x-ratelimit-remaining: 0` | Throttled | yes | ignored |
//! | 408, 504 | Timeout | if repeatable | failure |
//! | 409 | Contention | if the unit of work | success |
//! | 421, 425 | Transient, not processed | yes | ignored |
//! | 423 | Contention | no | success |
//! | 429 | Throttled | yes | ignored |
//! | 499 | Cancelled | no | ignored |
//! | other 4xx; 501, 505, 506, 510 | Permanent | no | success |
//! | 503 with `x-envoy-overloaded` | Transient, not processed | yes | failure |
//! | 508 | Internal | no | failure |
//! | 529 | Throttled | yes | failure |
//! | 500, 502, 503, other 5xx, below 100, above 599 | Transient | if repeatable | failure |
//!
//! Repeatable are GET, HEAD, OPTIONS, TRACE, PUT, DELETE (RFC 9110, section 9.2.2), a request with
//! an `Idempotency-Key`, and one with the mark [`Repeatable`].
//!
//! # Bodies
//! A request is sent again with the body that it came with ([`Replayable`]). Bodies in memory are
//! cloned. For those that stream, [`ReplayBodyLayer`] keeps what the first attempt reads, up to a
//! limit; what is longer flows on, and is sent once:
//!
//! ```
//! use bytes::Bytes;
//! use http_body_util::combinators::UnsyncBoxBody;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_triage_core::{AnyError, Classifier};
//! use tower_triage_http::{HttpReplay, ReplayBody, ReplayBodyLayer, http};
//! use tower_triage_retry::RetryLayer;
//!
//! type Upload = UnsyncBoxBody<Bytes, std::io::Error>; // can be read once
//!
//! async fn send(request: http::Request<Upload>) -> Result<http::StatusCode, AnyError> {
//!     let client: Client<_, ReplayBody<Upload>> = Client::builder(TokioExecutor::new()).build_http();
//!     let stack = ServiceBuilder::new()
//!         .layer(ReplayBodyLayer::new())
//!         .layer(RetryLayer::new(Classifier::new(http())).replay(HttpReplay::new()))
//!         .map_err(AnyError::from)
//!         .service(client);
//!     Ok(stack.oneshot(request).await?.status())
//! }
//! # fn is_spawnable(request: http::Request<Upload>) {
//! #     let _ = async move { tokio::spawn(async move { send(request).await }).await };
//! # }
//! ```
//!
//! Nothing is repeated once an outcome was returned: an error in the middle of a response's body is
//! the caller's, and passes unchanged. [`WatchBodyLayer`] tells of it: an incident of its own.
//!
//! # Defaults
//! | what | default | changed by |
//! |---|---|---|
//! | operation | the method, and a [`RouteTemplate`] if there is one; never the path | [`HttpRulesExt::operation_by`] |
//! | breaker key | the host in lower case, with its port | [`HttpRulesExt::key_by`] |
//! | class of a status | the table above | [`HttpRulesExt::status`], [`HttpRulesExt::success`] |
//! | mark of a fallback's answer | a response extension (`Notes`) | [`HttpRulesExt::fallback_header`] |
//! | deadline | none | the extension [`Deadline`], [`DeadlineLayer`] |
//! | draining a failed response | 64 KiB, 1 s | [`HttpReplay`] |
//! | captured of a request, with feature `escalate` | 64 KiB of its body, no credentials | `HttpCodec` |
//! | kept of a body that streams | nothing; 64 KiB under the layer | [`ReplayBodyLayer::limit`] |
//!
//! # What it does not do
//! The rules read no body (a layer that peeks may leave a [`BodyPrefix`]), and nothing here follows a
//! redirect. A body is not taken away from an attempt that still sends it: a server that answers
//! before it has read everything gets the request once. The crate sends nothing and holds no timer
//! but that of a drain.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod body_code;
#[cfg(feature = "escalate")]
mod capture;
mod deadline;
mod decision;
mod errors;
pub mod future;
pub mod hints;
mod marks;
mod reject;
mod replay;
mod replay_body;
mod replayable;
mod request;
mod rules;
mod status;
#[cfg(feature = "tower-http")]
mod tower_classify;
mod transport;
mod watch_body;

pub use tower_triage_retry::Attempt;

#[cfg(feature = "escalate")]
pub use self::capture::{CaptureBody, HttpCodec};

#[cfg(feature = "tower-http")]
pub use self::tower_classify::{
    ByMakeClassifier, MakeClassifierLayer, MakeClassifierService, MakeTriageClassifier,
    StampFuture, Stamped, TraceFailure, TriageClassifier, by_make_classifier, server_errors,
};

pub use self::{
    body_code::aws_code,
    deadline::{DeadlineLayer, Deadlines},
    decision::HttpFacts,
    errors::HttpErrors,
    marks::{BodyPrefix, Deadline, Repeatable, RouteTemplate, UnitOfWork},
    reject::{GatewayTimeout, Unavailable},
    replay::HttpReplay,
    replay_body::{ReplayBodies, ReplayBody, ReplayBodyLayer, ReplayError},
    replayable::{Replayable, copy_request},
    request::RequestHead,
    rules::{HttpRules, HttpRulesExt, HttpStatus, ResponseHead, http},
    transport::{Http2Fact, Http2Frame, TransportFact, transport_failure},
    watch_body::{WatchBodies, WatchBodyLayer, WatchFuture, WatchedBody},
};
