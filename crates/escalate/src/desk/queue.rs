//! Deliveries that nobody waits for: bounded, and worked off by tasks that end with the work.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::desk::{Inner, Overflow};

/// One delivery, begun or not; true if it succeeded.
pub(crate) type Job = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A place in the queue.
pub(crate) type Place = OwnedSemaphorePermit;

/// A place in the queue, when there is one. `None` never comes: the queue is not closed.
pub(crate) type Waiting = Pin<Box<dyn Future<Output = Option<Place>> + Send>>;

pub(crate) struct Queue {
    state: Mutex<State>,
    places: Arc<Semaphore>,
    idle: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Job, Place)>,
    /// Tasks that work.
    workers: usize,
}

impl Queue {
    /// A queue for as many deliveries as there are `places`.
    pub(crate) fn new(places: usize) -> Self {
        let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { state: Mutex::default(), places, idle: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing foreign runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// The next place that gets free, first come, first served.
    pub(crate) fn place(&self) -> Waiting {
        let place = Arc::clone(&self.places).acquire_owned();
        Box::pin(async { place.await.ok() })
    }
}

impl Inner {
    /// Queues `job`, and sees to it that somebody works. False if it was dropped for want of room.
    /// Does not wait, whatever the policy says.
    pub(crate) fn enqueue(self: &Arc<Self>, job: Job) -> bool {
        let place = match Arc::clone(&self.queue.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => match self.evict() {
                Some(place) => place,
                None => return false,
            },
        };
        self.enqueue_at(job, place);
        true
    }

    /// Queues `job` in its place.
    pub(crate) fn enqueue_at(self: &Arc<Self>, job: Job, place: Place) {
        self.queue.lock().waiting.push_back((job, place));
        self.staff();
    }

    /// The place of what has waited longest, if the policy gives it away.
    fn evict(&self) -> Option<Place> {
        match self.policy.overflow {
            Overflow::DropNewest | Overflow::Wait => None,
            Overflow::DropOldest => {
                let oldest = self.queue.lock().waiting.pop_front();
                // Not under the lock: a delivery that was begun drops what its sink holds.
                oldest.map(|(_job, place)| place)
            }
        }
    }

    /// Spawns a task for each delivery that waits, up to the most that may work.
    ///
    /// Why a task: these deliveries have no caller who could poll them. Who ends it: itself, when
    /// the queue is empty.
    fn staff(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        while let Some((worker, (job, place))) = self.hire() {
            // Not under the lock: whoever waits for the place is woken, and a runtime that ends
            // drops the task at once.
            drop(place);
            runtime.spawn(worker.run(job));
        }
    }

    /// A worker with its first job, if there is work and not too many are at it.
    fn hire(self: &Arc<Self>) -> Option<(Worker, (Job, Place))> {
        let mut state = self.queue.lock();
        if state.workers >= self.policy.workers {
            return None;
        }
        let first = state.waiting.pop_front()?;
        state.workers += 1;
        Some((Worker { desk: Arc::clone(self), at_work: true }, first))
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
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.workers -= 1;
            self.at_work = false;
        }
        drop(state);
        next.map(|(job, _place)| job)
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
