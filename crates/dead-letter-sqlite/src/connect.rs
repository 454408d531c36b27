//! Opening the file: what it is, what it must be, and whether it is still there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tower_triage_core::ConfigError;
use tower_triage_escalate::store::StoreError;

use crate::error::OpenError;
use crate::store::SqliteStore;

/// How a store is opened, where [`SqliteStore::open`] does not fit.
///
/// | setting | default |
/// |---|---|
/// | [`create`](Self::create) | yes |
/// | [`busy_timeout`](Self::busy_timeout) | 5 s |
/// | [`max_bytes`](Self::max_bytes) | no limit |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing is opened before `open`"]
pub struct SqliteOptions {
    create: bool,
    pub(crate) busy_timeout: Duration,
    max_bytes: Option<u64>,
}

/// What marks a file as ours (`PRAGMA application_id`): "TTDL".
const APPLICATION: u32 = 0x5454_444c;
/// The schema, grown step by step. A step that has been released is not changed any more.
const MIGRATIONS: [&str; 1] = [include_str!("schema/1.sql")];
/// The schema that this version writes.
const KNOWN: u32 = MIGRATIONS.len() as u32;

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { create: true, busy_timeout: Duration::from_secs(5), max_bytes: None }
    }
}

impl SqliteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Is a file made that is not there?
    pub const fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// How long a change waits while another process writes, before it fails as unavailable.
    pub const fn busy_timeout(mut self, longest: Duration) -> Self {
        self.busy_timeout = longest;
        self
    }

    /// How large the file may grow; what does not fit fails as unavailable, and retention makes
    /// room. The write-ahead log beside it, a few MB as a rule, is not counted.
    pub const fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Opens the store, and brings an older schema up to date. Blocks: to be called when a program
    /// starts.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        SqliteStore::with(self, path.as_ref())
    }
}

/// The file that was opened, and what its connections are like.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) options: SqliteOptions,
    /// Which file had the path then.
    file: Option<FileId>,
}

impl Place {
    /// The place and the connection that writes there.
    pub(crate) fn open(
        options: SqliteOptions,
        path: &Path,
    ) -> Result<(Self, Connection), OpenError> {
        // SQLite has names for what is no file (`:memory:`); an absolute path is none of them.
        let path = std::path::absolute(path)
            .map_err(|error| OpenError::Failed(path.to_owned(), error.into()))?;
        if options.max_bytes == Some(0) {
            let none = ConfigError::new("max_bytes", 0, "it must be more than nothing");
            return Err(OpenError::Failed(path, none.into()));
        }
        if !options.create && !path.exists() {
            return Err(OpenError::Missing(path));
        }
        let mut place = Self { path, options, file: None };
        let connection = place.writer()?;
        // From here on the writer waits in its own way.
        connection
            .busy_timeout(Duration::ZERO)
            .map_err(|error| OpenError::of(place.path.clone(), error))?;
        place.file = file_id(&place.path);
        Ok((place, connection))
    }

    fn writer(&self) -> Result<Connection, OpenError> {
        let of = |error| OpenError::of(self.path.clone(), error);
        let mut connection = self.connect(self.options.create).map_err(of)?;
        // First of all: a file that is not ours is not touched.
        let version = {
            let tx = connection.unchecked_transaction().map_err(of)?;
            self.identify(&tx)?
        };
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(of)?;
        if mode != "wal" {
            let error = format!("the file system cannot do with a write-ahead log (`{mode}`)");
            return Err(OpenError::Failed(self.path.clone(), error.into()));
        }
        // Each commit is on the disk before it is answered; in WAL mode, NORMAL may lose the last.
        connection.pragma_update(None, "synchronous", "FULL").map_err(of)?;
        if version < KNOWN {
            self.migrate(&mut connection)?;
        }
        if let Some(bytes) = self.options.max_bytes {
            let size: u64 =
                connection.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(of)?;
            let pages = (bytes / size).clamp(1, u32::MAX.into());
            connection
                .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
                .map_err(of)?;
        }
        Ok(connection)
    }

    /// A connection that reads.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let connection = self.connect(false)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    fn connect(&self, create: bool) -> rusqlite::Result<Connection> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.options.busy_timeout)?;
        Ok(connection)
    }

    /// The file's schema; 0 if it is new. In a transaction: another process may be making it.
    fn identify(&self, tx: &Transaction<'_>) -> Result<u32, OpenError> {
        let read = |sql| tx.query_row(sql, [], |row| row.get::<_, u32>(0));
        let of = |error| OpenError::of(self.path.clone(), error);
        let application = read("PRAGMA application_id").map_err(of)?;
        let version = read("PRAGMA user_version").map_err(of)?;
        let tables = read("SELECT count(*) FROM sqlite_schema").map_err(of)?;
        match (application, version) {
            (0, 0) if tables == 0 && self.options.create => Ok(0),
            (APPLICATION, 1..=KNOWN) => Ok(version),
            (APPLICATION, found) => {
                Err(OpenError::Newer { path: self.path.clone(), found, known: KNOWN })
            }
            _ => Err(OpenError::NotAStore(self.path.clone())),
        }
    }

    /// Brings the schema up to date, in one step; of two processes that try, one does.
    fn migrate(&self, connection: &mut Connection) -> Result<(), OpenError> {
        let of = |error| OpenError::of(self.path.clone(), error);
        let tx =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(of)?;
        let version = self.identify(&tx)?;
        for step in &MIGRATIONS[version as usize..] {
            tx.execute_batch(step).map_err(of)?;
        }
        tx.pragma_update(None, "application_id", APPLICATION).map_err(of)?;
        tx.pragma_update(None, "user_version", KNOWN).map_err(of)?;
        tx.commit().map_err(of)
    }

    /// Is it still the file that was opened? SQLite would go on with one that was removed, and what
    /// is stored there is stored nowhere.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if file_id(&self.path) == self.file {
            return Ok(());
        }
        let gone = format!("{} was removed or replaced", self.path.display());
        Err(StoreError::unavailable(gone))
    }
}

#[cfg(unix)]
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;

    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
type FileId = ();

#[cfg(not(unix))]
fn file_id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_synced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        for _ in 0..2 {
            let (_, writer) = Place::open(SqliteOptions::new(), &path).unwrap();
            let read = |name| writer.pragma_query_value(None, name, |row| row.get::<_, String>(0));
            assert_eq!(read("journal_mode").unwrap(), "wal");
            let level: u32 =
                writer.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
            assert_eq!(level, 2, "FULL");
        }
    }

    #[test]
    fn readers_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (place, _writer) =
            Place::open(SqliteOptions::new(), &folder.path().join("store")).unwrap();
        assert!(place.reader().unwrap().execute("DELETE FROM letter", []).is_err());
    }
}
