//! Deliveries that nobody waits for: bounded, and worked off by tasks that end with the work.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::desk::{Inner, Overflow};

/// One delivery, begun or not; true if it succeeded.
pub(crate) type Job = Pin<Box<dyn Future<Output = bool> + Send>>;

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Tasks that work.
    workers: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing foreign runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }
}

impl Inner {
    /// Queues `job`, and sees to it that somebody works. False if it was dropped for want of room.
    pub(crate) fn enqueue(self: &Arc<Self>, job: Job) -> bool {
        self.queue.lock().waiting.push_back(job);
        self.staff();
        let mut state = self.queue.lock();
        if state.waiting.len() <= self.policy.queue {
            return true;
        }
        let (victim, kept) = match self.policy.overflow {
            Overflow::DropNewest => (state.waiting.pop_back(), false),
            Overflow::DropOldest => (state.waiting.pop_front(), true),
        };
        drop(state);
        // Not under the lock: a delivery that was begun drops what its sink holds.
        drop(victim);
        kept
    }

    /// Spawns a task for each delivery that waits, up to the most that may work.
    ///
    /// Why a task: these deliveries have no caller who could poll them. Who ends it: itself, when
    /// the queue is empty.
    fn staff(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        while let Some((worker, job)) = self.hire() {
            // Not under the lock: a runtime that ends drops the task at once.
            runtime.spawn(worker.run(job));
        }
    }

    /// A worker with its first job, if there is work and a free place.
    fn hire(self: &Arc<Self>) -> Option<(Worker, Job)> {
        let mut state = self.queue.lock();
        if state.workers >= self.policy.workers {
            return None;
        }
        let job = state.waiting.pop_front()?;
        state.workers += 1;
        Some((Worker { desk: Arc::clone(self), at_work: true }, job))
    }

    pub(crate) async fn idle(self: &Arc<Self>) {
        loop {
            let notified = self.queue.idle.notified();
            tokio::pin!(notified);
            // Registered before the look, so that no end is missed.
            notified.as_mut().enable();
            self.staff();
            {
                let state = self.queue.lock();
                if state.workers == 0 && state.waiting.is_empty() {
                    return;
                }
            }
            notified.await;
        }
    }
}

struct Worker {
    desk: Arc<Inner>,
    at_work: bool,
}

impl Worker {
    async fn run(mut self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            job.await;
            next = self.next();
        }
    }

    /// The next job, or the end of work: one decision under one lock, so that a job which comes at
    /// this moment finds either this worker or a free place for one.
    fn next(&mut self) -> Option<Job> {
        let mut state = self.desk.queue.lock();
        let job = state.waiting.pop_front();
        if job.is_none() {
            state.workers -= 1;
            self.at_work = false;
        }
        job
    }
}

/// Also when the runtime ends.
impl Drop for Worker {
    fn drop(&mut self) {
        if self.at_work {
            self.desk.queue.lock().workers -= 1;
        }
        self.desk.queue.idle.notify_waiters();
    }
}
