//! A send rate that adapts to how often the dependency throttles, as in the adaptive retry mode of
//! the AWS SDKs.

mod future;
mod layer;
mod line;
mod rate;
mod service;

pub use self::{
    future::AdaptiveFuture,
    layer::AdaptiveLayer,
    rate::{Cubic, SendRate},
    service::Adaptive,
};
