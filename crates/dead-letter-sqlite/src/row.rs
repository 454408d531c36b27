//! Letters as rows.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::{Letter, StoreError};

use crate::error::failed;

const INSERT: &str = "INSERT INTO letter (id, state, class, operation, sender, fingerprint, \
    stored, due, lease_until, asks_until, settled, document) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const UPDATE: &str = "UPDATE letter SET state = ?2, class = ?3, operation = ?4, sender = ?5, \
    fingerprint = ?6, stored = ?7, due = ?8, lease_until = ?9, asks_until = ?10, settled = ?11, \
    document = ?12 WHERE id = ?1";

/// The letter's document. The place in the order of storing is the row's, not the document's.
pub(crate) fn document(letter: &Letter) -> Result<String, StoreError> {
    serde_json::to_string(letter).map_err(StoreError::unavailable)
}

pub(crate) fn insert(conn: &Connection, new: &Letter, document: &str) -> Result<(), StoreError> {
    write(conn, INSERT, new, document)
}

pub(crate) fn update(conn: &Connection, letter: &Letter) -> Result<(), StoreError> {
    write(conn, UPDATE, letter, &document(letter)?)
}

fn write(conn: &Connection, sql: &str, letter: &Letter, document: &str) -> Result<(), StoreError> {
    let escalation = &letter.escalation;
    let mut statement = conn.prepare_cached(sql).map_err(failed)?;
    let done = statement.execute(params![
        letter.id().to_string(),
        letter.state.as_str(),
        escalation.class.as_str(),
        escalation.operation,
        escalation.from,
        escalation.fingerprint.to_string(),
        millis(letter.stored),
        millis(letter.due),
        letter.lease.as_ref().map(|lease| millis(lease.until)),
        letter.question().map(|question| millis(question.deadline)),
        letter.settled.map(millis),
        document,
    ]);
    done.map(drop).map_err(failed)
}

pub(crate) fn get(conn: &Connection, id: IncidentId) -> Result<Option<Letter>, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT seq, document FROM letter WHERE id = ?1").map_err(failed)?;
    let found = statement.query_row([id.to_string()], |row| Ok(read(row))).optional();
    found.map_err(failed)?.transpose()
}

/// The letter in a row of `seq, document`.
pub(crate) fn read(row: &Row<'_>) -> Result<Letter, StoreError> {
    let seq: i64 = row.get(0).map_err(failed)?;
    let document = row.get_ref(1).map_err(failed)?.as_bytes_or_null();
    let bytes = document.ok().flatten().unwrap_or_default();
    // serde's words may quote what they stumble over; where they do is enough.
    let corrupt = |error: serde_json::Error| {
        StoreError::Corrupt(format!("letter number {seq}, at column {}", error.column()))
    };
    let mut letter: Letter = serde_json::from_slice(bytes).map_err(corrupt)?;
    letter.seq = seq.unsigned_abs();
    Ok(letter)
}

pub(crate) fn millis(moment: Timestamp) -> i64 {
    // At most the last of the year 9999.
    i64::try_from(moment.as_millis()).unwrap_or(i64::MAX)
}
