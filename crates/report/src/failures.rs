//! How much fails, of what, where and when.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tower_triage_core::incident::Labels;
use tower_triage_core::{
    ErrorClass, Incident, Observer, Operation, Resolution, Step, StepKind, wall_clock,
};

use crate::page::{Cell, Draw, Page, Tone};
use crate::view::{Shown, View};

/// Counts failures: an observer ([`Classifier::observe`](tower_triage_core::Classifier::observe)), and
/// the handle to read it by. Its clones share one state.
///
/// Memory is bounded: 64 operations (what fails in others is counted together) and 24 hours.
#[derive(Clone, Debug, Default)]
pub struct FailureLog(Arc<Mutex<Counts>>);

/// What failed: totals, by class, by operation, by hour. Counted are attempts that failed, those of
/// fallback steps and refusals of our own breakers too; and how the calls ended that met them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailureReport {
    /// Failed attempts.
    pub failures: u64,
    /// Calls that met a failure and have ended.
    pub calls: u64,
    /// Failures by class, most first; without those that did not occur.
    pub by_class: Vec<(ErrorClass, u64)>,
    /// Failures by operation, most first.
    pub by_operation: Vec<(String, u64)>,
    /// Failures of operations that there was no room for.
    pub other_operations: u64,
    /// Failures by hour, oldest first; hours are counted from the Unix epoch.
    pub by_hour: Vec<(u64, u64)>,
    /// How the calls ended, most first.
    pub resolutions: Vec<(Resolution, u64)>,
}

#[derive(Debug, Default)]
struct Counts {
    classes: [u64; ErrorClass::ALL.len()],
    operations: HashMap<Operation, u64>,
    other_operations: u64,
    /// Oldest first.
    hours: VecDeque<(u64, u64)>,
    resolutions: HashMap<Resolution, u64>,
}

impl FailureLog {
    /// Nothing has failed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted so far.
    #[must_use]
    pub fn report(&self) -> FailureReport {
        self.counts(|counts| counts.report())
    }

    fn counts<T>(&self, f: impl FnOnce(&mut Counts) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for FailureLog {
    fn step(&self, labels: &Labels, step: &Step) {
        let failed = matches!(
            step.kind,
            StepKind::Failed { .. } | StepKind::FallbackFailed { .. } | StepKind::Rejected { .. }
        );
        if let (true, Some(class)) = (failed, labels.class) {
            self.counts(|counts| counts.failure(class, labels.operation, wall_clock()));
        }
    }

    fn incident(&self, incident: &Incident) {
        self.counts(|counts| *counts.resolutions.entry(incident.resolution).or_default() += 1);
    }
}

impl Counts {
    const OPERATIONS: usize = 64;
    const HOURS: usize = 24;

    fn failure(&mut self, class: ErrorClass, operation: Operation, now: SystemTime) {
        self.classes[class.index()] += 1;
        let room = self.operations.len() < Self::OPERATIONS;
        match self.operations.get_mut(&operation) {
            Some(count) => *count += 1,
            None if room => _ = self.operations.insert(operation, 1),
            None => self.other_operations += 1,
        }
        let hour = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 3600;
        match self.hours.back_mut() {
            // A calendar that was put back: what happens now belongs to the last hour we know.
            Some((last, count)) if *last >= hour => *count += 1,
            _ => self.hours.push_back((hour, 1)),
        }
        // Hours count only while they are among the last 24, however few of them saw a failure.
        while self.hours.len() > Self::HOURS
            || self.hours.front().is_some_and(|(first, _)| first + Self::HOURS as u64 <= hour)
        {
            self.hours.pop_front();
        }
    }

    fn report(&self) -> FailureReport {
        let by_class = ErrorClass::ALL.iter().map(|class| (*class, self.classes[class.index()]));
        let operations = self.operations.iter();
        FailureReport {
            failures: self.classes.iter().sum(),
            calls: self.resolutions.values().sum(),
            by_class: most_first(by_class.filter(|(_, count)| *count > 0)),
            by_operation: most_first(operations.map(|(name, count)| (name.to_string(), *count))),
            other_operations: self.other_operations,
            by_hour: self.hours.iter().copied().collect(),
            resolutions: most_first(self.resolutions.iter().map(|(end, count)| (*end, *count))),
        }
    }
}

/// What occurs most first, and what occurs as often by name.
fn most_first<T: fmt::Debug>(counts: impl Iterator<Item = (T, u64)>) -> Vec<(T, u64)> {
    let mut counts: Vec<_> = counts.collect();
    counts.sort_by_cached_key(|(what, count)| (std::cmp::Reverse(*count), format!("{what:?}")));
    counts
}

impl FailureReport {
    /// As it is shown in `view`.
    #[must_use]
    pub fn show(&self, view: View) -> Shown<'_> {
        Shown::new(self, view)
    }
}

impl Draw for FailureReport {
    fn draw(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let (failures, calls) = (self.failures, self.calls);
        page.line(Tone::Head, format!("{failures} failures in {calls} calls"))?;
        let ends = self.resolutions.iter().map(|(end, count)| (end.to_string(), *count));
        let mut operations = self.by_operation.clone();
        for (name, _) in &mut operations {
            if name.is_empty() {
                *name = "(no name)".to_owned();
            }
        }
        if self.other_operations > 0 {
            operations.push(("(others)".to_owned(), self.other_operations));
        }
        let classes = self.by_class.iter().map(|(class, count)| (class.to_string(), *count));
        let hours = self.by_hour.iter();
        let hours = hours.map(|(hour, count)| (format!("{:02}:00 UTC", hour % 24), *count));
        section(page, ["calls ended", "calls"], ends.collect())?;
        section(page, ["class", "failures"], classes.collect())?;
        section(page, ["operation", "failures"], operations)?;
        section(page, ["hour", "failures"], hours.collect())
    }
}

/// Counts, with a bar for each.
fn section(page: &mut Page<'_, '_>, heads: [&str; 2], counts: Vec<(String, u64)>) -> fmt::Result {
    const LONGEST: usize = 40;
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let row = |(name, count): &(String, u64)| [Cell::new(name), Cell::number(count)];
    let rows: Vec<_> = counts.iter().map(row).collect();
    page.table_with(heads, &rows, LONGEST, |row, width| {
        let share = counts[row].1 as f64 / most as f64;
        "#".repeat((share * width as f64).ceil() as usize)
    })
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown::plain(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at_hour(hour: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(hour * 3600 + 1)
    }

    #[test]
    fn only_the_last_day_is_kept_by_hour_and_everything_in_the_totals() {
        let mut counts = Counts::default();
        for hour in 0..100 {
            counts.failure(ErrorClass::Transient, Operation::new("GET /"), at_hour(hour));
        }
        counts.failure(ErrorClass::Timeout, Operation::new("GET /"), at_hour(7));
        let report = counts.report();
        assert_eq!(report.failures, 101);
        assert_eq!(report.by_hour.len(), 24);
        assert_eq!(report.by_hour[0], (76, 1));
        assert_eq!(report.by_hour[23], (99, 2), "a calendar that was put back");
        counts.failure(ErrorClass::Timeout, Operation::new("GET /"), at_hour(500));
        assert_eq!(counts.report().by_hour, [(500, 1)]);
    }

    #[test]
    fn operations_without_room_are_counted_together() {
        let mut counts = Counts::default();
        for number in 0..1000 {
            let operation = Operation::new(&format!("operation {number}"));
            counts.failure(ErrorClass::Transient, operation, at_hour(0));
        }
        let report = counts.report();
        assert_eq!((report.by_operation.len(), report.other_operations), (64, 936));
    }
}
