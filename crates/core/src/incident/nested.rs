//! Scopes inside scopes: a caller's own, and what an ended call gives to the one it was made in.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::incident::Incident;
use crate::incident::record::Record;
use crate::incident::scope::{CURRENT, Open, Scope};

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
        drop(self.0.take_record());
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
    InScope { future, scope: CallerScope(Scope::begin()) }
}

impl<F: Future> Future for InScope<F> {
    type Output = (F::Output, Option<Incident>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let entered = this.scope.0.open(Open::Collects);
        let outcome = std::task::ready!(this.future.poll(cx));
        drop(entered);
        let incident = this.scope.0.take_record().map(|record| record.incident);
        Poll::Ready((outcome, incident))
    }
}

/// Gives the steps of an ended call to the scope that it was made in.
pub(super) fn hand_up(incident: &Incident) {
    CURRENT.with(|current| {
        let collects = match current.open() {
            Open::No => return,
            Open::Call => false,
            Open::Collects => true,
        };
        let begun = current.begun();
        let present = current.take_record();
        let first = present.is_none();
        let now = Instant::now();
        let mut record = present.unwrap_or_else(|| Record::new(incident.operation, begun, now));
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
        // How long after `begun` it began.
        let offset = now.saturating_duration_since(begun).saturating_sub(incident.elapsed);
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
