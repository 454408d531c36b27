//! What happens between two attempts.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower_triage_core::Refusal;
use tower_triage_core::incident::{Detached, detached};

/// By how much letting a response go may prolong the wait.
const LONGEST_RELEASE: Duration = Duration::from_secs(1);

/// Letting a response go (`L`), refreshing credentials (`A`) and sleeping, all at once; broken off
/// by a shutdown, and by the deadline where that could be missed.
pub(crate) struct Pause<L, A> {
    sleep: Option<Pin<Box<Sleep>>>,
    releasing: Option<Pin<Box<Detached<L>>>>,
    /// Made only where the release takes longer than everything else.
    release_limit: Option<Pin<Box<Sleep>>>,
    refreshing: Option<Pin<Box<Detached<A>>>>,
    /// Armed only while something is awaited that could outlast the deadline.
    limit: Option<Pin<Box<Sleep>>>,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<L, A> Default for Pause<L, A> {
    fn default() -> Self {
        Self {
            sleep: None,
            releasing: None,
            release_limit: None,
            refreshing: None,
            limit: None,
            shutdown: None,
        }
    }
}

impl<L: Future<Output = ()>, A: Future<Output = bool>> Pause<L, A> {
    /// A pause of `wait`; zero touches no timer.
    pub(crate) fn new(wait: Duration, shutdown: Option<&watch::Receiver<bool>>) -> Self {
        Self {
            sleep: (!wait.is_zero()).then(|| Box::pin(sleep(wait))),
            shutdown: shutdown.map(|signal| Box::pin(shut_down(signal.clone())) as _),
            ..Self::default()
        }
    }

    pub(crate) fn release(&mut self, future: L) {
        self.release_limit = None;
        self.releasing = Some(Box::pin(detached(future)));
    }

    pub(crate) fn refresh(&mut self, future: A) {
        self.refreshing = Some(Box::pin(detached(future)));
    }

    pub(crate) const fn is_refreshing(&self) -> bool {
        self.refreshing.is_some()
    }

    /// Ready when the pause is over, or with the reason for which it was broken off.
    pub(crate) fn poll(
        &mut self,
        deadline: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        if let Some(refreshing) = &mut self.refreshing {
            match refreshing.as_mut().poll(cx) {
                Poll::Ready(true) => self.refreshing = None,
                Poll::Ready(false) => return Poll::Ready(Err(Refusal::RefreshFailed)),
                Poll::Pending => {
                    if let Poll::Ready(why) = self.poll_broken_off(deadline, cx) {
                        return Poll::Ready(Err(why));
                    }
                }
            }
        }
        if self.poll_shutdown(cx).is_ready() {
            return Poll::Ready(Err(Refusal::Shutdown));
        }
        let released = is_over(&mut self.releasing, cx);
        let slept = is_over(&mut self.sleep, cx);
        if !slept || self.refreshing.is_some() {
            return Poll::Pending;
        }
        if !released {
            // The wait is over. What does not end by itself is dropped, and the next attempt follows.
            let limit = self.release_limit.get_or_insert_with(|| {
                let limit = Instant::now() + LONGEST_RELEASE;
                Box::pin(sleep_until(deadline.map_or(limit, |deadline| deadline.min(limit))))
            });
            ready!(limit.as_mut().poll(cx));
            self.releasing = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready with the reason, as soon as the layer is shut down or the deadline has passed.
    pub(crate) fn poll_broken_off(
        &mut self,
        deadline: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Refusal> {
        if self.poll_shutdown(cx).is_ready() {
            return Poll::Ready(Refusal::Shutdown);
        }
        let Some(deadline) = deadline else { return Poll::Pending };
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        ready!(limit.as_mut().poll(cx));
        Poll::Ready(Refusal::DeadlinePassed)
    }

    /// The same for this moment only: arms no timer.
    pub(crate) fn poll_late(
        &mut self,
        deadline: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Refusal> {
        if self.poll_shutdown(cx).is_ready() {
            return Poll::Ready(Refusal::Shutdown);
        }
        match deadline {
            Some(deadline) if deadline <= Instant::now() => Poll::Ready(Refusal::DeadlinePassed),
            _ => Poll::Pending,
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.shutdown.as_mut().map_or(Poll::Pending, |signal| signal.as_mut().poll(cx))
    }
}

/// Polls the part of a pause, which is forgotten once it is over.
fn is_over<F: Future<Output = ()>>(part: &mut Option<Pin<Box<F>>>, cx: &mut Context<'_>) -> bool {
    if let Some(future) = part {
        if future.as_mut().poll(cx).is_pending() {
            return false;
        }
        *part = None;
    }
    true
}

/// Ends when the signal says so; never, if nobody is left to give it.
async fn shut_down(mut signal: watch::Receiver<bool>) {
    if signal.wait_for(|down| *down).await.is_err() {
        std::future::pending::<()>().await;
    }
}
