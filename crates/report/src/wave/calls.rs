//! The books of a wave: pure, with the time as an argument.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::incident::SpanKind;
use tower_triage_core::{ErrorClass, Incident, Label, Resolution, Step, StepKind};

use super::Wave;
use crate::text::bounded;

/// What a call does, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Its first attempt runs.
    Running,
    /// It runs again, after a failure.
    Retrying,
    /// It waits before it runs again.
    Waiting,
    /// It ended well.
    Done,
    /// It ended in a failure.
    Failed,
    /// It never ran: a breaker refused it, or what it needed had failed.
    Blocked,
    /// Its caller dropped it.
    Abandoned,
}

impl CallState {
    /// A fixed name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Abandoned => "abandoned",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    /// In the order in which they began.
    pub(super) rows: VecDeque<Row>,
    pub(super) expected: Option<u64>,
    pub(super) ends: Ends,
    /// How long the ended calls ran, waits left aside.
    pub(super) worked: Duration,
    /// Ended calls whose rows are gone.
    pub(super) not_kept: u64,
    begun: u64,
    last_end: Option<Duration>,
}

/// How many calls ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ends {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) blocked: u64,
    pub(super) abandoned: u64,
}

/// One call. Times are since the wave's begin.
#[derive(Debug)]
pub(super) struct Row {
    id: u64,
    pub(super) name: String,
    pub(super) began: Duration,
    /// When and how it ended.
    pub(super) ended: Option<(Duration, CallState)>,
    pub(super) spans: Vec<RowSpan>,
    /// Attempts that failed.
    pub(super) failures: u32,
    pub(super) attempts: u32,
    pub(super) class: Option<ErrorClass>,
    pub(super) error: String,
    pub(super) resolution: Option<Resolution>,
    /// Breakers that its failures opened.
    pub(super) opened: Vec<Label>,
    /// The breaker that refused it.
    pub(super) refused: Option<Label>,
    /// The name of the call whose failure keeps it from running.
    pub(super) blocked_by: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RowSpan {
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) state: CallState,
}

impl Calls {
    pub(super) fn begin(&mut self, name: &str, now: Duration) -> u64 {
        let id = self.begun;
        self.begun += 1;
        self.rows.push_back(Row {
            id,
            name: bounded(name),
            began: now,
            ended: None,
            spans: Vec::new(),
            failures: 0,
            attempts: 0,
            class: None,
            error: String::new(),
            resolution: None,
            opened: Vec::new(),
            refused: None,
            blocked_by: None,
        });
        id
    }

    pub(super) fn block(&mut self, name: &str, by: &str, now: Duration) {
        let id = self.begin(name, now);
        if let Some(row) = self.row(id) {
            row.blocked_by = Some(bounded(by));
        }
        self.close(id, CallState::Blocked, now);
    }

    pub(super) fn step(&mut self, id: u64, step: &Step, now: Duration) {
        if let Some(row) = self.row(id) {
            row.step(step, now);
        }
    }

    pub(super) fn incident(&mut self, id: u64, incident: &Incident) {
        let Some(row) = self.row(id) else { return };
        row.attempts = row.attempts.max(incident.attempts);
        row.resolution = Some(incident.resolution);
        row.class = incident.failure.map(|failure| failure.class).or(row.class);
    }

    pub(super) fn end(&mut self, id: u64, success: bool, now: Duration) {
        let Some(row) = self.row(id) else { return };
        let state = match success {
            true => CallState::Done,
            false if row.failures == 0 && row.refused.is_some() => CallState::Blocked,
            false => CallState::Failed,
        };
        self.close(id, state, now);
    }

    pub(super) fn abandon(&mut self, id: u64, now: Duration) {
        self.close(id, CallState::Abandoned, now);
    }

    fn close(&mut self, id: u64, state: CallState, now: Duration) {
        let Some(row) = self.row(id).filter(|row| row.ended.is_none()) else { return };
        row.run_until(now);
        row.ended = Some((now, state));
        let worked = row.worked(now);
        self.worked = self.worked.saturating_add(worked);
        self.last_end = Some(now);
        match state {
            CallState::Failed => self.ends.failed += 1,
            CallState::Blocked => self.ends.blocked += 1,
            CallState::Abandoned => self.ends.abandoned += 1,
            _ => self.ends.done += 1,
        }
        self.forget();
    }

    /// Keeps the rows bounded: calls that ended well go first, then the oldest.
    fn forget(&mut self) {
        if self.ends.all() - self.not_kept <= Wave::KEPT as u64 {
            return;
        }
        let ended = |row: &Row| row.ended.map(|(_, state)| state);
        let well = self.rows.iter().position(|row| ended(row) == Some(CallState::Done));
        let any = || self.rows.iter().position(|row| ended(row).is_some());
        if let Some(at) = well.or_else(any) {
            self.rows.remove(at);
            self.not_kept += 1;
        }
    }

    /// When the last call ended.
    pub(super) const fn last_end(&self) -> Option<Duration> {
        self.last_end
    }

    fn row(&mut self, id: u64) -> Option<&mut Row> {
        let at = self.rows.binary_search_by_key(&id, |row| row.id).ok()?;
        self.rows.get_mut(at)
    }
}

impl Ends {
    pub(super) const fn all(self) -> u64 {
        self.done + self.failed + self.blocked + self.abandoned
    }
}

impl Row {
    /// More is not kept of one call: the oldest are merged.
    const SPANS: usize = 64;

    fn step(&mut self, step: &Step, now: Duration) {
        // Steps count from the begin of their call.
        let offset = now.saturating_sub(step.at);
        let previous = self.spans.last().map_or(self.began, |span| span.to);
        let span = step.span(previous.saturating_sub(offset));
        let at = |time: Duration| time.saturating_add(offset).max(self.began);
        let state = match span.what {
            SpanKind::Ran => Some(self.runs()),
            SpanKind::Waited => Some(CallState::Waiting),
            SpanKind::Moment => None,
        };
        if let Some(state) = state {
            self.push(RowSpan { from: at(span.from), to: at(span.to), state });
        }
        match &step.kind {
            StepKind::Failed { failure, detail, .. } => {
                self.failures = self.failures.saturating_add(1);
                self.class = Some(failure.class);
                self.error = match detail.is_empty() {
                    true => bounded(failure.reason),
                    false => bounded(&detail.to_string()),
                };
            }
            StepKind::Rejected { breaker, .. } => {
                self.refused = Some(*breaker);
                self.class.get_or_insert(ErrorClass::Rejected);
                if self.error.is_empty() {
                    self.error = bounded(&step.kind.to_string());
                }
            }
            StepKind::CircuitOpened { breaker, .. } if !self.opened.contains(breaker) => {
                self.opened.push(*breaker);
                self.opened.truncate(Self::SPANS);
            }
            _ => {}
        }
    }

    fn push(&mut self, span: RowSpan) {
        self.spans.push(span);
        if self.spans.len() > Self::SPANS {
            self.spans[1].from = self.spans[0].from;
            self.spans.remove(0);
        }
    }

    const fn runs(&self) -> CallState {
        if self.failures == 0 { CallState::Running } else { CallState::Retrying }
    }

    /// What no step speaks of, it ran.
    fn run_until(&mut self, now: Duration) {
        let from = self.spans.last().map_or(self.began, |span| span.to);
        if from < now {
            self.push(RowSpan { from, to: now, state: self.runs() });
        }
    }

    pub(super) fn state(&self, now: Duration) -> CallState {
        match (self.ended, self.spans.last()) {
            (Some((_, state)), _) => state,
            (None, Some(RowSpan { to, state: CallState::Waiting, .. })) if *to > now => {
                CallState::Waiting
            }
            (None, _) => self.runs(),
        }
    }

    /// From its begin to its end, or to now.
    pub(super) fn duration(&self, now: Duration) -> Duration {
        self.ended.map_or(now, |(end, _)| end).saturating_sub(self.began)
    }

    /// The same without waits.
    pub(super) fn worked(&self, now: Duration) -> Duration {
        let end = self.ended.map_or(now, |(end, _)| end);
        let waits = self.spans.iter().filter(|span| span.state == CallState::Waiting);
        let waited = waits.map(|span| span.to.min(end).saturating_sub(span.from));
        waited.fold(self.duration(now), Duration::saturating_sub)
    }

    /// Attempts after the first.
    pub(super) fn retries(&self) -> u32 {
        self.attempts.max(self.failures).saturating_sub(1)
    }

    /// Is there something to say of it?
    pub(super) fn met_a_failure(&self) -> bool {
        self.class.is_some() || !matches!(self.ended, None | Some((_, CallState::Done)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn what_is_forgotten_still_counts_and_failures_are_kept() {
        let mut calls = Calls::default();
        for number in 0..1000 {
            let id = calls.begin("call", secs(number));
            calls.end(id, number % 100 != 0, secs(number + 1));
        }
        assert_eq!(calls.rows.len(), Wave::KEPT);
        assert_eq!((calls.ends.done, calls.ends.failed), (990, 10));
        assert_eq!(calls.not_kept, 1000 - Wave::KEPT as u64);
        assert_eq!(calls.worked, secs(1000));
        let failed = calls.rows.iter().filter(|row| row.met_a_failure());
        assert_eq!(failed.count(), 10);
    }

    #[test]
    fn failures_only_are_bounded_too() {
        let mut calls = Calls::default();
        let running = calls.begin("long", secs(0));
        for number in 0..1000 {
            let id = calls.begin(&"n".repeat(100_000), secs(number));
            calls.end(id, false, secs(number));
        }
        assert_eq!(calls.rows.len(), Wave::KEPT + 1);
        assert!(calls.rows.iter().all(|row| row.name.len() <= 200));
        calls.end(running, true, secs(1));
        assert_eq!(calls.ends.done, 1, "what runs is not forgotten");
    }

    #[test]
    fn a_call_ends_once() {
        let mut calls = Calls::default();
        let id = calls.begin("call", secs(0));
        calls.end(id, true, secs(2));
        calls.abandon(id, secs(5));
        assert_eq!(calls.ends, Ends { done: 1, ..Ends::default() });
        assert_eq!(calls.worked, secs(2));
    }

    #[test]
    fn many_spans_become_one() {
        let mut calls = Calls::default();
        let id = calls.begin("call", secs(0));
        let row = calls.row(id).unwrap();
        for second in 0..1000 {
            let (from, to) = (secs(second), secs(second + 1));
            row.push(RowSpan { from, to, state: CallState::Running });
        }
        assert_eq!(row.spans.len(), Row::SPANS);
        assert_eq!(row.spans[0].from, secs(0));
    }
}
