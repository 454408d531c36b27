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
use tower_service::Service;

use crate::incident::nested::hand_up;
use crate::incident::record::{Observers, Record};
use crate::incident::{Incident, LayerKind, Resolution, StepKind};
use crate::label::Operation;

thread_local! {
    pub(super) static CURRENT: Current = const {
        Current {
            calling: Cell::new(false),
            open: Cell::new(Open::No),
            begun: Cell::new(None),
            dirty: Cell::new(false),
            record: Cell::new(ManuallyDrop::new(None)),
        }
    };
}

/// What this thread is doing. Small cells, of which a call without a failure touches all but the
/// last; nothing that needs a destructor, so that access needs no check.
pub(super) struct Current {
    /// Up while a layer of ours runs `inner.call`.
    calling: Cell<bool>,
    open: Cell<Open>,
    /// When the call began that is being polled, as far as the clock was read for it.
    begun: Cell<Option<Instant>>,
    /// Is there a record?
    dirty: Cell<bool>,
    record: Cell<ManuallyDrop<Option<Box<Record>>>>,
}

/// Which kind of scope is being polled.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Open {
    #[default]
    No,
    /// A call's.
    Call,
    /// A caller's, which collects the incidents of the calls inside.
    Collects,
}

impl Current {
    #[inline]
    pub(super) fn take_record(&self) -> Option<Box<Record>> {
        if self.dirty.get() { self.take_it() } else { None }
    }

    #[cold]
    fn take_it(&self) -> Option<Box<Record>> {
        self.dirty.set(false);
        ManuallyDrop::into_inner(self.record.replace(ManuallyDrop::new(None)))
    }

    #[inline]
    pub(super) fn put_record(&self, record: Option<Box<Record>>) {
        if let Some(record) = record {
            self.put_it(record);
        }
    }

    #[cold]
    fn put_it(&self, record: Box<Record>) {
        self.dirty.set(true);
        self.record.set(ManuallyDrop::new(Some(record)));
    }

    pub(super) fn open(&self) -> Open {
        self.open.get()
    }

    /// When the scope that is being polled began: when the clock was first read for it. That is at
    /// the end of a poll that was not the last one, or at the first step; a call that meets no
    /// failure and does not wait never asks for the time.
    pub(super) fn begun(&self) -> Instant {
        self.begun.get().unwrap_or_else(|| self.begun_by(Instant::now()))
    }

    /// The same, where it is `now`.
    fn begun_by(&self, now: Instant) -> Instant {
        let begun = self.begun.get().unwrap_or(now);
        self.begun.set(Some(begun));
        begun
    }
}

/// When a call began, as far as that is known, and its record.
#[derive(Default)]
struct Slot {
    begun: Option<Instant>,
    record: Option<Box<Record>>,
}

/// Exchanges what this thread is writing to: done once before a poll and once after it.
#[inline(always)]
#[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
fn exchange(open: Open, slot: &mut Slot) -> Open {
    CURRENT.with(|current| {
        slot.begun = current.begun.replace(slot.begun);
        if current.dirty.get() || slot.record.is_some() {
            exchange_records(current, slot);
        }
        current.open.replace(open)
    })
}

#[cold]
fn exchange_records(current: &Current, slot: &mut Slot) {
    let displaced = current.take_record();
    current.put_record(std::mem::replace(&mut slot.record, displaced));
}

/// Is there an incident: did the call that is being polled meet anything worth telling?
#[must_use]
#[inline]
pub fn has_begun() -> bool {
    CURRENT.with(|current| current.dirty.get())
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
pub struct Scope(Part);

enum Part {
    Member,
    /// While it is being polled, the slot holds what it displaced.
    Owner(Slot),
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
            true => Self(Part::Member),
            false => Self::begin(),
        }
    }

    /// The part of a layer that is polled by another of the same call.
    #[must_use]
    #[inline]
    pub const fn member() -> Self {
        Self(Part::Member)
    }

    /// A scope of one's own.
    #[inline]
    pub(super) const fn begin() -> Self {
        Self(Part::Owner(Slot { begun: None, record: None }))
    }

    pub(super) fn take_record(&mut self) -> Option<Box<Record>> {
        match &mut self.0 {
            Part::Member => None,
            Part::Owner(slot) => slot.record.take(),
        }
    }

    /// Does this layer own the scope (it is the outermost layer of the call)?
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        matches!(self.0, Part::Owner(_))
    }

    /// Did the call meet anything worth telling, as far as it was polled? Not while it is being polled,
    /// and only its owner knows.
    pub(crate) const fn has_record(&self) -> bool {
        match &self.0 {
            Part::Member => false,
            Part::Owner(slot) => slot.record.is_some(),
        }
    }

    /// Opens the scope for one `poll`. Every step that is recorded until the guard is dropped goes
    /// to this call.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub fn enter(&mut self) -> Entered<'_> {
        if let Part::Member = self.0 {
            if CURRENT.with(|current| current.open.get() != Open::No) {
                return Entered { slot: None, outer: Open::No };
            }
            // Called inside a call of ours, but polled elsewhere (a layer in between spawned it):
            // from now on it is a call of its own.
            *self = Self::begin();
        }
        self.open(Open::Call)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(super) fn open(&mut self, open: Open) -> Entered<'_> {
        match &mut self.0 {
            Part::Member => Entered { slot: None, outer: Open::No },
            Part::Owner(slot) => {
                let outer = exchange(open, slot);
                Entered { slot: Some(slot), outer }
            }
        }
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if let Some(record) = self.take_record() {
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
    slot: Option<&'a mut Slot>,
    outer: Open,
}

impl Entered<'_> {
    /// Is this layer the outermost of its call? Then [`Classifier::finish`](crate::Classifier::finish)
    /// ends it.
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        self.slot.is_some()
    }

    /// Ends the call, if this layer owns the scope; gives the record, if there is one.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn finish(mut self) -> Option<Ended> {
        // Taken out, so that neither this guard nor the scope's drop ends it again.
        let slot = self.slot.take()?;
        exchange(self.outer, slot);
        slot.record.take().map(Ended)
    }
}

/// The record of a call that has ended.
pub(crate) struct Ended(Box<Record>);

impl Ended {
    /// The incident gets its resolution, deferred escalations run, observers hear of it, and its
    /// steps (not its marks) go up to an enclosing scope.
    pub(crate) fn end(
        self,
        success: bool,
        observers: impl FnOnce() -> Arc<Observers>,
    ) -> Arc<Incident> {
        let Self(mut record) = self;
        // A record made only of the steps of nested calls has met no classifier of its own yet.
        record.observers.get_or_insert_with(observers);
        let resolution = record.resolution(success);
        record.end(resolution);
        hand_up(&record.incident);
        Arc::new(record.incident)
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // Where the call waits, the time it takes to read a clock is nobody's.
            CURRENT.with(Current::begun);
            exchange(self.outer, slot);
        }
    }
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").field("owner", &self.is_owner()).finish_non_exhaustive()
    }
}

/// Calls `service` so that the layers of ours in it join this call.
#[inline(always)]
#[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
pub fn call<S: Service<Req>, Req>(service: &mut S, request: Req) -> S::Future {
    let _restore = Calling::begin();
    service.call(request)
}

/// Runs `f`, which makes a call of something that is no service, so that the layers of ours in it
/// join this call.
#[inline]
pub fn calling<T>(f: impl FnOnce() -> T) -> T {
    let _restore = Calling::begin();
    f()
}

/// Keeps the flag up.
pub(crate) struct Calling {
    outer: bool,
}

impl Calling {
    #[inline]
    pub(crate) fn begin() -> Self {
        Self { outer: CURRENT.with(|current| current.calling.replace(true)) }
    }
}

impl Drop for Calling {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with(|current| current.calling.set(self.outer));
    }
}

/// Records a step in the current scope, which gets its record with the first one. Without a scope
/// the observers still hear of the step. Used through [`Classifier::step`](crate::Classifier::step).
pub(crate) fn record(
    operation: &Operation,
    observers: &Arc<Observers>,
    layer: LayerKind,
    kind: StepKind,
) {
    let now = Instant::now();
    CURRENT.with(|current| {
        let open = current.open() != Open::No;
        let mut record = current.take_record().unwrap_or_else(|| {
            let begun = if open { current.begun_by(now) } else { now };
            Record::new(*operation, begun, now)
        });
        record.push(observers, layer, kind, now);
        if open {
            current.put_record(Some(record));
        }
    });
}

/// Runs `f` outside the scope of the call: what it calls through our own layers is a call of its
/// own and writes nothing into this incident.
pub fn run_detached<T>(f: impl FnOnce() -> T) -> T {
    struct Restore {
        slot: Slot,
        outer: Open,
        calling: bool,
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            exchange(self.outer, &mut self.slot);
            CURRENT.with(|current| current.calling.set(self.calling));
        }
    }
    let calling = CURRENT.with(|current| current.calling.replace(false));
    let mut slot = Slot::default();
    let outer = exchange(Open::No, &mut slot);
    let _restore = Restore { slot, outer, calling };
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
