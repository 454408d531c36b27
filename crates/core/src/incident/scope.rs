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

use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::incident::nested::hand_up;
use crate::incident::record::{Observers, Record};
use crate::incident::{Incident, LayerKind, Resolution, StepKind};
use crate::label::Operation;

thread_local! {
    pub(super) static CURRENT: Current = const {
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
pub(super) struct Current {
    /// Up while a layer of ours runs `inner.call`.
    calling: Cell<bool>,
    /// When the call began that is being polled; `None` if none is.
    pub(super) begun: Cell<Option<Instant>>,
    /// It is a caller's scope, which collects the incidents of the calls inside.
    pub(super) collects: Cell<bool>,
    /// Is there a record?
    dirty: Cell<bool>,
    record: Cell<ManuallyDrop<Option<Box<Record>>>>,
}

impl Current {
    #[inline]
    pub(super) fn take_record(&self) -> Option<Box<Record>> {
        if !self.dirty.replace(false) {
            return None;
        }
        ManuallyDrop::into_inner(self.record.replace(ManuallyDrop::new(None)))
    }

    #[inline]
    pub(super) fn put_record(&self, record: Option<Box<Record>>) {
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
pub(super) fn with_record<T>(f: impl FnOnce(&mut Record) -> T) -> Option<T> {
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
        match CURRENT.with(|current| current.calling.replace(false)) {
            true => Self { begun: None, record: None },
            false => Self::begin(),
        }
    }

    /// A scope that begins now.
    #[inline]
    pub(super) fn begin() -> Self {
        Self { begun: Some(Instant::now()), record: None }
    }

    pub(super) fn take_record(&mut self) -> Option<Box<Record>> {
        self.record.take()
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
    pub(super) fn open(&mut self, collects: bool) -> Entered<'_> {
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
    record.end(resolution);
    hand_up(&record.incident);
    Arc::new(record.incident)
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
