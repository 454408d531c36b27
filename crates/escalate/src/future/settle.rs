//! What is done about an outcome that failed, or met something on its way.

use std::sync::Arc;
use std::time::SystemTime;

use tower_triage_core::incident::{self, Entered, Scope};
use tower_triage_core::{Classify, ErrorClass, Failure, LayerKind, Note, StepKind};

use crate::ask;
use crate::capture::Captured;
use crate::ending::{Failed, Finish, Kept};
use crate::escalation::Outcome;
use crate::future::telling::{Phase, Telling};
use crate::layer::Core;
use crate::report::LeftBehind;
use crate::write::{Facts, Told};

/// What to do about an outcome.
pub(super) enum Settled<F, Res, E> {
    Done(Result<Res, E>),
    Tell(Box<Telling<F, Res, E>>),
}

impl<R, D> Core<R, D> {
    /// The caller dropped the call.
    #[cold]
    pub(crate) fn dropped(
        &self,
        scope: &mut Scope,
        facts: impl FnOnce() -> Facts,
        captured: impl FnOnce() -> Option<Captured>,
    ) {
        let entered = scope.enter();
        if entered.is_owner() {
            self.reporter.abandoned(facts, captured);
        }
    }

    /// Leaves with the scope what must be told even if the call is dropped from here on: only the
    /// outermost layer hears of that.
    pub(super) fn leave_early(&self, facts: &Facts, captured: impl FnOnce() -> Option<Captured>) {
        let reporter = &self.reporter;
        if reporter.policy.concerns(incident::seen(), incident::circuit_opened())
            && !incident::urgent_left()
        {
            let request = captured().map(Arc::new);
            let reporter = reporter.clone();
            let work = LeftBehind { reporter, facts: *facts, request, urgent: true };
            // There is an incident: something was seen.
            drop(incident::defer(Box::new(work)));
        }
    }

    /// The call ends with a failure, or met something on its way.
    #[cold]
    pub(super) fn settle<F, Res, E, K>(
        &self,
        entered: Entered<'_>,
        facts: &Facts,
        kept: &K,
        leaving: Option<Failure>,
        mut outcome: Result<Res, E>,
    ) -> Settled<F, Res, E>
    where
        R: Classify<Res, E>,
        D: Finish<Res, E>,
        K: Kept<D, F, E>,
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
        self.escalate(entered, facts, kept, outcome, leaving, urgent)
    }

    fn escalate<F, Res, E, K>(
        &self,
        entered: Entered<'_>,
        facts: &Facts,
        kept: &K,
        mut outcome: Result<Res, E>,
        leaving: Option<Failure>,
        urgent: bool,
    ) -> Settled<F, Res, E>
    where
        R: Classify<Res, E>,
        D: Finish<Res, E>,
        K: Kept<D, F, E>,
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
        let said = String::from(self.classifier.explain(outcome.as_ref()));
        let solvable = leaving.filter(|failure| reporter.policy.escalates(failure.class));
        let forced = solvable.and_then(|failure| {
            let failed = Failed { failure, outcome: outcome.as_ref(), incident: &incident };
            self.ending.finish(failed).map(|answer| (failure.class, answer))
        });
        let forced = forced.map(|(class, answer)| {
            (outcome, success, ending) = (Ok(answer), true, Outcome::Forced);
            class
        });
        let request = kept.captured(&self.ending).map(Arc::new);
        if !entered.is_owner() {
            let urgent = urgent || forced.is_some();
            let reporter = reporter.clone();
            let work = LeftBehind { reporter, facts: *facts, request, urgent };
            if incident::defer(Box::new(work)).is_err() {
                // Only without an incident, and there was one above.
                tracing::error!("tower-triage: an escalation found no incident to stay with");
            }
            self.mark(facts, forced, &mut outcome);
            self.classifier.finish(entered, success, &mut outcome);
            return Settled::Done(outcome);
        }
        // What a layer below left for the end is what is being done now.
        incident::take_over();
        let said = Some(said).filter(|text| leaving == Some(decisive) && !text.is_empty());
        let asking = self.ending.asking().filter(|_| !success);
        let place = asking.and_then(|asking| asking.place(&reporter.policy, decisive.class));
        let question = asking
            .filter(|_| place.is_some())
            .map(|asking| asking.question(self.ending.accepts(), SystemTime::now().into()));
        let told = Told { failure: decisive, outcome: ending, said, request, question };
        let escalation = reporter.write(facts, &incident, told);
        let (desk, policy) = (&reporter.desk, &reporter.policy);
        let phase = match (asking, place) {
            (Some(asking), Some(place)) => {
                let (asking, desk) = (asking.clone(), desk.clone());
                Phase::Asking(Box::pin(ask::ask(asking, desk, escalation, policy.wait, place)))
            }
            _ => Phase::Delivering(desk.forward(escalation, policy.recording, policy.wait)),
        };
        let id = incident.id;
        Settled::Tell(Box::new(Telling { outcome, success, forced, decisive, id, phase }))
    }

    /// Marks an answer that was built from what is known, or from a decision.
    pub(super) fn mark<Res, E>(
        &self,
        facts: &Facts,
        forced: Option<ErrorClass>,
        outcome: &mut Result<Res, E>,
    ) where
        R: Classify<Res, E>,
    {
        if let Some(class) = forced {
            self.classifier.step(&facts.operation, LayerKind::Escalate, StepKind::ForcedFinish);
            self.classifier.annotate(outcome, &Note::ForcedFinish(class));
        }
    }
}
