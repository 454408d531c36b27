//! LLM APIs.

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
