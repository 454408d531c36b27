//! Asking somebody what to do, and waiting for the answer.

mod asking;
mod wait;

pub use self::asking::Asking;
pub(crate) use self::wait::{Asked, Decided, ask};
