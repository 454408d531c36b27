//! A memory as text: a header, then one kind of failure a line, each a JSON document.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::Fingerprint;

use crate::memory::Memory;
use crate::remedy::Remedy;
use crate::tally::Tally;

const FORMAT: &str = "tower-triage-memory";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Line {
    fingerprint: Fingerprint,
    tried: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    remedy: Remedy,
    worked: f64,
    failed: f64,
    /// Milliseconds since 1970.
    at: u64,
}

/// What came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Kinds of failure that were read.
    pub kinds: u64,
    /// Lines that are no such thing, or hold what may not be remembered: half-written, damaged.
    pub skipped: u64,
}

/// Why nothing came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportError {
    /// The first line is not that of a memory.
    NotAMemory,
    /// It was written by a later version.
    Version(u32),
}

pub(crate) fn write(memory: &Memory) -> String {
    let mut text = String::new();
    let mut line = |document: serde_json::Result<String>| {
        // Plain data under string keys, and counts are finite.
        text.push_str(&document.unwrap_or_default());
        text.push('\n');
    };
    line(serde_json::to_string(&Header { format: FORMAT.to_owned(), version: VERSION }));
    // A millionth of a trial matters to nobody, and short numbers are read back as they were written.
    let rounded = |count: f64| (count * 1e6).round() / 1e6;
    for (fingerprint, kind) in memory.kinds() {
        let entry = |(remedy, tally): &(Remedy, Tally)| Entry {
            remedy: *remedy,
            worked: rounded(tally.worked),
            failed: rounded(tally.failed),
            at: u64::try_from(tally.at.as_millis()).unwrap_or(u64::MAX),
        };
        let tried = kind.tried.iter().map(entry).collect();
        line(serde_json::to_string(&Line { fingerprint, tried }));
    }
    text
}

/// Adds what `text` holds to `memory`.
pub(crate) fn read(
    text: &str,
    memory: &mut Memory,
    now: Duration,
) -> Result<Imported, ImportError> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    match lines.next().map(serde_json::from_str::<Header>) {
        Some(Ok(header)) if header.format != FORMAT => return Err(ImportError::NotAMemory),
        Some(Ok(header)) if header.version > VERSION => {
            return Err(ImportError::Version(header.version));
        }
        Some(Ok(_)) => {}
        Some(Err(_)) | None => return Err(ImportError::NotAMemory),
    }
    let mut imported = Imported::default();
    for line in lines {
        match serde_json::from_str::<Line>(line) {
            Ok(line) if add(&line, memory, now) => imported.kinds += 1,
            Ok(_) | Err(_) => imported.skipped += 1,
        }
    }
    Ok(imported)
}

/// Says whether all of it may be remembered.
fn add(line: &Line, memory: &mut Memory, now: Duration) -> bool {
    line.tried.iter().fold(true, |sound, entry| {
        let Entry { remedy, worked, failed, at } = *entry;
        let tally = Tally { worked, failed, at: Duration::from_millis(at) };
        memory.add(line.fingerprint, remedy, tally, now) && sound
    })
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAMemory => f.write_str("it does not begin as a memory does"),
            Self::Version(version) => {
                write!(f, "it is of version {version}; the latest known here is {VERSION}")
            }
        }
    }
}

impl std::error::Error for ImportError {}
