//! Looks at the beginning of answers, at the bottom of the stack.

mod body;
pub(crate) mod future;
mod layer;
mod look;

pub use self::{
    body::PeekBody,
    layer::{Peek, PeekLayer},
};
