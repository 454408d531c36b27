//! LLM APIs for tower-triage: every answer of a model's API gets one verdict, also where the failure
//! hides inside a 200 or comes as an event of a stream.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use tower_triage_core::{Classify, ErrorClass};
//! use tower_triage_llm::{BodyFacts, llm};
//!
//! // What a `PeekLayer` found at the beginning of the body:
//! let found = BodyFacts::read(br#"{"status":"failed","error":{"code":"rate_limit_exceeded"}}"#);
//! let response = http::Response::builder().status(200).extension(found).body(()).unwrap();
//! let outcome: Result<_, &Infallible> = Ok(&response);
//! assert_eq!(llm().classify(outcome).failure().unwrap().class, ErrorClass::Throttled);
//! ```
//!
//! # Where it sits
//! ```text
//! escalate > fallback (another model) > retry > circuit breaker > attempt timeout > PeekLayer > client
//! ```
//! The layers hold a `Classifier` over the [rules](llm). [`PeekLayer`] goes to the bottom: it looks at
//! the beginning of each answer, once and within limits, and leaves [what it says](BodyFacts) as an
//! extension, which the rules read however often they are asked. Bodies are passed on as they came.
//!
//! # How a verdict is found
//! The stamp of a `ClassifyLayer` or an override of the HTTP rules ([`LlmRulesExt::http`]); a 413 (too
//! long for any retry); the most specific word of the body, wherever a provider puts it:
//! `error.details.error_code`, `error.code`, an inner code, the reason of a `google.rpc.ErrorInfo`,
//! `error.type`; Gemini's `QuotaFailure`; then the status by the rules for HTTP, where a 404 is another
//! model's chance; then the server's hints. Inside a 200 an error counts by its code, or as the status
//! that it stands for, but may have been worked on; a refusal was. The decision is public and pure:
//! [`LlmFacts::verdict`].
//!
//! | code or type | class | reason |
//! |---|---|---|
//! | `rate_limit_exceeded`, `rate_limit_error`, `slow_down` | Throttled | `llm_rate_limit` |
//! | `overloaded_error`, `server_is_overloaded` | Throttled, a failure for the breaker | `llm_overloaded` |
//! | `insufficient_quota`, `billing_error`, `credit_balance_*`, `*_spend_limit_exceeded`, `*_usage_limit_exceeded`, `enforced_spend_limit_reached`; `QuotaFailure` per day or without `RetryInfo` | Quota | `llm_quota` |
//! | `context_length_exceeded` | Declined | `llm_context_length` |
//! | `content_filter`, `*_policy_violation` | Declined | `llm_content_policy` |
//! | `model_not_found`; 404; 413; `unsupported_country_region_territory` | Declined | `llm_model`, `llm_404`, `llm_413`, `llm_region` |
//! | inside a 200: a refusal by `finish_reason`, `stop_reason`, `finishReason`, `blockReason`, `incomplete_details` | Declined | `llm_refused` |
//! | inside a 200: nothing for the caller before the end | Transient | `llm_cut_off` |
//! | inside a 200: an error whose code or type we do not know; one without any | Unknown; Transient | `llm_unknown_error`, `llm_unnamed_error` |
//! | `API_KEY_INVALID` | Auth | `llm_credentials` |
//! | everything else | as its status | as in the HTTP rules |
//!
//! # Defaults
//! | what | default | changed by |
//! |---|---|---|
//! | held back of an answer | 64 KiB (and 1024 frames), 10 s | [`PeekLayer::limit`], [`PeekLayer::time`] |
//! | late failures | a `tracing` warning | [`PeekLayer::report_through`], [`PeekLayer::on_late_failure`] |
//! | repeatable, and whole units of work | what HTTP says, and POSTs to inference endpoints | [`LlmRulesExt::inference_by`] |
//! | operation, breaker key, overrides by status | those of HTTP | [`LlmRulesExt::http`] |
//!
//! # Cost
//! An answer that is looked at costs two allocations (the reader, the list of frames held back), a
//! timer where it is waited for, and some nanoseconds per byte; nothing of the body is copied. A body
//! of any length and shape is read with a fixed amount of memory.
//!
//! # What it does not do
//! It reads no compressed body and no binary event stream, and never a text for people. It does not
//! count tokens, switch models by itself (that is a fallback's replan), or repeat anything once
//! a byte of the answer was handed on.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod body;
mod decision;
mod inference;
mod late;
mod peek;
mod rules;

/// Futures of this crate.
pub mod future {
    pub use crate::peek::future::PeekFuture;
}

pub use self::{
    body::BodyFacts,
    decision::LlmFacts,
    late::{AlreadyFailed, LateFailure},
    peek::{Peek, PeekBody, PeekLayer},
    rules::{LlmResponses, LlmRules, LlmRulesExt, llm},
};
