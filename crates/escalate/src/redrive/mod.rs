//! Driving again what failed.
//!
//! A [`Redrive`] leases letters, makes requests of them, calls a service, and settles.
//!
//! | what happens | the letter |
//! |---|---|
//! | the service answers, and the classifier calls it a success | settled as redriven |
//! | it fails, takes too long, or panics | due again after a wait ([`RedrivePolicy::backoff`], and not before the server wants it); parked after [`RedrivePolicy::park_after`] tries |
//! | it fails with a class of [`RedrivePolicy::park`]: the same request would get the same answer | parked at once |
//! | our own protection refused to send it (class `Rejected`) | given back; the try does not count, and the worker pauses |
//! | no request was captured, or it cannot be made again, or a secret in it was taken out | parked at once, with the reason |
//! | somebody answered "change it so" and the worker does not know how | parked at once |
//! | the lease was lost, because the store was out of reach for too long | whoever has it now settles it; what came of this try is not counted |
//!
//! # At least once
//! A worker that dies between the call and the settling leaves a lease that ends by itself: the
//! request is sent a second time. Each sending carries the letter's id ([`Codec::identified`]: an
//! `Idempotency-Key` over HTTP), so that the receiver can keep one.
//!
//! # Not below the same desk
//! Give it a service without the `EscalateLayer` that wrote the letters. With it a request that
//! fails again is escalated again: a second letter, unless the request's own id leads to the same
//! one ([`Describe::request_id`](tower_triage_core::Describe::request_id)).
//!
//! # Several kinds of requests in one store
//! A worker takes whatever is due, and parks what its codec cannot read. Where services with other
//! codecs use the same store, give each worker a [`Redrive::filter`] that knows its own: by who failed,
//! or by operation. And mind what your rules call a success: those of HTTP take a redirect for one.
//!
//! [`Codec::identified`]: crate::Codec::identified

mod caught;
mod drive;
mod pace;
mod plan;
mod policy;
mod progress;
mod run;
mod worker;

pub use self::{
    plan::{Plan, Planned},
    policy::RedrivePolicy,
    progress::{Driven, Fate, Progress},
    worker::Redrive,
};
