//! What the driver says, fit to be shown.

use std::error::Error;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use deadpool_postgres::PoolError;
use tower_triage_escalate::store::StoreError;

/// The driver's error as one line. Without what the server calls detail: it quotes rows, and a row
/// may hold what must not be printed.
pub(crate) fn failed(error: tokio_postgres::Error) -> StoreError {
    let text = match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => chain(&error),
    };
    StoreError::unavailable(text)
}

pub(crate) fn no_connection(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => failed(error),
        error => StoreError::unavailable(chain(&error)),
    }
}

pub(crate) fn ended() -> StoreError {
    StoreError::unavailable("the runtime that the store was made in has ended")
}

fn chain(error: &dyn Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        // Writing to a string does not fail.
        _ = write!(text, ": {cause}");
        next = cause.source();
    }
    text
}

/// A call to the server, not waited for without end.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        Err(StoreError::unavailable(format!("no answer from PostgreSQL within {limit:?}")))
    })
}
