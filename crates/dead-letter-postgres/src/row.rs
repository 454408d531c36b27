//! A letter as a row, and back.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::{Letter, StoreError};

use crate::text;

/// Moments as columns have them.
pub(crate) fn millis(moment: Timestamp) -> i64 {
    // The last moment there is has fifteen digits.
    i64::try_from(moment.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn moment(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// A letter as it was read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) letter: Letter,
    pub(crate) version: i64,
    /// The server's clock.
    pub(crate) now: Timestamp,
}

impl Found {
    /// The columns that [`read`](Self::read) wants, before `now`.
    pub(crate) const COLUMNS: &'static str = "seq, version, letter";

    pub(crate) fn read(row: &Row) -> Result<Self, StoreError> {
        let seq: i64 = row.get("seq");
        let letter = serde_json::from_str(row.get("letter"));
        // Without what is wrong: it quotes the letter.
        let mut letter: Letter = letter.map_err(|error| {
            StoreError::Corrupt(format!("letter number {seq}, at column {}", error.column()))
        })?;
        letter.seq = u64::try_from(seq).unwrap_or(0);
        Ok(Self { letter, version: row.get("version"), now: moment(row.get("now")) })
    }
}

/// Letters as columns, to be written by one statement.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    seq: Vec<i64>,
    version: Vec<i64>,
    id: Vec<String>,
    state: Vec<&'static str>,
    stored: Vec<i64>,
    due: Vec<i64>,
    leased_until: Vec<Option<i64>>,
    asks_until: Vec<Option<i64>>,
    settled: Vec<Option<i64>>,
    class: Vec<&'static str>,
    operation: Vec<String>,
    sender: Vec<String>,
    receivers: Vec<String>,
    fingerprint: Vec<String>,
    letter: Vec<String>,
    bytes: usize,
}

impl Rows {
    /// The columns in the order of [`params`](Self::params), with their types as arrays.
    pub(crate) const COLUMNS: [(&'static str, &'static str); 15] = [
        ("seq", "bigint[]"),
        ("version", "bigint[]"),
        ("id", "text[]"),
        ("state", "text[]"),
        ("stored", "bigint[]"),
        ("due", "bigint[]"),
        ("leased_until", "bigint[]"),
        ("asks_until", "bigint[]"),
        ("settled", "bigint[]"),
        ("class", "text[]"),
        ("operation", "text[]"),
        ("sender", "text[]"),
        ("receivers", "text[]"),
        ("fingerprint", "text[]"),
        ("letter", "text[]"),
    ];

    pub(crate) fn params(&self) -> [&(dyn ToSql + Sync); 15] {
        [
            &self.seq,
            &self.version,
            &self.id,
            &self.state,
            &self.stored,
            &self.due,
            &self.leased_until,
            &self.asks_until,
            &self.settled,
            &self.class,
            &self.operation,
            &self.sender,
            &self.receivers,
            &self.fingerprint,
            &self.letter,
        ]
    }

    /// How long the letters are.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a letter that was read in this version, or that is new.
    ///
    /// # Errors
    /// No JSON can be made of it.
    pub(crate) fn add(&mut self, letter: &Letter, version: i64) -> Result<(), StoreError> {
        let document = serde_json::to_string(letter)
            .map_err(|error| StoreError::unavailable(format!("no JSON: {error}")))?;
        let escalation = &letter.escalation;
        self.seq.push(i64::try_from(letter.seq).unwrap_or(i64::MAX));
        self.version.push(version);
        self.id.push(letter.id().to_string());
        self.state.push(letter.state.as_str());
        self.stored.push(millis(letter.stored));
        self.due.push(millis(letter.due));
        self.leased_until.push(letter.lease.as_ref().map(|lease| millis(lease.until)));
        self.asks_until.push(letter.question().map(|question| millis(question.deadline)));
        self.settled.push(letter.settled.map(millis));
        self.class.push(escalation.class.as_str());
        self.operation.push(text::encode(&escalation.operation).into_owned());
        self.sender.push(text::encode(&escalation.from).into_owned());
        self.receivers.push(text::names(&escalation.to));
        self.fingerprint.push(escalation.fingerprint.to_string());
        self.bytes += document.len();
        self.letter.push(document);
        Ok(())
    }
}
