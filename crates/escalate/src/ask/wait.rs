//! From the question to the answer: what goes on while a call waits.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use crate::ask::Asking;
use crate::desk::{Delivered, Desk};
use crate::escalation::Escalation;
use crate::later::later;
use crate::policy::Recording;
use crate::question::Decision;
use crate::store::{Change, LeaseRequest, LeaseToken, Pending, Put, Refused, StoreError};

/// Somebody was told of the failure, and asked if that was possible.
pub(crate) struct Asked {
    pub(crate) delivered: Delivered,
    /// What is decided, when it is.
    pub(crate) answer: Option<Pin<Box<dyn Future<Output = Decided> + Send>>>,
}

pub(crate) struct Decided {
    pub(crate) decision: Decision,
    /// Who decided.
    pub(crate) by: String,
    /// The letter is the call's, which sends its request again.
    pub(crate) lease: Option<LeaseToken>,
}

/// A call looks for its answer at most this often, however much is going on in the store.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How long one answer of the store is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Stores the question and tells the receivers.
///
/// # Cancel safety
/// Dropped at any time, the question stays in the store if it is there, and so will its answer.
pub(crate) async fn ask(
    asking: Asking,
    desk: Desk,
    mut escalation: Escalation,
    wait: Duration,
    place: OwnedSemaphorePermit,
) -> Asked {
    let deadline = later(Instant::now(), asking.waits());
    let id = escalation.id;
    desk.address(&mut escalation);
    for name in asking.levels.first().iter().flat_map(|level| &level.to) {
        if !escalation.to.contains(name) {
            escalation.to.push(name.clone());
        }
    }
    let mut untold = Untold { desk, escalation: Some(escalation.clone()) };
    // Before anybody is told, so that an answer finds its question.
    let asked = match in_time(asking.store.put(escalation.clone())).await {
        Ok(Put::New | Put::Reopened) => true,
        // The same request is under way a second time, and has had its question.
        Ok(Put::Known | Put::Again) => false,
        Err(error) => {
            tracing::error!(%id, %error, "nobody can be asked: the store failed");
            false
        }
    };
    if !asked {
        escalation.question = None;
    }
    let desk = untold.desk.clone();
    // From here on the delivery sees to it.
    let delivery = desk.send(escalation.clone(), Recording::Durable, wait);
    untold.escalation = None;
    let delivered = delivery.await;
    let waiting = Waiting { asking, desk, escalation, deadline, _place: place };
    let answer = asked.then(|| Box::pin(waiting.decided()) as _);
    Asked { delivered, answer }
}

/// An escalation that nobody was told of yet; dropped with it, the desk's queue does that.
struct Untold {
    desk: Desk,
    escalation: Option<Escalation>,
}

impl Drop for Untold {
    fn drop(&mut self) {
        if let Some(mut escalation) = self.escalation.take() {
            escalation.question = None;
            // The desk counts what finds no room.
            _ = self.desk.enqueue_addressed(escalation);
        }
    }
}

/// A store that hangs must not hold the call beyond its deadline.
async fn in_time<T>(pending: Pending<'_, T>) -> Result<T, StoreError> {
    match timeout(PATIENCE, pending).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(StoreError::unavailable(elapsed)),
    }
}

struct Waiting {
    asking: Asking,
    desk: Desk,
    escalation: Escalation,
    deadline: Instant,
    /// Among the calls that wait.
    _place: OwnedSemaphorePermit,
}

impl Waiting {
    /// Waits for the answer; takes the letter, if it says to send the request again.
    async fn decided(mut self) -> Decided {
        let (decision, by) = self.decision().await;
        let mut decided = Decided { decision, by, lease: None };
        if decided.decision.retries() {
            match self.lease().await {
                Ok(token) => decided.lease = Some(token),
                Err(why) => {
                    let id = self.escalation.id;
                    tracing::warn!(%id, why, "the call that waited does not send its request again");
                    decided.decision = Decision::Abort;
                }
            }
        }
        decided
    }

    /// What was decided, and by whom; at the deadline that is the deadline.
    async fn decision(&mut self) -> (Decision, String) {
        let mut level = 0_u32;
        let mut until = self.level_ends(level);
        loop {
            if let Some(decision) = self.answer_by(until).await {
                return decision;
            }
            if until >= self.deadline {
                return self.expire().await;
            }
            level += 1;
            self.raise(level).await;
            until = self.level_ends(level);
        }
    }

    /// When the next level is asked; the last one has until the deadline.
    fn level_ends(&self, level: u32) -> Instant {
        let levels = &self.asking.levels;
        match levels.get(level as usize) {
            Some(now) if level as usize + 1 < levels.len() => {
                self.deadline.min(later(Instant::now(), now.within))
            }
            _ => self.deadline,
        }
    }

    /// Waits for an answer.
    async fn answer_by(&self, until: Instant) -> Option<(Decision, String)> {
        let (id, store) = (self.escalation.id, &self.asking.store);
        let look = async {
            loop {
                // Before the look, so that no change is missed.
                let changed = store.changed();
                match store.get(id).await {
                    Ok(Some(letter)) => match letter.answer {
                        Some(answer) => return (answer.decision, answer.by),
                        // Somebody gave it up, or somebody else solved it.
                        None if letter.state.is_settled() => {
                            return (Decision::Abort, letter.state.to_string());
                        }
                        None => {}
                    },
                    Ok(None) => return (Decision::Abort, "retention".to_owned()),
                    Err(error) => tracing::warn!(%id, %error, "no answer can be read"),
                }
                changed.await;
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        };
        timeout_at(until, look).await.ok()
    }

    /// Without the lease somebody else may be driving the request again.
    async fn lease(&self) -> Result<LeaseToken, &'static str> {
        let Escalation { id, from, .. } = &self.escalation;
        let request = LeaseRequest::waiter(*id, from).time(self.asking.lease);
        match in_time(self.asking.store.lease(request)).await {
            Ok(letters) => letters
                .first()
                .and_then(|letter| letter.lease.as_ref())
                .map(|lease| lease.token)
                .ok_or("somebody else works on it"),
            Err(_) => Err("the store failed"),
        }
    }

    /// Asks the next level.
    async fn raise(&mut self, level: u32) {
        let Some(next) = self.asking.levels.get(level as usize) else { return };
        let (id, to) = (self.escalation.id, next.to.clone());
        let change = Change::Raised { level, to: to.clone() };
        if let Err(error) = in_time(self.asking.store.change(id, change)).await {
            // Answered at this moment, or the store fails: the next look tells.
            tracing::debug!(%id, %error, "the next level is not recorded");
        }
        self.escalation.to = to;
        // The desk's queue does it: nobody has to wait for it.
        if self.desk.enqueue_addressed(self.escalation.clone()) == 0 {
            tracing::error!(%id, level, "the next level was not told: the desk's queue is full");
        }
    }

    /// Nobody answered in time, unless somebody did at this moment.
    async fn expire(&self) -> (Decision, String) {
        let id = self.escalation.id;
        match in_time(self.asking.store.change(id, Change::Expired)).await {
            Err(StoreError::Refused(_, Refused::Answered(answer))) => (answer.decision, answer.by),
            other => {
                if let Err(error) = other {
                    tracing::warn!(%id, %error, "it is not recorded that nobody answered in time");
                }
                let decision = self.escalation.question.as_ref().map(|q| q.on_timeout.clone());
                (decision.unwrap_or(Decision::Abort), "the deadline".to_owned())
            }
        }
    }
}
