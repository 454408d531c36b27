//! docs to come
#![allow(missing_docs, reason = "draft")]

mod about;
mod error;
pub mod future;
mod judge;
mod options;
mod reconnect;
mod rules;
mod source;
mod sqlstate;
mod statement;
mod statements;
mod transactions;
mod unit;

pub use self::{
    error::{CancelledByUs, Stage, UnitError},
    options::TransactionOptions,
    reconnect::Reconnect,
    rules::{PostgresErrors, PostgresRequests, PostgresRules, PostgresRulesExt, postgres},
    source::ConnectionSource,
    sqlstate::{SqlFacts, WorkUnit},
    statement::Statement,
    statements::Statements,
    transactions::Transactions,
    unit::{BoxWork, Unit, Work, WorkFn, work_fn},
};
