//! Futures of this crate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

pin_project! {
    /// Reads the rest of a failed response and throws it away, so that its connection can be used
    /// again; see [`HttpReplay`](crate::HttpReplay).
    ///
    /// Ends with the body, with the body's error, or at a limit; then the body is dropped, even if
    /// this future lives on.
    ///
    /// # Cancel safety
    /// Dropping it drops the body, which costs an HTTP/1 connection and nothing else.
    pub struct Drain<B> {
        #[pin]
        body: Option<B>,
        bytes_left: u64,
        #[pin]
        time_left: TimeLeft,
        #[pin]
        rest: Option<Sleep>,
    }
}

pin_project! {
    /// The timer is made when the body is first waited for, or keeps on coming.
    #[project = TimeLeftProj]
    enum TimeLeft {
        NotStarted { limit: Duration },
        Running { #[pin] sleep: Sleep },
    }
}

/// So many frames are read at once; then the time is looked at, and others get their turn.
const REST_AFTER: u32 = 128;
const REST: Duration = Duration::from_millis(1);

impl<B: Body> Drain<B> {
    pub(crate) fn new(response: http::Response<B>, bytes: u64, time: Duration) -> Self {
        // A stream of HTTP/2 is dropped without harm to its connection.
        let shared = response.version() >= http::Version::HTTP_2;
        let body = response.into_body();
        let pointless = shared || body.is_end_stream() || body.size_hint().lower() > bytes;
        Self {
            body: if pointless { None } else { Some(body) },
            bytes_left: bytes,
            time_left: TimeLeft::NotStarted { limit: time },
            rest: None,
        }
    }
}

impl<B: Body> Future for Drain<B> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let mut frames = 0;
        loop {
            if let Some(rest) = this.rest.as_mut().as_pin_mut() {
                match this.time_left.as_mut().poll(cx) {
                    Poll::Pending => ready!(rest.poll(cx)),
                    Poll::Ready(()) => this.body.set(None),
                }
                this.rest.set(None);
            }
            let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(()) };
            if frames == REST_AFTER {
                frames = 0;
                this.rest.set(Some(sleep(REST)));
                continue;
            }
            frames += 1;
            match body.poll_frame(cx) {
                Poll::Pending => {
                    ready!(this.time_left.as_mut().poll(cx));
                    this.body.set(None);
                }
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Buf::remaining);
                    // A frame without data costs something too: a stream of them ends as well.
                    let cost = u64::try_from(length).unwrap_or(u64::MAX).max(1);
                    match this.bytes_left.checked_sub(cost) {
                        Some(left) => *this.bytes_left = left,
                        None => this.body.set(None),
                    }
                }
                Poll::Ready(Some(Err(_)) | None) => this.body.set(None),
            }
        }
    }
}

impl Future for TimeLeft {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let TimeLeftProj::NotStarted { limit } = self.as_mut().project() {
            let sleep = sleep(*limit);
            self.set(Self::Running { sleep });
        }
        match self.project() {
            TimeLeftProj::Running { sleep } => sleep.poll(cx),
            TimeLeftProj::NotStarted { .. } => Poll::Pending,
        }
    }
}

impl<B> fmt::Debug for Drain<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("bytes_left", &self.bytes_left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body::{Frame, SizeHint};

    use super::*;

    /// A body that gives `frames` frames of `size` bytes and then ends, or waits for ever.
    struct Frames {
        frames: u32,
        size: usize,
        hangs: bool,
        exact: bool,
        read: u32,
    }

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.read < self.frames {
                self.read += 1;
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; self.size])))));
            }
            if self.hangs { Poll::Pending } else { Poll::Ready(None) }
        }

        fn size_hint(&self) -> SizeHint {
            let total = u64::from(self.frames) * self.size as u64;
            if self.exact { SizeHint::with_exact(total) } else { SizeHint::default() }
        }
    }

    fn drain(frames: u32, size: usize, hangs: bool, exact: bool) -> Drain<Frames> {
        let body = Frames { frames, size, hangs, exact, read: 0 };
        Drain::new(http::Response::new(body), 1000, Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_within_the_limits_is_read_to_its_end_without_a_wait() {
        let start = tokio::time::Instant::now();
        let mut drain = std::pin::pin!(drain(10, 100, false, true));
        drain.as_mut().await;
        assert!(drain.body.is_none());
        assert_eq!((drain.bytes_left, start.elapsed()), (0, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn kf17_an_endless_body_ends_at_the_byte_limit() {
        let start = tokio::time::Instant::now();
        drain(u32::MAX, 7, false, false).await;
        drain(u32::MAX, 0, false, false).await;
        assert!(start.elapsed() < Duration::from_secs(1), "by its bytes, not by its time");
        assert!(drain(u32::MAX, 7, false, true).body.is_none(), "a known length is not begun");
    }

    /// Always ready and hardly limited in bytes: it ends at the time limit, and others get their turn.
    #[tokio::test(start_paused = true)]
    async fn an_endless_body_ends_at_the_time_limit() {
        let start = tokio::time::Instant::now();
        let body = Frames { frames: u32::MAX, size: 1, hangs: false, exact: false, read: 0 };
        Drain::new(http::Response::new(body), u64::MAX, Duration::from_secs(1)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_ends_at_the_time_limit() {
        let start = tokio::time::Instant::now();
        drain(2, 10, true, false).await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_http_2_is_dropped_at_once() {
        let mut response =
            http::Response::new(Frames { frames: 1, size: 1, hangs: true, exact: false, read: 0 });
        *response.version_mut() = http::Version::HTTP_2;
        assert!(Drain::new(response, 1000, Duration::from_secs(1)).body.is_none());
    }
}
