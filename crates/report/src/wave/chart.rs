//! A wave over time.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::duration_text;

use super::calls::{CallState, Calls, Row, RowSpan};
use super::summary::tone;
use crate::page::{Cell, Draw, Page, Tone};
use crate::text::brief;
use crate::view::{Shown, View};

/// What the calls of a wave did over time: one line a call, `#` where it ran, `+` where it ran again
/// after a failure, `.` where it waited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaveChart {
    /// From the wave's begin to its end, or to now if calls are under way or still expected.
    #[serde(with = "duration_text")]
    pub wall: Duration,
    /// How long all calls ran, waits left aside.
    #[serde(with = "duration_text")]
    pub work: Duration,
    /// Work over wall time: how many calls ran at a time, on average.
    pub efficiency: f64,
    /// How long the rest will take, if as many calls end per second as did so far. `None` if nothing
    /// says how many calls are left, or none has ended.
    pub left: Option<Duration>,
    /// The calls, in the order in which they began.
    pub rows: Vec<ChartRow>,
    /// Ended calls that are counted, and no longer listed.
    pub not_kept: u64,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChartRow {
    /// Its name.
    pub call: String,
    /// How it stands.
    pub state: CallState,
    /// When it began, since the wave's begin.
    #[serde(with = "duration_text")]
    pub began: Duration,
    /// How long it took, or takes until now.
    #[serde(with = "duration_text")]
    pub duration: Duration,
    /// What it did when.
    pub spans: Vec<ChartSpan>,
}

/// What a call did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChartSpan {
    /// Since the wave's begin.
    #[serde(with = "duration_text")]
    pub from: Duration,
    /// Since the wave's begin.
    #[serde(with = "duration_text")]
    pub to: Duration,
    /// Running, retrying or waiting.
    pub state: CallState,
}

impl WaveChart {
    pub(super) fn new(calls: &Calls, now: Duration) -> Self {
        let running = calls.rows.iter().filter(|row| row.ended.is_none());
        let ended = calls.ends.all();
        let known = ended + running.clone().count() as u64;
        let whole = calls.expected.map_or(known, |expected| expected.max(known));
        let remaining = whole - ended;
        let wall = if remaining > 0 { now } else { calls.last_end().unwrap_or(now) };
        let work = running.fold(calls.worked, |sum, row| sum.saturating_add(row.worked(now)));
        let left = match (calls.expected, ended) {
            (None, _) | (_, 0) => None,
            (Some(_), ended) => {
                let seconds = wall.as_secs_f64() * remaining as f64 / ended as f64;
                Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
            }
        };
        let share = work.as_secs_f64() / wall.as_secs_f64();
        Self {
            wall,
            work,
            efficiency: if share.is_finite() { share } else { 0.0 },
            left,
            rows: calls.rows.iter().map(|row| ChartRow::new(row, now)).collect(),
            not_kept: calls.not_kept,
        }
    }

    /// As it is shown in `view`.
    #[must_use]
    pub fn show(&self, view: View) -> Shown<'_> {
        Shown::new(self, view)
    }

    /// The bar of one call in `width` columns.
    fn bar(&self, row: &ChartRow, width: usize) -> String {
        let column = |at: Duration| {
            let share = at.as_secs_f64() / self.wall.as_secs_f64().max(f64::MIN_POSITIVE);
            ((share * width as f64).round() as usize).min(width)
        };
        let mut bar = vec![' '; width];
        for span in &row.spans {
            let mark = match span.state {
                CallState::Waiting => '.',
                CallState::Retrying => '+',
                _ => '#',
            };
            // What takes no time takes one column.
            let from = column(span.from).min(width.saturating_sub(1));
            let to = column(span.to).max(from + 1).min(width);
            bar.get_mut(from..to).unwrap_or_default().fill(mark);
        }
        bar.into_iter().collect()
    }
}

impl ChartRow {
    fn new(row: &Row, now: Duration) -> Self {
        let state = row.state(now);
        let end = row.began.saturating_add(row.duration(now));
        // A wait that was cut short, or is not over.
        let span = |span: &RowSpan| ChartSpan {
            from: span.from.min(end),
            to: span.to.min(end),
            state: span.state,
        };
        let mut spans: Vec<_> = row.spans.iter().map(span).collect();
        let until = spans.last().map_or(row.began, |span| span.to);
        if row.ended.is_none() && until < end {
            spans.push(ChartSpan { from: until, to: end, state });
        }
        let (call, began, duration) = (row.name.clone(), row.began, row.duration(now));
        Self { call, state, began, duration, spans }
    }
}

impl Draw for WaveChart {
    fn draw(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let Self { wall, work, efficiency, left, rows, not_kept } = self;
        let (wall, work) = (brief(*wall), brief(*work));
        let mut head = format!("{wall}, parallel efficiency {efficiency:.1} ({work} of work)");
        match left {
            None | Some(Duration::ZERO) => {}
            Some(left) => head.push_str(&format!(", about {} left", brief(*left))),
        }
        page.line(Tone::Head, head)?;
        if !rows.is_empty() {
            page.line(Tone::Plain, "# runs, + runs again, . waits")?;
        }
        if *not_kept > 0 {
            page.line(Tone::Plain, format!("({not_kept} earlier calls not kept)"))?;
        }
        let row = |row: &ChartRow| {
            [
                Cell::new(&row.call),
                Cell::new(row.state.as_str()).tone(tone(row.state)),
                Cell::number(brief(row.duration)),
            ]
        };
        let cells: Vec<_> = rows.iter().map(row).collect();
        let most = page.width();
        page.table_with(["call", "state", "time"], &cells, most, |row, width| {
            format!("|{}|", self.bar(&rows[row], width.saturating_sub(2)))
        })
    }
}

impl fmt::Display for WaveChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown::plain(self, f)
    }
}
