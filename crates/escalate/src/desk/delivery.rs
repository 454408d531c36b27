//! A delivery that somebody waits for, but not for ever.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;
use tower_triage_core::incident::run_detached;

use crate::desk::queue::{Job, Waiting};
use crate::desk::{Inner, Overflow};
use crate::policy::Recording;

/// An escalation on its way to its receivers, all at once; see [`Desk::deliver`](crate::Desk::deliver)
/// and [`Desk::hand_over`](crate::Desk::hand_over).
#[must_use = "a delivery that is not awaited goes to the desk's queue"]
pub struct Delivery {
    desk: Arc<Inner>,
    jobs: Vec<Job>,
    delivered: Delivered,
    recording: Recording,
    wait: Duration,
    /// Set up when there is something to wait for.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Set up when a place in the queue has to be waited for.
    place: Option<Waiting>,
}

/// How many receivers an escalation reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// A sink of theirs took it.
    pub taken: u32,
    /// Every sink of theirs failed.
    pub failed: u32,
    /// The wait was over first: delivery goes on in the queue.
    pub queued: u32,
    /// The wait was over first, and the queue had no room.
    pub dropped: u32,
}

impl Delivery {
    pub(crate) fn new(
        desk: &Arc<Inner>,
        jobs: Vec<Job>,
        recording: Recording,
        wait: Duration,
    ) -> Self {
        let (desk, delivered) = (Arc::clone(desk), Delivered::default());
        Self { desk, jobs, delivered, recording, wait, sleep: None, place: None }
    }

    /// Until the receivers have it.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Sinks may be wrapped in layers of ours, which must not write into the caller's incident.
        run_detached(|| {
            self.jobs.retain_mut(|job| match job.as_mut().poll(cx) {
                Poll::Ready(true) => {
                    self.delivered.taken += 1;
                    false
                }
                Poll::Ready(false) => {
                    self.delivered.failed += 1;
                    false
                }
                Poll::Pending => true,
            });
        });
        if self.jobs.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Until each has a place in the queue, if the policy says to wait for one.
    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.desk.policy.overflow != Overflow::Wait || self.wait.is_zero() {
            return Poll::Ready(());
        }
        while !self.jobs.is_empty() {
            let place = self.place.get_or_insert_with(|| self.desk.queue.place());
            let Some(place) = ready!(place.as_mut().poll(cx)) else { break };
            self.place = None;
            if let Some(job) = self.jobs.pop() {
                self.desk.enqueue_at(job, place);
                self.delivered.queued += 1;
            }
        }
        Poll::Ready(())
    }

    /// Leaves what is not done to the queue.
    fn hand_over(&mut self) {
        for job in self.jobs.drain(..) {
            match self.desk.enqueue(job) {
                true => self.delivered.queued += 1,
                false => self.delivered.dropped += 1,
            }
        }
    }
}

impl Future for Delivery {
    type Output = Delivered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Delivered> {
        let this = &mut *self;
        let done = match this.recording {
            Recording::Durable => this.poll_taken(cx),
            Recording::Background => this.poll_queued(cx),
        };
        if done.is_pending() && !this.wait.is_zero() {
            let sleep = || Box::pin(tokio::time::sleep(this.wait));
            ready!(this.sleep.get_or_insert_with(sleep).as_mut().poll(cx));
        }
        this.hand_over();
        Poll::Ready(this.delivered)
    }
}

/// Nothing is lost.
impl Drop for Delivery {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("delivered", &self.delivered)
            .field("pending", &self.jobs.len())
            .finish_non_exhaustive()
    }
}
