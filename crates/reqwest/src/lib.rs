//! [reqwest](mod@::reqwest) for tower-triage: its client as a guarded service, our layers as a middleware
//! of reqwest-middleware, and its middleware as a layer of ours.
//!
//! ```
//! use reqwest::{Client, Request, Response};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_triage_circuit_breaker::{CircuitBreakerLayer, KeyedSettings};
//! use tower_triage_core::{AnyError, Classifier};
//! use tower_triage_reqwest::{ReqwestReplay, reqwest};
//! use tower_triage_retry::RetryLayer;
//!
//! async fn send(request: Request) -> Result<Response, AnyError> {
//!     let classifier = Classifier::new(reqwest());
//!     let stack = ServiceBuilder::new()
//!         .layer(RetryLayer::new(classifier.clone()).replay(ReqwestReplay::new()))
//!         .layer(CircuitBreakerLayer::new(classifier).keyed(KeyedSettings::default()))
//!         .map_err(AnyError::from)
//!         .service(Client::new());
//!     stack.oneshot(request).await
//! }
//! # fn is_spawnable(request: Request) {
//! #     let _ = async move { tokio::spawn(async move { send(request).await }).await };
//! # }
//! ```
//!
//! # Three ways
//! | you have | you write | requests are |
//! |---|---|---|
//! | a `reqwest::Client` | layers around it, as above | [`reqwest::Request`], or [`Marked`] with `.map_request(Marked::into_request)` below |
//! | a `ClientWithMiddleware`, and layers to add | `.with(StackMiddleware::new(layers))` | [`Marked`] |
//! | layers, and a middleware to add | `.layer(MiddlewareLayer::new(&client).with(middleware))` | either |
//!
//! A `ClientWithMiddleware` is a service too: layers go around it as around a client.
//!
//! # Verdicts
//! Responses are judged by the rules of `tower-triage-http`: status, correcting headers, the server's
//! hints. [`ReqwestErrors`] has the table for errors. Adjust the rules before they are shared, by
//! [`HttpRulesExt`](tower_triage_http::HttpRulesExt).
//!
//! # Defaults
//! | what | default | changed by |
//! |---|---|---|
//! | repeatable | GET, HEAD, OPTIONS, TRACE, PUT, DELETE; an `Idempotency-Key` | the mark `Repeatable` on a [`Marked`] request |
//! | body of bytes | copied by reference, sent again, left as it is | |
//! | body that streams | sent once | [`ReqwestReplay::streams`] |
//! | draining a failed response | 64 KiB, 1 s | [`ReqwestReplay::drain_bytes`], [`drain_time`](ReqwestReplay::drain_time) |
//! | breaker key | the host, with its port if one is named | `key_by` |
//! | deadline | none | the mark `Deadline`, or the retry policy's |
//!
//! # Where reqwest itself acts
//! - It follows redirects below the layers: one attempt is a whole chain of them. A body that streams,
//!   kept by us or not, cannot follow a 307 or 308; the response is then the redirect itself.
//! - It repeats what a peer refused without having looked at it (HTTP/2 REFUSED_STREAM, GOAWAY), twice;
//!   hyper-util repeats what was not sent on a reused connection. The budget does not see these: switch
//!   the first off with `ClientBuilder::retry(reqwest::retry::never())`.
//! - Its `timeout` begins anew with each attempt, and includes the response's body. A limit for all of
//!   them is the retry policy's `deadline`.
//! - Its `connector_layer` takes requests without a URI that are no `Clone`: a breaker or a limit fits
//!   there, a retry or a key per host does not.
//! - A 503 is an `Ok`: the layers judge it all the same. Call `error_for_status` above them.
//!
//! # What it does not do
//! It reads no body, and once a response was returned it repeats nothing; [`WatchBodyLayer`] tells of a
//! body that breaks off.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod errors;
#[cfg(feature = "middleware")]
mod middleware;
mod outgoing;
mod replay;
mod rules;
mod watch;

#[cfg(feature = "middleware")]
pub use self::middleware::{
    Gone, MiddlewareFuture, MiddlewareLayer, MiddlewareService, NextFuture, NextService,
    StackMiddleware,
};
pub use self::{
    errors::{ReqwestErrors, reqwest_failure},
    outgoing::{Marked, Outgoing},
    replay::{Kept, ReqwestReplay},
    rules::{ReqwestRules, ReqwestStatus, reqwest},
    watch::{WatchBodies, WatchBodyLayer, WatchFuture},
};
