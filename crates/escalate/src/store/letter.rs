//! A dead letter: an escalation at rest, and what becomes of it. Pure: `now` is an argument.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::incident::IncidentId;

use crate::capture::Captured;
use crate::escalation::Escalation;
use crate::question::{Answer, Decision, Question};
use crate::store::LeaseRequest;
use crate::store::depth::is_too_deep;
use crate::timestamp::Timestamp;

/// An escalation at rest: the record, the request if it was captured, and what became of both.
///
/// Stores keep it as one document. Its changes are pure functions, here and in
/// [`Change`](crate::store::Change), so that all stores behave alike.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Letter {
    /// Where it is in the order of storing; given by the store, from 1.
    #[serde(default)]
    pub seq: u64,
    /// The record.
    pub escalation: Escalation,
    /// The request, if it was captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Captured>,
    /// Where it stands.
    pub state: LetterState,
    /// When it was stored.
    pub stored: Timestamp,
    /// It cannot be leased by a worker before.
    pub due: Timestamp,
    /// How many times it was leased to be driven again.
    #[serde(default)]
    pub tries: u32,
    /// How often the same request failed: 1, and one more for each later failure with this id.
    pub failures: u64,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Which level is asked, from 0. See [`Question::levels`].
    #[serde(default)]
    pub level: u32,
    /// The answer to its question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// The call waited until its deadline, and went on without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<Timestamp>,
    /// When it was settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Timestamp>,
    /// What happened to it, oldest first, at most [`Letter::MAX_EVENTS`].
    #[serde(default)]
    pub history: Vec<Event>,
}

/// Where a letter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterState {
    /// Somebody has to act.
    Open,
    /// Driven again too often in vain: a person has to look at it.
    Parked,
    /// Handed on to whoever takes care of it from here. Settled.
    Delivered,
    /// Driven again, with success. Settled.
    Redriven,
    /// Somebody answered its question, and that was that. Settled.
    Decided,
    /// Somebody gave it up. Settled.
    Discarded,
}

/// Somebody works on a letter, and nobody else does until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// Its holder's proof.
    pub token: LeaseToken,
    /// Its holder's name, for people.
    pub owner: String,
    /// When it ends by itself.
    pub until: Timestamp,
}

/// Proves that a change comes from whoever holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(IncidentId);

impl LeaseToken {
    pub(crate) fn random() -> Self {
        Self(IncidentId::random())
    }
}

/// One thing that happened to a letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What: one of a fixed set.
    pub what: String,
    /// Who did it; empty for the service itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Why, or what came of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How long an answered question belongs to the call that waits for it; then a worker may act on it.
const TAKE_UP: Duration = Duration::from_secs(10);

impl LetterState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Open, Self::Parked, Self::Delivered, Self::Redriven, Self::Decided, Self::Discarded];

    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Parked => "parked",
            Self::Delivered => "delivered",
            Self::Redriven => "redriven",
            Self::Decided => "decided",
            Self::Discarded => "discarded",
        }
    }

    /// Is there nothing left to do?
    #[must_use]
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Delivered | Self::Redriven | Self::Decided | Self::Discarded)
    }
}

impl fmt::Display for LetterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a second failure with the id of a letter did to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Put {
    /// There was no letter of this id.
    New,
    /// The same failure once more, after an error: nothing changed.
    Known,
    /// The same request failed again while its letter was open: counted.
    Again,
    /// The same request failed again after its letter was settled: it is open again.
    Reopened,
}

impl Letter {
    /// How many events are kept. For one more the oldest but the first is dropped.
    pub const MAX_EVENTS: usize = 32;

    /// A letter for `escalation`, not yet in any store.
    #[must_use]
    pub fn new(mut escalation: Escalation, now: Timestamp) -> Self {
        let captured = escalation.request.take().map(Arc::unwrap_or_clone);
        let had_request = captured.is_some();
        // What could be written and not read would cost the whole letter.
        let request = captured.filter(|request| !is_too_deep(&request.data));
        if let Some(question) = &mut escalation.question {
            let fits = |decision: &Decision| !decision.value().is_some_and(is_too_deep);
            question.options.retain(|option| fits(&option.decision));
            if !fits(&question.on_timeout) {
                question.on_timeout = Decision::Abort;
            }
        }
        let lost_request = had_request && request.is_none();
        let mut letter = Self {
            seq: 0,
            request,
            state: LetterState::Open,
            stored: now,
            due: now,
            tries: 0,
            failures: escalation.count.max(1),
            lease: None,
            level: 0,
            answer: None,
            expired: None,
            settled: None,
            history: Vec::new(),
            escalation,
        };
        letter.hold();
        let note =
            if lost_request { "without the request, which is nested too deeply" } else { "" };
        letter.event(now, "stored", "", note);
        letter
    }

    /// Its id: the escalation's.
    #[must_use]
    pub const fn id(&self) -> IncidentId {
        self.escalation.id
    }

    /// Is there a question that nobody has answered, and a call that waits for the answer?
    #[must_use]
    pub fn asks(&self, now: Timestamp) -> bool {
        self.question().is_some_and(|question| now < question.deadline)
    }

    /// The question, as long as an answer to it is taken. That is so after its deadline too, if the
    /// call did not live to see it.
    #[must_use]
    pub fn question(&self) -> Option<&Question> {
        let open = self.answer.is_none() && self.expired.is_none() && !self.state.is_settled();
        self.escalation.question.as_ref().filter(|_| open)
    }

    /// Is it in somebody's hands?
    #[must_use]
    pub fn is_leased(&self, now: Timestamp) -> bool {
        self.lease.as_ref().is_some_and(|lease| now < lease.until)
    }

    /// The same request has failed again, or the same failure is written once more.
    #[must_use = "it tells whether the letter changed"]
    pub fn put_again(&mut self, escalation: Escalation, now: Timestamp) -> Put {
        let new = escalation.last_time > self.escalation.last_time;
        // A write that was repeated after an error tells of a failure that is known. One that comes
        // after the letter was settled is new only if it happened after that.
        let reopens = self.settled.is_some_and(|settled| escalation.last_time > settled);
        if !new || self.state.is_settled() && !reopens {
            return Put::Known;
        }
        self.failures = self.failures.saturating_add(1);
        if !self.state.is_settled() {
            self.escalation.last_time = escalation.last_time;
            return Put::Again;
        }
        let first_time = self.escalation.first_time;
        let again = Self::new(escalation, now);
        self.escalation = Escalation { first_time, ..again.escalation };
        self.request = again.request.or(self.request.take());
        (self.state, self.settled, self.due) = (LetterState::Open, None, again.due);
        (self.tries, self.level, self.answer, self.expired) = (0, 0, None, None);
        self.event(now, "reopened", "", "the same request failed again");
        Put::Reopened
    }

    /// May `request` have it?
    #[must_use]
    pub fn is_leasable(&self, request: &LeaseRequest, now: Timestamp) -> bool {
        let named = !request.ids.is_empty();
        if named && !request.ids.contains(&self.id()) || self.is_leased(now) {
            return false;
        }
        match self.state {
            LetterState::Open if request.waiter => true,
            LetterState::Open if named => !self.asks(now) && now >= self.taken_up(),
            LetterState::Open => now >= self.due && request.filter.matches(self, now),
            LetterState::Parked => named,
            state => {
                debug_assert!(state.is_settled());
                false
            }
        }
    }

    /// Leases it; false if it has been tried too often and was parked instead.
    #[must_use = "false: it was parked"]
    pub fn lease(&mut self, request: &LeaseRequest, now: Timestamp) -> bool {
        let named = !request.ids.is_empty();
        if self.tries >= request.park_after && !named {
            // A worker that dies of it does not live to tell that it failed.
            self.park(now, "");
            return false;
        }
        self.tries = self.tries.saturating_add(1);
        self.lease = Some(Lease {
            token: LeaseToken::random(),
            owner: request.owner.clone(),
            until: now.plus(request.time),
        });
        self.event(now, "leased", &request.owner, "");
        true
    }

    pub(crate) fn park(&mut self, now: Timestamp, why: &str) {
        self.state = LetterState::Parked;
        self.lease = None;
        self.event(now, "parked", "", &format!("{} tries failed; {why}", self.tries));
    }

    /// A question keeps workers away until its call cannot be waiting any more.
    fn hold(&mut self) {
        if let Some(question) = &self.escalation.question {
            self.due = self.due.max(question.deadline.plus(TAKE_UP));
        }
    }

    /// Until then an answer belongs to the call that waits for it.
    pub(crate) fn taken_up(&self) -> Timestamp {
        self.answer.as_ref().map_or(Timestamp::from_millis(0), |answer| answer.at.plus(TAKE_UP))
    }

    pub(crate) fn event(&mut self, at: Timestamp, what: &str, by: &str, note: &str) {
        if self.history.len() >= Self::MAX_EVENTS {
            self.history.remove(1);
        }
        let (what, by, note) = (what.to_owned(), by.to_owned(), note.to_owned());
        self.history.push(Event { at, what, by, note });
    }
}

/// Ids only.
impl fmt::Debug for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letter")
            .field("seq", &self.seq)
            .field("escalation", &self.escalation)
            .field("state", &self.state)
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}
