//! How HTTP requests are sent again: equal in all parts, with the attempt as an extension.

use std::time::Duration;

use http_body::Body;
use tower_triage_retry::{Attempt, Release, Replay};

use crate::future::Drain;
use crate::marks::Deadline;
use crate::replayable::Replayable;

/// Replay policy of a retry layer over HTTP, for requests whose body is [`Replayable`]: one in
/// memory, or any other under a [`ReplayBodyLayer`](crate::ReplayBodyLayer).
///
/// A body that cannot be sent again is sent once, untouched, and the incident says why
/// (`Refusal::NotReplayable`).
///
/// Each attempt gets method, target, version, headers and extensions of the request that came in;
/// each further one also an [`Attempt`] as request extension (the first carries none: it costs
/// nothing), and the deadline of the call, by policy or request, as a
/// [`Deadline`](crate::Deadline). A failed response is drained before the next attempt, within limits, so that its
/// HTTP/1 connection is used again; what goes over a limit is dropped, and the connection with it.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_core::Classifier;
/// use tower_triage_http::{HttpReplay, http};
/// use tower_triage_retry::RetryLayer;
///
/// let retry = RetryLayer::new(Classifier::new(http()))
///     .replay(HttpReplay::new().drain_time(Duration::from_millis(200)));
/// # let _ = retry;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HttpReplay {
    drain_bytes: u64,
    drain_time: Duration,
}

impl HttpReplay {
    /// Drains at most 64 KiB, for at most a second.
    #[must_use]
    pub const fn new() -> Self {
        Self { drain_bytes: 64 * 1024, drain_time: Duration::from_secs(1) }
    }

    /// How many bytes of a failed response are read before it is dropped; 0 drops each at once.
    #[must_use]
    pub const fn drain_bytes(mut self, bytes: u64) -> Self {
        self.drain_bytes = bytes;
        self
    }

    /// For how long a failed response is read before it is dropped.
    #[must_use]
    pub const fn drain_time(mut self, time: Duration) -> Self {
        self.drain_time = time;
        self
    }
}

impl Default for HttpReplay {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Replayable> Replay<http::Request<B>> for HttpReplay {
    type Kept = http::Request<B>;

    #[inline]
    fn keep(&self, request: &mut http::Request<B>) -> Result<Self::Kept, &'static str> {
        request.body().replayable()?;
        Ok(request.clone())
    }

    #[inline]
    fn request<'a>(&self, kept: &'a Self::Kept) -> Option<&'a http::Request<B>> {
        Some(kept)
    }

    fn ready(&self, kept: &Self::Kept) -> Result<(), &'static str> {
        kept.body().replayable()
    }

    fn again(
        &self,
        kept: &mut Self::Kept,
        attempt: &Attempt,
    ) -> Result<http::Request<B>, &'static str> {
        let mut request = kept.clone();
        let extensions = request.extensions_mut();
        extensions.insert(*attempt);
        if let Some(deadline) = attempt.deadline {
            Deadline(deadline).put_into(extensions);
        }
        Ok(request)
    }
}

impl<B: Body> Release<http::Response<B>> for HttpReplay {
    type Future = Drain<B>;

    fn release(&self, response: http::Response<B>) -> Drain<B> {
        Drain::new(response, self.drain_bytes, self.drain_time)
    }
}
