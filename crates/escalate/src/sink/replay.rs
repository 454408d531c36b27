//! What was spilled into a file goes into the store after all.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;

use crate::escalation::Escalation;
use crate::sink::JsonLinesSink;
use crate::sink::json_lines::Line;
use crate::store::{Put, Store, StoreError};

/// What became of the lines of a spill file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Records that the store did not have.
    pub stored: u64,
    /// Records that it had.
    pub known: u64,
    /// Lines that are no whole record: half-written at a crash or on a full disk. They are kept in
    /// a file beside, with `.unreadable` behind its name.
    pub skipped: u64,
}

/// Why a spill file was not replayed to its end. The file is as it was, and what was stored stays:
/// to try again does no harm.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file.
    File(io::Error),
    /// The store.
    Store(StoreError),
}

/// How many records are put at a time, so that a store with group commit needs few commits.
const AT_ONCE: usize = 64;

impl JsonLinesSink {
    /// Puts what is in the file at `path` into `store`, and empties the file: at the start of a
    /// program whose desk has this file as its last resort, before [`JsonLinesSink::open`]. No
    /// file, nothing to do.
    ///
    /// # Errors
    /// The file cannot be read or emptied, the store fails; see [`ReplayError`].
    ///
    /// # Cancel safety
    /// Dropped, the file is as it was. A record that is in the store already is not stored again.
    pub async fn replay(
        path: impl AsRef<Path>,
        store: &dyn Store,
    ) -> Result<Replayed, ReplayError> {
        let path = path.as_ref().to_owned();
        let mut replayed = Replayed::default();
        let Some(mut lines) = blocking({
            let path = path.clone();
            move || Lines::open(&path)
        })
        .await?
        else {
            return Ok(replayed);
        };
        let mut unreadable = Vec::new();
        loop {
            let (rest, batch) = blocking(move || lines.next_batch()).await?;
            lines = rest;
            if batch.is_empty() {
                break;
            }
            let mut puts = Vec::new();
            for line in batch {
                match line {
                    Ok(escalation) => puts.push(store.put(escalation)),
                    Err(bytes) => unreadable.extend(bytes),
                }
            }
            for put in all(puts).await {
                match put? {
                    Put::New | Put::Reopened => replayed.stored += 1,
                    Put::Known | Put::Again => replayed.known += 1,
                }
            }
        }
        replayed.skipped = lines.skipped;
        let Replayed { stored, known, skipped } = replayed;
        let shown = path.display().to_string();
        blocking(move || empty(&path, &unreadable)).await?;
        if skipped > 0 {
            tracing::warn!(skipped, path = shown, "half-written spilled escalations are skipped");
        }
        if stored + known > 0 {
            tracing::info!(stored, known, path = shown, "spilled escalations are in the store");
        }
        Ok(replayed)
    }
}

/// Runs what may block where it may.
async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ReplayError> {
    let done = tokio::task::spawn_blocking(f).await;
    // Cancelled with its runtime, or a panic: nothing was emptied.
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(ReplayError::File)
}

/// Polls all of them to their end; they share a store, which may take them in one go.
async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut done: Vec<_> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none() {
                if let Poll::Ready(output) = Pin::new(future).poll(cx) {
                    *done = Some(output);
                }
            }
        }
        match done.iter().all(Option::is_some) {
            true => Poll::Ready(done.drain(..).flatten().collect()),
            false => Poll::Pending,
        }
    })
    .await
}

struct Lines {
    reader: BufReader<File>,
    skipped: u64,
}

/// A record, or the bytes of what is none.
type Read = Result<Escalation, Vec<u8>>;

impl Lines {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self { reader: BufReader::new(file), skipped: 0 })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn next_batch(mut self) -> io::Result<(Self, Vec<Read>)> {
        let mut batch = Vec::new();
        while batch.len() < AT_ONCE {
            let mut line = Vec::new();
            if self.reader.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            batch.push(match serde_json::from_slice::<Line>(&line) {
                Ok(line) => Ok(line.into_escalation()),
                Err(_) => {
                    self.skipped += 1;
                    Err(line)
                }
            });
        }
        Ok((self, batch))
    }
}

/// Empties the file; what could not be read is put beside first.
fn empty(path: &Path, unreadable: &[u8]) -> io::Result<()> {
    if !unreadable.is_empty() {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".unreadable");
        let mut file = OpenOptions::new().append(true).create(true).open(PathBuf::from(beside))?;
        file.write_all(unreadable)?;
        if unreadable.last() != Some(&b'\n') {
            file.write_all(b"\n")?;
        }
        file.sync_all()?;
    }
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(0)?;
    file.sync_all()
}

impl From<StoreError> for ReplayError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "the spill file was not replayed: {error}"),
            Self::Store(error) => write!(f, "the spill file was not replayed: {error}"),
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::Store(error) => Some(error),
        }
    }
}
