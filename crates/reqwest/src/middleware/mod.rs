//! reqwest-middleware, both ways: our layers as one of its middleware, and its middleware as a layer
//! of ours.

mod errors;
mod layer;
mod next;
mod stack;

pub use self::{
    layer::{MiddlewareFuture, MiddlewareLayer, MiddlewareService},
    next::{Gone, NextFuture, NextService},
    stack::StackMiddleware,
};
