//! Rules changed by closures: other verdicts, other facts.

use std::fmt;

use tokio::time::Instant;

use crate::classify::{Classify, ClassifyFn, Halves};
use crate::describe::{Describe, Key, Target};
use crate::label::{Label, Operation};
use crate::note::{Note, StampOutcome};
use crate::trace::TraceParent;
use crate::verdict::Verdict;

/// Changes rules by closures, before they are shared.
pub trait RulesExt: Sized {
    /// These rules, with `f` having the last word on each outcome: it gets the rules' verdict.
    /// Facts, notes and explanations stay the rules' own.
    ///
    /// ```
    /// use tower_triage_core::{AnyError, AnyOk, Chain, ErrorClass, Halves, RulesExt, Verdict};
    ///
    /// let rules = Halves { response: AnyOk, error: Chain }.adjust(
    ///     |outcome: Result<&u32, &AnyError>, verdict| match outcome {
    ///         Ok(0) => ErrorClass::Transient.into(),
    ///         _ => verdict,
    ///     },
    /// );
    /// # let _ = rules;
    /// ```
    fn adjust<Res, E, F>(self, f: F) -> Adjusted<Self, F>
    where
        F: Fn(Result<&Res, &E>, Verdict) -> Verdict,
    {
        Adjusted { rules: self, f }
    }

    /// These rules, with the facts about each request read by `f`: what is being done, whether it
    /// may be repeated, its id. Without it the facts of your own requests are neutral: nameless,
    /// and **repeatable**.
    ///
    /// ```
    /// use tower_triage_core::{AnyOk, Describe, Halves, OwnError, RequestFacts, RulesExt};
    ///
    /// struct Charge { id: String }
    ///
    /// let rules = Halves { response: AnyOk, error: OwnError }.describe(|charge: &Charge| {
    ///     RequestFacts::new("charge a card").repeatable(false).request_id(&charge.id)
    /// });
    /// let charge = Charge { id: "c-17".to_owned() };
    /// assert!(!rules.repeatable(&charge));
    /// assert_eq!(rules.operation(&charge), "charge a card");
    /// ```
    fn describe<Req, F>(self, f: F) -> Described<Self, F>
    where
        F: Fn(&Req) -> RequestFacts,
    {
        Described { rules: self, f }
    }
}

impl<P, Q> RulesExt for Halves<P, Q> {}
impl<F> RulesExt for ClassifyFn<F> {}
impl<R, F> RulesExt for Adjusted<R, F> {}
impl<R, F> RulesExt for Described<R, F> {}

/// The facts about one request, for a closure that gives them all ([`RulesExt::describe`]).
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct RequestFacts {
    operation: Operation,
    repeatable: bool,
    unit_of_work: bool,
    key: Option<Key>,
    deadline: Option<Instant>,
    request_id: Option<Label>,
    trace: Option<TraceParent>,
    target: Target,
}

impl RequestFacts {
    /// Neutral facts about a request that does `operation`: a name from a small set, since it
    /// becomes a metric label.
    pub fn new(operation: &str) -> Self {
        Self {
            operation: Operation::new(operation),
            repeatable: true,
            unit_of_work: true,
            key: None,
            deadline: None,
            request_id: None,
            trace: None,
            target: Target::EMPTY,
        }
    }

    /// May it be sent again although the peer may have worked on it? Default: yes.
    pub const fn repeatable(mut self, repeatable: bool) -> Self {
        self.repeatable = repeatable;
        self
    }

    /// Is it the complete unit of work, which may run again after losing a race? Default: yes.
    pub const fn unit_of_work(mut self, whole: bool) -> Self {
        self.unit_of_work = whole;
        self
    }

    /// The key of a keyed breaker. Default: the operation.
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(Key::new(key));
        self
    }

    /// The moment after which nobody waits for the answer. Default: none.
    pub const fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The request's own id. Default: none.
    pub fn request_id(mut self, id: &str) -> Self {
        self.request_id = Some(Label::new(id));
        self
    }

    /// The caller's trace. Default: none.
    pub const fn trace(mut self, trace: TraceParent) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Where it goes, for people. Default: empty.
    pub fn target(mut self, target: &str) -> Self {
        self.target = Target::new(target);
        self
    }
}

/// Rules whose facts a closure reads; see [`RulesExt::describe`].
#[derive(Clone, Copy)]
pub struct Described<R, F> {
    rules: R,
    f: F,
}

impl<Res, E, R: Classify<Res, E>, F> Classify<Res, E> for Described<R, F> {
    fn classify(&self, outcome: Result<&Res, &E>) -> Verdict {
        self.rules.classify(outcome)
    }

    fn annotate(&self, outcome: Result<&mut Res, &mut E>, note: &Note) -> bool {
        self.rules.annotate(outcome, note)
    }

    fn explain(&self, outcome: Result<&Res, &E>, out: &mut dyn fmt::Write) {
        self.rules.explain(outcome, out);
    }
}

impl<Res, E, R: StampOutcome<Res, E>, F> StampOutcome<Res, E> for Described<R, F> {}

impl<Req, R, F: Fn(&Req) -> RequestFacts> Describe<Req> for Described<R, F> {
    fn operation(&self, request: &Req) -> Operation {
        (self.f)(request).operation
    }
    fn repeatable(&self, request: &Req) -> bool {
        (self.f)(request).repeatable
    }
    fn unit_of_work(&self, request: &Req) -> bool {
        (self.f)(request).unit_of_work
    }
    fn key(&self, request: &Req) -> Key {
        let facts = (self.f)(request);
        facts.key.unwrap_or(facts.operation)
    }
    fn deadline(&self, request: &Req) -> Option<Instant> {
        (self.f)(request).deadline
    }
    fn request_id(&self, request: &Req) -> Option<Label> {
        (self.f)(request).request_id
    }
    fn trace(&self, request: &Req) -> Option<TraceParent> {
        (self.f)(request).trace
    }
    fn target(&self, request: &Req) -> Target {
        (self.f)(request).target
    }
}

impl<R: fmt::Debug, F> fmt::Debug for Described<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Described").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Rules whose verdicts a closure may replace; see [`RulesExt::adjust`].
#[derive(Clone, Copy)]
pub struct Adjusted<R, F> {
    rules: R,
    f: F,
}

impl<Res, E, R, F> Classify<Res, E> for Adjusted<R, F>
where
    R: Classify<Res, E>,
    F: Fn(Result<&Res, &E>, Verdict) -> Verdict,
{
    fn classify(&self, outcome: Result<&Res, &E>) -> Verdict {
        match self.rules.classify(outcome) {
            stamped if stamped.is_stamped() => stamped,
            verdict => (self.f)(outcome, verdict),
        }
    }

    fn annotate(&self, outcome: Result<&mut Res, &mut E>, note: &Note) -> bool {
        self.rules.annotate(outcome, note)
    }

    fn explain(&self, outcome: Result<&Res, &E>, out: &mut dyn fmt::Write) {
        self.rules.explain(outcome, out);
    }
}

impl<Res, E, R, F> StampOutcome<Res, E> for Adjusted<R, F>
where
    R: StampOutcome<Res, E>,
    F: Fn(Result<&Res, &E>, Verdict) -> Verdict,
{
}

impl<Req, R: Describe<Req>, F> Describe<Req> for Adjusted<R, F> {
    fn operation(&self, request: &Req) -> Operation {
        self.rules.operation(request)
    }
    fn repeatable(&self, request: &Req) -> bool {
        self.rules.repeatable(request)
    }
    fn unit_of_work(&self, request: &Req) -> bool {
        self.rules.unit_of_work(request)
    }
    fn key(&self, request: &Req) -> Key {
        self.rules.key(request)
    }
    fn deadline(&self, request: &Req) -> Option<Instant> {
        self.rules.deadline(request)
    }
    fn request_id(&self, request: &Req) -> Option<Label> {
        self.rules.request_id(request)
    }
    fn trace(&self, request: &Req) -> Option<TraceParent> {
        self.rules.trace(request)
    }
    fn target(&self, request: &Req) -> Target {
        self.rules.target(request)
    }
}

impl<R: fmt::Debug, F> fmt::Debug for Adjusted<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adjusted").field("rules", &self.rules).finish_non_exhaustive()
    }
}
