//! The store: changes to the writer, questions to the readers.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::Notify;
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::store::{
    Change, Dropped, Filter, LeaseRequest, Letter, Page, Pending, Put, Retention, Stats, Store,
    StoreError,
};
use tower_triage_escalate::{Escalation, Timestamp, WallClock};

use crate::change;
use crate::connect::{Place, SqliteOptions};
use crate::error::OpenError;
use crate::query::Query;
use crate::reader::Readers;
use crate::row;
use crate::stats::stats;
use crate::watch::Watch;
use crate::writer::Writer;

/// Dead letters in an SQLite file. Clones are handles on one store.
///
/// Each answer to a change comes when the change is on the disk. Several processes may have the
/// file open; within one, open it once and share it: that is what makes many puts one commit.
#[derive(Clone)]
pub struct SqliteStore {
    place: Arc<Place>,
    writer: Writer,
    readers: Arc<Readers>,
    watch: Arc<Watch>,
    clock: WallClock,
}

impl SqliteStore {
    /// Opens the store in this file, or makes it. Blocks: to be called when a program starts.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        SqliteOptions::new().open(path)
    }

    /// Opens a store that is there, maybe in use by another process: for tools. Blocks as
    /// [`open`](Self::open) does.
    ///
    /// # Errors
    /// There is no such file, it is no store, and the rest of [`OpenError`].
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        SqliteOptions::new().create(false).open(path)
    }

    /// With a clock of your own. The processes that share a file should agree about the time:
    /// leases end by it.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn with(options: SqliteOptions, path: &Path) -> Result<Self, OpenError> {
        let (place, connection) = Place::open(options, path)?;
        let (place, changed) = (Arc::new(place), Arc::new(Notify::new()));
        let writer = Writer::start(Arc::clone(&place), connection, Arc::clone(&changed))
            .map_err(|error| OpenError::Failed(place.path.clone(), error.into()))?;
        let readers = Arc::new(Readers::new(Arc::clone(&place)));
        let watch = Arc::new(Watch::new(Arc::clone(&place), changed));
        Ok(Self { place, writer, readers, watch, clock: WallClock::new() })
    }

    /// Changes are made by the time at which it is their turn.
    fn write<T, F>(&self, work: F) -> Pending<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> Result<T, StoreError> + Send + 'static,
    {
        let clock = self.clock.clone();
        Box::pin(self.writer.run(move |tx| work(tx, clock.now())))
    }

    fn read<T, F>(&self, read: F) -> Pending<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        Box::pin(self.readers.run(read))
    }
}

impl Store for SqliteStore {
    fn put(&self, escalation: Escalation) -> Pending<'_, Put> {
        Box::pin(async move {
            // Not in the writer: there is one of it.
            let letter = Letter::new(escalation, self.clock.now());
            let document = row::document(&letter)?;
            self.write(move |tx, now| change::put(tx, letter, &document, now)).await
        })
    }

    fn get(&self, id: IncidentId) -> Pending<'_, Option<Letter>> {
        self.read(move |conn| row::get(conn, id))
    }

    fn list(&self, filter: Filter, after: Option<u64>, limit: u32) -> Pending<'_, Page> {
        let now = self.clock.now();
        self.read(move |conn| {
            let limit = limit as usize;
            let query = Query::new(&filter, after.unwrap_or(0), now);
            // One more, to see whether there is a next page.
            let mut letters = query.run(conn, limit + 1, |letter| filter.matches(letter, now))?;
            let more = letters.len() > limit;
            letters.truncate(limit);
            let next = letters.last().filter(|_| more).map(|letter| letter.seq);
            Ok(Page::new(letters, next))
        })
    }

    fn lease(&self, request: LeaseRequest) -> Pending<'_, Vec<Letter>> {
        self.write(move |tx, now| change::lease(tx, &request, now))
    }

    fn change(&self, id: IncidentId, change: Change) -> Pending<'_, Letter> {
        self.write(move |tx, now| change::change(tx, id, change, now))
    }

    fn stats(&self) -> Pending<'_, Stats> {
        let now = self.clock.now();
        self.read(move |conn| stats(conn, now))
    }

    /// In parts, so that puts get their turn in between; dropped half way, some letters are gone.
    fn retain(&self, retention: Retention) -> Pending<'_, Dropped> {
        Box::pin(async move {
            let mut all = Dropped::default();
            loop {
                let part = self.write(move |tx, now| change::retain(tx, &retention, now)).await?;
                part.log();
                all.settled += part.settled;
                all.open += part.open;
                if part.settled + part.open < change::DROPPED_AT_ONCE {
                    return Ok(all);
                }
            }
        })
    }

    /// Own changes at once, those of other processes within a fifth of a second.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.watch.changed())
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.place.path).finish_non_exhaustive()
    }
}
