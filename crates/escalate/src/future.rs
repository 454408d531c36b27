//! What happens after the call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_triage_core::incident::{self, Entered, Scope};
use tower_triage_core::{
    Classify, Counted, ErrorClass, Failure, LayerKind, Note, Sharing, StepKind,
};

use crate::desk::{Delivered, Delivery};
use crate::escalation::Outcome;
use crate::finish::{Failed, Finish};
use crate::layer::Core;
use crate::report::LeftBehind;
use crate::write::Facts;

pin_project! {
    /// The response future of [`Escalate`](crate::Escalate).
    ///
    /// # Cancel safety
    /// Dropped while an escalation is being delivered, delivery goes on in the desk's queue. Dropped
    /// before, the call is abandoned: somebody is told only if it met what must be told at once.
    pub struct ResponseFuture<F, Res, E, R, D, M = Counted>
    where
        M: Sharing<Core<R, D>>,
    {
        #[pin]
        state: State<F, Res, E>,
        scope: Scope,
        core: M::Held,
        facts: Facts,
    }

    impl<F, Res, E, R, D, M> PinnedDrop for ResponseFuture<F, Res, E, R, D, M>
    where
        M: Sharing<Core<R, D>>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if matches!(*this.state, State::Calling { .. }) {
                this.core.dropped(this.scope, this.facts);
            }
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, Res, E> {
        Calling { #[pin] inner: F },
        /// The inner service's readiness error, before it has been looked at.
        Held { error: Option<E> },
        /// Somebody is being told; the outcome waits for that, not for ever.
        Delivering { telling: Option<Box<Telling<Res, E>>> },
        Done,
    }
}

struct Telling<Res, E> {
    outcome: Result<Res, E>,
    success: bool,
    /// The class that the answer stands in for, if this is a forced finish.
    forced: Option<ErrorClass>,
    delivery: Delivery,
}

impl<F, Res, E, R, D, M: Sharing<Core<R, D>>> ResponseFuture<F, Res, E, R, D, M> {
    #[inline]
    pub(crate) const fn calling(inner: F, scope: Scope, core: M::Held, facts: Facts) -> Self {
        Self { state: State::Calling { inner }, scope, core, facts }
    }

    pub(crate) const fn failed(error: E, scope: Scope, core: M::Held, facts: Facts) -> Self {
        Self { state: State::Held { error: Some(error) }, scope, core, facts }
    }
}

impl<F, Res, E, R, D, M> Future for ResponseFuture<F, Res, E, R, D, M>
where
    M: Sharing<Core<R, D>>,
    F: Future<Output = Result<Res, E>>,
    R: Classify<Res, E>,
    D: Finish<Res, E>,
{
    type Output = Result<Res, E>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let core: &Core<R, D> = this.core;
        if let StateProj::Calling { inner } = this.state.as_mut().project() {
            let entered = this.scope.enter();
            let Poll::Ready(mut outcome) = inner.poll(cx) else {
                if incident::has_begun() && !entered.is_owner() {
                    core.leave_early(this.facts);
                }
                return Poll::Pending;
            };
            let verdict = core.classifier.judge(&this.facts.operation, outcome.as_ref());
            if verdict.is_success() && !incident::has_begun() {
                this.state.set(State::Done);
                core.classifier.finish(entered, true, &mut outcome);
                return Poll::Ready(outcome);
            }
            match core.settle(entered, this.facts, verdict.failure(), outcome) {
                Settled::Done(outcome) => {
                    this.state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                Settled::Deliver(telling) => {
                    this.state.set(State::Delivering { telling: Some(telling) });
                }
            }
        }
        core.poll_rest(this.state, this.scope, this.facts, cx)
    }
}

/// What to do about an outcome.
enum Settled<Res, E> {
    Done(Result<Res, E>),
    Deliver(Box<Telling<Res, E>>),
}

impl<R, D> Core<R, D> {
    /// The caller dropped the call.
    #[cold]
    fn dropped(&self, scope: &mut Scope, facts: &Facts) {
        let entered = scope.enter();
        if entered.is_owner() {
            self.reporter.abandoned(facts);
        }
    }

    /// What is not the call itself: a readiness error that has yet to be looked at, a delivery.
    #[inline(never)]
    fn poll_rest<F, Res, E>(
        &self,
        mut state: Pin<&mut State<F, Res, E>>,
        scope: &mut Scope,
        facts: &Facts,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, E>>
    where
        R: Classify<Res, E>,
        D: Finish<Res, E>,
    {
        loop {
            let settled = match state.as_mut().project() {
                StateProj::Held { error } => {
                    let error = error.take().expect("set when the state is entered, taken once");
                    let (entered, outcome) = (scope.enter(), Err(error));
                    let verdict = self.classifier.judge(&facts.operation, outcome.as_ref());
                    self.settle(entered, facts, verdict.failure(), outcome)
                }
                StateProj::Delivering { telling } => {
                    let current = telling.as_mut().expect("set when the state is entered");
                    let delivered = ready!(Pin::new(&mut current.delivery).poll(cx));
                    let told = telling.take().expect("it was there a line ago");
                    Settled::Done(self.told(scope.enter(), facts, *told, delivered))
                }
                StateProj::Calling { .. } | StateProj::Done => panic!("polled after it was ready"),
            };
            match settled {
                Settled::Done(outcome) => {
                    state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                Settled::Deliver(telling) => {
                    state.set(State::Delivering { telling: Some(telling) });
                }
            }
        }
    }

    /// Leaves with the scope what must be told even if the call is dropped from here on: only the
    /// outermost layer hears of that.
    fn leave_early(&self, facts: &Facts) {
        let reporter = &self.reporter;
        if reporter.policy.concerns(incident::seen(), incident::circuit_opened())
            && !incident::urgent_left()
        {
            let work = LeftBehind { reporter: reporter.clone(), facts: *facts, urgent: true };
            // There is an incident: something was seen.
            drop(incident::defer(Box::new(work)));
        }
    }

    /// The call ends with a failure, or met something on its way.
    #[cold]
    fn settle<Res, E>(
        &self,
        entered: Entered<'_>,
        facts: &Facts,
        leaving: Option<Failure>,
        mut outcome: Result<Res, E>,
    ) -> Settled<Res, E>
    where
        R: Classify<Res, E>,
        D: Finish<Res, E>,
    {
        let (classifier, operation) = (&self.classifier, &facts.operation);
        match leaving {
            Some(failure) => {
                let layer = LayerKind::Escalate;
                classifier.note_failure(operation, layer, failure, outcome.as_ref());
            }
            None => classifier.note_success(operation, LayerKind::Escalate),
        }
        let urgent = self.reporter.policy.concerns(incident::seen(), incident::circuit_opened());
        if leaving.is_none() && !urgent {
            classifier.finish(entered, true, &mut outcome);
            return Settled::Done(outcome);
        }
        self.escalate(entered, facts, outcome, leaving, urgent)
    }

    fn escalate<Res, E>(
        &self,
        entered: Entered<'_>,
        facts: &Facts,
        mut outcome: Result<Res, E>,
        leaving: Option<Failure>,
        urgent: bool,
    ) -> Settled<Res, E>
    where
        R: Classify<Res, E>,
        D: Finish<Res, E>,
    {
        let reporter = &self.reporter;
        let mut success = leaving.is_none();
        let mut ending = if success { Outcome::Recovered } else { Outcome::Failed };
        let due = reporter.incident(facts).and_then(|incident| {
            let failure = reporter.policy.due(&incident, leaving, ending)?;
            Some((incident, failure))
        });
        let Some((incident, decisive)) = due else {
            self.classifier.finish(entered, success, &mut outcome);
            return Settled::Done(outcome);
        };
        // The text of what leaves, from the outcome itself: in the steps a failed fallback may have
        // the last word.
        let said = self.classifier.explain(outcome.as_ref());
        let solvable = leaving.filter(|failure| reporter.policy.escalates(failure.class));
        let forced = solvable.and_then(|failure| {
            let failed = Failed { failure, outcome: outcome.as_ref(), incident: &incident };
            self.finish.finish(failed).map(|answer| (failure.class, answer))
        });
        let forced = forced.map(|(class, answer)| {
            (outcome, success, ending) = (Ok(answer), true, Outcome::Forced);
            class
        });
        if entered.is_owner() {
            // What a layer below left for the end is what is being done now.
            incident::take_over();
            let said = Some(said).filter(|text| leaving == Some(decisive) && !text.is_empty());
            let escalation = reporter.write(facts, &incident, decisive, ending, said);
            let delivery = {
                let policy = &reporter.policy;
                reporter.desk.send(escalation, policy.recording, policy.wait)
            };
            let telling = Telling { outcome, success, forced, delivery };
            return Settled::Deliver(Box::new(telling));
        }
        let urgent = urgent || forced.is_some();
        let work = LeftBehind { reporter: reporter.clone(), facts: *facts, urgent };
        if incident::defer(Box::new(work)).is_err() {
            // Only without an incident, and there was one above.
            tracing::error!("tower-triage: an escalation found no incident to stay with");
        }
        self.mark(facts, forced, &mut outcome);
        self.classifier.finish(entered, success, &mut outcome);
        Settled::Done(outcome)
    }

    /// The desk has answered, or the wait is over.
    fn told<Res, E>(
        &self,
        entered: Entered<'_>,
        facts: &Facts,
        telling: Telling<Res, E>,
        delivered: Delivered,
    ) -> Result<Res, E>
    where
        R: Classify<Res, E>,
    {
        let Telling { mut outcome, success, forced, .. } = telling;
        let step = match delivered {
            Delivered { taken: 0, queued: 0, .. } => Some(StepKind::NotRecorded),
            // Nobody knows yet: nothing is claimed. The desk's counters will tell.
            Delivered { taken: 0, queued, .. } => {
                tracing::warn!(queued, "an escalation takes longer than its caller may wait");
                None
            }
            Delivered { taken: receivers, .. } => Some(StepKind::Escalated { receivers }),
        };
        if let Some(step) = step {
            self.classifier.step(&facts.operation, LayerKind::Escalate, step);
        }
        self.mark(facts, forced, &mut outcome);
        self.classifier.finish(entered, success, &mut outcome);
        outcome
    }

    /// Marks an answer that was built from what is known.
    fn mark<Res, E>(&self, facts: &Facts, forced: Option<ErrorClass>, outcome: &mut Result<Res, E>)
    where
        R: Classify<Res, E>,
    {
        if let Some(class) = forced {
            self.classifier.step(&facts.operation, LayerKind::Escalate, StepKind::ForcedFinish);
            self.classifier.annotate(outcome, &Note::ForcedFinish(class));
        }
    }
}

impl<F, Res, E, R, D, M: Sharing<Core<R, D>>> fmt::Debug for ResponseFuture<F, Res, E, R, D, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("scope", &self.scope).finish_non_exhaustive()
    }
}
