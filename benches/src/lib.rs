//! tower-triage beside its peers: the same work, in one process, the cases taking turns.
//!
//! `cargo run --release -p tower-triage-benches --bin compare` prints the table; the README of this
//! package tells how to read it. A case is a row of it: a group, a name, and a loop that makes `n`
//! calls. Layers are put together in [`ours`] and [`peers`].

pub mod callgrind;
pub mod case;
pub mod desk;
pub mod growth;
pub mod http;
pub mod measure;
pub mod ours;
pub mod peers;
pub mod record;
pub mod sizes;
pub mod threads;
pub mod user;
pub mod work;

use case::Case;

/// Every case of the comparison, in the order of the table. Loops are made when first run.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = vec![work::bare()];
    cases.extend(ours::cases());
    cases.extend(http::calls::cases());
    cases.extend(peers::cases());
    // By group, in the order in which groups first appear; ours first.
    let mut groups: Vec<&str> = Vec::new();
    for case in &cases {
        if !groups.contains(&case.group) {
            groups.push(case.group);
        }
    }
    cases.sort_by_key(|case| groups.iter().position(|group| *group == case.group));
    cases
}
