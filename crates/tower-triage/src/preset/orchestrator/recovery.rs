//! Level 0: what can be done about a failure is done without asking, if it is sure enough to help.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tower_service::Service;
use tower_triage_core::{Incident, incident};
use tower_triage_escalate::{self as escalate, Decision, Escalation, Outcome};
use tower_triage_fallback::Failed;
use tower_triage_fallback::chain::{Call, Step};
use tower_triage_fallback::keep::KeepsRequest;
use tower_triage_learn::Mode;
use tower_triage_report::{Advice, Choice, ErrorReport};

/// The ways out of a failure: a function that adds them to its report, and the [`Mode`], which says
/// how sure one has to be of the recommended one to take it without asking anybody. What is not
/// taken goes with the report to whoever is asked.
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::learn::Mode;
/// use tower_triage::preset::orchestrator::{Recovery, SELF_RECOVERY};
/// use tower_triage::report::{Choice, ErrorReport, Risk};
/// use tower_triage::{
///     AnyError, AnyOk, Chain, ClassSet, Classifier, Desk, FallbackLayer, Halves, preset,
/// };
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let recovery = Recovery::new(Mode::Balanced, |report: ErrorReport| {
///     report.option(Choice {
///         action: "ask the replica".to_owned(),
///         confidence: 0.8, // a constant, or what a learner knows of it
///         expected: Duration::from_secs(1),
///         risk: Risk::Low,
///     })
/// });
/// let apply = recovery.step(|task: u32, _: Choice| async move { Ok::<_, AnyError>(task) });
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let layers = preset::orchestrator(classifier.clone(), Desk::log())
///     .fallback(|_| {
///         FallbackLayer::new(classifier).or_step(ClassSet::ALL, apply).within(SELF_RECOVERY)
///     })
///     .escalate(|layer| layer.enrich(move |escalation| recovery.explain(escalation)));
/// let down = service_fn(async |_: u32| Err::<u32, _>(AnyError::msg("nobody is there")));
/// assert_eq!(ServiceBuilder::new().layer(layers).service(down).oneshot(7).await.unwrap(), 7);
/// # }
/// ```
pub struct Recovery<F> {
    mode: Mode,
    options: Arc<F>,
}

/// A step of the fallback that takes the recommended way out; made by [`Recovery::step`]. It is
/// skipped if that is not sure enough.
pub struct Recover<F, A> {
    recovery: Recovery<F>,
    apply: A,
}

impl<F: Fn(ErrorReport) -> ErrorReport> Recovery<F> {
    /// The ways out that `options` adds to a report. It runs for each failure that gets here, and
    /// must not block.
    pub fn new(mode: Mode, options: F) -> Self {
        Self { mode, options: Arc::new(options) }
    }

    /// The report on the failure that decides `incident`, with its ways out and the threshold of the
    /// mode. `None` if nothing failed in it.
    #[must_use]
    pub fn report(&self, incident: &Incident) -> Option<ErrorReport> {
        ErrorReport::of(incident).map(|report| self.complete(report))
    }

    /// A step for [`FallbackLayer::or_step`](tower_triage_fallback::FallbackLayer::or_step): takes
    /// the recommended way out, as `apply` makes it of the request. Give it
    /// [its time](super::SELF_RECOVERY).
    pub fn step<Req, A, Fut>(&self, apply: A) -> Recover<F, A>
    where
        A: Fn(Req, Choice) -> Fut,
        Fut: Future,
    {
        Recover { recovery: self.clone(), apply }
    }

    /// Adds the report to an escalation, for [`enrich`](tower_triage_escalate::EscalateLayer::enrich):
    /// as text in the field `error_report`, the recommended way out as the suggestion. If somebody is
    /// asked and the request can be sent again, the ways out are answers to choose from: the request
    /// again, changed as the name of the action says, a JSON string. What did not end
    /// as a failure needs no way out, and stays as it is.
    pub fn explain(&self, escalation: &mut Escalation) {
        if escalation.outcome != Outcome::Failed {
            return;
        }
        let Escalation { operation, class, detail, .. } = &*escalation;
        let report = self.complete(ErrorReport::new(operation, *class, detail));
        if let Some(Choice { action, .. }) = report.recommended() {
            escalation.suggestion.clone_from(action);
        }
        if let Some(question) = escalation.question.as_mut().filter(|q| q.accepts.retry) {
            question.options.extend(report.options.iter().map(|option| escalate::Choice {
                label: option.to_string(),
                decision: Decision::RetryWith(option.action.as_str().into()),
            }));
        }
        escalation.context.fields.insert("error_report".to_owned(), report.to_string());
    }

    fn complete(&self, report: ErrorReport) -> ErrorReport {
        (self.options)(report).threshold(self.mode.threshold())
    }
}

impl<F, A, Fut, S, Req, K> Step<S, Req, K> for Recover<F, A>
where
    S: Service<Req>,
    K: KeepsRequest<S, Req>,
    F: Fn(ErrorReport) -> ErrorReport,
    A: Fn(Req, Choice) -> Fut,
    Fut: Future<Output = Result<S::Response, S::Error>>,
{
    const KIND: &'static str = "recovery";
    type Future = Fut;

    fn start(
        &self,
        call: &Call<'_, S, Req, K>,
        _failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Fut, &'static str> {
        let incident = incident::snapshot();
        let report = incident.and_then(|incident| self.recovery.report(&incident));
        let report = report.ok_or("nothing is known of the failure")?;
        match report.advice() {
            Advice::Apply(choice) => {
                let operation = call.operation.as_str();
                tracing::warn!(operation, "recovery: {choice}");
                Ok((self.apply)(call.copy_request()?, choice.clone()))
            }
            Advice::Escalate => Err("no way out is sure enough"),
        }
    }
}

// === impl Clone and Debug: without bounds on the functions ===

impl<F> Clone for Recovery<F> {
    fn clone(&self) -> Self {
        Self { mode: self.mode, options: Arc::clone(&self.options) }
    }
}

impl<F> fmt::Debug for Recovery<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl<F, A> fmt::Debug for Recover<F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recover").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}
