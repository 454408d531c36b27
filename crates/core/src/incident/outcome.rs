//! What the layers of one call tell each other of the outcome that is on its way up.
//!
//! An outcome carries nothing itself, so what is said of it (it is recorded, a retry gave up on it,
//! an escalation waits for the case that the call ends with it) is kept in the record of the call,
//! and goes where the outcome goes: whoever keeps an outcome while another is awaited keeps the
//! [`Aside`] with it.

use std::fmt;
use std::time::Duration;

use crate::class::{ClassSet, ErrorClass};
use crate::incident::record::{Noted, Told};
use crate::incident::scope::with_record;
use crate::incident::{Incident, IncidentId};

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
