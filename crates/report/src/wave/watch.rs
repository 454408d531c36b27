//! A call that is followed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::Wave;

pin_project! {
    /// A call that a [`Wave`] follows; made by [`Wave::watch`].
    #[derive(Debug)]
    #[must_use = "a call does nothing unless it is awaited"]
    pub struct Watch<F> {
        #[pin]
        future: F,
        call: Call,
    }
}

/// The call's place in the wave. Dropped before its end, it is abandoned.
#[derive(Debug)]
struct Call {
    wave: Wave,
    id: u64,
}

impl<F> Watch<F> {
    pub(super) const fn new(future: F, wave: Wave, id: u64) -> Self {
        Self { future, call: Call { wave, id } }
    }
}

impl<F, T, E> Future for Watch<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Call { wave, id } = this.call;
        let outcome = ready!(wave.polling(*id, || this.future.poll(cx)));
        wave.calls(|calls, now| calls.end(*id, outcome.is_ok(), now));
        Poll::Ready(outcome)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.wave.calls(|calls, now| calls.abandon(self.id, now));
    }
}
