//! An incident as a chart over time.

use std::fmt;
use std::time::Duration;

use crate::incident::{Incident, Step, StepKind};

/// An incident as text: a head line, then one line a step with a bar over the call's whole time,
/// `#` where an attempt ran and `.` where the call waited.
///
/// ```text
/// incident 5f0c… GET /orders: recovered_by_retry after 312ms, 2 attempts
///      0ms |########                        | attempt 1 failed: Transient (503 Service Unavailable)
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timeline<'a> {
    incident: &'a Incident,
    width: usize,
}

impl<'a> Timeline<'a> {
    pub(crate) const fn new(incident: &'a Incident, width: usize) -> Self {
        Self { incident, width }
    }

    /// The column in which `at` falls.
    fn column(&self, at: Duration) -> usize {
        let whole = self.incident.elapsed.as_secs_f64();
        if whole <= 0.0 {
            return 0;
        }
        let share = (at.as_secs_f64() / whole).clamp(0.0, 1.0);
        (share * self.width as f64) as usize
    }

    /// When the time that `step` speaks of began and ended.
    fn span(&self, step: &Step, previous_end: Duration) -> (Duration, Duration, char) {
        match &step.kind {
            StepKind::Waiting { delay, .. } => (step.at, step.at.saturating_add(*delay), '.'),
            StepKind::Failed { .. }
            | StepKind::Succeeded { .. }
            | StepKind::FallbackAnswered { .. }
            | StepKind::FallbackFailed { .. } => (previous_end.min(step.at), step.at, '#'),
            _ => (step.at, step.at, '|'),
        }
    }
}

impl fmt::Display for Timeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let incident = self.incident;
        let operation =
            if incident.operation.is_empty() { "call" } else { incident.operation.as_str() };
        writeln!(
            f,
            "incident {} {operation}: {} after {:.0?}, {} attempt(s)",
            incident.id, incident.resolution, incident.elapsed, incident.attempts
        )?;
        if incident.collapsed > 0 {
            writeln!(f, "  ({} earlier steps not kept)", incident.collapsed)?;
        }
        let mut end = Duration::ZERO;
        for step in &incident.steps {
            let (from, to, mark) = self.span(step, end);
            end = to;
            let (left, right) = (self.column(from), self.column(to));
            let left = left.min(self.width.saturating_sub(1));
            let right = right.clamp(left + 1, self.width.max(left + 1));
            let bar: String = (0..self.width)
                .map(|c| if (left..right).contains(&c) { mark } else { ' ' })
                .collect();
            let nested = if step.nested { "inside: " } else { "" };
            writeln!(f, "{:>7.0?} |{bar}| {nested}{}", step.at, step.kind)?;
        }
        Ok(())
    }
}
