//! Tables for people.

use std::time::{Duration, SystemTime};

use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::Letter;

use crate::out::one_line;

/// The width of a table that does not go to a terminal.
const WIDTH: u16 = 160;

/// A table without lines, as wide as the terminal.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table.set_header(header.iter().copied());
    table
}

/// A row that is cut rather than wrapped.
pub(crate) fn row(cells: impl IntoIterator<Item = String>) -> Row {
    let mut row = Row::from(cells.into_iter().map(|cell| one_line(&cell)));
    row.max_height(1);
    row
}

/// Letters, one on a line.
pub(crate) fn letters(letters: &[Letter], now: Timestamp) -> Table {
    let mut table = table(&["ID", "AGE", "STATE", "CLASS", "OPERATION", "TRIES", "SUMMARY"]);
    for letter in letters {
        table.add_row(row(cells(letter, now)));
    }
    // What one needs to go on is never cut.
    for column in [0, 1, 2, 3, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    if let Some(column) = table.column_mut(4) {
        column.set_constraint(ColumnConstraint::UpperBoundary(Width::Percentage(25)));
    }
    table
}

/// A letter's row.
pub(crate) fn cells(letter: &Letter, now: Timestamp) -> [String; 7] {
    let escalation = &letter.escalation;
    [
        short(letter),
        age(now.since(letter.stored)),
        state(letter, now),
        escalation.class.to_string(),
        escalation.operation.clone(),
        letter.tries.to_string(),
        summary(letter).to_owned(),
    ]
}

/// What happened; its operation has been said.
fn summary(letter: &Letter) -> &str {
    let escalation = &letter.escalation;
    let rest = escalation.summary.strip_prefix(&*escalation.operation);
    rest.map_or(&*escalation.summary, str::trim_start)
}

/// Enough of the id to name it.
pub(crate) fn short(letter: &Letter) -> String {
    letter.id().to_string().chars().take(13).collect()
}

/// Where it stands.
pub(crate) fn state(letter: &Letter, now: Timestamp) -> String {
    let more = match () {
        () if letter.asks(now) => " (asks)",
        () if letter.is_leased(now) => " (leased)",
        () => "",
    };
    format!("{}{more}", letter.state)
}

/// How long ago, in its largest unit.
pub(crate) fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

pub(crate) fn now() -> Timestamp {
    SystemTime::now().into()
}
