//! How a request is sent a second time, and how a failed response is let go.

use std::fmt;
use std::future::{Future, Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_triage_core::{Failure, RetryAfter};

use crate::request_policy::RequestPolicy;

/// The attempt that is about to be made, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// Its number; the first call is 1, so the number before it is how many were made already.
    pub number: u32,
    /// Why the attempt before it failed; `None` for the first.
    pub previous: Option<Failure>,
    /// The wait before it.
    pub wait: Duration,
    /// When the whole call has used up its time, by the policy or the request: what may be told to
    /// the peer.
    pub deadline: Option<Instant>,
}

impl Attempt {
    /// The first attempt of a request without a deadline.
    pub const FIRST: Self =
        Self { number: 1, previous: None, wait: Duration::ZERO, deadline: None };
}

/// How a request is kept, so that it can be sent again: the policy type of the layer.
///
/// [`ByClone`] for requests that are `Clone`, [`Never`] for those that are sent once,
/// [`replay_fn`] where copying may fail. A protocol crate has its own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot send a `{Req}` a second time",
    label = "this request cannot be repeated by `{Self}`",
    note = "`ByClone`, the default of `RetryLayer`, needs `{Req}: Clone`; for HTTP, a body that is `Clone` (`Full<Bytes>`)",
    note = "where copying may fail use `.replay(replay_fn(try_clone))`, and to send each request once `.replay(Never)`"
)]
pub trait Replay<Req> {
    /// What is kept of a request, to make further ones from it.
    type Kept;

    /// The policy by which `request` is repeated, where that is not the layer's: its place, for
    /// [`policy_at`](Self::policy_at). Asked before the request is kept. Default: the layer's.
    fn policy(&self, _request: &Req) -> Option<usize> {
        None
    }

    /// A policy that [`policy`](Self::policy) names. Default: there is none.
    fn policy_at(&self, _place: usize) -> Option<&dyn RequestPolicy> {
        None
    }

    /// Prepares the request of the first attempt, whether it is kept or not. Default: as it came.
    fn first(&self, _request: &mut Req) {}

    /// What is kept of a first request, before it is sent, to make further ones from it. Asked only
    /// where it may be sent again. It may prepare the request for that, with a body that can be read
    /// twice; where nothing is kept it leaves it as it is.
    ///
    /// # Errors
    /// The reason for which nothing is kept.
    fn keep(&self, request: &mut Req) -> Result<Self::Kept, &'static str>;

    /// The request that was kept, if it is there as such: a layer above then reads what it tells of the
    /// request only when there is something to tell. Default: none.
    fn request<'a>(&self, _kept: &'a Self::Kept) -> Option<&'a Req> {
        None
    }

    /// Can what was kept be sent again now? Asked at the decision, while the failed outcome still
    /// exists. A text says why not (a body over the buffer's limit). Default: yes.
    ///
    /// # Errors
    /// The reason for which it cannot.
    fn ready(&self, _kept: &Self::Kept) -> Result<(), &'static str> {
        Ok(())
    }

    /// The request of a further attempt, equal to the one that came in.
    ///
    /// # Errors
    /// The reason for which there is none, though [`ready`](Self::ready) said yes.
    fn again(&self, kept: &mut Self::Kept, attempt: &Attempt) -> Result<Req, &'static str>;
}

/// How a failed response is let go before the wait for the next attempt.
///
/// A client that drops a response with an unread body may lose its connection; a protocol's policy
/// drains it within limits. Runs only where another attempt follows, together with the wait, and
/// outside the call's incident. It should end by itself: it may prolong the wait by at most one
/// second, and not past the call's deadline; then it is dropped, and the next attempt follows.
pub trait Release<Res> {
    /// The work of letting go.
    type Future: Future<Output = ()>;

    /// A wait that `response` asks for, whatever its class: a policy of the request's own
    /// ([`RequestPolicy`]) may repeat classes that the rules read no hint for. Default: none.
    fn hint(&self, _response: &Res) -> Option<RetryAfter> {
        None
    }

    /// Lets go of `response`.
    fn release(&self, response: Res) -> Self::Future;
}

/// Keeps a clone of each request that may be sent again.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByClone;

#[diagnostic::do_not_recommend]
impl<Req: Clone> Replay<Req> for ByClone {
    type Kept = Req;

    #[inline]
    fn keep(&self, request: &mut Req) -> Result<Req, &'static str> {
        Ok(request.clone())
    }

    #[inline]
    fn request<'a>(&self, kept: &'a Req) -> Option<&'a Req> {
        Some(kept)
    }

    fn again(&self, kept: &mut Req, _attempt: &Attempt) -> Result<Req, &'static str> {
        Ok(kept.clone())
    }
}

/// Keeps nothing: each request is sent once, untouched, whatever its type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Never;

impl<Req> Replay<Req> for Never {
    type Kept = std::convert::Infallible;

    fn keep(&self, _request: &mut Req) -> Result<Self::Kept, &'static str> {
        Err("nothing is kept")
    }

    fn again(&self, kept: &mut Self::Kept, _attempt: &Attempt) -> Result<Req, &'static str> {
        match *kept {}
    }
}

/// Keeps a copy that may not be possible; see [`replay_fn`].
#[derive(Clone, Copy)]
pub struct ReplayFn<F> {
    try_clone: F,
}

/// Keeps a copy by `try_clone`; a request for which it gives `None` is sent once, untouched.
///
/// ```
/// use tower_triage_retry::{Attempt, Replay, replay_fn};
///
/// let replay = replay_fn(|text: &String| (text.len() < 10).then(|| text.clone()));
/// assert!(replay.keep(&mut "short".to_owned()).is_ok());
/// assert!(replay.keep(&mut "rather a long one".to_owned()).is_err());
/// ```
pub const fn replay_fn<Req, F>(try_clone: F) -> ReplayFn<F>
where
    F: Fn(&Req) -> Option<Req>,
{
    ReplayFn { try_clone }
}

const NO_COPY: &str = "the request gives no copy of itself";

impl<Req, F: Fn(&Req) -> Option<Req>> Replay<Req> for ReplayFn<F> {
    type Kept = Req;

    #[inline]
    fn keep(&self, request: &mut Req) -> Result<Req, &'static str> {
        (self.try_clone)(request).ok_or(NO_COPY)
    }

    #[inline]
    fn request<'a>(&self, kept: &'a Req) -> Option<&'a Req> {
        Some(kept)
    }

    fn again(&self, kept: &mut Req, _attempt: &Attempt) -> Result<Req, &'static str> {
        (self.try_clone)(kept).ok_or(NO_COPY)
    }
}

impl<F> fmt::Debug for ReplayFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayFn({})", std::any::type_name::<F>())
    }
}

impl<Res> Release<Res> for ByClone {
    type Future = Ready<()>;

    fn release(&self, response: Res) -> Ready<()> {
        drop(response);
        ready(())
    }
}

impl<Res> Release<Res> for Never {
    type Future = Ready<()>;

    fn release(&self, response: Res) -> Ready<()> {
        drop(response);
        ready(())
    }
}

impl<Res, F> Release<Res> for ReplayFn<F> {
    type Future = Ready<()>;

    fn release(&self, response: Res) -> Ready<()> {
        drop(response);
        ready(())
    }
}

/// A replay policy with another way to let go of responses; see
/// [`RetryLayer::release`](crate::RetryLayer::release).
pub struct Releasing<P, F> {
    replay: Arc<P>,
    release: F,
}

impl<P, F> Releasing<P, F> {
    pub(crate) const fn new(replay: Arc<P>, release: F) -> Self {
        Self { replay, release }
    }
}

#[diagnostic::do_not_recommend]
impl<Req, P: Replay<Req>, F> Replay<Req> for Releasing<P, F> {
    type Kept = P::Kept;

    fn policy(&self, request: &Req) -> Option<usize> {
        self.replay.policy(request)
    }

    fn policy_at(&self, place: usize) -> Option<&dyn RequestPolicy> {
        self.replay.policy_at(place)
    }

    #[inline]
    fn first(&self, request: &mut Req) {
        self.replay.first(request);
    }

    #[inline]
    fn keep(&self, request: &mut Req) -> Result<P::Kept, &'static str> {
        self.replay.keep(request)
    }

    #[inline]
    fn request<'a>(&self, kept: &'a P::Kept) -> Option<&'a Req> {
        self.replay.request(kept)
    }

    fn ready(&self, kept: &P::Kept) -> Result<(), &'static str> {
        self.replay.ready(kept)
    }

    fn again(&self, kept: &mut P::Kept, attempt: &Attempt) -> Result<Req, &'static str> {
        self.replay.again(kept, attempt)
    }
}

impl<Res, P, F, Fut> Release<Res> for Releasing<P, F>
where
    F: Fn(Res) -> Fut,
    Fut: Future<Output = ()>,
{
    type Future = Fut;

    fn release(&self, response: Res) -> Fut {
        (self.release)(response)
    }
}

impl<P: fmt::Debug, F> fmt::Debug for Releasing<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Releasing").field("replay", &self.replay).finish_non_exhaustive()
    }
}
