//! The outcome waits: for the receivers, for an answer, for what the answer sends again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde_json::Value;
use tower_triage_core::incident::{self, IncidentId, Scope, run_detached};
use tower_triage_core::{Classify, ErrorClass, Failure, LayerKind, StepKind};

use crate::ask::{Asked, Decided};
use crate::desk::{Delivered, Delivery};
use crate::ending::{Failed, Finish, Kept};
use crate::future::settle::Settled;
use crate::future::{State, StateProj};
use crate::layer::Core;
use crate::question::Decision;
use crate::store::{Change, LeaseToken};
use crate::write::{self, Facts};

/// An outcome that waits.
pub(super) struct Telling<F, Res, E> {
    pub(super) outcome: Result<Res, E>,
    pub(super) success: bool,
    /// The class that the answer stands in for, if this is a forced finish.
    pub(super) forced: Option<ErrorClass>,
    /// The failure that is told of.
    pub(super) decisive: Failure,
    /// The letter's id.
    pub(super) id: IncidentId,
    pub(super) phase: Phase<F>,
}

/// What it waits for.
pub(super) enum Phase<F> {
    Delivering(Delivery),
    Asking(Pin<Box<dyn Future<Output = Asked> + Send>>),
    Waiting(Pin<Box<dyn Future<Output = Decided> + Send>>),
    /// The kept service, which has to be ready before the request is sent again.
    Readying {
        lease: LeaseToken,
        change: Option<Value>,
    },
    Again {
        lease: LeaseToken,
        call: Pin<Box<F>>,
    },
    /// The store, which has to hear what came of it.
    Settling(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// How long the outcome waits until the store has heard what came of an answer; the letter's lease
/// ends by itself.
const SETTLING: Duration = Duration::from_secs(2);

impl<R, D> Core<R, D> {
    /// What is not the call itself: a readiness error that has yet to be looked at, somebody who is
    /// told or asked.
    #[inline(never)]
    pub(super) fn poll_rest<F, Res, E, K>(
        &self,
        mut state: Pin<&mut State<F, Res, E>>,
        scope: &mut Scope,
        facts: &Facts,
        kept: &mut K,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, E>>
    where
        F: Future<Output = Result<Res, E>>,
        R: Classify<Res, E>,
        D: Finish<Res, E>,
        K: Kept<D, F, E>,
    {
        loop {
            let settled = match state.as_mut().project() {
                StateProj::Held { error } => {
                    let error = error.take().expect("set when the state is entered, taken once");
                    let (entered, outcome) = (scope.enter(), Err(error));
                    let verdict = self.classifier.judge(&facts.operation, outcome.as_ref());
                    self.settle(entered, facts, kept, verdict.failure(), outcome)
                }
                StateProj::Telling { telling } => {
                    let current = telling.as_mut().expect("set when the state is entered");
                    ready!(self.poll_telling(current, scope, facts, kept, cx));
                    let told = telling.take().expect("it was there a line ago");
                    let Telling { mut outcome, success, forced, .. } = *told;
                    let entered = scope.enter();
                    self.mark(facts, forced, &mut outcome);
                    self.classifier.finish(entered, success, &mut outcome);
                    Settled::Done(outcome)
                }
                StateProj::Calling { .. } | StateProj::Done => panic!("polled after it was ready"),
            };
            match settled {
                Settled::Done(outcome) => {
                    state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                Settled::Tell(telling) => {
                    state.set(State::Telling { telling: Some(telling) });
                }
            }
        }
    }

    /// Until the outcome has to wait no more.
    fn poll_telling<F, Res, E, K>(
        &self,
        telling: &mut Telling<F, Res, E>,
        scope: &mut Scope,
        facts: &Facts,
        kept: &mut K,
        cx: &mut Context<'_>,
    ) -> Poll<()>
    where
        F: Future<Output = Result<Res, E>>,
        R: Classify<Res, E>,
        D: Finish<Res, E>,
        K: Kept<D, F, E>,
    {
        loop {
            match &mut telling.phase {
                Phase::Delivering(delivery) => {
                    let delivered = ready!(Pin::new(delivery).poll(cx));
                    let _entered = scope.enter();
                    self.told(facts, delivered);
                    return Poll::Ready(());
                }
                Phase::Asking(asked) => {
                    // The store may use layers of ours, which must not write into this incident.
                    let asked = ready!(run_detached(|| asked.as_mut().poll(cx)));
                    let _entered = scope.enter();
                    self.told(facts, asked.delivered);
                    match asked.answer {
                        None => return Poll::Ready(()),
                        Some(answer) => telling.phase = Phase::Waiting(answer),
                    }
                }
                Phase::Waiting(answer) => {
                    let decided = ready!(run_detached(|| answer.as_mut().poll(cx)));
                    let _entered = scope.enter();
                    match self.decided(telling, facts, decided) {
                        None => return Poll::Ready(()),
                        Some(next) => telling.phase = next,
                    }
                }
                Phase::Readying { lease, change } => {
                    let lease = *lease;
                    let _entered = scope.enter();
                    let called = ready!(kept.poll_again(&self.ending, change.as_ref(), cx));
                    telling.phase = match called {
                        Some(Ok(call)) => {
                            // What was said of the failed attempt stays with it.
                            drop(incident::next_attempt());
                            Phase::Again { lease, call: Box::pin(call) }
                        }
                        Some(Err(error)) => {
                            drop(incident::next_attempt());
                            self.again(telling, facts, lease, Err(error))
                        }
                        None => {
                            tracing::warn!(id = %telling.id, "the request cannot be changed so");
                            self.settling(telling.id, Change::Released(lease))
                        }
                    };
                }
                Phase::Again { lease, call } => {
                    let lease = *lease;
                    let _entered = scope.enter();
                    let outcome = ready!(call.as_mut().poll(cx));
                    telling.phase = self.again(telling, facts, lease, outcome);
                }
                Phase::Settling(settled) => {
                    ready!(run_detached(|| settled.as_mut().poll(cx)));
                    return Poll::Ready(());
                }
            }
        }
    }

    /// The desk has answered, or the wait is over.
    fn told(&self, facts: &Facts, delivered: Delivered) {
        let step = match delivered {
            Delivered { taken: 0, queued: 0, .. } => StepKind::NotRecorded,
            // Nobody knows yet: nothing is claimed. The desk's counters will tell.
            Delivered { taken: 0, queued, .. } => {
                tracing::debug!(queued, "an escalation is delivered from the desk's queue");
                return;
            }
            Delivered { taken: receivers, .. } => StepKind::Escalated { receivers },
        };
        self.classifier.step(&facts.operation, LayerKind::Escalate, step);
    }

    /// Somebody has decided; gives what is to be waited for next.
    fn decided<F, Res, E>(
        &self,
        telling: &mut Telling<F, Res, E>,
        facts: &Facts,
        decided: Decided,
    ) -> Option<Phase<F>>
    where
        R: Classify<Res, E>,
        D: Finish<Res, E>,
    {
        let Decided { decision, by, lease } = decided;
        let step = StepKind::Decided { decision: decision.as_str(), by };
        self.classifier.step(&facts.operation, LayerKind::Escalate, step);
        match (decision, lease) {
            (Decision::Retry, Some(lease)) => Some(Phase::Readying { lease, change: None }),
            (Decision::RetryWith(change), Some(lease)) => {
                Some(Phase::Readying { lease, change: Some(change) })
            }
            (Decision::Respond(value), _) => {
                let incident = incident::snapshot()?;
                let failure = telling.decisive;
                let outcome = telling.outcome.as_ref();
                let failed = Failed { failure, outcome, incident: &incident };
                match self.ending.respond(&value, failed) {
                    Some(answer) => {
                        (telling.outcome, telling.success) = (Ok(answer), true);
                        telling.forced = Some(failure.class);
                    }
                    None => {
                        tracing::warn!(id = %telling.id, "no answer can be made of the decision")
                    }
                }
                None
            }
            (Decision::Abort | Decision::Retry | Decision::RetryWith(_), _) => None,
        }
    }

    /// The request was sent again, as somebody decided.
    fn again<F, Res, E>(
        &self,
        telling: &mut Telling<F, Res, E>,
        facts: &Facts,
        lease: LeaseToken,
        outcome: Result<Res, E>,
    ) -> Phase<F>
    where
        R: Classify<Res, E>,
        D: Finish<Res, E>,
    {
        let (classifier, operation) = (&self.classifier, &facts.operation);
        let verdict = classifier.judge(operation, outcome.as_ref());
        let change = match verdict.failure() {
            None => {
                classifier.note_success(operation, LayerKind::Escalate);
                Change::Decided(lease)
            }
            Some(failure) => {
                let layer = LayerKind::Escalate;
                classifier.note_failure(operation, layer, failure, outcome.as_ref());
                let error = write::clean(classifier.explain(outcome.as_ref()).as_str());
                let (after, park_after) = (Duration::ZERO, u32::MAX);
                Change::Failed { lease, error, after, park_after }
            }
        };
        (telling.success, telling.outcome) = (verdict.is_success(), outcome);
        self.settling(telling.id, change)
    }

    fn settling<F, Res, E>(&self, id: IncidentId, change: Change) -> Phase<F>
    where
        D: Finish<Res, E>,
    {
        let store = self.ending.asking().map(|asking| asking.store.clone());
        Phase::Settling(Box::pin(async move {
            let Some(store) = store else { return };
            match tokio::time::timeout(SETTLING, store.change(id, change)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%id, %error, "what came of the answer is not stored");
                }
                Err(_) => tracing::warn!(%id, "what came of the answer is not stored in time"),
            }
        }))
    }
}
