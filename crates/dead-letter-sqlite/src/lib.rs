//! A failure that its caller was told of is on the disk: the desk's dead letters in one SQLite file.
//!
//! ```
//! use std::sync::Arc;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
//! use tower_triage_dead_letter_sqlite::SqliteStore;
//! use tower_triage_escalate::store::{Filter, Store, StoreSink};
//! use tower_triage_escalate::{Desk, EscalateLayer, JsonLinesSink, Receiver, Route, Routes};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.join("letters.db"))?);
//! // What had to go to the file last time, because the store would not have it.
//! let spill = folder.join("spill.jsonl");
//! JsonLinesSink::replay(&spill, &*store).await?;
//! let desk = Desk::new(
//!     Routes::new(Route::new(["operator"], "human_required")),
//!     [Receiver::new("operator")
//!         .record(StoreSink::new(Arc::clone(&store)))
//!         .record(JsonLinesSink::open(&spill)?)],
//! )?;
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let shop = ServiceBuilder::new()
//!     .layer(EscalateLayer::new(classifier, desk).from("shop"))
//!     .service(service_fn(|_order: u32| async {
//!         Err::<(), _>(AnyError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)))
//!     }));
//!
//! assert!(shop.oneshot(17).await.is_err());
//! // Now, after a crash, or in another process that opens the file:
//! let letters = store.list(Filter::any().from("shop"), None, 10).await?.letters;
//! assert_eq!(letters[0].escalation.reason, "io_timed_out");
//! # Ok(()) }
//! ```
//!
//! # Where it sits
//!
//! Behind [`StoreSink`](tower_triage_escalate::store::StoreSink), the first sink of a desk's
//! receiver; a file of JSON lines is the last. Workers and tools take the store itself.
//!
//! # What it promises
//!
//! - **Durable.** A change is answered when its commit is on the disk (write-ahead log,
//!   `synchronous = FULL`). After a crash nothing is to be done but to open the file.
//! - **Many callers, few commits.** One thread writes; what comes in while it waits for the disk is
//!   its next transaction. A caller alone waits for one sync, and so do 64.
//! - **Several processes.** A tool may open the file beside the service
//!   ([`open_existing`](SqliteStore::open_existing)). Changes of different processes take turns; one
//!   that does not get its turn in time fails, saying so. Reads wait for nobody. Who waits for a
//!   change sees own ones at once, and those of other processes within a fifth of a second, looking
//!   (`PRAGMA data_version`) every 100 ms as long as somebody waits.
//! - **The truth.** A full disk, a locked or a vanished file is an error of the call, never a panic;
//!   what was told stored is stored, the rest is not, and it works again when there is room.
//!   A letter that cannot be read is left out of lists and leases, with a line in the log; by its id
//!   it is [`Corrupt`](tower_triage_escalate::store::StoreError::Corrupt).
//! - **No worker of the runtime blocks.** The writer is a thread of its own, which ends when the last
//!   handle is gone and all that was queued is done; reads have blocking threads of tokio. Only
//!   opening blocks.
//!
//! # Defaults
//!
//! | setting | default |
//! |---|---|
//! | waits for its turn beside other processes | at most 5 s |
//! | the file's size | not limited ([`SqliteOptions::max_bytes`]); see [`Retention`](tower_triage_escalate::store::Retention) |
//! | changes that may wait | 1024; those beyond wait for a place |
//! | changes in one transaction | at most 256 |
//! | reads at the same time | 4 |
//!
//! # The file
//!
//! One table, `letter`: a letter is one JSON document, beside columns that lists, leases and counts
//! are answered from. The schema's version is the file's `user_version`; an older one is brought up
//! to date when the file is opened, a newer one is refused. A copy of the file alone may lack what
//! is still in the log beside it: use `VACUUM INTO` or SQLite's backup. Letters may hold requests;
//! who may read the file, the umask of the process says that makes it.
//!
//! # What it does not do
//!
//! It does not encrypt, it does not replicate, and it does not work on a network file system: for
//! several machines there is `tower-triage-dead-letter-postgres`. Nobody calls
//! [`retain`](tower_triage_escalate::store::Store::retain) by itself. It needs a tokio runtime whose time is not
//! paused: the disk does not wait for a test's clock.

mod change;
mod connect;
mod error;
mod query;
mod reader;
mod row;
mod stats;
mod store;
mod watch;
mod writer;

pub use self::{connect::SqliteOptions, error::OpenError, store::SqliteStore};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
