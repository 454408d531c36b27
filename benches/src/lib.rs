//! tower-triage beside its peers: the same work, in one process, the cases taking turns.
//!
//! `cargo run --release -p tower-triage-benches --bin compare` prints the table; the README of this
//! package tells how to read it. One file per group of cases; a case is a name and a function that
//! makes `n` calls.

pub mod measure;
pub mod ours;
pub mod peers;
pub mod work;

use measure::Case;

/// Every case, in the order of the table. To be called inside the runtime that runs them.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = vec![work::bare()];
    cases.extend(ours::cases());
    cases.extend(peers::cases());
    cases
}
