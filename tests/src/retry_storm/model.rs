//! What is simulated: the numbers.

use std::time::Duration;

/// One service with finite capacity, and its clients.
///
/// The service works on one queue, first in first out. A request that its client gave up on stays in
/// the queue and is worked on all the same: nobody told the service. That is what keeps a service
/// down once its queue is longer than its clients' patience: it does nothing but work that nobody
/// waits for, as long as more comes in than it can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// How many clients there are, each with retry budget and breaker of its own.
    pub clients: u32,
    /// Requests of one client per second, evenly spaced; each client begins at a time of its own.
    pub rate: u32,
    /// What the service can do, as a multiple of what all clients ask of it.
    pub capacity: f64,
    /// How long the queue may be, as the time that the healthy service needs to empty it. Whoever
    /// comes when it is full is refused at once.
    pub backlog: Duration,
    /// How finely the work of the service is cut in time. Coarse ticks cost less, and refuse more:
    /// between two of them no place in the queue becomes free.
    pub tick: Duration,
    /// How long a client waits for the answer to one attempt.
    pub patience: Duration,
    /// When the service loses half of its capacity.
    pub begin: Duration,
    /// When it is back.
    pub end: Duration,
    /// When the simulation ends.
    pub length: Duration,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            clients: 1000,
            rate: 10,
            capacity: 1.3,
            backlog: Duration::from_secs(2),
            tick: Duration::from_millis(1),
            patience: Duration::from_secs(1),
            begin: Duration::from_secs(20),
            end: Duration::from_secs(50),
            length: Duration::from_secs(120),
        }
    }
}

impl Model {
    /// Requests per second, all clients together and without any retry.
    #[must_use]
    pub fn offered(&self) -> f64 {
        f64::from(self.clients) * f64::from(self.rate)
    }

    /// What the service can do per second at `now`.
    #[must_use]
    pub fn capacity_at(&self, now: Duration) -> f64 {
        let share = if (self.begin..self.end).contains(&now) { 0.5 } else { 1.0 };
        self.offered() * self.capacity * share
    }

    /// Requests that fit in the queue.
    #[must_use]
    pub fn queue_length(&self) -> usize {
        (self.offered() * self.capacity * self.backlog.as_secs_f64()) as usize
    }
}
