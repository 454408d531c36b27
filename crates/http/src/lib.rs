//! HTTP rules.

mod body_code;
mod decision;
mod errors;
pub mod future;
pub mod hints;
mod marks;
mod reject;
mod replay;
mod request;
mod rules;
mod status;
mod transport;

pub use self::{
    decision::HttpFacts,
    errors::HttpErrors,
    marks::{BodyPrefix, Deadline, Repeatable, RouteTemplate, UnitOfWork},
    reject::Unavailable,
    replay::HttpReplay,
    request::RequestHead,
    rules::{HttpRules, HttpRulesExt, HttpStatus, http},
    transport::{Http2Fact, Http2Frame, TransportFact, transport_failure},
};
pub use tower_triage_retry::Attempt;
