//! Telling a request how much time it has.

use std::fmt;

use crate::soft::SoftLimit;

/// Tells a request the limits of its attempt, before it is sent: a header, an extension, a field.
pub trait Tell<Req> {
    /// Changes `request`.
    fn tell(&self, request: &mut Req, limit: &SoftLimit);
}

/// Leaves every request as it is: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTell;

impl<Req> Tell<Req> for NoTell {
    fn tell(&self, _request: &mut Req, _limit: &SoftLimit) {}
}

/// A closure as [`Tell`]; see [`TimeoutLayer::tell`](crate::TimeoutLayer::tell).
#[derive(Clone, Copy)]
pub struct TellFn<F> {
    f: F,
}

impl<F> TellFn<F> {
    pub(crate) const fn new(f: F) -> Self {
        Self { f }
    }
}

impl<Req, F: Fn(&mut Req, &SoftLimit)> Tell<Req> for TellFn<F> {
    fn tell(&self, request: &mut Req, limit: &SoftLimit) {
        (self.f)(request, limit);
    }
}

impl<F> fmt::Debug for TellFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TellFn({})", std::any::type_name::<F>())
    }
}
