//! Who is told, and by which sinks.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use tower_triage_core::{ConfigError, Delays};

use crate::desk::{DeskPolicy, Inner};
use crate::escalation::Escalation;
use crate::sink::{IntoSink, Sink};
use crate::storm::{Storm, Untold};

/// Somebody who is told: a name that routes use, and sinks in the order in which they are tried.
///
/// Two lists, each worked off until one sink takes the escalation: **records** get every
/// escalation; **notifications** reach people and get one per fingerprint and window.
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

    /// Adds a sink for notifications: under storm control.
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
        let storm = Mutex::new(Storm::new(policy.window, policy.fingerprints));
        Ok(Post { name, records, notifications, storm })
    }
}

/// A receiver at its desk.
pub(crate) struct Post {
    pub(crate) name: String,
    records: Vec<Sink>,
    notifications: Vec<Sink>,
    storm: Mutex<Storm>,
}

impl Post {
    fn storm<T>(&self, f: impl FnOnce(&mut Storm) -> T) -> T {
        // The core cannot panic half way through a change.
        f(&mut self.storm.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A notification under way; dropped before it got through, it belongs to the next one.
struct Telling<'a> {
    post: &'a Post,
    escalation: &'a Escalation,
    untold: Option<Untold>,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if let Some(untold) = self.untold {
            self.post.storm(|storm| storm.not_told(self.escalation.fingerprint, untold));
        }
    }
}

impl Inner {
    /// Tells one receiver: records first. True if one of its sinks took it, or if it has no records
    /// and was notified of the same within the window.
    pub(crate) async fn tell(&self, post: &Post, escalation: &Arc<Escalation>) -> bool {
        let mut taken = false;
        if !post.records.is_empty() {
            taken |= self.first_to_take(&post.records, escalation).await;
        }
        if !post.notifications.is_empty() {
            let now = self.clock.now();
            match post.storm(|storm| storm.failed(escalation.fingerprint, now)) {
                None => {
                    Self::count(&self.suppressed);
                    taken |= post.records.is_empty();
                }
                Some(untold) => {
                    let mut telling = Telling { post, escalation, untold: Some(untold) };
                    let mut notification = Escalation::clone(escalation);
                    notification.count = untold.count;
                    if untold.count > 1 {
                        let ago = now.saturating_sub(untold.first);
                        let first = escalation.last_time.minus(ago);
                        notification.first_time = notification.first_time.min(first);
                    }
                    if self.first_to_take(&post.notifications, &notification).await {
                        telling.untold = None;
                        taken = true;
                    }
                }
            }
        }
        let counter: Option<&AtomicU64> = taken.then_some(&self.delivered);
        counter.map(Self::count);
        taken
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
                if attempt < self.policy.tries {
                    let delay = self.policy.backoff.next(&mut delays, self.random.unit());
                    tokio::time::sleep(delay).await;
                }
            }
        }
        Self::count(&self.not_recorded);
        let (id, from, operation) = (escalation.id, &escalation.from, &escalation.operation);
        tracing::error!(%id, from, operation, "an escalation was not recorded: every sink failed");
        false
    }
}
