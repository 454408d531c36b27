//! New letters: those that come at the same time are stored by one statement.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tower_triage_escalate::store::{Letter, StoreError};
use tower_triage_escalate::{Escalation, Timestamp};

use crate::connection::{Connections, Lent};
use crate::error::within;
use crate::query::{CLOCK, INSERT};
use crate::row::{Rows, moment};

/// How many may wait for the writer; those beyond wait for a place.
const WAITING: usize = 1024;
/// How many letters are stored by one statement, and how long they may be all together; a longer
/// one goes by itself.
const BATCH: usize = 256;
const BYTES: usize = 8 << 20;

/// An escalation to be stored.
pub(crate) struct Job {
    pub(crate) escalation: Escalation,
    /// When, if it is not the server that says so.
    pub(crate) at: Option<Timestamp>,
    pub(crate) done: oneshot::Sender<Result<Inserted, StoreError>>,
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum Inserted {
    New,
    /// There is a letter of this id.
    Known(Box<Escalation>),
}

/// Starts the writer: a task, because many callers share what it does, and each of them may be
/// dropped. It ends with the last sender.
pub(crate) fn start(connections: Arc<Connections>, limit: Duration) -> mpsc::Sender<Job> {
    let (jobs, mut inbox) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let mut batch = Vec::new();
        while inbox.recv_many(&mut batch, BATCH).await > 0 {
            // Nobody waits any more for those: they are not promised to be stored.
            batch.retain(|job: &Job| !job.done.is_closed());
            store(&connections, limit, &mut batch).await;
        }
    });
    jobs
}

/// Stores the batch and answers it.
async fn store(connections: &Connections, limit: Duration, batch: &mut Vec<Job>) {
    let begun = within(limit, async {
        let mut client = connections.lend().await?;
        let rows = client.query(&format!("SELECT {CLOCK}"), &[]).await?;
        let now = rows.first().map_or(0, |row| row.get(0));
        Ok((client, moment(now)))
    });
    let (mut client, now) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return answer(batch, |_| Err(error.clone())),
    };
    let (mut rows, mut jobs) = (Rows::default(), Vec::new());
    for job in batch.drain(..) {
        let letter = Letter::new(job.escalation.clone(), job.at.unwrap_or(now));
        match rows.add(&letter, 1) {
            Ok(()) => jobs.push(job),
            Err(error) => answer(&mut vec![job], |_| Err(error.clone())),
        }
        if rows.bytes() > BYTES {
            insert(&mut client, limit, &std::mem::take(&mut rows), &mut jobs).await;
        }
    }
    if !jobs.is_empty() {
        insert(&mut client, limit, &rows, &mut jobs).await;
    }
}

async fn insert(client: &mut Lent, limit: Duration, rows: &Rows, jobs: &mut Vec<Job>) {
    match within(limit, client.query(&INSERT, &rows.params())).await {
        Ok(new) => {
            let mut new: HashSet<String> = new.iter().map(|row| row.get(0)).collect();
            answer(jobs, |escalation| {
                // Of two with one id in a batch the first is the letter.
                Ok(match new.remove(&escalation.id.to_string()) {
                    true => Inserted::New,
                    false => Inserted::Known(Box::new(escalation)),
                })
            });
        }
        Err(error) => answer(jobs, |_| Err(error.clone())),
    }
}

fn answer(jobs: &mut Vec<Job>, mut of: impl FnMut(Escalation) -> Result<Inserted, StoreError>) {
    for Job { escalation, done, .. } in jobs.drain(..) {
        // Whoever asked may have gone; the letter is there all the same.
        _ = done.send(of(escalation));
    }
}
