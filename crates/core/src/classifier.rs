//! The shared classifier: rules, overrides, what it was taught, and counters behind one handle.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::class::ErrorClass;
use crate::classify::Classify;
use crate::incident::record::{Observers, guarded};
use crate::incident::scope::Ended;
use crate::incident::{Entered, LayerKind, Observer, StepKind, outcome, scope};
use crate::label::Operation;
use crate::note::Note;
use crate::observation::{Advisor, Fingerprint, Observation};
use crate::redact::Detail;
use crate::verdict::{Failure, Verdict};

/// The one classifier that every layer of a stack reads: a cheap handle on rules, overrides,
/// counters and observers. Clone it into each layer; "shared" is this type.
///
/// Overrides by status or error type belong to the rules before they are shared
/// (`http().status(404, ErrorClass::Transient)`, [`RulesExt::adjust`](crate::RulesExt::adjust));
/// overrides by class, reason or operation can be set here at run time. Reading takes no lock.
///
/// ```
/// use tower_triage_core::{AnyOk, Chain, Classifier, Halves};
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// # let _ = classifier;
/// ```
pub struct Classifier<R> {
    shared: Arc<Inner<R>>,
}

struct Inner<R> {
    rules: R,
    overrides: ArcSwap<Overrides>,
    observers: ArcSwap<Observers>,
    counts: [AtomicU64; 12],
}

/// What was decided at run time. Looked at on the failure path only.
#[derive(Clone, Default)]
struct Overrides {
    by_class: HashMap<ErrorClass, ErrorClass>,
    by_reason: HashMap<String, ErrorClass>,
    by_operation: HashMap<Operation, ErrorClass>,
    taught: HashMap<Fingerprint, ErrorClass>,
    advisor: Option<Arc<dyn Advisor>>,
}

impl Overrides {
    /// The most specific override wins: operation, then reason, then class.
    fn class(&self, operation: &Operation, failure: &Failure) -> Option<ErrorClass> {
        self.by_operation
            .get(operation)
            .or_else(|| self.by_reason.get(failure.reason))
            .or_else(|| self.by_class.get(&failure.class))
            .copied()
    }

    /// Is there anybody to ask about a failure that the rules cannot tell?
    fn knows_more(&self) -> bool {
        self.advisor.is_some() || !self.taught.is_empty()
    }

    /// What a failure that the rules cannot tell is treated as: what was taught, else what the
    /// advisor says.
    fn advice(&self, observation: &Observation) -> Option<ErrorClass> {
        self.taught.get(&observation.fingerprint).copied().or_else(|| {
            let advisor = self.advisor.as_ref()?;
            guarded(|| advisor.advise(observation)).flatten()
        })
    }
}

impl<R> Classifier<R> {
    /// A classifier by `rules`.
    #[must_use]
    pub fn new(rules: R) -> Self {
        Self {
            shared: Arc::new(Inner {
                rules,
                overrides: ArcSwap::default(),
                observers: ArcSwap::default(),
                counts: Default::default(),
            }),
        }
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &R {
        &self.shared.rules
    }

    /// Is `other` a handle on the same rules, overrides, counters and observers?
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Registers an observer: it sees the incidents of every layer that shares this classifier,
    /// from the next step on.
    pub fn observe(&self, observer: impl Observer + 'static) {
        let observer: Arc<dyn Observer> = Arc::new(observer);
        self.shared.observers.rcu(|list| {
            let mut list = Observers::clone(list);
            list.push(Arc::clone(&observer));
            list
        });
    }

    /// From now on a failure of class `from` is one of class `to`, in every layer.
    pub fn override_class(&self, from: ErrorClass, to: ErrorClass) {
        self.change(|overrides| _ = overrides.by_class.insert(from, to));
    }

    /// From now on a failure with this reason ([`Failure::reason`]) is one of class `to`.
    pub fn override_reason(&self, reason: &str, to: ErrorClass) {
        self.change(|overrides| _ = overrides.by_reason.insert(reason.to_owned(), to));
    }

    /// From now on every failure of this operation is one of class `to`.
    pub fn override_operation(&self, operation: Operation, to: ErrorClass) {
        self.change(|overrides| _ = overrides.by_operation.insert(operation, to));
    }

    /// Teaches that failures with this fingerprint are of class `to`. Every layer then treats those
    /// that the rules cannot tell (`Unknown`) so. Those that the rules know better are looked up only
    /// when the classifier is used as a service over observations, so under a
    /// [`ClassifyLayer`](crate::ClassifyLayer) that asks it.
    pub fn teach(&self, fingerprint: Fingerprint, to: ErrorClass) {
        self.change(|overrides| _ = overrides.taught.insert(fingerprint, to));
    }

    /// Asks `advisor` from now on about every failure that the rules cannot tell and that nothing was
    /// taught about. It takes the place of the one before. Nobody asks it where nothing fails.
    pub fn advised_by(&self, advisor: impl Advisor + 'static) {
        let advisor: Arc<dyn Advisor> = Arc::new(advisor);
        self.change(|overrides| overrides.advisor = Some(Arc::clone(&advisor)));
    }

    /// Takes back every override and lesson; no advisor is asked any more.
    pub fn clear_overrides(&self) {
        self.shared.overrides.store(Arc::default());
    }

    /// How many failed outcomes of `class` were counted. Each attempt outcome counts once, however
    /// many layers look at it.
    #[must_use]
    pub fn count(&self, class: ErrorClass) -> u64 {
        self.shared.counts[class.index()].load(Ordering::Relaxed)
    }

    fn change(&self, f: impl Fn(&mut Overrides)) {
        self.shared.overrides.rcu(|overrides| {
            let mut overrides = Overrides::clone(overrides);
            f(&mut overrides);
            overrides
        });
    }

    pub(crate) fn taught(&self, fingerprint: Fingerprint) -> Option<ErrorClass> {
        self.shared.overrides.load().taught.get(&fingerprint).copied()
    }

    /// `failure` under the overrides; one that is unknown as experience has it.
    #[cold]
    fn overridden<Res, E>(
        &self,
        operation: &Operation,
        failure: Failure,
        outcome: Result<&Res, &E>,
    ) -> Failure
    where
        R: Classify<Res, E>,
    {
        let overrides = self.shared.overrides.load();
        let failure = match overrides.class(operation, &failure) {
            Some(class) => failure.reclassified(class),
            None => failure,
        };
        if failure.class != ErrorClass::Unknown || !overrides.knows_more() {
            return failure;
        }
        let observation = Observation::new(*operation, failure, self.explain(outcome).into());
        match overrides.advice(&observation) {
            Some(class) => failure.learned(class),
            None => failure,
        }
    }

    /// The verdict on `outcome`, overrides applied: what every layer acts on.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub fn judge<Res, E>(&self, operation: &Operation, outcome: Result<&Res, &E>) -> Verdict
    where
        R: Classify<Res, E>,
    {
        match self.shared.rules.classify(outcome) {
            Verdict::Success => Verdict::Success,
            stamped if stamped.is_stamped() => stamped,
            Verdict::Failure(failure) => {
                Verdict::Failure(self.overridden(operation, failure, outcome))
            }
        }
    }

    /// Is `outcome` a success?
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn passes<Res, E>(&self, outcome: Result<&Res, &E>) -> bool
    where
        R: Classify<Res, E>,
    {
        self.shared.rules.classify(outcome).is_success()
    }

    /// What a person should read about a failed outcome: one line of at most 512 bytes.
    #[must_use]
    pub fn explain<Res, E>(&self, outcome: Result<&Res, &E>) -> Detail
    where
        R: Classify<Res, E>,
    {
        let mut out = Bounded::new();
        self.shared.rules.explain(outcome, &mut out);
        out.text.into()
    }

    /// Attaches `note` to the outcome, if its type can carry it.
    pub fn annotate<Res, E>(&self, outcome: &mut Result<Res, E>, note: &Note) -> bool
    where
        R: Classify<Res, E>,
    {
        self.shared.rules.annotate(outcome.as_mut(), note)
    }

    // What layers tell; the failure path begins here.

    /// Records the failed outcome of an attempt and counts it, unless a layer below did: the
    /// innermost layer that sees an outcome records it, those above find it noted.
    #[cold]
    pub fn note_failure<Res, E>(
        &self,
        operation: &Operation,
        layer: LayerKind,
        failure: Failure,
        outcome: Result<&Res, &E>,
    ) where
        R: Classify<Res, E>,
    {
        let Some(attempt) = outcome::note_attempt(failure.class) else { return };
        self.count_failure(failure.class);
        let detail = self.explain(outcome);
        self.step(operation, layer, StepKind::Failed { attempt, failure, detail });
        outcome::mark_noted(failure.class);
    }

    /// Records that an attempt succeeded, if an earlier one of this call failed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub fn note_success(&self, operation: &Operation, layer: LayerKind) {
        if let Some(attempt) = outcome::recovered_attempt() {
            // Off the happy path: the call met a failure before.
            self.step(operation, layer, StepKind::Succeeded { attempt });
        }
    }

    /// Records a rejection of our own in place of an attempt, and counts it once.
    #[cold]
    pub fn note_rejection(
        &self,
        operation: &Operation,
        layer: LayerKind,
        rejection: &crate::CircuitOpen,
    ) {
        self.count_failure(ErrorClass::Rejected);
        let (breaker, retry_after) = (rejection.label(), rejection.retry_after());
        self.step(operation, layer, StepKind::Rejected { breaker, retry_after });
        outcome::mark_noted(ErrorClass::Rejected);
        outcome::mark_rejected();
    }

    /// Counts a failed outcome of `class` that is recorded as something else than an attempt (a
    /// failed fallback), unless a layer below counted it.
    #[cold]
    pub fn count_unnoted(&self, class: ErrorClass) {
        if outcome::note_attempt(class).is_some() {
            self.count_failure(class);
        }
    }

    fn count_failure(&self, class: ErrorClass) {
        self.shared.counts[class.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Records a step in the scope of the call, tells the observers, and emits a `tracing` event.
    #[cold]
    pub fn step(&self, operation: &Operation, layer: LayerKind, kind: StepKind) {
        emit(operation, layer, &kind);
        scope::record(operation, &self.shared.observers.load(), layer, kind);
    }

    /// Ends the call if this layer is the outermost of ours: the incident, if there is one, gets
    /// its resolution, goes to the observers, and is attached to the outcome.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub fn finish<Res, E>(&self, entered: Entered<'_>, success: bool, outcome: &mut Result<Res, E>)
    where
        R: Classify<Res, E>,
    {
        if let Some(record) = entered.finish() {
            self.end(record, success, outcome);
        }
    }

    #[cold]
    fn end<Res, E>(&self, record: Ended, success: bool, outcome: &mut Result<Res, E>)
    where
        R: Classify<Res, E>,
    {
        let incident = record.end(success, || self.shared.observers.load_full());
        self.annotate(outcome, &Note::Incident(incident));
    }
}

/// One event per step: warnings for what a person may have to look at, debug for the rest.
pub(crate) fn emit(operation: &Operation, layer: LayerKind, kind: &StepKind) {
    let error_type = kind.class().map(ErrorClass::as_str);
    let (operation, layer, outcome) = (operation.as_str(), layer.as_str(), kind.outcome());
    match kind {
        StepKind::NotRecorded => {
            tracing::error!(operation, layer, outcome, error.r#type = error_type, "{kind}");
        }
        StepKind::Failed { .. }
        | StepKind::TimedOut { soft: true, .. }
        | StepKind::NotRetried { .. }
        | StepKind::CircuitOpened { .. }
        | StepKind::FallbackAnswered { .. }
        | StepKind::FallbackFailed { .. }
        | StepKind::FallbackSkipped { .. }
        | StepKind::Escalated { .. }
        | StepKind::Decided { .. }
        | StepKind::ForcedFinish => {
            tracing::warn!(operation, layer, outcome, error.r#type = error_type, "{kind}");
        }
        // A retry says more about its wait in a warning of its own.
        StepKind::Waiting { .. }
        | StepKind::Succeeded { .. }
        | StepKind::Nudged { .. }
        | StepKind::Released { .. }
        // A hard limit is followed by its failure.
        | StepKind::TimedOut { soft: false, .. }
        | StepKind::Rejected { .. } => {
            tracing::debug!(operation, layer, outcome, error.r#type = error_type, "{kind}");
        }
    }
}

/// Keeps the first 512 bytes that are written to it, and nothing after a cut.
struct Bounded {
    text: String,
    left: usize,
}

impl Bounded {
    const fn new() -> Self {
        Self { text: String::new(), left: 512 }
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let mut end = s.len().min(self.left);
        while !s.is_char_boundary(end) {
            end -= 1;
        }
        self.text.push_str(&s[..end]);
        self.left = if end < s.len() { 0 } else { self.left - end };
        Ok(())
    }
}

impl<R> Clone for Classifier<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R: fmt::Debug> fmt::Debug for Classifier<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier").field("rules", &self.shared.rules).finish_non_exhaustive()
    }
}
