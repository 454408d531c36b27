//! One thread that writes: what came in while it wrote is its next transaction.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tower_triage_escalate::store::StoreError;

use crate::connect::Place;
use crate::error::{failed, is_busy};

/// How many changes may wait for the writer; those beyond wait for a place.
const WAITING: usize = 1_024;
/// How many changes one transaction makes at most.
const BATCH: usize = 256;

/// The way to the thread. It ends when the last of these is gone, and all that was queued is done.
#[derive(Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

/// A change, and whoever waits for what comes of it.
trait Job: Send {
    /// Makes the change in the present transaction; gives the error that it keeps for its answer.
    fn run(&mut self, tx: &Connection) -> Option<StoreError>;
    /// Tells of it once it is on the disk, or is not.
    fn answer(self: Box<Self>, committed: &Result<(), StoreError>);
}

struct Task<T, F> {
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &Connection) -> Option<StoreError> {
        self.result = self.work.take().map(|work| work(tx));
        self.result.as_ref()?.as_ref().err().cloned()
    }

    fn answer(self: Box<Self>, committed: &Result<(), StoreError>) {
        // A change that failed by itself has its own reason.
        let result = match (self.result, committed) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.clone()),
            (Some(Ok(result)), Ok(())) => Ok(result),
            (None, Ok(())) => Err(ended()),
        };
        // Whoever asked may have gone; it is done all the same.
        let _ = self.reply.send(result);
    }
}

impl Writer {
    /// Starts the thread; `changed` hears of each commit.
    pub(crate) fn start(
        place: Arc<Place>,
        connection: Connection,
        changed: Arc<Notify>,
    ) -> io::Result<Self> {
        let (jobs, mut inbox) = mpsc::channel(WAITING);
        let mut thread = Thread { place, connection, batch: Vec::new() };
        std::thread::Builder::new().name("tower-triage-sqlite".to_owned()).spawn(move || {
            while let Some(first) = inbox.blocking_recv() {
                let committed = thread.commit(first, &mut inbox);
                if committed.is_ok() {
                    changed.notify_waiters();
                }
                thread.batch.drain(..).for_each(|job| job.answer(&committed));
            }
        })?;
        Ok(Self { jobs })
    }

    /// What `work` gives, once it is on the disk. Dropped before, the work is done or not done.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let task = Task { work: Some(work), result: None, reply };
        self.jobs.send(Box::new(task)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

struct Thread {
    place: Arc<Place>,
    connection: Connection,
    /// The jobs of the present transaction.
    batch: Vec<Box<dyn Job>>,
}

impl Thread {
    /// Makes the changes of `first` and of what waits behind it, as one transaction.
    fn commit(
        &mut self,
        first: Box<dyn Job>,
        inbox: &mut mpsc::Receiver<Box<dyn Job>>,
    ) -> Result<(), StoreError> {
        self.batch.push(first);
        self.place.check()?;
        let tx = begin(&self.connection, self.place.options.busy_timeout)?;
        let mut done = 0;
        while let Some(job) = self.batch.get_mut(done) {
            let error = job.run(&tx);
            done += 1;
            if tx.is_autocommit() {
                // The disk is full, say, and SQLite has rolled all of it back.
                return Err(error.unwrap_or_else(ended));
            }
            if done < BATCH {
                self.batch.extend(inbox.try_recv());
            }
        }
        tx.commit().map_err(failed)
    }
}

/// Begins to write, at the latest so long after another process began to.
///
/// SQLite's own waits grow from look to look, up to 100 ms. Somebody who writes one transaction after
/// the other leaves a gap of far less, and would hardly ever be met.
fn begin(connection: &Connection, longest: Duration) -> Result<Transaction<'_>, StoreError> {
    const LOOK: Duration = Duration::from_millis(1);
    let begun = Instant::now();
    loop {
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Err(error) if is_busy(&error) && begun.elapsed() < longest => {
                std::thread::park_timeout(LOOK);
            }
            begun => return begun.map_err(failed),
        }
    }
}

fn ended() -> StoreError {
    StoreError::unavailable("the store's writer has ended")
}
