//! What went in and what came out.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tower::Service;
use tower_triage::incident::{IncidentId, Observer};
use tower_triage::{AnyError, Escalation, Incident, Resolution, StepKind};

use super::dependency::{Answer, Call};

/// How a call ended for its caller.
#[derive(Debug)]
pub(super) enum End {
    Answered(Result<Answer, AnyError>),
    Dropped,
}

/// Sums over all rounds, and the stories of this one.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    calls: AtomicU64,
    well: AtomicU64,
    recovered: AtomicU64,
    by_fallback: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    dropped_failing: AtomicU64,
    letters: AtomicU64,
    only_opened: AtomicU64,
    incidents: Mutex<HashMap<&'static str, u64>>,
    round: Mutex<HashMap<IncidentId, Story>>,
}

/// One incident: its end, and the letters about it.
#[derive(Debug, Default)]
struct Story {
    ended: u32,
    letters: u32,
    /// Its steps say that somebody was told.
    told: bool,
    abandoned: bool,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(super) const HEADINGS: &'static str = "   time     calls      well recovered  fallback    failed   dropped incidents   letters   MiB";

    pub(super) fn observer(self: Arc<Self>) -> impl Observer {
        Watching(self)
    }

    pub(super) fn letters(&self) -> u64 {
        read(&self.letters)
    }

    /// Successes that opened the circuit.
    pub(super) fn only_opened(&self) -> u64 {
        read(&self.only_opened)
    }

    /// A call ended.
    pub(super) fn ended(&self, end: End, call: &Call) {
        add(&self.calls);
        add(match (end, call.met_failure()) {
            (End::Answered(Ok(Answer::Fallback)), _) => &self.by_fallback,
            (End::Answered(Ok(Answer::Dependency)), false) => &self.well,
            (End::Answered(Ok(Answer::Dependency)), true) => &self.recovered,
            (End::Answered(Err(_)), _) => &self.failed,
            (End::Dropped, false) => &self.dropped,
            (End::Dropped, true) => &self.dropped_failing,
        });
    }

    /// Waits until no more letters come: some are written in the background.
    pub(super) async fn quiet(&self) {
        let mut before = u64::MAX;
        while before != self.letters() {
            before = self.letters();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Compares the sums, and closes the round.
    pub(super) fn check(&self) -> Result<(), String> {
        let ends = [
            &self.well,
            &self.recovered,
            &self.by_fallback,
            &self.failed,
            &self.dropped,
            &self.dropped_failing,
        ];
        let ended: u64 = ends.map(read).iter().sum();
        if ended != read(&self.calls) {
            return Err(format!("{} calls, {ended} ends", read(&self.calls)));
        }
        let incidents = lock(&self.incidents);
        let of = |resolution: Resolution| {
            incidents.get(resolution.as_str()).copied().unwrap_or_default()
        };
        let pairs = [
            ("recovered", of(Resolution::RecoveredByRetry), &self.recovered),
            ("answered by fallback", of(Resolution::AnsweredByFallback), &self.by_fallback),
            ("failed", of(Resolution::Failed) + of(Resolution::Escalated), &self.failed),
            ("abandoned", of(Resolution::Abandoned), &self.dropped_failing),
        ];
        for (what, incidents, calls) in pairs {
            if incidents != read(calls) {
                return Err(format!("{what}: {incidents} incidents, {} calls", read(calls)));
            }
        }
        let kept: u64 = pairs.iter().map(|(_, incidents, _)| incidents).sum();
        let all: u64 = incidents.values().sum();
        if all != kept {
            return Err(format!("incidents of other ends: {incidents:?}"));
        }
        let mut round = lock(&self.round);
        for (id, story) in round.iter() {
            // Told once, or not at all; and whose caller left may have been told about in between.
            let sound = story.ended == 1
                && story.letters <= 1
                && (story.told == (story.letters == 1) || story.abandoned);
            if !sound {
                return Err(format!("incident {id:?}: {story:?}"));
            }
        }
        round.clear();
        Ok(())
    }

    pub(super) fn line(&self, time: Duration) -> String {
        let incidents: u64 = lock(&self.incidents).values().sum();
        format!(
            "{:>5} s {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            time.as_secs(),
            read(&self.calls),
            read(&self.well),
            read(&self.recovered),
            read(&self.by_fallback),
            read(&self.failed),
            read(&self.dropped) + read(&self.dropped_failing),
            incidents,
            read(&self.letters),
        )
    }
}

struct Watching(Arc<Ledger>);

impl Observer for Watching {
    fn incident(&self, incident: &Incident) {
        // A success may open the circuit (a slow probe, or the one that reaches the minimum of
        // calls): an incident in which this call did not fail.
        let steps = &incident.steps;
        let only_opened = incident.resolution == Resolution::Succeeded
            && steps.iter().all(|step| {
                matches!(step.kind, StepKind::CircuitOpened { .. } | StepKind::Escalated { .. })
            });
        if only_opened {
            add(&self.0.only_opened);
        } else {
            *lock(&self.0.incidents).entry(incident.resolution.as_str()).or_default() += 1;
        }
        let mut round = lock(&self.0.round);
        let story = round.entry(incident.id).or_default();
        story.ended += 1;
        story.told |= steps.iter().any(|step| matches!(step.kind, StepKind::Escalated { .. }));
        story.abandoned |= incident.resolution == Resolution::Abandoned;
    }
}

/// A sink that writes each letter down.
#[derive(Clone, Debug)]
pub(super) struct Recorder(Arc<Ledger>);

impl Recorder {
    pub(super) const fn new(ledger: Arc<Ledger>) -> Self {
        Self(ledger)
    }
}

impl Service<Escalation> for Recorder {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, letter: Escalation) -> Self::Future {
        add(&self.0.letters);
        lock(&self.0.round).entry(letter.id).or_default().letters += 1;
        ready(Ok(()))
    }
}
