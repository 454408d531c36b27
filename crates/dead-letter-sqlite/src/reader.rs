//! Connections that read, each in a blocking thread while it does.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tower_triage_escalate::store::StoreError;

use crate::connect::Place;
use crate::error::failed;

/// How many reads go on at the same time; those beyond wait. A long one, all the counts say, must
/// not keep a waiting call from its answer.
const READERS: usize = 4;

#[derive(Debug)]
pub(crate) struct Readers {
    place: Arc<Place>,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        Self { place, permits: Arc::new(Semaphore::new(READERS)), idle: Mutex::default() }
    }

    /// What `read` gives. Needs a tokio runtime.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(StoreError::unavailable)?;
        let this = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            this.place.check()?;
            let idle = this.idle().pop();
            let connection = match idle {
                Some(connection) => connection,
                None => this.place.reader().map_err(failed)?,
            };
            let result = read(&connection);
            // One that failed may fail again; the next read opens a new one.
            if !matches!(result, Err(StoreError::Unavailable(_))) {
                this.idle().push(connection);
            }
            result
        });
        reading.await.map_err(StoreError::unavailable)?
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // Nothing foreign runs under the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
