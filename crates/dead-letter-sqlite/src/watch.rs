//! Seeing that something has changed, here or in another process.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout};

use crate::connect::Place;

/// How often other processes' writes are looked for while somebody waits.
pub(crate) const POLL: Duration = Duration::from_millis(100);
/// How often, before whoever waits may look for themselves.
const POLLS: u32 = 10;

#[derive(Debug)]
pub(crate) struct Watch {
    place: Arc<Place>,
    changed: Arc<Notify>,
    seen: Arc<Mutex<Seen>>,
}

/// What SQLite said last: a number that is another one after each commit of another connection.
/// Only the connection that said it can compare.
#[derive(Debug, Default)]
struct Seen {
    connection: Option<Connection>,
    version: Option<i64>,
    at: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(place: Arc<Place>, changed: Arc<Notify>) -> Self {
        Self { place, changed, seen: Arc::default() }
    }

    /// Waits from this call on, not from the first poll on.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        let notified = self.changed.notified();
        async move {
            let mut notified = std::pin::pin!(notified);
            for _ in 0..POLLS {
                if timeout(POLL, notified.as_mut()).await.is_ok() {
                    return;
                }
                self.look().await;
            }
        }
    }

    /// Looks for commits, and wakes all who wait if there is one. One looks for all of them.
    async fn look(&self) {
        let Ok(mut seen) = Arc::clone(&self.seen).try_lock_owned() else { return };
        if seen.at.is_some_and(|at| at.elapsed() < POLL / 2) {
            return;
        }
        let (place, changed) = (Arc::clone(&self.place), Arc::clone(&self.changed));
        let looking = tokio::task::spawn_blocking(move || {
            let version = seen.look(&place).ok();
            seen.at = Some(Instant::now());
            // Not knowing is no reason to let anybody wait.
            if version.is_none() || version != seen.version {
                seen.version = version;
                changed.notify_waiters();
            }
        });
        // It ends with the runtime, and then nobody waits any more.
        let _ = looking.await;
    }
}

impl Seen {
    fn look(&mut self, place: &Place) -> rusqlite::Result<i64> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => place.reader()?,
        };
        let version = connection.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        self.connection = Some(connection);
        Ok(version)
    }
}
