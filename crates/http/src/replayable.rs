//! Which bodies can be sent again.

use bytes::Bytes;
use http_body_util::{Either, Empty, Full};

/// A body whose clone is the same body again: what [`HttpReplay`](crate::HttpReplay) needs.
///
/// Bodies in memory are; [`ReplayBody`](crate::ReplayBody) makes any other one so, within a limit,
/// and says when it cannot. For a body type of your own one line is enough:
///
/// ```
/// use tower_triage_http::Replayable;
///
/// #[derive(Clone)]
/// struct Form(Vec<(String, String)>);
///
/// impl Replayable for Form {}
/// ```
#[diagnostic::on_unimplemented(
    message = "a body of type `{Self}` cannot be sent a second time",
    note = "for a body that streams put `ReplayBodyLayer::new()` above the retry layer, and below it `.map_request(..)` back into the transport's body",
    note = "for a body type of your own that is `Clone`: `impl Replayable for ..`"
)]
pub trait Replayable: Clone {
    /// Can a clone of it be sent now? Asked before a request is kept, and again before it is
    /// repeated. Default: yes.
    ///
    /// # Errors
    /// The reason for which it cannot, from a small set.
    fn replayable(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// A copy of a request, if its body can be sent now: for the layers that copy requests by a function,
/// such as `FallbackLayer`'s `.copy_requests(copy_fn(copy_request))`.
///
/// ```
/// let request = http::Request::new("body");
/// let copy = tower_triage_http::copy_request(&request).unwrap();
/// assert_eq!(copy.body(), request.body());
/// ```
#[must_use]
pub fn copy_request<B: Replayable>(request: &http::Request<B>) -> Option<http::Request<B>> {
    request.body().replayable().ok().map(|()| request.clone())
}

impl Replayable for () {}
impl Replayable for Bytes {}
impl Replayable for String {}
impl Replayable for &'static str {}
impl Replayable for Vec<u8> {}
impl Replayable for &'static [u8] {}
impl<D: Clone> Replayable for Full<D> {}
impl<D> Replayable for Empty<D> {}

impl<B: Replayable> Replayable for Option<B> {
    fn replayable(&self) -> Result<(), &'static str> {
        self.as_ref().map_or(Ok(()), B::replayable)
    }
}

impl<L: Replayable, R: Replayable> Replayable for Either<L, R> {
    fn replayable(&self) -> Result<(), &'static str> {
        match self {
            Self::Left(left) => left.replayable(),
            Self::Right(right) => right.replayable(),
        }
    }
}
