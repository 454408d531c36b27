//! Dead letters in PostgreSQL: many processes share them, and each letter is worked on by one.
//!
//! ```no_run
//! use std::sync::Arc;
//! use tower_triage_dead_letter_postgres::PostgresStore;
//! use tower_triage_escalate::store::{Filter, Store, StoreError, StoreSink};
//! use tower_triage_escalate::{Desk, JsonLinesSink, Receiver, Route, Routes};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::connect("postgres://shop:secret@db.example/shop").await?;
//! let store: Arc<dyn Store> = Arc::new(store);
//! let desk = Desk::new(
//!     Routes::new(Route::new(["operator"], "look_into_it")),
//!     [Receiver::new("operator")
//!         .record(StoreSink::new(Arc::clone(&store)))
//!         .record(JsonLinesSink::open("/var/lib/shop/spill.jsonl")?)],
//! )?;
//!
//! // Anywhere, with the same database:
//! let open = store.list(Filter::any().operation("orders.*"), None, 50).await?;
//! assert!(open.letters.len() <= 50);
//! # let _ = desk;
//! # Ok(()) }
//! ```
//!
//! # Where it sits
//!
//! Behind the desk of a [`tower_triage_escalate::EscalateLayer`], as the first sink for records
//! ([`StoreSink`](tower_triage_escalate::store::StoreSink)), with a file as the last one for the
//! time when the server is away. Beside it, in this process or another, work what drives letters
//! again and what shows them to people. What may happen to a letter is decided by
//! [`Letter::apply`](tower_triage_escalate::store::Letter::apply), for every store alike.
//!
//! # What it promises
//!
//! - `Ok` means committed. `synchronous_commit = off` is turned on for its sessions; whether a
//!   commit is on the disk is then the server's `fsync` to say.
//! - One letter per id, however many processes store it at the same time.
//! - Letters that come at the same time are stored by one statement, so that many callers wait for
//!   one write to the disk and not for many.
//! - Numbers are given out in the order of becoming visible: whoever reads page after page misses
//!   nothing that is stored meanwhile. For that, the statements that store new letters run one
//!   after the other, over all processes; they do not wait for their clients in between.
//! - A lease is one transaction with `FOR UPDATE SKIP LOCKED`: workers do not wait for each other.
//!   Its time is the server's, so clocks that differ do not matter. A worker that dies loses its
//!   letters when their time is over.
//! - A change is made from the newest reading or not at all: the first of many answers wins.
//! - Who waits for a change ([`changed`](tower_triage_escalate::store::Store::changed)) hears of
//!   new letters, and of what becomes of questions, by `LISTEN` and `NOTIFY`; of the rest, and if
//!   that connection breaks, within a second.
//! - Every call ends in time, also if the server does not answer, and works again when it does.
//! - Tables are made and brought up to date when it first connects, by one of the processes that
//!   start together; tables of a newer program are left alone, with an error.
//! - A service can start while its database is away: [`PostgresStore::unconnected`].
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | connections | 8, and one that listens once somebody has waited |
//! | a call takes | at most 10 s ([`retain`](tower_triage_escalate::store::Store::retain): for each thousand letters) |
//! | waiting for the writer | 1024 escalations; those beyond wait for a place, within their time |
//! | stored by one statement | up to 256 escalations |
//! | tables | `tower_triage_letter`, `tower_triage_store`, in the first schema of the search path |
//!
//! # What it does not do
//!
//! It does not work through a proxy that gives each transaction another session (PgBouncer's `transaction` mode). It
//! does not encrypt letters, and it does not drop old ones by itself: call
//! [`retain`](tower_triage_escalate::store::Store::retain) from time to time.

mod connection;
mod error;
mod options;
mod query;
mod retain;
mod row;
mod schema;
mod stats;
mod store;
mod text;
mod writer;

pub use self::{options::PostgresOptions, store::PostgresStore};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
