//! HTTP rules.

mod body_code;
mod decision;
mod errors;
pub mod hints;
mod marks;
mod request;
mod rules;
mod status;
mod transport;

pub use self::{
    decision::HttpFacts,
    errors::HttpErrors,
    marks::{Attempt, BodyPrefix, Deadline, Repeatable, RouteTemplate, UnitOfWork},
    request::RequestHead,
    rules::{HttpRules, HttpRulesExt, HttpStatus, http},
    transport::{Http2Fact, Http2Frame, TransportFact, transport_failure},
};
