//! The service that runs single statements.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tower_service::Service;
use tower_triage_core::AnyError;

use crate::error::{Stage, UnitError, keeps_session};
use crate::future::ResponseFuture;
use crate::source::{ConnectionSource, InUse};
use crate::statement::Statement;

/// Runs each [`Statement`] by itself, outside a transaction of ours: it commits itself. The answer
/// is its rows (`RETURNING` shows what was changed).
///
/// Preparing comes first and does nothing, so a connection that breaks there is safe to repeat; one
/// that breaks later leaves the outcome open, unless the statement is idempotent.
///
/// It is always ready: whether there is a connection shows in the call. Clones share their source.
///
/// # Cancel safety
/// A call that is dropped may have done its work or not; its connection is not used again.
pub struct Statements<C> {
    source: Arc<C>,
}

impl<C> Statements<C> {
    /// Statements on connections of `source`.
    pub fn new(source: C) -> Self {
        Self::shared(Arc::new(source))
    }

    /// Statements on connections of a source that others use too.
    pub const fn shared(source: Arc<C>) -> Self {
        Self { source }
    }
}

impl<C: ConnectionSource + 'static> Service<Statement> for Statements<C> {
    type Response = Vec<Row>;
    type Error = AnyError;
    type Future = ResponseFuture<Vec<Row>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, statement: Statement) -> Self::Future {
        let source = Arc::clone(&self.source);
        ResponseFuture::new(async move { run(&*source, &statement).await })
    }
}

async fn run<C: ConnectionSource>(
    source: &C,
    statement: &Statement,
) -> Result<Vec<Row>, UnitError> {
    let connection = source.take().await.map_err(UnitError::at(Stage::Connect))?;
    let mut connection = InUse::new(source, connection);
    let answer = query(connection.client(), statement).await;
    if answer.as_ref().map_or_else(|(_, error)| keeps_session(error), |_| true) {
        connection.give_back();
    }
    answer.map_err(|(stage, error)| UnitError::new(stage, error))
}

async fn query(
    client: &tokio_postgres::Client,
    statement: &Statement,
) -> Result<Vec<Row>, (Stage, tokio_postgres::Error)> {
    let prepared = client.prepare(&statement.sql).await.map_err(|error| (Stage::Begin, error))?;
    let values: Vec<&(dyn ToSql + Sync)> =
        statement.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
    client.query(&prepared, &values).await.map_err(|error| (Stage::Statement, error))
}

impl<C> Clone for Statements<C> {
    fn clone(&self) -> Self {
        Self { source: Arc::clone(&self.source) }
    }
}

impl<C: fmt::Debug> fmt::Debug for Statements<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statements").field("source", &self.source).finish()
    }
}
