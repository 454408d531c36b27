#![doc = ""]
pub mod chain;
mod failed;
pub mod future;
mod handle;
pub mod keep;
mod layer;
mod service;
pub mod steps;

pub use self::{
    failed::Failed,
    handle::FallbackHandle,
    keep::{ByClone, CopyFn, CopyRequest, copy_fn},
    layer::FallbackLayer,
    service::Fallback,
    steps::LastGood,
};
