//! Why a command ends without success.

use std::fmt;
use std::io;

use tower_triage_escalate::store::StoreError;

/// Why a command ends without success; each with its exit code.
#[derive(Debug)]
pub(crate) enum Exit {
    /// Some of several letters failed.
    Some { failed: u64, of: u64 },
    /// The command cannot be meant so.
    Usage(String),
    /// The store is missing, out of reach, locked or broken.
    Store(String),
    /// There is no such letter, or more than one.
    NoLetter(String),
    /// The letter is not in a state for it: answered by somebody else, leased, settled.
    Conflict(String),
    /// Nobody reads the output any more.
    Closed,
}

impl Exit {
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Some { .. } => 1,
            Self::Usage(_) => 2,
            Self::Store(_) => 3,
            Self::NoLetter(_) => 4,
            Self::Conflict(_) => 5,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Some { failed, of } => write!(f, "{failed} of {of} letters failed"),
            Self::Usage(text) | Self::Store(text) | Self::NoLetter(text) | Self::Conflict(text) => {
                f.write_str(text)
            }
            Self::Closed => Ok(()),
        }
    }
}

impl From<StoreError> for Exit {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::NotFound(_) => Self::NoLetter(error.to_string()),
            StoreError::Refused(..) => Self::Conflict(error.to_string()),
            _ => Self::Store(error.to_string()),
        }
    }
}

/// Only standard output is written to.
impl From<io::Error> for Exit {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Store(format!("cannot write: {error}")),
        }
    }
}
