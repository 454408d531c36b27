//! What is on the disk.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tower_triage_core::incident::IncidentId;
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::{Filter, Store};

/// Where the binary `failing` has its files, and what was seen there so far.
pub(crate) struct Kept {
    folder: PathBuf,
    last: Option<u64>,
    pub stored: HashSet<IncidentId>,
}

impl Kept {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), last: None, stored: HashSet::new() }
    }

    fn spill(&self) -> PathBuf {
        self.folder.join("spill.jsonl")
    }

    /// Leaves what a kill in the middle of a write leaves, of a record that nobody was told of. False
    /// if the last line is half-written already, or if there is no file.
    pub(crate) fn tear(&self) -> bool {
        let Ok(bytes) = fs::read(self.spill()) else { return false };
        if bytes.last().is_some_and(|last| *last != b'\n') {
            return false;
        }
        let mut file = OpenOptions::new().append(true).open(self.spill()).unwrap();
        file.write_all(br#"{"schema":1,"id":"8c1f2a"#).unwrap();
        true
    }

    /// Half-written lines that were put aside.
    pub(crate) fn unreadable(&self) -> usize {
        let text = fs::read_to_string(self.folder.join("spill.jsonl.unreadable"));
        text.unwrap_or_default().lines().count()
    }

    /// Opens the store, as a restarted service does, and looks at what has come since the last time. An
    /// id that comes twice is a failure.
    pub(crate) async fn look(&mut self) {
        let path = self.folder.join("store");
        if !path.exists() {
            return;
        }
        let store = SqliteStore::open(path).unwrap();
        loop {
            let page = store.list(Filter::any(), self.last, 1_000).await.unwrap();
            for letter in &page.letters {
                let id = letter.id();
                assert!(self.stored.insert(id), "{id} is there twice");
                assert_eq!(letter.failures, 1, "{id} was counted twice");
                self.last = Some(letter.seq);
            }
            if page.next.is_none() {
                return;
            }
        }
    }

    /// The ids in the spill file. One that comes twice is a failure.
    pub(crate) fn spilled(&self) -> HashSet<IncidentId> {
        #[derive(Deserialize)]
        struct Record {
            id: IncidentId,
        }
        let bytes = fs::read(self.spill()).unwrap_or_default();
        let mut ids = HashSet::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            if let Ok(record) = serde_json::from_slice::<Record>(line) {
                assert!(ids.insert(record.id), "{} was spilled twice", record.id);
            }
        }
        ids
    }
}
