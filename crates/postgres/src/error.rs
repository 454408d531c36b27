//! Which part of a unit of work failed, with what.

use std::error::Error;
use std::fmt;

use tokio_postgres::error::Severity;
use tower_triage_core::{AnyError, BoxError, Failure};

use crate::judge;

/// How far a unit of work had come. It decides what became of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Getting a connection: nothing was sent.
    Connect,
    /// `BEGIN`, or preparing a statement: nothing was done.
    Begin,
    /// Inside the open transaction: rolled back, whatever happened.
    Work,
    /// `COMMIT` was sent: if the connection is lost, nobody knows.
    Commit,
    /// A statement outside a transaction, which commits itself: like `Commit`.
    Statement,
}

impl Stage {
    /// Would a lost connection leave it open whether the work is done?
    #[must_use]
    pub const fn commit_in_flight(self) -> bool {
        matches!(self, Self::Commit | Self::Statement)
    }
}

/// A unit of work failed: the error as it came, and how far the work had come. The services of this
/// crate return it in an [`AnyError`]; the error itself is its source:
///
/// ```
/// use tower_triage_core::AnyError;
/// use tower_triage_postgres::UnitError;
///
/// fn report(error: &AnyError) {
///     if error.find::<UnitError>().is_some_and(UnitError::outcome_unknown) {
///         println!("look it up before you do it again");
///     }
///     if let Some(server) = error.find::<tokio_postgres::error::DbError>() {
///         println!("{}: {}", server.code().code(), server.message());
///     }
/// }
/// ```
#[derive(Debug)]
pub struct UnitError {
    stage: Stage,
    source: BoxError,
}

impl UnitError {
    /// `source` ended the work at `stage`.
    pub fn new(stage: Stage, source: impl Into<BoxError>) -> Self {
        Self { stage, source: source.into() }
    }

    /// How far the work had come.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Is it open whether the work is done? By the default rules: the connection was lost while
    /// the commit was in flight, or the server said so (40003, 08007).
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.failure().disposition.may_be_processed()
    }

    /// What the default rules say of it.
    fn failure(&self) -> Failure {
        judge::failure(self, &judge::Changes::default())
    }

    pub(crate) fn at<E: Into<BoxError>>(stage: Stage) -> impl FnOnce(E) -> Self {
        move |error| Self::new(stage, error)
    }

    /// What the work itself returned.
    pub(crate) fn of_work(error: AnyError) -> Self {
        Self::new(Stage::Work, error)
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stage {
            Stage::Connect => "no connection to the database",
            Stage::Begin => "the transaction did not begin",
            Stage::Work => "the transaction was rolled back",
            Stage::Commit => "the commit failed",
            Stage::Statement => "the statement failed",
        })
    }
}

impl Error for UnitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// The error of a statement that our own side cancelled, with tokio-postgres' `CancelToken` for
/// instance. Wrap it, and 57014 is `Cancelled`, which nobody repeats; unwrapped it is taken for the
/// server's `statement_timeout`, since both come with the same code.
///
/// ```
/// use tower_triage_core::AnyError;
/// use tower_triage_postgres::CancelledByUs;
///
/// # async fn f(tx: &tokio_postgres::Transaction<'_>) -> Result<(), AnyError> {
/// tx.batch_execute("SELECT pg_sleep(60)").await.map_err(CancelledByUs)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct CancelledByUs(pub tokio_postgres::Error);

impl fmt::Display for CancelledByUs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cancelled by the caller")
    }
}

impl Error for CancelledByUs {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Did the server answer with an ERROR, which ends the statement or the commit and keeps the
/// session? After anything else the connection is of no use.
pub(crate) fn keeps_session(error: &tokio_postgres::Error) -> bool {
    let severity = error.as_db_error().and_then(|answer| answer.parsed_severity());
    severity == Some(Severity::Error)
}
