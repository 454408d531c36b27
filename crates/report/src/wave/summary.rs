//! What came of a wave.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::{ErrorClass, Resolution};

use super::calls::{CallState, Calls, Row};
use crate::advice::remedy;
use crate::page::{Cell, Draw, Page, Tone};
use crate::view::{Shown, View};

/// How the calls of a wave ended, what failed, what that held up, and what to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaveSummary {
    /// Calls that ended well.
    pub succeeded: u64,
    /// Calls that ended in a failure.
    pub failed: u64,
    /// Calls that never ran: a breaker refused them, or what they needed had failed.
    pub blocked: u64,
    /// Calls that were dropped.
    pub abandoned: u64,
    /// Calls that have not ended.
    pub running: u64,
    /// Calls that met a failure, in the order in which they began.
    pub problems: Vec<Problem>,
    /// Ended calls that are counted, and no longer listed.
    pub not_kept: u64,
    /// The failure that held up most others, else one of the most frequent kind.
    pub cause: Option<Cause>,
    /// What to do, step by step.
    pub plan: Vec<String>,
}

/// One call that met a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// Its name.
    pub call: String,
    /// How it stands.
    pub state: CallState,
    /// The class of the failure that decided.
    pub class: Option<ErrorClass>,
    /// What a person should read.
    pub error: String,
    /// Attempts after the first.
    pub retries: u32,
    /// How its incident was resolved.
    pub resolution: Option<Resolution>,
}

/// Where it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cause {
    /// The call that failed first.
    pub call: String,
    /// The class of its failure.
    pub class: Option<ErrorClass>,
    /// What a person should read.
    pub error: String,
    /// The calls that could not run because of it, or because of one of those.
    pub cascaded: Vec<String>,
}

impl WaveSummary {
    pub(super) fn new(calls: &Calls, now: Duration) -> Self {
        let cause = cause(calls);
        Self {
            succeeded: calls.ends.done,
            failed: calls.ends.failed,
            blocked: calls.ends.blocked,
            abandoned: calls.ends.abandoned,
            running: calls.rows.iter().filter(|row| row.ended.is_none()).count() as u64,
            problems: calls
                .rows
                .iter()
                .filter(|row| row.met_a_failure())
                .map(|row| Problem::new(row, now))
                .collect(),
            not_kept: calls.not_kept,
            plan: plan(calls, cause.as_ref(), now),
            cause,
        }
    }

    /// As it is shown in `view`.
    #[must_use]
    pub fn show(&self, view: View) -> Shown<'_> {
        Shown::new(self, view)
    }
}

impl Problem {
    fn new(row: &Row, now: Duration) -> Self {
        let error = match &row.blocked_by {
            Some(by) => format!("`{by}` failed"),
            None => row.error.clone(),
        };
        Self {
            call: row.name.clone(),
            state: row.state(now),
            class: row.class,
            error,
            retries: row.retries(),
            resolution: row.resolution,
        }
    }
}

/// Does a failure of `cause` keep `row` from running?
fn holds_up(cause: &Row, row: &Row) -> bool {
    let blocked = matches!(row.ended, Some((_, CallState::Blocked)));
    let by_name = row.blocked_by.as_ref() == Some(&cause.name);
    let by_breaker = row.refused.is_some_and(|breaker| cause.opened.contains(&breaker));
    blocked && !std::ptr::eq(cause, row) && (by_name || by_breaker)
}

/// Everything that a failure of `cause` keeps from running, at first or second hand.
fn cascade<'a>(calls: &'a Calls, cause: &'a Row) -> Vec<&'a Row> {
    let mut found = vec![cause];
    let mut next = 0;
    while let Some(cause) = found.get(next).copied() {
        next += 1;
        for row in &calls.rows {
            if holds_up(cause, row) && !found.iter().any(|known| std::ptr::eq(*known, row)) {
                found.push(row);
            }
        }
    }
    found.split_off(1)
}

/// The call that held up most others; of equals, and if none did, the first of those that failed
/// with the most frequent class.
fn cause(calls: &Calls) -> Option<Cause> {
    let failed =
        |row: &&Row| !row.opened.is_empty() || matches!(row.ended, Some((_, CallState::Failed)));
    let alike = |class| calls.rows.iter().filter(failed).filter(|row| row.class == class).count();
    let causes = calls.rows.iter().filter(failed).map(|row| (row, cascade(calls, row)));
    // The last of the greatest, so from the back.
    let (row, cascaded) =
        causes.rev().max_by_key(|(row, cascaded)| (cascaded.len(), alike(row.class)))?;
    Some(Cause {
        call: row.name.clone(),
        class: row.class,
        error: row.error.clone(),
        cascaded: cascaded.into_iter().map(|row| row.name.clone()).collect(),
    })
}

/// The cause first, then what failed besides, by class, then what was held up.
fn plan(calls: &Calls, cause: Option<&Cause>, now: Duration) -> Vec<String> {
    let names = |state| {
        let rows = calls.rows.iter().filter(move |row| row.state(now) == state);
        rows.map(|row| (row.class.unwrap_or(ErrorClass::Unknown), row.name.as_str()))
    };
    let mut plan = Vec::new();
    if let Some(Cause { call, class, .. }) = cause {
        plan.push(format!("{call}: {}", remedy(class.unwrap_or(ErrorClass::Unknown))));
    }
    let mut others = BTreeMap::<_, Vec<_>>::new();
    for (class, name) in names(CallState::Failed) {
        if cause.is_none_or(|cause| cause.call != name) {
            others.entry(class).or_default().push(name);
        }
    }
    plan.extend(others.iter().map(|(class, names)| format!("{}: {}", few(names), remedy(*class))));
    let held_up: Vec<_> = names(CallState::Blocked).map(|(_, name)| name).collect();
    if !held_up.is_empty() {
        plan.push(format!("then run what was blocked: {}", few(&held_up)));
    }
    let dropped: Vec<_> = names(CallState::Abandoned).map(|(_, name)| name).collect();
    if !dropped.is_empty() {
        plan.push(format!("run what was dropped, if it is still wanted: {}", few(&dropped)));
    }
    plan
}

/// The first of many names, and how many more there are.
fn few(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(super) const fn tone(state: CallState) -> Tone {
    match state {
        CallState::Done => Tone::Good,
        CallState::Failed => Tone::Bad,
        CallState::Blocked | CallState::Retrying | CallState::Waiting | CallState::Abandoned => {
            Tone::Doubtful
        }
        CallState::Running => Tone::Plain,
    }
}

impl WaveSummary {
    fn draw_problems(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        /// In less, names and errors would not be told apart.
        const ROOM: usize = 72;
        let class = |problem: &Problem| problem.class.map_or("", ErrorClass::as_str);
        let call = |problem: &Problem| Cell::new(&problem.call);
        let state = |Problem { state, .. }: &Problem| Cell::new(state.as_str()).tone(tone(*state));
        if page.width() < ROOM {
            let row = |problem: &Problem| {
                let error = match class(problem) {
                    "" => problem.error.clone(),
                    class => format!("{class}: {}", problem.error),
                };
                [call(problem), state(problem), Cell::new(error)]
            };
            let rows: Vec<_> = self.problems.iter().map(row).collect();
            return page.table(["call", "state", "error"], &rows);
        }
        let row = |problem: &Problem| {
            [
                call(problem),
                state(problem),
                Cell::new(class(problem)),
                Cell::number(problem.retries),
                Cell::new(problem.resolution.map_or("", Resolution::as_str)),
                Cell::new(&problem.error),
            ]
        };
        let rows: Vec<_> = self.problems.iter().map(row).collect();
        page.table(["call", "state", "class", "retries", "resolution", "error"], &rows)
    }
}

impl Draw for WaveSummary {
    fn draw(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let Self { succeeded, failed, blocked, abandoned, running, not_kept, .. } = self;
        let mut head = format!("{failed} failed, {blocked} blocked, {succeeded} succeeded");
        for (count, what) in [(abandoned, "abandoned"), (running, "running")] {
            if *count > 0 {
                head.push_str(&format!(", {count} {what}"));
            }
        }
        page.line(Tone::Head, head)?;
        self.draw_problems(page)?;
        if *not_kept > 0 {
            page.line(Tone::Plain, format!("({not_kept} earlier calls not kept)"))?;
        }
        if let Some(Cause { call, class, error, cascaded }) = &self.cause {
            let class = class.map_or("", ErrorClass::as_str);
            page.line(Tone::Head, format!("root cause: {call}: {class} ({error})"))?;
            if !cascaded.is_empty() {
                let names: Vec<_> = cascaded.iter().map(String::as_str).collect();
                page.line(Tone::Plain, format!("  held up {}: {}", names.len(), few(&names)))?;
            }
        }
        if !self.plan.is_empty() {
            page.line(Tone::Head, "recovery plan")?;
        }
        for (number, step) in self.plan.iter().enumerate() {
            page.line(Tone::Plain, format!("  {}. {step}", number + 1))?;
        }
        Ok(())
    }
}

impl fmt::Display for WaveSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown::plain(self, f)
    }
}
