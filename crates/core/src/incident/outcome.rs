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
use crate::incident::scope::{has_begun, with_record};
use crate::incident::{Incident, IncidentId};
use crate::verdict::Failure;

/// The number of the attempt whose failure of `class` is to be noted now, or `None` if a layer below
/// noted this very outcome.
pub(crate) fn note_attempt(class: ErrorClass) -> Option<u32> {
    let number = with_record(|record| {
        let attempts = record.incident.attempts;
        let number = match record.told.noted {
            Noted::Failed(noted) if noted == class => return None,
            Noted::Nothing => attempts.saturating_add(1),
            // Made of an attempt's outcome by a layer in between, or instead of it: what breakers
            // said of that one does not hold for this one.
            Noted::Failed(_) | Noted::Succeeded | Noted::Replaced => {
                (record.told.rejected, record.told.blocked) = (false, None);
                attempts.max(1)
            }
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
    if has_begun() { recovered() } else { None }
}

#[cold]
fn recovered() -> Option<u32> {
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
    kept: Option<Kept>,
}

struct Kept {
    /// Of which record.
    key: IncidentId,
    told: Told,
    /// What decided then.
    failure: Option<Failure>,
}

impl Aside {
    /// The outcome is on its way up after all: what was said of it is said again, instead of what
    /// was said since. Without effect in the scope of another call.
    pub fn restore(self) {
        let Some(kept) = self.kept else { return };
        with_record(|record| {
            if record.key == kept.key {
                record.told = kept.told;
                record.incident.failure = kept.failure;
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
        let (key, failure) = (record.key, record.incident.failure);
        Kept { key, told: std::mem::take(&mut record.told), failure }
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
    with_record(|record| record.told.blocked = record.told.blocked.max(Some(time)));
}

/// For how long nothing will pass, if this outcome opened a breaker below.
#[must_use]
pub fn blocked_below() -> Option<Duration> {
    with_record(|record| record.told.blocked).flatten()
}

/// What is said of the outcomes of a fallback step, while the primary's failure is kept. It counts
/// only while the step itself is polled: in between, and if the step is dropped, the primary's
/// failure is the one that is on its way up.
#[derive(Default)]
pub struct Branch {
    told: Told,
}

impl Branch {
    /// Runs `f`, a poll of the step or a look at its outcome, so that what layers say in it is said
    /// of the step; what fails in it does not decide.
    pub fn run<T>(&mut self, f: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a mut Told);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                with_record(|record| {
                    std::mem::swap(&mut record.told, self.0);
                    record.fallbacks = record.fallbacks.saturating_sub(1);
                });
            }
        }
        let entered = with_record(|record| {
            std::mem::swap(&mut record.told, &mut self.told);
            record.fallbacks += 1;
        });
        let _back = entered.map(|()| Back(&mut self.told));
        f()
    }

    /// The step has answered: with this outcome the call goes on, and what layers below left for
    /// the failure is forgotten.
    pub fn answered(self) {
        with_record(|record| {
            record.told = Told { noted: Noted::Succeeded, ..Told::default() };
        });
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branch").finish_non_exhaustive()
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

/// Is there work that nothing takes back?
#[must_use]
pub fn urgent_left() -> bool {
    with_record(|record| record.urgent.is_some()).unwrap_or_default()
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
