//! Futures of the peek layer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::response::Parts;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use super::body::{PeekBody, Read};
use super::layer::{Asked, Settings};
use super::look::{Look, format};
use crate::body::BodyFacts;

pin_project! {
    /// The future of [`Peek`](crate::Peek).
    ///
    /// # Cancel safety
    /// Dropped, it drops the call, or what was read of its answer.
    pub struct PeekFuture<F, B>
    where
        B: Body,
    {
        #[pin]
        state: State<F, B>,
        asked: Option<Asked>,
        settings: Settings,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, B>
    where
        B: Body,
    {
        Calling { #[pin] future: F },
        Peeking { peeking: Option<Peeking<B>> },
    }
}

/// An answer that is being looked at.
struct Peeking<B: Body> {
    head: Parts,
    body: PeekBody<B>,
    /// Made when the body is first waited for.
    time: Option<Pin<Box<Sleep>>>,
}

/// So many frames are held back at most, however short they are.
const MAX_FRAMES: usize = 1024;

impl<F, B: Body> PeekFuture<F, B> {
    pub(super) const fn new(future: F, asked: Asked, settings: Settings) -> Self {
        Self { state: State::Calling { future }, asked: Some(asked), settings }
    }
}

impl<F, B, E> Future for PeekFuture<F, B>
where
    F: Future<Output = Result<http::Response<B>, E>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = Result<http::Response<PeekBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let (head, body) = ready!(future.poll(cx))?.into_parts();
                    let asked = this.asked.take().expect("polled after it was ready");
                    let Some(format) = format(&asked.method, head.status, &head.headers) else {
                        let body = PeekBody::new(body, None);
                        return Poll::Ready(Ok(http::Response::from_parts(head, body)));
                    };
                    let look = Box::new(Look::new(format, asked, this.settings));
                    let body = PeekBody::new(body, Some(look));
                    let peeking = Some(Peeking { head, body, time: None });
                    this.state.set(State::Peeking { peeking });
                }
                StateProj::Peeking { peeking } => {
                    let said = {
                        let peeking = peeking.as_mut().expect("polled after it was ready");
                        ready!(peeking.poll_said(this.settings, cx))
                    };
                    let Peeking { mut head, mut body, .. } =
                        peeking.take().expect("polled a moment ago");
                    // A failure is judged now; what comes behind it, nobody waits for.
                    if !said.is_silent() || head.status.as_u16() >= 400 {
                        body.look = None;
                    }
                    // Without one it is silent too, and costs nothing.
                    if !said.is_silent() {
                        head.extensions.insert(said);
                    }
                    return Poll::Ready(Ok(http::Response::from_parts(head, body)));
                }
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Peeking<B> {
    /// Until the body has said what decides, or a limit is reached.
    fn poll_said(&mut self, settings: &Settings, cx: &mut Context<'_>) -> Poll<BodyFacts> {
        loop {
            let read = self.body.poll_read(cx);
            let frames = self.body.frames();
            let Some(look) = &mut self.body.look else {
                unreachable!("an answer that is looked at has somebody who looks")
            };
            match read {
                Poll::Pending => {
                    let time = self.time.get_or_insert_with(|| Box::pin(sleep(settings.time)));
                    ready!(time.as_mut().poll(cx));
                    look.reader.release();
                }
                Poll::Ready(Read::Frame) if frames >= MAX_FRAMES => look.reader.release(),
                Poll::Ready(Read::Frame) => {}
                Poll::Ready(Read::Ended) => return Poll::Ready(look.reader.finish()),
                Poll::Ready(Read::Failed) => {
                    let said = look.reader.said_so_far();
                    // Unless it had decided, nothing of it counts as an answer.
                    let cut_off = said.is_silent() && look.reader.decided().is_none();
                    return Poll::Ready(if cut_off { BodyFacts::CUT_OFF } else { said });
                }
            }
            if let Some(said) = look.reader.decided() {
                return Poll::Ready(said);
            }
        }
    }
}

impl<F, B: Body> fmt::Debug for PeekFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekFuture").finish_non_exhaustive()
    }
}
