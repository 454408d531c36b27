//! Several layers as one.
//!
//! A stack of layers makes each call several futures deep: every layer moves the request on, holds
//! the state that it shares, joins the call's scope, judges the outcome. Where nothing fails all of
//! that comes to one answer. [`FuseLayer`] takes the layers of a stack and puts one service around
//! them that does it once. As soon as a call meets something (a failure, a refusal, an incident of a
//! call inside) it hands over to the layers themselves, as if they had made the call: what they do
//! then is theirs, so a fused stack behaves as the layers do, one by one.
//!
//! The layers have to judge by one classifier. Where they do not, where the stack is inside another
//! layer of ours, or after a readiness error, every call is made by the layers.

mod future;
mod innermost;
mod layer;
mod part;
mod service;
mod shared;

pub use self::{
    future::ResponseFuture,
    innermost::{Innermost, InnermostFuture},
    layer::FuseLayer,
    part::{Fusible, OutcomeOf, Part},
    service::Fused,
    shared::Shared,
};
