//! Escalations in a file, one JSON document a line.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;
use tower_triage_core::incident::IncidentId;

use crate::{Captured, Escalation};

/// Appends each escalation as a line of JSON, and answers when it is on the disk (`fdatasync`).
///
/// All clones share one writer: a thread of its own, because a disk may block for long. It writes
/// what has come in meanwhile in one go and ends when the last clone is gone. One record per id:
/// the ids of the last 65 536 records are remembered, also those found in the file, and a record
/// with a known id is not written again. One process writes a file, not several. A file that is moved
/// away or removed is made again.
#[derive(Clone, Debug)]
pub struct JsonLinesSink {
    jobs: mpsc::Sender<Job>,
    skipped: u64,
}

/// What a line holds: the record, and the request, which is not part of the record's own form.
#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    escalation: Escalation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<Captured>,
}

impl Line {
    fn of(mut escalation: Escalation) -> Self {
        let request = escalation.request.take().map(Arc::unwrap_or_clone);
        Self { escalation, request }
    }

    pub(crate) fn into_escalation(self) -> Escalation {
        Escalation { request: self.request.map(Arc::new), ..self.escalation }
    }
}

#[derive(Debug)]
struct Job {
    id: IncidentId,
    line: Vec<u8>,
    done: oneshot::Sender<Result<(), JsonLinesError>>,
}

/// How many records may wait for the writer; those beyond wait for a place.
const WAITING: usize = 256;
/// How many ids are remembered.
const IDS: usize = 65_536;

impl JsonLinesSink {
    /// Opens the file, or makes it; after [`JsonLinesSink::replay`], if it is the last resort behind a
    /// store. Blocks while it reads the ids that are there: to be called when
    /// a program starts. A last line that was only half written (a crash, a full disk) stays as it
    /// is, the next record begins on a new line, and [`JsonLinesSink::skipped`] tells.
    ///
    /// # Errors
    /// The file cannot be opened, read or written to, or there is no thread for the writer.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let (file, ids, skipped) = open(&path)?;
        let (jobs, inbox) = mpsc::channel(WAITING);
        let writer = Writer { path, file, torn: false, ids };
        std::thread::Builder::new()
            .name("tower-triage-json-lines".to_owned())
            .spawn(|| writer.run(inbox))?;
        Ok(Self { jobs, skipped })
    }

    /// How many bytes of a half-written last line were found when the file was opened.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// The file, the ids in it, and the length of a half-written last line.
fn open(path: &Path) -> io::Result<(File, Ids, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let mut ids = Ids::default();
    let skipped = read(&file, &mut ids)?;
    if skipped > 0 {
        tracing::warn!(
            bytes = skipped,
            path = %path.display(),
            "a half-written escalation at the end of the file is skipped"
        );
    }
    if !ends_a_line(&mut file)? {
        file.write_all(b"\n")?;
    }
    Ok((file, ids, skipped))
}

/// Does `path` still lead to `file`? What is written to one that was removed is written nowhere.
/// Where files cannot be removed while they are open, it does.
fn is_there(path: &Path, file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;

        let id = |file: std::fs::Metadata| (file.dev(), file.ino());
        let (there, ours) = (std::fs::metadata(path).map(id), file.metadata().map(id));
        matches!((there, ours), (Ok(there), Ok(ours)) if there == ours)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// Collects the ids in `file`; gives the length of a last line that is not a whole record.
fn read(file: &File, ids: &mut Ids) -> io::Result<u64> {
    #[derive(Deserialize)]
    struct Known {
        id: IncidentId,
    }
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(0);
        }
        match serde_json::from_slice::<Known>(&line) {
            Ok(known) => ids.add(known.id),
            Err(_) if line.last() != Some(&b'\n') => return Ok(line.len() as u64),
            // An older half-written line, or something that is not ours.
            Err(_) => {}
        }
    }
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    io::Read::read_exact(file, &mut last)?;
    Ok(last == *b"\n")
}

/// The thread's part.
struct Writer {
    path: PathBuf,
    file: File,
    /// The file may end in half a record.
    torn: bool,
    ids: Ids,
}

impl Writer {
    fn run(mut self, mut inbox: mpsc::Receiver<Job>) {
        let mut batch = Vec::new();
        while inbox.blocking_recv_many(&mut batch, WAITING) > 0 {
            let written = self.write(&batch).map_err(|error| JsonLinesError::Write(error.kind()));
            for job in batch.drain(..) {
                if written.is_ok() {
                    self.ids.add(job.id);
                }
                // Whoever asked may have gone; the record is there all the same.
                let _ = job.done.send(written.clone());
            }
        }
    }

    fn write(&mut self, batch: &[Job]) -> io::Result<()> {
        if !is_there(&self.path, &self.file) {
            // Moved away, to be read elsewhere, or removed.
            (self.file, self.ids, _) = open(&self.path)?;
            self.torn = false;
        }
        let mut new = HashSet::new();
        let mut text = if self.torn { b"\n".to_vec() } else { Vec::new() };
        for job in batch {
            if !self.ids.known.contains(&job.id) && new.insert(job.id) {
                text.extend_from_slice(&job.line);
            }
        }
        let end = self.file.metadata()?.len();
        let done = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        // What was written in part is taken back, so that a second try leaves one record.
        self.torn = done.is_err() && self.file.set_len(end).is_err();
        done
    }
}

/// The ids of the last records.
#[derive(Default)]
struct Ids {
    known: HashSet<IncidentId>,
    order: VecDeque<IncidentId>,
}

impl Ids {
    fn add(&mut self, id: IncidentId) {
        if !self.known.insert(id) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > IDS {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

impl Service<Escalation> for JsonLinesSink {
    type Response = ();
    type Error = JsonLinesError;
    type Future = Pin<Box<dyn Future<Output = Result<(), JsonLinesError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), JsonLinesError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let jobs = self.jobs.clone();
        Box::pin(async move {
            let id = escalation.id;
            let mut line = serde_json::to_vec(&Line::of(escalation))
                .map_err(|error| JsonLinesError::Form(error.to_string()))?;
            line.push(b'\n');
            let (done, answer) = oneshot::channel();
            let job = Job { id, line, done };
            jobs.send(job).await.map_err(|_| JsonLinesError::Ended)?;
            answer.await.map_err(|_| JsonLinesError::Ended)?
        })
    }
}

/// Why a record is not in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonLinesError {
    /// It cannot be written as JSON.
    Form(String),
    /// Writing failed; what was written in part has been taken back.
    Write(io::ErrorKind),
    /// The writer has ended.
    Ended,
}

impl fmt::Display for JsonLinesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(why) => write!(f, "no JSON can be made of the escalation: {why}"),
            Self::Write(kind) => write!(f, "the escalation was not written: {kind}"),
            Self::Ended => f.write_str("the writer of the file has ended"),
        }
    }
}

impl std::error::Error for JsonLinesError {}
