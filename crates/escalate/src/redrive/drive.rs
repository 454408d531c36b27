//! One letter: made a request of, sent, settled.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{MissedTickBehavior, sleep};
use tower_service::Service;
use tower_triage_core::incident::{IncidentId, detached};
use tower_triage_core::{
    Classifier, Classify, Delays, ErrorClass, Failure, Operation, Random, Verdict,
};

use crate::capture::Codec;
use crate::question::Decision;
use crate::redrive::caught::{Panicked, caught};
use crate::redrive::policy::RedrivePolicy;
use crate::redrive::progress::Fate;
use crate::store::{Change, LeaseToken, Letter, Store, StoreError};
use crate::write::clean;

/// Adds the letter's id to a request.
pub(super) type WithId<Req> = Arc<dyn Fn(Req, IncidentId) -> Req + Send + Sync>;
/// Changes a request as an answer says.
pub(super) type ChangeWith<Req> = Arc<dyn Fn(Req, &Value) -> Option<Req> + Send + Sync>;

/// A server that wants to be left alone for longer is asked again after so long all the same.
const LONGEST_HINT: Duration = Duration::from_secs(24 * 3600);
/// The pause after a refusal that does not say how long it lasts.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a store is told what came of a letter before that is given up.
const TELLINGS: u32 = 5;

/// What the calls of a worker share.
pub(super) struct Shared<Req, R> {
    pub(super) store: Arc<dyn Store>,
    pub(super) codec: Arc<dyn Codec<Req>>,
    pub(super) classifier: Classifier<R>,
    pub(super) policy: RedrivePolicy,
    pub(super) random: Arc<Random>,
    pub(super) with_id: Option<WithId<Req>>,
    pub(super) change: Option<ChangeWith<Req>>,
}

impl<Req, R> Clone for Shared<Req, R> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            codec: Arc::clone(&self.codec),
            classifier: self.classifier.clone(),
            policy: self.policy.clone(),
            random: Arc::clone(&self.random),
            with_id: self.with_id.clone(),
            change: self.change.clone(),
        }
    }
}

/// What came of a letter, and whether the worker has to pause.
pub(super) struct Done {
    pub(super) id: IncidentId,
    pub(super) fate: Fate,
    pub(super) pause: Option<Duration>,
}

/// What came of a call.
enum Outcome {
    Success,
    Failed {
        failure: Failure,
        said: String,
    },
    TimedOut,
    Panicked,
    /// There was nothing to call with.
    Undrivable(String),
}

impl<Req, R> Shared<Req, R> {
    /// The request of a letter, as it would be sent.
    pub(super) fn request(&self, letter: &Letter) -> Result<Req, String> {
        let captured = letter.request.as_ref().ok_or("no request was captured")?;
        let request = self.codec.decode(captured).map_err(|error| error.to_string())?;
        let request = match letter.answer.as_ref().map(|answer| &answer.decision) {
            Some(Decision::RetryWith(value)) => {
                let change = self.change.as_ref();
                let change = change.ok_or("it is to be changed, and this worker cannot do that")?;
                change(request, value).ok_or("it cannot be changed as the answer says")?
            }
            _ => request,
        };
        Ok(match &self.with_id {
            Some(with_id) => with_id(request, letter.id()),
            None => self.codec.identified(request, letter.id()),
        })
    }

    /// Tells the store, a few times if it must be.
    async fn settle(&self, id: IncidentId, change: Change) -> Result<(), String> {
        let mut wait = Duration::from_millis(100);
        for telling in 1.. {
            match self.store.change(id, change.clone()).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Unavailable(error)) if telling < TELLINGS => {
                    tracing::warn!(%id, %error, "a redriven letter is not settled yet");
                    sleep(wait).await;
                    wait *= 2;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        // The loop has no end of its own.
        Err(String::new())
    }

    /// Extends the lease as long as it can; ends when it is lost.
    async fn keep(&self, id: IncidentId, lease: LeaseToken) -> String {
        let mut ticks = tokio::time::interval(self.policy.lease / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await; // at once
        loop {
            ticks.tick().await;
            match self.store.change(id, Change::Extended(lease, self.policy.lease)).await {
                Ok(_) => {}
                Err(StoreError::Unavailable(error)) => {
                    tracing::warn!(%id, %error, "a lease is not extended yet");
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Gives a letter back untried.
    pub(super) async fn release(&self, letter: &Letter, why: &str) -> Done {
        let id = letter.id();
        let Some(lease) = letter.lease.as_ref().map(|lease| lease.token) else {
            return Done {
                id,
                fate: Fate::Lost("it came without a lease".to_owned()),
                pause: None,
            };
        };
        let fate = match self.settle(id, Change::Released(lease)).await {
            Ok(()) => Fate::Released(why.to_owned()),
            Err(error) => Fate::Lost(error),
        };
        Done { id, fate, pause: None }
    }

    /// Sends the request of a letter, and settles.
    pub(super) async fn drive<S>(self: Arc<Self>, service: S, letter: Letter) -> Done
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
    {
        let id = letter.id();
        let Some(lease) = letter.lease.as_ref().map(|lease| lease.token) else {
            return Done {
                id,
                fate: Fate::Lost("it came without a lease".to_owned()),
                pause: None,
            };
        };
        let outcome = tokio::select! {
            biased;
            outcome = self.call(service, &letter) => outcome,
            // Somebody else has it: what is under way here is of no use any more.
            lost = self.keep(id, lease) => {
                return Done { id, fate: Fate::Lost(lost), pause: None };
            }
        };
        let (change, fate, pause) = self.judge(&letter, lease, outcome);
        let fate = self.settle(id, change).await.map_or_else(Fate::Lost, |()| fate);
        Done { id, fate, pause }
    }

    async fn call<S>(&self, mut service: S, letter: &Letter) -> Outcome
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
    {
        let operation = Operation::new(&letter.escalation.operation);
        let call = async {
            let request = match self.request(letter) {
                Ok(request) => request,
                Err(why) => return Outcome::Undrivable(why),
            };
            let ready = std::future::poll_fn(|cx| service.poll_ready(cx)).await;
            let outcome = match ready {
                Ok(()) => service.call(request).await,
                Err(error) => Err(error),
            };
            match self.classifier.judge(&operation, outcome.as_ref()) {
                Verdict::Success => Outcome::Success,
                Verdict::Failure(failure) => {
                    let said = self.classifier.explain(outcome.as_ref()).into();
                    Outcome::Failed { failure, said }
                }
            }
        };
        // An incident of whoever runs the worker is no concern of the calls.
        let call = caught(detached(call));
        match tokio::time::timeout(self.policy.call_timeout, call).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(Panicked)) => Outcome::Panicked,
            Err(_) => Outcome::TimedOut,
        }
    }

    fn judge(
        &self,
        letter: &Letter,
        lease: LeaseToken,
        outcome: Outcome,
    ) -> (Change, Fate, Option<Duration>) {
        let park = |error: String| {
            (Change::Parked { lease, error: error.clone() }, Fate::Parked(error), None)
        };
        let fail = |error: String, hint: Option<Duration>| {
            let after = self.wait(letter.tries).max(hint.unwrap_or_default().min(LONGEST_HINT));
            let park_after = self.policy.park_after;
            let change = Change::Failed { lease, error: error.clone(), after, park_after };
            (change, Fate::Failed(error), None)
        };
        match outcome {
            Outcome::Success => (Change::Redriven(lease), Fate::Redriven, None),
            Outcome::TimedOut => {
                fail(format!("no answer within {:?}", self.policy.call_timeout), None)
            }
            Outcome::Panicked => fail("the call panicked".to_owned(), None),
            Outcome::Undrivable(why) => park(why),
            Outcome::Failed { failure, said } => {
                let hint = failure.retry_after.map(|hint| hint.duration());
                let error = describe(&failure, &said);
                if failure.class == ErrorClass::Rejected {
                    let pause = hint.unwrap_or(PAUSE).clamp(PAUSE, LONGEST_HINT);
                    (Change::Released(lease), Fate::Released(error), Some(pause))
                } else if self.policy.park.contains(failure.class) {
                    park(error)
                } else {
                    fail(error, hint)
                }
            }
        }
    }

    /// The wait after try number `tries`.
    fn wait(&self, tries: u32) -> Duration {
        self.policy.backoff.next(&mut Delays::at(u64::from(tries)), self.random.unit())
    }
}

/// One line, without secrets: it goes into the letter's history.
fn describe(failure: &Failure, said: &str) -> String {
    let (class, reason) = (failure.class.as_str(), failure.reason);
    let reason = if reason == class { String::new() } else { format!(" ({reason})") };
    let said = clean(said);
    let separator = if said.is_empty() { "" } else { ": " };
    format!("{class}{reason}{separator}{said}")
}
