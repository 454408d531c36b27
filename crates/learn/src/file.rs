//! A memory in a file that survives a crash.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::learner::Shared;
use crate::memory::Memory;
use crate::text::{self, ImportError, Imported};

/// What was found in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opened {
    /// Kinds of failure that are remembered.
    pub kinds: u64,
    /// Lines that could not be read; they are kept in a file beside.
    pub skipped: u64,
}

/// Why a file was not opened. It is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be read, what is unreadable in it cannot be kept, or there is no thread to write it.
    File(io::Error),
    /// It holds something else, or a later version.
    Content(ImportError),
}

/// Why a file was not written. The old one is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaveError {
    /// Writing failed.
    File(io::ErrorKind),
    /// The writer has ended.
    Ended,
}

/// Reads what is there into `memory`.
pub(crate) fn load(path: &Path, memory: &mut Memory, now: Duration) -> Result<Opened, OpenError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opened::default()),
        Err(error) => return Err(OpenError::File(error)),
    };
    // A file that was made and never written is no other thing.
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Opened::default());
    }
    let read = text::read(&String::from_utf8_lossy(&bytes), memory, now);
    let Imported { kinds, skipped } = read.map_err(OpenError::Content)?;
    if skipped > 0 {
        let beside = beside(path, ".unreadable");
        fs::write(&beside, &bytes).map_err(OpenError::File)?;
        tracing::warn!(
            skipped,
            path = %path.display(),
            kept = %beside.display(),
            "lines of a memory of remedies cannot be read"
        );
    }
    Ok(Opened { kinds, skipped })
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// How long what was learned may wait for the disk.
const INTERVAL: Duration = Duration::from_secs(5);

/// The thread that writes the file; it ends with the last clone of this, writing once more.
#[derive(Clone, Debug)]
pub(crate) struct Saver {
    asks: Sender<oneshot::Sender<Result<(), SaveError>>>,
}

impl Saver {
    pub(crate) fn start(path: PathBuf, shared: Arc<Shared>) -> io::Result<Self> {
        let (asks, inbox) = channel();
        std::thread::Builder::new()
            .name("tower-triage-learn".to_owned())
            .spawn(move || run(&path, &shared, &inbox))?;
        Ok(Self { asks })
    }

    pub(crate) async fn flush(&self) -> Result<(), SaveError> {
        let (done, answer) = oneshot::channel();
        self.asks.send(done).map_err(|_| SaveError::Ended)?;
        answer.await.map_err(|_| SaveError::Ended)?
    }
}

fn run(path: &Path, shared: &Shared, asks: &Receiver<oneshot::Sender<Result<(), SaveError>>>) {
    loop {
        match asks.recv_timeout(INTERVAL) {
            Ok(done) => {
                // Whoever asked may have gone.
                let _ = done.send(save(path, shared));
            }
            Err(ended) => {
                if shared.changed.load(Ordering::Acquire) {
                    if let Err(error) = save(path, shared) {
                        tracing::error!(%error, path = %path.display(), "{FAILED}");
                    }
                }
                if ended == RecvTimeoutError::Disconnected {
                    return;
                }
            }
        }
    }
}

const FAILED: &str = "what was learned about remedies is not on the disk";

fn save(path: &Path, shared: &Shared) -> Result<(), SaveError> {
    // Cleared before the copy is made: what is learned meanwhile is written next time.
    shared.changed.store(false, Ordering::Release);
    replace(path, shared.export().as_bytes()).map_err(|error| {
        shared.changed.store(true, Ordering::Release);
        SaveError::File(error.kind())
    })
}

/// The new content is on the disk before it takes the place of the old.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name is on the disk when its directory is; where directories cannot be opened, the
    // system sees to it.
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match File::open(directory) {
        Ok(directory) => directory.sync_all(),
        Err(_) => Ok(()),
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "the memory of remedies was not opened: {error}"),
            Self::Content(error) => write!(f, "the file is no memory of remedies: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::Content(error) => Some(error),
        }
    }
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(kind) => write!(f, "the memory of remedies was not written: {kind}"),
            Self::Ended => f.write_str("the writer of the memory of remedies has ended"),
        }
    }
}

impl std::error::Error for SaveError {}
