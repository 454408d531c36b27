//! What can be done to a letter. Pure: stores read a letter, apply, and write it back as one step.

use std::fmt;
use std::time::Duration;

use crate::question::{Answer, Decision};
use crate::store::depth::is_too_deep;
use crate::store::letter::{LeaseToken, Letter, LetterState};
use crate::timestamp::Timestamp;

/// Something to be done to one letter; see [`Store::change`](crate::store::Store::change).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// The request was driven again, with success: settled.
    Redriven(LeaseToken),
    /// Whoever takes care of it from here has it: settled.
    Delivered(LeaseToken),
    /// The call that waited for the answer was solved by it: settled.
    Decided(LeaseToken),
    /// It was driven again in vain. It is free, and due after a wait, or parked after too many tries.
    Failed {
        /// The holder's proof.
        lease: LeaseToken,
        /// What went wrong.
        error: String,
        /// How long it rests.
        after: Duration,
        /// It is parked if it has been tried so often.
        park_after: u32,
    },
    /// It cannot be driven again by anybody who tries the same: parked at once.
    Parked {
        /// The holder's proof.
        lease: LeaseToken,
        /// Why not.
        error: String,
    },
    /// Given back untried: the try does not count.
    Released(LeaseToken),
    /// The holder is still at work, and keeps it for so long from now.
    Extended(LeaseToken, Duration),
    /// Given up by somebody: settled.
    Discarded {
        /// By whom.
        by: String,
        /// Why.
        why: String,
    },
    /// Open again, from parked or settled, with its tries forgotten.
    Reopened {
        /// By whom.
        by: String,
        /// Why.
        why: String,
    },
    /// Somebody answers its question. The first answer wins.
    Answered {
        /// What is to be done.
        decision: Decision,
        /// By whom.
        by: String,
        /// Why.
        why: String,
    },
    /// The call goes on without an answer: later ones come too late.
    Expired,
    /// The next level is asked.
    Raised {
        /// Which, from 0.
        level: u32,
        /// Names of its receivers.
        to: Vec<String>,
    },
}

/// Why a change was not made; the letter is as it was.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refused {
    /// The lease has ended, and maybe somebody else has one now.
    NotLeased,
    /// Somebody works on it.
    Leased {
        /// Their name.
        owner: String,
        /// When their lease ends by itself.
        until: Timestamp,
    },
    /// It is settled.
    Settled(LetterState),
    /// It is open.
    Open,
    /// It asks nothing.
    NoQuestion,
    /// The call that waits can do nothing with it.
    NotAccepted(Decision),
    /// Somebody was first.
    Answered(Box<Answer>),
    /// The call has gone on without an answer, at this moment.
    Expired(Timestamp),
}

impl Letter {
    /// Makes `change`.
    ///
    /// # Errors
    /// It does not fit what the letter is now; see [`Refused`].
    pub fn apply(&mut self, change: Change, now: Timestamp) -> Result<(), Refused> {
        match change {
            Change::Redriven(lease) => self.settle_leased(lease, LetterState::Redriven, now),
            Change::Delivered(lease) => self.settle_leased(lease, LetterState::Delivered, now),
            Change::Decided(lease) => self.settle_leased(lease, LetterState::Decided, now),
            Change::Failed { lease, error, after, park_after } => {
                self.give_back(lease)?;
                self.event(now, "failed", "", &error);
                self.due = now.plus(after);
                if self.state == LetterState::Open && self.tries >= park_after {
                    self.park(now, &error);
                }
                Ok(())
            }
            Change::Parked { lease, error } => {
                self.give_back(lease)?;
                self.park(now, &error);
                Ok(())
            }
            Change::Released(lease) => {
                self.give_back(lease)?;
                self.tries = self.tries.saturating_sub(1);
                self.event(now, "released", "", "");
                Ok(())
            }
            Change::Extended(token, time) => match &mut self.lease {
                Some(lease) if lease.token == token => {
                    lease.until = now.plus(time);
                    Ok(())
                }
                _ => Err(Refused::NotLeased),
            },
            Change::Discarded { by, why } => {
                self.untouched(now)?;
                if self.state.is_settled() {
                    return Err(Refused::Settled(self.state));
                }
                self.settle(LetterState::Discarded, now, &by, &why);
                Ok(())
            }
            Change::Reopened { by, why } => {
                if self.state == LetterState::Open {
                    return Err(Refused::Open);
                }
                (self.state, self.settled, self.tries, self.due) =
                    (LetterState::Open, None, 0, now);
                self.event(now, "reopened", &by, &why);
                Ok(())
            }
            Change::Answered { decision, by, why } => {
                self.question_open()?;
                let accepts = self.escalation.question.as_ref().map(|question| question.accepts);
                let too_deep = decision.value().is_some_and(is_too_deep);
                if too_deep || !accepts.unwrap_or_default().contains(&decision) {
                    return Err(Refused::NotAccepted(decision));
                }
                let at = now;
                self.event(at, "answered", &by, &format!("{decision}: {why}"));
                if decision.retries() {
                    self.answer = Some(Answer { decision, by, why, at });
                    self.due = self.taken_up();
                } else {
                    self.settle(LetterState::Decided, now, &by, &why);
                    self.answer = Some(Answer { decision, by, why, at });
                }
                Ok(())
            }
            Change::Expired => {
                self.question_open()?;
                (self.expired, self.due) = (Some(now), now);
                self.event(now, "expired", "", "nobody answered in time");
                Ok(())
            }
            Change::Raised { level, to } => {
                self.question_open()?;
                self.event(now, "raised", "", &format!("level {level}: {}", to.join(", ")));
                (self.level, self.escalation.to) = (level, to);
                Ok(())
            }
        }
    }

    fn settle_leased(
        &mut self,
        lease: LeaseToken,
        state: LetterState,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let owner = self.give_back(lease)?;
        self.settle(state, now, &owner, "");
        Ok(())
    }

    fn settle(&mut self, state: LetterState, now: Timestamp, by: &str, why: &str) {
        (self.state, self.settled, self.lease) = (state, Some(now), None);
        self.event(now, state.as_str(), by, why);
    }

    /// Ends the holder's lease, also one that is over but that nobody took; gives the holder's name.
    fn give_back(&mut self, token: LeaseToken) -> Result<String, Refused> {
        let held = self.lease.take_if(|lease| lease.token == token);
        held.map(|lease| lease.owner).ok_or(Refused::NotLeased)
    }

    fn untouched(&self, now: Timestamp) -> Result<(), Refused> {
        match &self.lease {
            Some(lease) if now < lease.until => {
                Err(Refused::Leased { owner: lease.owner.clone(), until: lease.until })
            }
            _ => Ok(()),
        }
    }

    fn question_open(&self) -> Result<(), Refused> {
        if self.escalation.question.is_none() {
            return Err(Refused::NoQuestion);
        }
        match (&self.answer, self.expired) {
            (Some(answer), _) => Err(Refused::Answered(Box::new(answer.clone()))),
            (None, Some(at)) => Err(Refused::Expired(at)),
            (None, None) if self.state.is_settled() => Err(Refused::Settled(self.state)),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeased => f.write_str("the lease has ended"),
            Self::Leased { owner, until } => {
                write!(f, "`{owner}` works on it, until {until} at the longest")
            }
            Self::Settled(state) => write!(f, "it is settled: {state}"),
            Self::Open => f.write_str("it is open"),
            Self::NoQuestion => f.write_str("it asks nothing"),
            Self::NotAccepted(decision) => {
                write!(f, "the call that waits for an answer can do nothing with `{decision}`")
            }
            Self::Answered(answer) => {
                let Answer { decision, by, at, .. } = &**answer;
                write!(f, "`{by}` has answered already, at {at}: {decision}")
            }
            Self::Expired(at) => {
                write!(f, "the call waited until {at}, and went on without an answer")
            }
        }
    }
}

impl std::error::Error for Refused {}
