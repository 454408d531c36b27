//! The end of a transaction: whether it was really committed.

use std::time::Duration;

use futures_util::future::join;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::Transaction;

use crate::error::{Stage, keeps_session};
use crate::source::{ConnectionSource, InUse};

/// Commits, in one round trip, and says whether it really did.
///
/// A `COMMIT` of a transaction that the server has aborted is answered `ROLLBACK`, without an error,
/// and tokio-postgres does not show the difference. So an empty-handed statement goes ahead of it,
/// which fails in an aborted transaction. If it fails, the `COMMIT` behind it commits nothing.
pub(crate) async fn commit(
    transaction: Transaction<'_>,
) -> Result<(), (Stage, tokio_postgres::Error)> {
    let answers =
        join(transaction.batch_execute("SELECT 1"), transaction.batch_execute("COMMIT")).await;
    // Over one way or the other; dropped, it would send a `ROLLBACK` that the server complains of.
    std::mem::forget(transaction);
    match answers {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), _) if error.code().is_some() => Err((Stage::Work, error)),
        (Err(error), _) | (Ok(()), Err(error)) => Err((Stage::Commit, error)),
    }
}

/// The number of a transaction, by which its fate can be asked for on another connection. A
/// transaction that has changed nothing has none.
pub(crate) struct TransactionId(Option<String>);

impl TransactionId {
    /// One that cannot be asked for.
    pub(crate) const UNKNOWN: Self = Self(None);

    pub(crate) async fn of(transaction: &Transaction<'_>) -> Result<Self, tokio_postgres::Error> {
        let ask = "SELECT pg_current_xact_id_if_assigned()::text";
        Ok(Self(transaction.query_one(ask, &[]).await?.try_get(0)?))
    }

    /// What became of it: committed, or not? `None` if that cannot be found out until `end`.
    pub(crate) async fn was_committed<C: ConnectionSource>(
        &self,
        source: &C,
        end: Instant,
    ) -> Option<bool> {
        const LONGEST_PAUSE: Duration = Duration::from_millis(500);
        let id = self.0.as_deref()?;
        let mut pause = Duration::from_millis(5);
        let asking = async {
            loop {
                match status(source, id).await {
                    Status::Committed => return Some(true),
                    Status::Aborted => return Some(false),
                    Status::Unknown => return None,
                    Status::NotYet => {}
                }
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        timeout_at(end, asking).await.ok().flatten()
    }
}

enum Status {
    Committed,
    Aborted,
    /// Still running, or the server cannot be asked just now.
    NotYet,
    /// Too old, or of another server.
    Unknown,
}

async fn status<C: ConnectionSource>(source: &C, id: &str) -> Status {
    let Ok(connection) = source.take().await else { return Status::NotYet };
    let mut connection = InUse::new(source, connection);
    let ask = "SELECT pg_xact_status($1::text::xid8)";
    let told = match connection.client().query_one(ask, &[&id]).await {
        Ok(row) => row.try_get::<_, Option<String>>(0),
        Err(error) => Err(error),
    };
    if told.as_ref().map_or_else(keeps_session, |_| true) {
        connection.give_back();
    }
    match told.as_ref().map(Option::as_deref) {
        Ok(Some("committed")) => Status::Committed,
        Ok(Some("aborted")) => Status::Aborted,
        Ok(Some(_)) => Status::NotYet,
        Ok(None) => Status::Unknown,
        Err(error) if keeps_session(error) => Status::Unknown,
        Err(_) => Status::NotYet,
    }
}
