//! The service that runs units of work.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower_service::Service;
use tower_triage_core::AnyError;

use crate::commit::{TransactionId, commit};
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
    settings: Settings,
}

#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    options: TransactionOptions,
    look_up: Option<Duration>,
}

impl<C> Transactions<C> {
    /// Transactions on connections of `source`.
    pub fn new(source: C) -> Self {
        Self::shared(Arc::new(source))
    }

    /// Transactions on connections of a source that others use too.
    pub fn shared(source: Arc<C>) -> Self {
        Self { source, settings: Settings::default() }
    }

    /// How transactions begin, if their unit does not say. Default: as the server's defaults are.
    #[must_use]
    pub const fn options(mut self, options: TransactionOptions) -> Self {
        self.settings.options = options;
        self
    }

    /// Asks the server what became of a transaction whose commit was lost (`pg_xact_status`), for
    /// at most `limit`, and not past the unit's deadline. If it was committed the call succeeds; if
    /// not, nothing was done, and a retry layer may repeat it; only if the server cannot tell does
    /// the outcome stay unknown. Default: it does not ask.
    ///
    /// Costs one round trip for each transaction, which learns its number before it commits.
    /// Needs PostgreSQL 13, and connections that lead to the same server: a replica that was
    /// promoted in between may not have what its primary had committed. Read only units are not
    /// asked for, since they may run again anyway.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tower_triage_postgres::{Reconnect, Transactions};
    ///
    /// # fn f(source: Reconnect) {
    /// let transactions = Transactions::new(source).look_up_commits(Duration::from_secs(5));
    /// # let _ = transactions;
    /// # }
    /// ```
    #[must_use]
    pub const fn look_up_commits(mut self, limit: Duration) -> Self {
        self.settings.look_up = Some(limit);
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
        let settings = self.settings;
        ResponseFuture::new(async move { run(&*source, settings, &unit).await })
    }
}

async fn run<C, W>(source: &C, settings: Settings, unit: &Unit<W>) -> Result<W::Output, UnitError>
where
    C: ConnectionSource,
    W: Work,
{
    let options = unit.options.or(settings.options);
    let look_up = settings.look_up.filter(|_| !options.is_read_only());

    let connection = source.take().await.map_err(UnitError::at(Stage::Connect))?;
    let mut connection = InUse::new(source, connection);
    let begin = options.build(connection.client());
    let mut transaction = begin.start().await.map_err(UnitError::at(Stage::Begin))?;

    let worked = async {
        let output = unit.work.run(&mut transaction).await?;
        let id = match look_up {
            Some(_) => TransactionId::of(&transaction).await?,
            None => TransactionId::UNKNOWN,
        };
        Ok((output, id))
    };
    let (output, id) = match worked.await {
        Ok(done) => done,
        Err(error) => {
            if transaction.rollback().await.is_ok() {
                connection.give_back();
            }
            return Err(UnitError::of_work(error));
        }
    };

    let (stage, error) = match commit(transaction).await {
        Ok(()) => {
            connection.give_back();
            return Ok(output);
        }
        Err((stage, error)) if keeps_session(&error) => {
            connection.give_back();
            return Err(UnitError::new(stage, error));
        }
        Err(lost) => lost,
    };
    // A source may have no other connection to ask with.
    drop(connection);
    let end = look_up.map(|limit| Instant::now() + limit);
    match end.map(|end| unit.about.deadline.map_or(end, |deadline| deadline.min(end))) {
        Some(end) if stage == Stage::Commit => match id.was_committed(source, end).await {
            Some(true) => Ok(output),
            Some(false) => Err(UnitError::new(Stage::Work, error)),
            None => Err(UnitError::new(stage, error)),
        },
        _ => Err(UnitError::new(stage, error)),
    }
}

impl<C> Clone for Transactions<C> {
    fn clone(&self) -> Self {
        Self { source: Arc::clone(&self.source), settings: self.settings }
    }
}

impl<C: fmt::Debug> fmt::Debug for Transactions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions")
            .field("source", &self.source)
            .field("settings", &self.settings)
            .finish()
    }
}
