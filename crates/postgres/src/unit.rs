//! The unit of work: a whole transaction as a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_postgres::{IsolationLevel, Transaction};
use tower_triage_core::{AnyError, Label};

use crate::about::About;
use crate::options::TransactionOptions;

/// What a transaction does between `BEGIN` and `COMMIT`.
///
/// It may run several times, each time in a new transaction, so everything it does must be inside
/// that transaction: what it does elsewhere (a mail, another database, a counter in memory) is done
/// again. It leaves `BEGIN`, `COMMIT` and `ROLLBACK` to the service; savepoints are its own
/// ([`Transaction::transaction`]).
///
/// A type with the data of the request is the natural form; its `run` may be an `async fn`:
///
/// ```
/// use tokio_postgres::Transaction;
/// use tower_triage_core::AnyError;
/// use tower_triage_postgres::{Unit, Work};
///
/// #[derive(Clone)]
/// struct Transfer { from: i32, to: i32, cents: i64 }
///
/// impl Work for Transfer {
///     type Output = ();
///
///     async fn run(&self, tx: &mut Transaction<'_>) -> Result<(), AnyError> {
///         let take = "UPDATE account SET cents = cents - $2 WHERE id = $1";
///         let give = "UPDATE account SET cents = cents + $2 WHERE id = $1";
///         tx.execute(take, &[&self.from, &self.cents]).await?;
///         tx.execute(give, &[&self.to, &self.cents]).await?;
///         Ok(())
///     }
/// }
///
/// let request = Unit::new("transfer", Transfer { from: 1, to: 2, cents: 500 });
/// # let _ = request;
/// ```
///
/// For a closure see [`work_fn`].
pub trait Work: Send + Sync {
    /// What the transaction gives.
    type Output: Send;

    /// Does the work in `transaction`. `Ok` commits, `Err` rolls back.
    fn run(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> impl Future<Output = Result<Self::Output, AnyError>> + Send;
}

impl<W: Work> Work for Arc<W> {
    type Output = W::Output;

    fn run(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> impl Future<Output = Result<W::Output, AnyError>> + Send {
        (**self).run(transaction)
    }
}

/// What a closure for [`work_fn`] returns: `Box::pin(async move { .. })`.
pub type BoxWork<'a, T> = Pin<Box<dyn Future<Output = Result<T, AnyError>> + Send + 'a>>;

/// Work made from a closure; see [`work_fn`].
#[derive(Clone, Copy)]
pub struct WorkFn<F> {
    f: F,
}

/// Work from a closure, which is called once per attempt:
///
/// ```
/// use tower_triage_postgres::{Unit, work_fn};
///
/// let id = 17;
/// let request = Unit::new("order total", work_fn(move |tx| {
///     Box::pin(async move {
///         let row = tx.query_one("SELECT total FROM orders WHERE id = $1", &[&id]).await?;
///         Ok(row.try_get::<_, i64>(0)?)
///     })
/// }));
/// # let _ = request;
/// ```
pub const fn work_fn<T, F>(f: F) -> WorkFn<F>
where
    F: for<'a> Fn(&'a mut Transaction<'_>) -> BoxWork<'a, T> + Send + Sync,
{
    WorkFn { f }
}

impl<T, F> Work for WorkFn<F>
where
    T: Send,
    F: for<'a> Fn(&'a mut Transaction<'_>) -> BoxWork<'a, T> + Send + Sync,
{
    type Output = T;

    fn run(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> impl Future<Output = Result<T, AnyError>> + Send {
        (self.f)(transaction)
    }
}

impl<F> fmt::Debug for WorkFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkFn({})", std::any::type_name::<F>())
    }
}

/// A request to [`Transactions`](crate::Transactions): some [`Work`], and what the layers should
/// know of it. `Clone` if the work is, and then a retry layer can keep it.
#[derive(Clone, Copy)]
#[must_use]
pub struct Unit<W> {
    pub(crate) about: About,
    pub(crate) options: TransactionOptions,
    pub(crate) work: W,
}

impl<W> Unit<W> {
    /// The `work` of one transaction. The name comes from a small set, since it becomes a metric
    /// label.
    pub fn new(operation: &str, work: W) -> Self {
        Self { about: About::new(operation), options: TransactionOptions::new(), work }
    }

    /// The work.
    #[must_use]
    pub const fn work(&self) -> &W {
        &self.work
    }

    /// The work alone.
    #[must_use]
    pub fn into_work(self) -> W {
        self.work
    }

    /// Twice is as good as once: it may run again even when nobody knows whether it was committed.
    /// Default: no, unless it is read only.
    pub const fn idempotent(mut self, idempotent: bool) -> Self {
        self.about.idempotent = idempotent;
        self
    }

    /// The isolation level. Default: the service's.
    pub const fn isolation(mut self, level: IsolationLevel) -> Self {
        self.options = self.options.isolation(level);
        self
    }

    /// Read only, and therefore [idempotent](Self::idempotent), or read write. Default: the
    /// service's (which the layers do not see).
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.options = self.options.read_only(read_only);
        self
    }

    /// Deferrable or not. Default: the service's.
    pub const fn deferrable(mut self, deferrable: bool) -> Self {
        self.options = self.options.deferrable(deferrable);
        self
    }

    /// The moment after which nobody waits: no attempt begins after it, and no wait outlasts it. It
    /// does not stop a statement that runs (a time limit of the server does). Default: none.
    pub const fn deadline(mut self, deadline: Instant) -> Self {
        self.about.deadline = Some(deadline);
        self
    }

    /// The request's own id, for incidents and escalations. Default: none.
    pub fn request_id(mut self, id: &str) -> Self {
        self.about.request_id = Some(Label::new(id));
        self
    }
}

impl<W> fmt::Debug for Unit<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit")
            .field("operation", &self.about.operation)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
