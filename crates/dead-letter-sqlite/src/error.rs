//! What can go wrong, in words for whoever runs the service.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use rusqlite::ErrorCode;
use tower_triage_core::BoxError;
use tower_triage_escalate::store::StoreError;

/// Why a store was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, and it was not to be made.
    Missing(PathBuf),
    /// The file is something else. It was left as it is.
    NotAStore(PathBuf),
    /// A later version of this crate wrote it.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The last schema that this version knows.
        known: u32,
    },
    /// Another process held the file all the time.
    Locked(PathBuf),
    /// Anything else: no permission, disk full, a broken file.
    Failed(PathBuf, BoxError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "there is no file {}", path.display()),
            Self::NotAStore(path) => {
                write!(f, "{} is not a store of dead letters", path.display())
            }
            Self::Newer { path, found, known } => write!(
                f,
                "{} has schema {found}, and this version knows those up to {known}: use a newer one",
                path.display()
            ),
            Self::Locked(path) => write!(f, "another process keeps {} locked", path.display()),
            Self::Failed(path, error) => write!(f, "cannot open {}: {error}", path.display()),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(_, error) => Some(&**error),
            _ => None,
        }
    }
}

impl OpenError {
    pub(crate) fn of(path: PathBuf, error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotAStore(path),
            _ if is_busy(&error) => Self::Locked(path),
            _ => Self::Failed(path, error.into()),
        }
    }
}

/// Has another connection what this one wants?
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// What SQLite's errors are for a store's caller.
pub(crate) fn failed(error: rusqlite::Error) -> StoreError {
    use rusqlite::Error as Sqlite;

    match &error {
        _ if is_busy(&error) => {
            StoreError::unavailable("another process kept the file locked for too long")
        }
        // A value that is not what its column holds.
        Sqlite::FromSqlConversionFailure(..)
        | Sqlite::IntegralValueOutOfRange(..)
        | Sqlite::InvalidColumnType(..) => StoreError::Corrupt(error.to_string()),
        _ => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Corrupt(error.to_string())
            }
            _ => StoreError::unavailable(error),
        },
    }
}
