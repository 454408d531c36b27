//! How a reqwest request is sent again, and how a failed response is let go.

use std::time::Duration;

use http_body::Body as _;
use reqwest::Body;
use tokio::time::Instant;
use tower_triage_http::{Deadline, HttpReplay, ReplayBody, Replayable, future::Drain};
use tower_triage_retry::{Attempt, Release, Replay};

use crate::outgoing::Outgoing;

/// Replay policy of a retry layer over a reqwest client: requests are copied by
/// [`reqwest::Request::try_clone`].
///
/// - A body of bytes is left as it is, so that reqwest can go on following redirects with it (307,
///   308) and repeating what a peer refused.
/// - A body that streams is sent once, untouched, and the incident says why
///   (`Refusal::NotReplayable`); unless [`streams`](Self::streams) says that it may be kept.
/// - Timeout, version, headers and extensions are the same in each attempt. A further one carries an
///   [`Attempt`]: among the marks of a [`Marked`](crate::Marked) request (with the [`Deadline`] of the
///   call, by policy or request), else among the request's own extensions.
/// - A failed response is drained within limits before the next attempt, so that its connection is
///   used again.
///
/// ```
/// use tower_triage_core::Classifier;
/// use tower_triage_reqwest::{ReqwestReplay, reqwest};
/// use tower_triage_retry::RetryLayer;
///
/// let classifier = Classifier::new(reqwest());
/// let retry = RetryLayer::new(classifier).replay(ReqwestReplay::new().streams(64 * 1024));
/// # let _ = retry;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReqwestReplay {
    http: HttpReplay,
    streams: Option<u64>,
}

impl ReqwestReplay {
    /// Sends streams once; drains at most 64 KiB, for at most a second.
    #[must_use]
    pub const fn new() -> Self {
        Self { http: HttpReplay::new(), streams: None }
    }

    /// Keeps what the first attempt reads of a body that streams, up to so many `bytes`, to send it
    /// again ([`ReplayBody`]). A longer one flows on and is sent once; if its declared length says so,
    /// it is not touched at all. Default: no stream is kept.
    #[must_use]
    pub const fn streams(mut self, bytes: u64) -> Self {
        self.streams = Some(bytes);
        self
    }

    /// How many bytes of a failed response are read before it is dropped; 0 drops each at once.
    #[must_use]
    pub const fn drain_bytes(mut self, bytes: u64) -> Self {
        self.http = self.http.drain_bytes(bytes);
        self
    }

    /// For how long a failed response is read before it is dropped.
    #[must_use]
    pub const fn drain_time(mut self, time: Duration) -> Self {
        self.http = self.http.drain_time(time);
        self
    }
}

/// What is kept of a request, to send it again.
#[derive(Debug)]
pub struct Kept<T> {
    /// Without its body, if that is a stream.
    request: T,
    stream: Option<ReplayBody<Body>>,
}

const STREAM: &str = "the request body is a stream";
const DECLARED_OVER_LIMIT: &str = "the request body's length is over the replay limit";

impl<T: Outgoing> Replay<T> for ReqwestReplay {
    type Kept = Kept<T>;

    fn keep(&self, request: &mut T) -> Result<Kept<T>, &'static str> {
        if let Some(copy) = request.try_clone() {
            return Ok(Kept { request: copy, stream: None });
        }
        let limit = self.streams.ok_or(STREAM)?;
        let body = request.request_mut().body_mut().take().unwrap_or_default();
        let too_long = body.size_hint().lower() > limit;
        // Without its body there is a copy of each request.
        let copy =
            if too_long { Err(DECLARED_OVER_LIMIT) } else { request.try_clone().ok_or(STREAM) };
        let (body, kept) = match copy {
            Ok(request) => {
                let body = ReplayBody::with_limit(body, limit);
                (Body::wrap(body.clone()), Ok(Kept { request, stream: Some(body) }))
            }
            Err(why) => (body, Err(why)),
        };
        *request.request_mut().body_mut() = Some(body);
        kept
    }

    fn request<'a>(&self, kept: &'a Kept<T>) -> Option<&'a T> {
        Some(&kept.request)
    }

    fn ready(&self, kept: &Kept<T>) -> Result<(), &'static str> {
        kept.stream.as_ref().map_or(Ok(()), Replayable::replayable)
    }

    fn again(&self, kept: &mut Kept<T>, attempt: &Attempt) -> Result<T, &'static str> {
        let mut request = kept.request.try_clone().ok_or(STREAM)?;
        if let Some(body) = &kept.stream {
            *request.request_mut().body_mut() = Some(Body::wrap(body.clone()));
        }
        let sooner = attempt.deadline.filter(|deadline| is_sooner(&request, *deadline));
        if let Some(deadline) = sooner {
            request = request.mark(Deadline(deadline))?;
        }
        request.mark(*attempt)
    }
}

/// Is `deadline` before the one that the request's marks name? Where marks cannot be read, nobody
/// reads a deadline.
fn is_sooner(request: &impl Outgoing, deadline: Instant) -> bool {
    request
        .extensions()
        .is_some_and(|marks| marks.get::<Deadline>().is_none_or(|known| deadline < known.0))
}

impl Release<reqwest::Response> for ReqwestReplay {
    type Future = Drain<Body>;

    fn release(&self, response: reqwest::Response) -> Drain<Body> {
        self.http.release(response.into())
    }
}
