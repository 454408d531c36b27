//! Which layers belong to one call, and where their steps go.
//!
//! Membership is decided in `call`: a layer raises a thread-local flag only around
//! `inner.call(request)`, and a layer that finds it up belongs to that call and shares its record.
//! A layer that does not find it owns a scope of its own: a handler's client call, a call behind a
//! `Buffer`, a spawned one. Steps are recorded in `poll`, never in `call`: a `Buffer` calls in its
//! worker.
//!
//! No lock, no unsafe: the record moves into a thread-local while its owner is polled, and back.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::class::{ClassSet, ErrorClass};
use crate::incident::record::{Noted, Observers, Record, Told};
use crate::incident::{Incident, IncidentId, LayerKind, Resolution, StepKind};
use crate::label::Operation;

thread_local! {
    static CURRENT: Current = const {
        Current {
            calling: Cell::new(false),
            begun: Cell::new(None),
            collects: Cell::new(false),
            dirty: Cell::new(false),
            record: Cell::new(ManuallyDrop::new(None)),
        }
    };
}

/// What this thread is doing. Small cells, of which a call without a failure touches the first
/// three; nothing that needs a destructor, so that access needs no check.
struct Current {
    /// Up while a layer of ours runs `inner.call`.
    calling: Cell<bool>,
    /// When the call began that is being polled; `None` if none is.
    begun: Cell<Option<Instant>>,
    /// It is a caller's scope, which collects the incidents of the calls inside.
    collects: Cell<bool>,
    /// Is there a record?
    dirty: Cell<bool>,
    record: Cell<ManuallyDrop<Option<Box<Record>>>>,
}

impl Current {
    #[inline]
    fn take_record(&self) -> Option<Box<Record>> {
        if !self.dirty.replace(false) {
            return None;
        }
        ManuallyDrop::into_inner(self.record.replace(ManuallyDrop::new(None)))
    }

    #[inline]
    fn put_record(&self, record: Option<Box<Record>>) {
        if record.is_some() {
            self.dirty.set(true);
            self.record.set(ManuallyDrop::new(record));
        }
    }
}

/// What a scope displaced for the time of one poll.
#[derive(Default)]
struct Outer {
    begun: Option<Instant>,
    collects: bool,
    record: Option<Box<Record>>,
}

/// Makes `inner` the scope of this thread, and gives what was there.
#[inline]
fn swap(inner: Outer) -> Outer {
    CURRENT.with(|current| {
        let outer = Outer {
            begun: current.begun.replace(inner.begun),
            collects: current.collects.replace(inner.collects),
            record: current.take_record(),
        };
        current.put_record(inner.record);
        outer
    })
}

/// Runs `f` on the record of the current scope, if one is being polled and has a record.
#[inline]
fn with_record<T>(f: impl FnOnce(&mut Record) -> T) -> Option<T> {
    CURRENT.with(|current| {
        let mut record = current.take_record()?;
        let result = f(&mut record);
        current.put_record(Some(record));
        Some(result)
    })
}

/// One layer's part in the scope of a call; a field of the layer's future.
///
/// Dropped before [`Classifier::finish`](crate::Classifier::finish), an owner's scope ends as abandoned.
pub struct Scope {
    /// When the call began, for an owner; `None` for a member.
    begun: Option<Instant>,
    record: Option<Box<Record>>,
}

impl Scope {
    /// Joins the call that is being made on this thread, or begins one. To be asked in `call`,
    /// outside [`calling`].
    ///
    /// The first layer that asks is the member: of several calls that one `call` makes (a handler
    /// that begins two client calls at once) the others are calls of their own.
    #[must_use]
    #[inline]
    pub fn join() -> Self {
        let begun = if CURRENT.with(|current| current.calling.replace(false)) {
            None
        } else {
            Some(Instant::now())
        };
        Self { begun, record: None }
    }

    /// Does this layer own the scope (it is the outermost layer of the call)?
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        self.begun.is_some()
    }

    /// Opens the scope for one `poll`. Every step that is recorded until the guard is dropped goes
    /// to this call.
    #[inline]
    pub fn enter(&mut self) -> Entered<'_> {
        if self.begun.is_none() {
            if CURRENT.with(|current| current.begun.get().is_some()) {
                return Entered { scope: None, outer: Outer::default() };
            }
            // Called inside a call of ours, but polled elsewhere (a layer in between spawned it):
            // from now on it is a call of its own.
            self.begun = Some(Instant::now());
        }
        self.open(false)
    }

    #[inline]
    fn open(&mut self, collects: bool) -> Entered<'_> {
        let outer = swap(Outer { begun: self.begun, collects, record: self.record.take() });
        Entered { scope: Some(self), outer }
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            abandon(record);
        }
    }
}

#[cold]
fn abandon(mut record: Box<Record>) {
    record.end(Resolution::Abandoned);
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("owner", &self.is_owner()).finish_non_exhaustive()
    }
}

/// A scope that is open for one `poll`; see [`Scope::enter`].
pub struct Entered<'a> {
    /// `None` for a member: the owner's guard does the work.
    scope: Option<&'a mut Scope>,
    outer: Outer,
}

impl Entered<'_> {
    /// Is this layer the outermost of its call? Then [`Classifier::finish`](crate::Classifier::finish)
    /// ends it.
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        self.scope.is_some()
    }

    /// Ends the call, if this layer owns the scope and there is an incident: it gets its
    /// resolution, deferred escalations run, observers hear of it, and its steps (not its marks)
    /// go up to an enclosing scope.
    #[inline]
    pub(crate) fn finish(
        mut self,
        success: bool,
        observers: impl FnOnce() -> Arc<Observers>,
    ) -> Option<Arc<Incident>> {
        // Taken out, so that neither this guard nor the scope's drop ends it again.
        self.scope.take()?;
        let record = swap(std::mem::take(&mut self.outer)).record?;
        Some(end(record, success, observers))
    }
}

#[cold]
fn end(
    mut record: Box<Record>,
    success: bool,
    observers: impl FnOnce() -> Arc<Observers>,
) -> Arc<Incident> {
    // A record made only of the steps of nested calls has met no classifier of its own yet.
    record.observers.get_or_insert_with(observers);
    let resolution = record.resolution(success);
    let incident = record.end(resolution);
    hand_up(&incident);
    Arc::new(incident)
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(scope) = self.scope.take() {
            scope.record = swap(std::mem::take(&mut self.outer)).record;
        }
    }
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").field("owner", &self.is_owner()).finish_non_exhaustive()
    }
}

/// Gives the steps of an ended call to the scope that it was made in.
fn hand_up(incident: &Incident) {
    CURRENT.with(|current| {
        let Some(begun) = current.begun.get() else { return };
        let collects = current.collects.get();
        let present = current.take_record();
        let first = present.is_none();
        let mut record = present.unwrap_or_else(|| Record::new(incident.operation, begun));
        let above = &mut record.incident;
        if collects {
            if first {
                (above.id, above.operation) = (incident.id, incident.operation);
                (above.started, above.elapsed) = (incident.started, incident.elapsed);
            }
            above.attempts = above.attempts.saturating_add(incident.attempts);
            above.classes = above.classes.union(incident.classes);
            above.failure = incident.failure;
            above.resolution = incident.resolution;
            above.not_recorded |= incident.not_recorded;
        }
        let offset = incident_offset(begun, incident);
        above.collapsed = above.collapsed.saturating_add(incident.collapsed);
        for step in &incident.steps {
            let mut step = step.clone();
            step.at += offset;
            step.nested |= !collects;
            above.add(step);
        }
        current.put_record(Some(record));
    });
}

/// How long after `begun` the ended `incident` began.
fn incident_offset(begun: Instant, incident: &Incident) -> Duration {
    begun.elapsed().saturating_sub(incident.elapsed)
}

/// Runs `inner.call(request)` so that the layers of ours below join this call.
#[inline]
pub fn calling<T>(call: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with(|current| current.calling.set(self.0));
        }
    }
    let _restore = Restore(CURRENT.with(|current| current.calling.replace(true)));
    call()
}

/// Records a step in the current scope, which gets its record with the first one. Without a scope
/// the observers still hear of the step. Used through [`Classifier::step`](crate::Classifier::step).
pub(crate) fn record(
    operation: &Operation,
    observers: &Arc<Observers>,
    layer: LayerKind,
    kind: StepKind,
) {
    let (record, open) = CURRENT.with(|current| (current.take_record(), current.begun.get()));
    let begun = open.unwrap_or_else(Instant::now);
    let mut record = record.unwrap_or_else(|| Record::new(*operation, begun));
    record.push(observers, layer, kind);
    if open.is_some() {
        CURRENT.with(|current| current.put_record(Some(record)));
    }
}

/// The number of the attempt whose failure of `class` is to be noted now, or `None` if a layer below
/// noted this very outcome.
pub(crate) fn note_attempt(class: ErrorClass) -> Option<u32> {
    let number = with_record(|record| {
        let attempts = record.incident.attempts;
        let number = match record.told.noted {
            Noted::Failed(noted) if noted == class || record.told.rejected => return None,
            Noted::Nothing => attempts.saturating_add(1),
            // Made of an attempt's outcome by a layer in between.
            Noted::Failed(_) | Noted::Succeeded => attempts.max(1),
        };
        record.told.noted = Noted::Failed(class);
        Some(number)
    });
    // The first failure of this call: the record comes with its step.
    number.unwrap_or(Some(1))
}

/// Marks the outcome on its way up as recorded and counted.
pub(crate) fn mark_noted(class: ErrorClass) {
    with_record(|record| record.told.noted = Noted::Failed(class));
}

/// The attempt whose success is worth a step: the call met a failure before.
#[inline]
pub(crate) fn recovered_attempt() -> Option<u32> {
    with_record(|record| {
        let attempts = record.incident.attempts;
        let first = record.told.noted == Noted::Nothing && attempts > 0;
        first.then(|| {
            record.told.noted = Noted::Succeeded;
            attempts.saturating_add(1)
        })
    })
    .flatten()
}

/// What was said of a failed outcome that somebody keeps; see [`next_attempt`]. Dropped, it is
/// forgotten, with the work that layers below left for the case that the call ends so.
#[must_use = "keep it as long as the outcome that it belongs to"]
#[derive(Default)]
pub struct Aside {
    /// Boxed: it is made on the failure path only.
    kept: Option<Box<(IncidentId, Told)>>,
}

impl Aside {
    /// The outcome is on its way up after all: what was said of it is said again, instead of what
    /// was said since. Without effect in the scope of another call.
    pub fn restore(self) {
        let Some(kept) = self.kept else { return };
        let (id, told) = *kept;
        with_record(|record| {
            if record.incident.id == id {
                record.told = told;
            }
        });
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").finish_non_exhaustive()
    }
}

/// Tells the scope that another attempt begins: what comes up next is a new outcome. What layers
/// below said of the failed one (that it is recorded, exhausted, an escalation for the case that
/// the call ends so) is given back: keep it if you keep the outcome.
pub fn next_attempt() -> Aside {
    let kept = with_record(|record| {
        (record.ended_by.fallback, record.ended_by.forced) = (false, false);
        Box::new((record.incident.id, std::mem::take(&mut record.told)))
    });
    Aside { kept }
}

/// Marks this call as exhausted: a retry used up what it had. An outer retry of the same call
/// honours it, so that nested retries do not multiply.
pub fn mark_exhausted() {
    with_record(|record| record.told.exhausted = true);
}

/// Did a retry below use up what it had for this very call?
#[must_use]
pub fn exhausted_below() -> bool {
    with_record(|record| record.told.exhausted).unwrap_or_default()
}

/// Was the outcome on its way up made by a breaker of ours that refused to send?
#[must_use]
pub fn rejected_below() -> bool {
    with_record(|record| record.told.rejected).unwrap_or_default()
}

pub(crate) fn mark_rejected() {
    with_record(|record| record.told.rejected = true);
}

/// Tells a retry above that nothing will pass for `time`: a breaker below has just opened. Not for
/// one of many endpoints below a balancer, where the next attempt may go elsewhere.
pub fn mark_blocked(time: Duration) {
    with_record(|record| record.told.blocked = Some(time));
}

/// For how long nothing will pass, if this outcome opened a breaker below.
#[must_use]
pub fn blocked_below() -> Option<Duration> {
    with_record(|record| record.told.blocked).flatten()
}

/// A fallback step that is being tried; see [`begin_fallback`]. Dropped, it ends without an answer.
#[must_use = "dropped, the fallback ends without an answer"]
#[derive(Debug)]
pub struct InFallback {
    primary: Aside,
}

/// Tells the scope that a fallback step is tried for the failure on its way up: what comes up next
/// is a new outcome, but the failure of the primary goes on to decide.
pub fn begin_fallback() -> InFallback {
    with_record(|record| record.fallbacks += 1);
    InFallback { primary: next_attempt() }
}

impl InFallback {
    /// Another step of the same chain is tried: what was said of the last one is forgotten.
    pub fn next_step(&self) {
        drop(next_attempt());
    }

    /// The step has answered: with this outcome the call goes on, and what layers below left for
    /// the failure is forgotten.
    pub fn answered(mut self) {
        self.primary = Aside::default();
        self.leave();
        with_record(|record| {
            record.told = Told { noted: Noted::Succeeded, ..Told::default() };
        });
    }

    fn leave(&self) {
        with_record(|record| record.fallbacks = record.fallbacks.saturating_sub(1));
    }
}

impl Drop for InFallback {
    fn drop(&mut self) {
        // Dropped in the scope of another call, or in none (the whole call was dropped), there is
        // nothing to set right.
        let primary = std::mem::take(&mut self.primary);
        let current = with_record(|record| record.incident.id);
        if current.is_some() && current == primary.kept.as_ref().map(|kept| kept.0) {
            self.leave();
            primary.restore();
        }
    }
}

/// Did a breaker open during this call?
#[must_use]
#[inline]
pub fn circuit_opened() -> bool {
    with_record(|record| record.circuit_opened).unwrap_or_default()
}

/// The classes seen so far in this call.
#[must_use]
#[inline]
pub fn seen() -> ClassSet {
    with_record(|record| record.incident.classes).unwrap_or_default()
}

/// The incident as far as it is written, if this call met a failure.
#[must_use]
pub fn snapshot() -> Option<Incident> {
    with_record(|record| {
        record.incident.elapsed = record.begun.elapsed();
        record.incident.clone()
    })
}

/// Work that an inner layer leaves for the end of the call: an escalation below a retry.
pub trait Deferred: Send {
    /// Must it run even if a layer above solves the failure?
    fn urgent(&self) -> bool;

    /// Runs when the call ends with the failure it was left for (or always, if urgent), outside the
    /// scope, maybe from a `Drop`: it must not block.
    fn run(self: Box<Self>, incident: &Incident) -> Handover;
}

/// What came of [`Deferred`] work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// So many receivers will be told.
    Told(u32),
    /// The way the call ended, there is nothing to tell.
    NotDue,
    /// There was something to tell, and nobody could take it.
    Lost,
}

/// Leaves `work` for the end of the call, should it end with the outcome that is on its way up; if
/// urgent, however it ends. One work for one call: urgent work goes first.
///
/// # Errors
/// The work itself, if there is no scope with a failure to attach it to.
pub fn defer(work: Box<dyn Deferred>) -> Result<(), Box<dyn Deferred>> {
    let mut work = Some(work);
    with_record(|record| match work.take() {
        Some(work) if work.urgent() => record.urgent = Some(work),
        other => record.told.deferred = other,
    });
    work.map_or(Ok(()), Err)
}

/// Takes back everything that layers below left for the end of the call, urgent work included: the
/// caller does that work itself, now.
pub fn take_over() {
    with_record(|record| (record.urgent, record.told.deferred) = (None, None));
}

/// Gives the incident of this call an id made from the request's own, so that the same request has
/// the same id whenever it fails. Without a record (no failure was noted) nothing happens.
pub fn identify(id: IncidentId) {
    with_record(|record| record.incident.id = id);
}

/// Runs `f` outside the scope of the call: what it calls through our own layers is a call of its
/// own and writes nothing into this incident.
pub fn run_detached<T>(f: impl FnOnce() -> T) -> T {
    struct Restore {
        outer: Outer,
        calling: bool,
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            swap(std::mem::take(&mut self.outer));
            CURRENT.with(|current| current.calling.set(self.calling));
        }
    }
    let calling = CURRENT.with(|current| current.calling.replace(false));
    let _restore = Restore { outer: swap(Outer::default()), calling };
    f()
}

pin_project! {
    /// A future that is polled outside the scope of the call; see [`detached`].
    #[derive(Debug)]
    pub struct Detached<F> {
        #[pin]
        future: F,
    }
}

/// Polls `future` outside the scope of the call: for sinks, desks and classifying services, which
/// may use our layers themselves.
pub const fn detached<F: Future>(future: F) -> Detached<F> {
    Detached { future }
}

impl<F: Future> Future for Detached<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.project().future;
        run_detached(|| future.poll(cx))
    }
}

pin_project! {
    /// A future with a scope of the caller's; see [`scope`].
    #[derive(Debug)]
    pub struct InScope<F> {
        #[pin]
        future: F,
        scope: CallerScope,
    }
}

/// The caller's scope: it collects, and is nobody's call, so it ends without a report.
#[derive(Debug)]
struct CallerScope(Scope);

impl Drop for CallerScope {
    fn drop(&mut self) {
        self.0.record = None;
    }
}

/// Opens a scope of the caller's own around `future`, and gives its outcome together with the
/// incident, if there was one: what an error type cannot carry, the incident tells.
///
/// One call inside gives its own incident (id, operation, resolution). Several calls are merged:
/// the first failed one gives the id, the steps follow each other, the last one's resolution counts.
///
/// Put it around whole calls, never between two layers of one: the layers inside would belong to it,
/// and no longer to the call.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (answer, incident) = tower_triage_core::incident::scope(async { 42 }).await;
/// assert_eq!(answer, 42);
/// assert!(incident.is_none());
/// # }
/// ```
///
/// # Cancel safety
/// Dropped with its future; calls inside report their incidents as abandoned.
pub fn scope<F: Future>(future: F) -> InScope<F> {
    let scope = Scope { begun: Some(Instant::now()), record: None };
    InScope { future, scope: CallerScope(scope) }
}

impl<F: Future> Future for InScope<F> {
    type Output = (F::Output, Option<Incident>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let entered = this.scope.0.open(true);
        let outcome = std::task::ready!(this.future.poll(cx));
        drop(entered);
        let incident = this.scope.0.record.take().map(|record| record.incident);
        Poll::Ready((outcome, incident))
    }
}
