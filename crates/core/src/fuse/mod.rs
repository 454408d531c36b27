//! Several layers as one.
//!
//! A stack of layers makes each call several futures deep: every layer moves the request on, holds
//! the state that it shares, joins the call's scope, judges the outcome. Where nothing fails all of
//! that comes to one answer. [`FuseLayer`] takes the layers of a stack and puts one service around
//! them that does it once. As soon as a call meets something (a failure, a refusal, an incident of a
//! call inside) it hands over to the layers themselves, as if they had made the call: what they do
//! then is theirs, so a fused stack behaves as the layers do, one by one, but for this:
//!
//! - A failed outcome is classified once more, so an [`Advisor`](crate::Advisor) is asked once more.
//! - Of two retries in the stack only the inner one's attempt span is entered.
//! - What is told of a request is read late: see below.
//!
//! The layers have to judge by one classifier, and of those that escalate there may be one, the
//! outermost. Where that is not so, where the stack is inside another layer of ours, or where readiness
//! was not what it should be, the layers make the call.
//!
//! What is told of a request (its operation, its target) is read when there is something to tell, from
//! the request that a retry keeps; from one that nobody keeps it is read before it is sent. So rules
//! that read requests should depend on nothing else.

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
