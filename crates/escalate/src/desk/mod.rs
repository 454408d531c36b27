//! Where escalations go: routes, receivers, storm control, a bounded queue.

mod delivery;
mod policy;
mod queue;
mod receiver;
mod watch;

pub use self::{
    delivery::{Delivered, Delivery},
    policy::{DeskPolicy, Overflow},
    receiver::Receiver,
};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_triage_core::{Clock, ConfigError, ErrorClass, Incident, Random};

use crate::escalation::{Escalation, Outcome};
use crate::policy::Recording;
use crate::routes::{Priority, Route, Routes};
use crate::sink::LogSink;
use crate::write::{self, Facts, Told};
use queue::{Job, Queue};
use receiver::Post;

/// The handle on one desk: routes, receivers, storm control and counters. Clones share it; several
/// layers may.
///
/// Escalations that nobody can wait for (left with the scope by a layer below another, of a call
/// that was dropped, or slower than the layer's wait) go through a bounded queue. Tasks that work
/// it off are spawned when there is something in it, at most [`DeskPolicy::workers`], and end when
/// it is empty, so none outlives its work. They hold the desk until then.
///
/// Needs a tokio runtime with time. What is handed over outside of one waits for the next escalation
/// or for [`Desk::idle`].
#[derive(Clone)]
pub struct Desk {
    inner: Arc<Inner>,
}

/// What happened at a desk so far. A delivery is one escalation to one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeskCounts {
    /// Deliveries that a sink took.
    pub delivered: u64,
    /// Lists of sinks that failed from the first to the last, for one escalation.
    pub not_recorded: u64,
    /// Notifications held back by storm control; the next one, or the resolve, counts them.
    pub suppressed: u64,
    /// Resolves that a sink of notifications took.
    pub resolved: u64,
    /// Deliveries that found no place in the queue, lost their place, or ended with their runtime.
    pub dropped: u64,
}

pub(crate) struct Inner {
    routes: Routes,
    posts: Vec<Post>,
    policy: DeskPolicy,
    clock: Clock,
    random: Random,
    queue: Queue,
    delivered: AtomicU64,
    not_recorded: AtomicU64,
    suppressed: AtomicU64,
    resolved: AtomicU64,
    dropped: AtomicU64,
}

impl Desk {
    /// A desk with the default policy.
    ///
    /// # Errors
    /// A route without receivers, without task type or to a receiver that is not among
    /// `receivers`; a receiver without a name or without sinks; two receivers of one name.
    pub fn new(
        routes: Routes,
        receivers: impl IntoIterator<Item = Receiver>,
    ) -> Result<Self, ConfigError> {
        Self::with_policy(DeskPolicy::default(), routes, receivers)
    }

    /// A desk with a policy of your own.
    ///
    /// # Errors
    /// As [`Desk::new`], and what [`DeskPolicy`] says of its fields.
    pub fn with_policy(
        policy: DeskPolicy,
        routes: Routes,
        receivers: impl IntoIterator<Item = Receiver>,
    ) -> Result<Self, ConfigError> {
        policy.check()?;
        let mut posts = Vec::<Post>::new();
        for receiver in receivers {
            if posts.iter().any(|post| post.name == receiver.name) {
                let problem = "there is another receiver of this name";
                return Err(ConfigError::new("receivers", receiver.name, problem));
            }
            posts.push(receiver.open(&policy)?);
        }
        routes.check(|name| posts.iter().any(|post| post.name == name))?;
        let queue = Queue::new(policy.queue);
        let inner = Inner {
            routes,
            posts,
            policy,
            clock: Clock::new(),
            random: Random::default(),
            queue,
            delivered: AtomicU64::new(0),
            not_recorded: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
            resolved: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A desk that writes every escalation to the log ([`LogSink`](crate::LogSink)): where to begin.
    #[must_use]
    pub fn log() -> Self {
        let routes = Routes::new(Route::new(["log"], "look_into_it"));
        let receiver = Receiver::new("log").record(LogSink);
        Self::new(routes, [receiver]).expect("one route, to the one receiver, with a sink")
    }

    /// The escalation of an incident that you have at hand (from
    /// [`incident::scope`](tower_triage_core::incident::scope()), say). `None` if nothing failed.
    #[must_use]
    pub fn write(&self, from: &str, incident: &Incident) -> Option<Escalation> {
        let (facts, outcome) =
            (Facts::unread(incident.operation), Outcome::of(incident.resolution));
        let mut escalation =
            write::escalation(from, &facts, incident, Told::of(incident.failure?, outcome));
        escalation.priority = self.priority(escalation.class, write::circuit_opened(incident));
        Some(escalation)
    }

    /// Addresses the escalation and delivers it to its receivers: await it. After `wait`, or when
    /// dropped, what is not done goes on in the queue.
    ///
    /// # Cancel safety
    /// Nothing is lost; see above.
    pub fn deliver(&self, escalation: Escalation, wait: Duration) -> Delivery {
        self.forward(escalation, Recording::Durable, wait)
    }

    /// Addresses the escalation and leaves it to the queue. With [`Overflow::Wait`] it waits for a
    /// place there, at most for `wait`: await it.
    ///
    /// # Cancel safety
    /// Dropped, what has no place yet gets one if there is one.
    pub fn hand_over(&self, escalation: Escalation, wait: Duration) -> Delivery {
        self.forward(escalation, Recording::Background, wait)
    }

    /// Writes on the escalation whom the routes say to tell, and what to do.
    pub(crate) fn address(&self, escalation: &mut Escalation) {
        let route = self.inner.routes.find(
            &escalation.from,
            escalation.class,
            &escalation.operation,
            escalation.priority,
        );
        escalation.task_type.clone_from(&route.task_type);
        escalation.to.clone_from(&route.to);
    }

    /// Addresses and delivers.
    pub(crate) fn forward(
        &self,
        mut escalation: Escalation,
        recording: Recording,
        wait: Duration,
    ) -> Delivery {
        self.address(&mut escalation);
        self.send(escalation, recording, wait)
    }

    /// Delivers what is addressed.
    pub(crate) fn send(
        &self,
        escalation: Escalation,
        recording: Recording,
        wait: Duration,
    ) -> Delivery {
        Delivery::new(&self.inner, self.inner.jobs(escalation), recording, wait)
    }

    /// Addresses the escalation and leaves it to the queue; gives how many deliveries found room
    /// there. Does not block. What finds none, [`DeskCounts::dropped`] tells.
    #[must_use = "nobody is told if it is zero"]
    pub fn enqueue(&self, mut escalation: Escalation) -> u32 {
        self.address(&mut escalation);
        self.enqueue_addressed(escalation)
    }

    pub(crate) fn enqueue_addressed(&self, escalation: Escalation) -> u32 {
        let jobs = self.inner.jobs(escalation).into_iter();
        jobs.map(|job| u32::from(self.inner.enqueue(job))).sum()
    }

    /// Waits until the queue is empty and what was in it is delivered, or given up after its tries:
    /// for shutdown and tests.
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn idle(&self) {
        self.inner.idle().await;
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> DeskCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeskCounts {
            delivered: read(&self.inner.delivered),
            not_recorded: read(&self.inner.not_recorded),
            suppressed: read(&self.inner.suppressed),
            resolved: read(&self.inner.resolved),
            dropped: read(&self.inner.dropped),
        }
    }

    /// How many deliveries wait in the queue.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.inner.queue.len()
    }

    pub(crate) fn has(&self, receiver: &str) -> bool {
        self.inner.posts.iter().any(|post| post.name == receiver)
    }

    pub(crate) fn priority(&self, class: ErrorClass, circuit_opened: bool) -> Priority {
        let least = if circuit_opened { Priority::High } else { Priority::Low };
        self.inner.routes.priority(class).max(least)
    }
}

impl Inner {
    /// One job per receiver that `escalation` is addressed to.
    fn jobs(self: &Arc<Self>, escalation: Escalation) -> Vec<Job> {
        let escalation = Arc::new(escalation);
        let told = |post: &Post| escalation.to.contains(&post.name);
        (0..self.posts.len())
            .filter(|post| told(&self.posts[*post]))
            .map(|post| self.job(post, &escalation))
            .collect()
    }

    /// Delivers to one receiver; true if a sink of its took the escalation.
    fn job(self: &Arc<Self>, post: usize, escalation: &Arc<Escalation>) -> Job {
        let escalation = Arc::clone(escalation);
        let unfinished = Unfinished { desk: Some(Arc::clone(self)) };
        Box::pin(async move {
            let mut unfinished = unfinished;
            let Some(desk) = &unfinished.desk else { return false };
            let taken = desk.tell(post, &escalation).await;
            unfinished.desk = None;
            taken
        })
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Counts a delivery as dropped if it is dropped.
struct Unfinished {
    desk: Option<Arc<Inner>>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(desk) = &self.desk else { return };
        let dropped = Inner::count(&desk.dropped);
        // In a flood one line per drop would be the next flood.
        if dropped.is_power_of_two() {
            tracing::error!(dropped, "tower-triage: escalations are dropped, the queue is full");
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.inner.posts.iter().map(|post| &post.name).collect::<Vec<_>>();
        f.debug_struct("Desk")
            .field("receivers", &names)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
