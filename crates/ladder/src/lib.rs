//! x
pub mod action;
mod changes;
pub mod climb;
mod ladder;
mod level;
mod rungs;

pub use self::{
    changes::{Change, Changes},
    ladder::Ladder,
    level::{Entry, Level},
    rungs::{Again, Elsewhere, Rungs},
};
#[doc(no_inline)]
pub use tower_triage_learn::Mode;
