//! The way Rust services handle failure: **every failure is classified once, by one shared
//! classifier, and every layer acts on that verdict.** Retry what time can heal, fall back on what
//! can be bypassed, stop calling what is down, and escalate the rest to somebody who can act.
//!
//! This is the facade: it re-exports the crates below and adds presets of whole stacks.
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `retry` | yes | [`RetryLayer`] |
//! | `circuit-breaker` | yes | [`CircuitBreakerLayer`] |
//! | `fallback` | yes | [`FallbackLayer`] |
//! | `escalate` | yes | [`EscalateLayer`], [`Desk`] |
//! | `timeout` | no | [`TimeoutLayer`], [`soft_limit`] |
//! | `http` | no | [`http`](mod@crate::http): rules, Retry-After, 503 rejections |
//! | `tower-http` | no | tower-http's `classify` traits, both ways |
//! | `reqwest` | no | [`reqwest`](mod@crate::reqwest): a reqwest client, and reqwest-middleware |
//! | `llm` | no | [`llm`]: errors of LLM APIs, also inside a 200 and in streams |
//! | `postgres` | no | [`postgres`](mod@crate::postgres): SQLSTATE rules, transactions as units of work |
//! | `grpc` | no | [`grpc`](mod@crate::grpc): rules for tonic, service config, UNAVAILABLE rejections |
//! | `capture` | no | `HttpCodec`: HTTP requests kept with their escalations, to be driven again |
//! | `learn` | no | [`learn`](mod@crate::learn): what helped against unknown failures is remembered |
//! | `report` | no | [`report`](mod@crate::report): failure report, breaker table, wave summary, chart |
//! | `ladder` | no | [`ladder`](mod@crate::ladder): five levels of recovery from one description, `preset::ladder` |
//! | `orchestrator` | no | `preset::orchestrator`, with the layers and crates that it takes |
//! | `receivers` | no | [`receivers`]: escalations to CloudEvents webhooks, PagerDuty, Alertmanager, Slack |
//! | `dead-letter-sqlite` | no | [`dead_letter_sqlite`]: escalations kept in a file |
//! | `dead-letter-postgres` | no | [`dead_letter_postgres`]: escalations kept in PostgreSQL, for many processes |
//! | `serde` | no | `Serialize` and `Deserialize` for policies and incidents |
//! | `full` | no | all of them |
//!
//! Start with a preset ([`preset`]), or stack the layers yourself; the order is explained in the
//! [README](https://github.com/tower-triage/tower-triage).
//!
//! ```
//! # #[cfg(all(feature = "retry", feature = "circuit-breaker", feature = "escalate"))]
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage::{AnyError, AnyOk, Chain, Classifier, Desk, Halves, preset};
//!
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let stack = ServiceBuilder::new()
//!     .layer(preset::service(classifier, Desk::log()))
//!     .service(service_fn(async |n: u32| Ok::<_, AnyError>(n + 1)));
//! assert_eq!(stack.oneshot(1).await.unwrap(), 2);
//! # }
//! # #[cfg(not(all(feature = "retry", feature = "circuit-breaker", feature = "escalate")))]
//! # fn main() {}
//! ```

#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

mod ext;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(all(feature = "retry", feature = "circuit-breaker", feature = "escalate"))]
pub mod preset;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod serving;
mod triage;

pub use tower_triage_core::*;

#[cfg(feature = "circuit-breaker")]
pub use tower_triage_circuit_breaker as circuit_breaker;
#[cfg(feature = "dead-letter-postgres")]
pub use tower_triage_dead_letter_postgres as dead_letter_postgres;
#[cfg(feature = "dead-letter-sqlite")]
pub use tower_triage_dead_letter_sqlite as dead_letter_sqlite;
#[cfg(feature = "escalate")]
pub use tower_triage_escalate as escalate;
#[cfg(feature = "fallback")]
pub use tower_triage_fallback as fallback;
#[cfg(feature = "ladder")]
pub use tower_triage_ladder as ladder;
#[cfg(feature = "learn")]
pub use tower_triage_learn as learn;
#[cfg(feature = "llm")]
pub use tower_triage_llm as llm;
#[cfg(feature = "receivers")]
pub use tower_triage_receivers as receivers;
#[cfg(feature = "report")]
pub use tower_triage_report as report;
#[cfg(feature = "retry")]
pub use tower_triage_retry as retry;
#[cfg(feature = "timeout")]
pub use tower_triage_timeout as timeout;

#[cfg(feature = "circuit-breaker")]
pub use tower_triage_circuit_breaker::{BreakerHandle, BreakerPolicy, CircuitBreakerLayer};
#[cfg(feature = "escalate")]
pub use tower_triage_escalate::{Desk, EscalateLayer, EscalatePolicy, Escalation};
#[cfg(feature = "fallback")]
pub use tower_triage_fallback::FallbackLayer;
#[cfg(feature = "retry")]
pub use tower_triage_retry::{RetryLayer, RetryPolicy, budget::Budget};
#[cfg(feature = "timeout")]
pub use tower_triage_timeout::{SoftLimit, TimeoutLayer, TimeoutPolicy, soft_limit};

pub use self::{ext::ServiceBuilderExt, serving::serving, triage::Triage};
