//! Where escalations rest until somebody has dealt with them: dead letters.
//!
//! A [`Store`] keeps one [`Letter`] per escalation id. What may happen to a letter, and in which
//! order, is decided by [`Letter::apply`], a pure function that every store calls; a store adds that
//! it is one step, that it is durable, and who else sees it.
//!
//! ```text
//!              lease              Redriven, Delivered, Decided
//!   Open ─────────────▶ leased ───────────────────────────────▶ settled
//!    ▲  ▲                 │ │                                      │
//!    │  └── Failed, end ──┘ └─ Failed too often ─▶ Parked          │
//!    └────────── the same request fails again, Reopened ───────────┘
//! ```
//!
//! A lease ends by itself, so a worker that dies costs a second try and never a letter: what is
//! driven again is driven **at least once**. The letter's id is the idempotency key.

mod change;
mod depth;
mod error;
mod filter;
mod lease;
mod letter;
mod memory;
mod retention;
mod sink;
mod stats;

pub use self::{
    change::{Change, Refused},
    error::StoreError,
    filter::{Filter, Page},
    lease::LeaseRequest,
    letter::{Event, Lease, LeaseToken, Letter, LetterState, Put},
    memory::MemoryStore,
    retention::{Dropped, Retention},
    sink::StoreSink,
    stats::Stats,
};

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tower_triage_core::incident::IncidentId;

use crate::escalation::Escalation;

/// What a store will answer.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps letters. Object-safe: `Arc<dyn Store>` is what the desk, workers and tools hold.
///
/// # Cancel safety
/// A future that is dropped leaves its change made or not made, never half made. Each of them can be
/// repeated: [`put`](Self::put) keeps one letter per id, and a change needs its lease.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Stores `escalation`. `Ok` promises that it outlives this process, if anything in the store
    /// does. One letter per id: see [`Put`].
    fn put(&self, escalation: Escalation) -> Pending<'_, Put>;

    /// The letter of this id.
    fn get(&self, id: IncidentId) -> Pending<'_, Option<Letter>>;

    /// Up to `limit` letters that match, in the order of storing, from behind `after` on
    /// ([`Page::next`]).
    fn list(&self, filter: Filter, after: Option<u64>, limit: u32) -> Pending<'_, Page>;

    /// Leases letters: nobody else gets them until they are given back or their time is over.
    fn lease(&self, request: LeaseRequest) -> Pending<'_, Vec<Letter>>;

    /// Makes one change to one letter, as one step; gives the letter as it is then.
    ///
    /// Besides the store's own, errors are [`StoreError::NotFound`] and [`StoreError::Refused`].
    fn change(&self, id: IncidentId, change: Change) -> Pending<'_, Letter>;

    /// Counts.
    fn stats(&self) -> Pending<'_, Stats>;

    /// Forgets what `retention` no longer keeps. What was open is logged at error.
    fn retain(&self, retention: Retention) -> Pending<'_, Dropped>;

    /// Resolves when a letter may have changed, also by another process, at the latest after a
    /// second or so. A change between two calls is not missed: the look comes after the call.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
