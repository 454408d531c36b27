//! The service that runs units of work.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::join;
use tokio_postgres::Transaction;
use tower_service::Service;
use tower_triage_core::AnyError;

use crate::error::{Stage, UnitError, keeps_session};
use crate::future::ResponseFuture;
use crate::options::TransactionOptions;
use crate::source::{ConnectionSource, InUse};
use crate::unit::{Unit, Work};

/// Runs each [`Unit`] in a transaction of its own: `BEGIN`, the work, `COMMIT`; once. Put a retry
/// layer around it, and the unit is repeated as a whole, on a new connection if the old one is
/// gone.
///
/// An error of the work rolls back before it is returned, so that the next attempt does not wait
/// for the locks of the last one. Every error is a [`UnitError`] in an [`AnyError`].
///
/// A work that swallows an error of a statement and returns `Ok` cannot be committed: the server
/// has aborted the transaction, and would answer the `COMMIT` with a roll back that looks like
/// success. Here it is an error, 25P02. (A statement that may fail belongs into a savepoint.)
///
/// It is always ready: whether there is a connection shows in the call. Clones share their source.
///
/// # Cancel safety
/// A call that is dropped before it sent `COMMIT` does nothing; its connection is not used again.
/// After that nobody knows.
pub struct Transactions<C> {
    source: Arc<C>,
    options: TransactionOptions,
}

impl<C> Transactions<C> {
    /// Transactions on connections of `source`.
    pub fn new(source: C) -> Self {
        Self::shared(Arc::new(source))
    }

    /// Transactions on connections of a source that others use too.
    pub const fn shared(source: Arc<C>) -> Self {
        Self { source, options: TransactionOptions::new() }
    }

    /// How transactions begin, if their unit does not say. Default: as the server's defaults are.
    #[must_use]
    pub const fn options(mut self, options: TransactionOptions) -> Self {
        self.options = options;
        self
    }
}

impl<C, W> Service<Unit<W>> for Transactions<C>
where
    C: ConnectionSource + 'static,
    W: Work + 'static,
{
    type Response = W::Output;
    type Error = AnyError;
    type Future = ResponseFuture<W::Output>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, unit: Unit<W>) -> Self::Future {
        let source = Arc::clone(&self.source);
        let options = unit.options.or(self.options);
        ResponseFuture::new(async move { run(&*source, options, &unit.work).await })
    }
}

async fn run<C, W>(
    source: &C,
    options: TransactionOptions,
    work: &W,
) -> Result<W::Output, UnitError>
where
    C: ConnectionSource,
    W: Work,
{
    let connection = source.take().await.map_err(UnitError::at(Stage::Connect))?;
    let mut connection = InUse::new(source, connection);
    let begin = options.build(connection.client());
    let mut transaction = begin.start().await.map_err(UnitError::at(Stage::Begin))?;

    match work.run(&mut transaction).await {
        Ok(output) => {
            let committed = commit(transaction).await;
            if committed.as_ref().map_or_else(|(_, error)| keeps_session(error), |()| true) {
                connection.give_back();
            }
            committed.map_err(|(stage, error)| UnitError::new(stage, error))?;
            Ok(output)
        }
        Err(error) => {
            if transaction.rollback().await.is_ok() {
                connection.give_back();
            }
            Err(UnitError::of_work(error))
        }
    }
}

/// Commits, in one round trip, and says whether it really did.
///
/// A `COMMIT` of a transaction that the server has aborted is answered `ROLLBACK`, without an error,
/// and tokio-postgres does not show the difference. So an empty-handed statement goes ahead of it,
/// which fails in an aborted transaction. If it fails, the `COMMIT` behind it commits nothing.
async fn commit(transaction: Transaction<'_>) -> Result<(), (Stage, tokio_postgres::Error)> {
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

impl<C> Clone for Transactions<C> {
    fn clone(&self) -> Self {
        Self { source: Arc::clone(&self.source), options: self.options }
    }
}

impl<C: fmt::Debug> fmt::Debug for Transactions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions")
            .field("source", &self.source)
            .field("options", &self.options)
            .finish()
    }
}
