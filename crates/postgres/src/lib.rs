//! PostgreSQL for tower-triage: what an error of the database means, and transactions that are
//! repeated as a whole.
//!
//! A failed statement cannot be repeated by itself: the transaction around it is gone. So the
//! request here is the whole [`Unit`] of work, and [`Transactions`] runs it, `BEGIN` to `COMMIT`,
//! on a connection of a [`ConnectionSource`]. Put the layers around it as around any service:
//!
//! ```no_run
//! use tokio_postgres::{IsolationLevel, NoTls, Transaction};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_triage_core::{AnyError, Classifier};
//! use tower_triage_postgres::{Reconnect, Transactions, Unit, Work, postgres};
//! use tower_triage_retry::RetryLayer;
//!
//! #[derive(Clone)]
//! struct Pay { account: i32, cents: i64 }
//!
//! impl Work for Pay {
//!     type Output = i64;
//!
//!     async fn run(&self, tx: &mut Transaction<'_>) -> Result<i64, AnyError> {
//!         let pay = "UPDATE account SET cents = cents - $2 WHERE id = $1 RETURNING cents";
//!         Ok(tx.query_one(pay, &[&self.account, &self.cents]).await?.try_get(0)?)
//!     }
//! }
//!
//! # #[tokio::main] async fn main() -> Result<(), AnyError> {
//! let source = Reconnect::new("host=127.0.0.1 user=shop".parse()?, NoTls);
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::new(Classifier::new(postgres())))
//!     .service(Transactions::new(source));
//!
//! let pay = Unit::new("pay", Pay { account: 17, cents: 500 }).isolation(IsolationLevel::Serializable);
//! let left = stack.clone().oneshot(pay).await?;
//! # let _ = left;
//! # Ok(()) }
//! ```
//!
//! # Where it sits
//! Below everything: a [`Classifier`](tower_triage_core::Classifier) over [`postgres`]'s rules is
//! what the layers share. The services' error is [`AnyError`](tower_triage_core::AnyError), so an
//! open circuit and a time limit have a way in. A time limit above the service drops a call, and
//! then nobody knows how far it had come; a limit in the server (`statement_timeout`,
//! `lock_timeout`) rolls back, and the unit may run again. Use both, the server's shorter.
//!
//! The services take many types of requests, so `service.ready()` alone cannot tell which is meant:
//! call a clone with [`oneshot`](https://docs.rs/tower/latest/tower/trait.ServiceExt.html#method.oneshot).
//!
//! # How a verdict is found
//! An error is walked along its sources, outermost first, by type: how far the work had come
//! ([`UnitError`]), our own rejections and timers, the SQLSTATE of the server's answer, the state of
//! the connection, and the kind of an I/O error last. The decision by SQLSTATE is public and pure:
//! [`SqlFacts::verdict`].
//!
//! | SQLSTATE | class | repeated | breaker |
//! |---|---|---|---|
//! | 40001, 40P01, 40000, 55P03, 55006, 72000 | Contention | the whole unit | success |
//! | 08000, 08006, 57P01, 57P02, a lost connection | Transient | yes; with a commit in flight only if idempotent | failure |
//! | 40003, 08007 | Transient | only if idempotent | failure |
//! | 08001, 08003, 08004, 57P03, 57P05, 25P03, HV00N, no connection | Transient | yes | failure |
//! | 53000, 53200, 53300 | Throttled | yes, slowly | failure |
//! | 53100, 53400 | Quota | no | ignored |
//! | 57014 | Timeout, or Cancelled ([`CancelledByUs`]) | yes, or no | failure, or ignored |
//! | 25006 | Declined | no: another database may take it | success |
//! | 28xxx | Auth | after a refresh | ignored |
//! | 58xxx, XX000, XX001, XX002, F0xxx, P0004, 08P01 | Internal | no | failure |
//! | 0Axxx, 21, 22, 23, 24, 25, 26, 3D, 42, 44, 54, 55, 57P04, 40002, P0 (the rest of each) | Permanent | no | success |
//! | any other | Unknown | no | failure |
//!
//! Two more for what no code tells: an answer that does not fit the call (number of rows, type of a
//! column) is Permanent and no vote; whatever fails while connecting was not sent.
//!
//! # What became of the work
//! An ERROR rolls the transaction back, and so does a connection that is lost before `COMMIT` was
//! sent: those are repeated although nobody said that the work is idempotent. If the connection is
//! lost later, nobody knows. Such a unit is repeated only if it is marked
//! [`idempotent`](Unit::idempotent) or [`read_only`](Unit::read_only); else the error says so
//! ([`UnitError::outcome_unknown`]), and the application has to look. Give each unit an id of its
//! own in a unique column, and it is idempotent; or let the service ask the server what became of
//! a lost commit ([`Transactions::look_up_commits`]).
//!
//! # Defaults
//! | what | default | changed by |
//! |---|---|---|
//! | class of a code | the table above | [`PostgresRulesExt::sqlstate`] |
//! | class of an error of your own | Unknown | [`PostgresRulesExt::own_error`] |
//! | isolation, access mode, deferrable | the server's | [`Transactions::options`], [`Unit`] |
//! | idempotent | no; read only units are | [`Unit::idempotent`], [`Statement::idempotent`] |
//! | a lost commit | stays unknown | [`Transactions::look_up_commits`] |
//! | connections kept by [`Reconnect`] | 8, not limited in use | [`Reconnect::max_idle`] |
//! | an error without a [`UnitError`] | of a statement that commits itself | [`PostgresRulesExt::in_open_transaction`] |
//!
//! # What it does not do
//! It limits no time, and is no pool. Incidents and
//! escalations get severity, code and message of the server's error, never its DETAIL, which may
//! hold the row's values.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod about;
mod commit;
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
