//! Who is asked, and how long a call waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_triage_core::duration_text::DurationText;
use tower_triage_core::{ClassSet, ConfigError, ErrorClass};

use crate::desk::Desk;
use crate::policy::EscalatePolicy;
use crate::question::{Accepts, Decision, Level, Question};
use crate::store::Store;
use crate::timestamp::Timestamp;

/// Who is asked what to do with a call that failed, and how long it waits: see
/// [`EscalateLayer::ask`](crate::EscalateLayer::ask).
///
/// | setting | default | refused |
/// |---|---|---|
/// | [`deadline`](Self::deadline) | 5 min | 0 |
/// | [`on_timeout`](Self::on_timeout) | [`Decision::Abort`] | |
/// | [`classes`](Self::classes) | all that escalate | |
/// | [`level`](Self::level)s | none: the route's receivers are asked until the deadline | no receiver, one that the desk does not have, no time |
/// | [`most`](Self::most) calls that wait | 100 | 0 |
/// | [`lease`](Self::lease) | 5 min | 0 |
#[derive(Clone)]
pub struct Asking {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lease: Duration,
    deadline: Duration,
    on_timeout: Decision,
    classes: ClassSet,
    pub(crate) levels: Vec<Level>,
    most: usize,
    /// Clones share it.
    waiting: Arc<Semaphore>,
}

impl Asking {
    /// Questions and answers are kept in `store`, where people and programs find them.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            lease: Duration::from_secs(300),
            deadline: Duration::from_secs(300),
            on_timeout: Decision::Abort,
            classes: ClassSet::ALL,
            levels: Vec::new(),
            most: 100,
            waiting: Arc::new(Semaphore::new(100)),
        }
    }

    /// How long a call waits for an answer.
    #[must_use]
    pub const fn deadline(mut self, longest: Duration) -> Self {
        self.deadline = longest;
        self
    }

    /// What a call does that got none.
    #[must_use]
    pub fn on_timeout(mut self, decision: Decision) -> Self {
        self.on_timeout = decision;
        self
    }

    /// For which failures somebody is asked; only those that escalate are.
    #[must_use]
    pub fn classes(mut self, classes: impl Into<ClassSet>) -> Self {
        self.classes = classes.into();
        self
    }

    /// Asks the receivers `to` next, and gives them so long before the level after that is asked.
    /// The first level is asked together with the route's receivers; the last has until the
    /// deadline.
    #[must_use]
    pub fn level<T: Into<String>>(
        mut self,
        to: impl IntoIterator<Item = T>,
        within: Duration,
    ) -> Self {
        self.levels.push(Level { to: to.into_iter().map(Into::into).collect(), within });
        self
    }

    /// How many calls may wait at a time. One more is not asked about: it is escalated, and ends with
    /// its failure.
    #[must_use]
    pub fn most(mut self, calls: usize) -> Self {
        self.most = calls;
        self.waiting = Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS)));
        self
    }

    /// For how long nobody else drives the request again, once an answer says to send it again. A
    /// second try after a crash comes when this is over.
    #[must_use]
    pub const fn lease(mut self, time: Duration) -> Self {
        self.lease = time;
        self
    }

    pub(crate) fn check(&self, desk: &Desk) -> Result<(), ConfigError> {
        let zero = [
            ("deadline", self.deadline.is_zero()),
            ("lease", self.lease.is_zero()),
            ("most", self.most == 0),
        ];
        if let Some((field, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(ConfigError::new(field, 0, "it must be more than nothing"));
        }
        for Level { to, within } in &self.levels {
            if to.is_empty() {
                return Err(ConfigError::new("level", "[]", "a level needs a receiver"));
            }
            if within.is_zero() {
                return Err(ConfigError::new("level", "0s", "a level needs time to answer"));
            }
            if let Some(unknown) = to.iter().find(|name| !desk.has(name)) {
                return Err(ConfigError::new("level", unknown, "the desk has no such receiver"));
            }
        }
        Ok(())
    }

    /// Is somebody asked about a failure of this class? A place among those that wait, if so.
    pub(crate) fn place(
        &self,
        policy: &EscalatePolicy,
        class: ErrorClass,
    ) -> Option<OwnedSemaphorePermit> {
        if !self.classes.contains(class) || !policy.escalates(class) {
            return None;
        }
        let place = Arc::clone(&self.waiting).try_acquire_owned().ok();
        if place.is_none() {
            let most = self.most;
            tracing::warn!(most, "nobody is asked: too many calls wait for an answer");
        }
        place
    }

    pub(crate) fn question(&self, accepts: Accepts, now: Timestamp) -> Question {
        Question {
            text: "What shall the call do?".to_owned(),
            options: Vec::new(),
            deadline: now.plus(self.deadline),
            on_timeout: self.on_timeout.clone(),
            accepts,
            levels: self.levels.clone(),
        }
    }

    pub(crate) const fn waits(&self) -> Duration {
        self.deadline
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking")
            .field("deadline", &DurationText(self.deadline))
            .field("on_timeout", &self.on_timeout)
            .field("levels", &self.levels)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}
