//! Models of the atomic protocols, tried by loom in every interleaving that a bounded number of
//! preemptions allows, weak memory included.
//!
//! What runs is the code of the crates, not a copy: their source files are compiled here once more,
//! with loom's atomics and locks in `sync` where the crates have std's, and a clock that the model
//! steps in `settings` where the breaker has tokio's.
#![cfg(triage_loom)]
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the crates' files, of which each model needs a part"
)]

mod models;
mod settings;
mod share;
mod sync;

#[path = "../../../crates/retry/src/budget/mod.rs"]
mod budget;

#[path = "../../../crates/circuit-breaker/src/breaker.rs"]
mod breaker;
#[path = "../../../crates/circuit-breaker/src/breakers.rs"]
mod breakers;
#[path = "../../../crates/circuit-breaker/src/circuit/mod.rs"]
mod circuit;
#[path = "../../../crates/circuit-breaker/src/future.rs"]
mod future;
#[path = "../../../crates/circuit-breaker/src/handle.rs"]
mod handle;
#[path = "../../../crates/circuit-breaker/src/keyed.rs"]
mod keyed;
#[path = "../../../crates/circuit-breaker/src/layer.rs"]
mod layer;
#[path = "../../../crates/circuit-breaker/src/parked.rs"]
mod parked;
#[path = "../../../crates/circuit-breaker/src/policy.rs"]
mod policy;
#[path = "../../../crates/circuit-breaker/src/reject.rs"]
mod reject;
#[path = "../../../crates/circuit-breaker/src/service.rs"]
mod service;
#[path = "../../../crates/circuit-breaker/src/state.rs"]
mod state;
#[path = "../../../crates/circuit-breaker/src/tally.rs"]
mod tally;
#[path = "../../../crates/circuit-breaker/src/ticket.rs"]
mod ticket;
#[path = "../../../crates/circuit-breaker/src/watchers.rs"]
mod watchers;
#[path = "../../../crates/circuit-breaker/src/word.rs"]
mod word;

use keyed::KeyedSettings;

pub use models::run;
