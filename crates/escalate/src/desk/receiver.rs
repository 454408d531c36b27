//! Who is told, and by which sinks.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tower_triage_core::{ConfigError, Delays};

use crate::desk::{DeskPolicy, Inner};
use crate::escalation::Escalation;
use crate::sink::{GivenUp, IntoSink, Sink};
use crate::storm::{Due, Over, Storm};

/// Somebody who is told: a name that routes use, and sinks in the order in which they are tried.
///
/// Two lists, each worked off until one sink takes the escalation: **records** get every
/// escalation; **notifications** reach people and get one per fingerprint and window, and a resolve
/// ([`Escalation::resolved`]) when the trouble is over.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) name: String,
    records: Vec<Sink>,
    notifications: Vec<Sink>,
}

impl Receiver {
    /// A receiver that routes call `name`; it needs at least one sink.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), records: Vec::new(), notifications: Vec::new() }
    }

    /// Adds a sink for records: if those before it fail, it gets every escalation.
    #[must_use]
    pub fn record(mut self, sink: impl IntoSink) -> Self {
        self.records.push(sink.into_sink());
        self
    }

    /// Adds a sink for notifications: under storm control. It gets resolves too, so a sink of yours
    /// looks at [`Escalation::resolved`]. What asks ([`Escalation::question`]) is not held back.
    #[must_use]
    pub fn notify(mut self, sink: impl IntoSink) -> Self {
        self.notifications.push(sink.into_sink());
        self
    }

    pub(crate) fn open(self, policy: &DeskPolicy) -> Result<Post, ConfigError> {
        let Self { name, records, notifications } = self;
        if name.is_empty() {
            return Err(ConfigError::new("receivers", "\"\"", "a receiver needs a name"));
        }
        if records.is_empty() && notifications.is_empty() {
            return Err(ConfigError::new(
                "sinks",
                format!("[] (receiver `{name}`)"),
                "a receiver needs at least one sink",
            ));
        }
        let storm = Storm::new(policy.window, policy.resolve_after, policy.fingerprints);
        let storm = Mutex::new(Watched { storm, watched: false });
        Ok(Post { name, records, notifications, storm, news: Arc::default() })
    }
}

/// A receiver at its desk.
pub(crate) struct Post {
    pub(crate) name: String,
    records: Vec<Sink>,
    notifications: Vec<Sink>,
    storm: Mutex<Watched>,
    /// For whoever watches for ends: people were told of something, or the desk is gone.
    pub(crate) news: Arc<Notify>,
}

/// Storm control, and whether a task watches for ends: one lock, so that none is forgotten.
pub(crate) struct Watched {
    pub(crate) storm: Storm<Told>,
    pub(crate) watched: bool,
}

/// What people were told, and when by the desk's clock.
#[derive(Clone)]
pub(crate) struct Told {
    escalation: Arc<Escalation>,
    at: Duration,
}

impl Post {
    pub(crate) fn storm(&self) -> MutexGuard<'_, Watched> {
        // The core cannot panic half way through a change.
        self.storm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.news.notify_one();
    }
}

/// A notification under way; dropped before it got through, it belongs to the next one.
struct Telling<'a> {
    post: &'a Post,
    due: Option<Due>,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if let Some(due) = &self.due {
            self.post.storm().storm.not_told(due);
        }
    }
}

/// A resolve under way; dropped before it was given up, it is due again.
struct Resolving<'a> {
    post: &'a Post,
    over: Option<Over<Told>>,
}

impl Drop for Resolving<'_> {
    fn drop(&mut self) {
        if let Some(over) = &self.over {
            self.post.storm().storm.not_resolved(over);
        }
    }
}

impl Inner {
    /// Tells one receiver: records first. True if one of its sinks took it, or if it has no records
    /// and was notified of the same within the window.
    pub(crate) async fn tell(self: &Arc<Self>, at: usize, escalation: &Arc<Escalation>) -> bool {
        let post = &self.posts[at];
        let mut taken = false;
        if !post.records.is_empty() {
            taken |= self.first_to_take(&post.records, escalation).await;
        }
        if !post.notifications.is_empty() {
            taken |= match self.notify(at, escalation).await {
                Some(taken) => {
                    self.watch(at);
                    taken
                }
                None => post.records.is_empty(),
            };
        }
        let counter: Option<&AtomicU64> = taken.then_some(&self.delivered);
        counter.map(Self::count);
        taken
    }

    /// Notifies people, if storm control lets it through: true if they were told. A question is not
    /// held back: somebody waits for the answer to this very one.
    async fn notify(self: &Arc<Self>, at: usize, escalation: &Escalation) -> Option<bool> {
        let post = &self.posts[at];
        let now = self.clock.now();
        let urgent = escalation.question.is_some();
        let (due, forsaken) = {
            let Watched { storm, watched } = &mut *post.storm();
            let due = storm.failed(escalation.fingerprint, now, urgent);
            (due, !*watched && storm.is_told(escalation.fingerprint))
        };
        let Some(due) = due else {
            Self::count(&self.suppressed);
            if forsaken {
                // The runtime of the task that watched has ended.
                self.watch(at);
            }
            return None;
        };
        let mut telling = Telling { post, due: Some(due) };
        let mut notification = escalation.clone();
        // It is for stores, not for people, and storm control is not to keep it.
        notification.request = None;
        notification.count = due.untold.count;
        if due.untold.count > 1 {
            let ago = now.saturating_sub(due.untold.first);
            let first = escalation.last_time.minus(ago);
            notification.first_time = notification.first_time.min(first);
        }
        let taken = self.first_to_take(&post.notifications, &notification).await;
        if taken {
            telling.due = None;
            let told = Told { escalation: Arc::new(notification), at: now };
            post.storm().storm.told(&due, told);
        }
        Some(taken)
    }

    /// Tells the receiver that it is over.
    pub(crate) async fn resolve(&self, post: &Post, over: Over<Told>) {
        let mut resolve = Escalation::clone(&over.told.escalation);
        // By the clock that the last notification was dated by, which paused time drives.
        let date =
            |at: Duration| over.told.escalation.last_time.plus(at.saturating_sub(over.told.at));
        resolve.count = over.untold.count;
        resolve.last_time = date(over.last);
        resolve.resolved = Some(date(self.clock.now()));
        let mut resolving = Resolving { post, over: Some(over) };
        if self.first_to_take(&post.notifications, &resolve).await {
            Self::count(&self.resolved);
        }
        if let Some(over) = resolving.over.take() {
            post.storm().storm.resolved(&over);
        }
    }

    /// Tries the sinks in their order, each a bounded number of times.
    async fn first_to_take(&self, sinks: &[Sink], escalation: &Escalation) -> bool {
        for sink in sinks {
            let mut delays = Delays::default();
            for attempt in 1..=self.policy.tries {
                let sent = sink.send(escalation, self.policy.sink_timeout).await;
                let Err(error) = sent else { return true };
                let (id, sink) = (escalation.id, sink.name());
                tracing::warn!(%id, sink, attempt, error = &*error, "a sink failed");
                if error.is::<GivenUp>() {
                    break;
                }
                if attempt < self.policy.tries {
                    let delay = self.policy.backoff.next(&mut delays, self.random.unit());
                    tokio::time::sleep(delay).await;
                }
            }
        }
        Self::count(&self.not_recorded);
        let (id, from, operation) = (escalation.id, &escalation.from, &escalation.operation);
        let resolved = escalation.resolved.is_some();
        tracing::error!(
            %id, from, operation, resolved,
            "an escalation was not recorded: every sink failed"
        );
        false
    }
}
