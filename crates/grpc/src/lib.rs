//! gRPC for tower-triage

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
