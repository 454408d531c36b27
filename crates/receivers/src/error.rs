//! Why an escalation was not taken.

use std::fmt;

use http::StatusCode;
use tower_triage_core::ErrorClass;

/// Why an escalation was not taken. It holds no text of others: that may quote an address or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The answer says no.
    Refused(StatusCode),
    /// There was no answer.
    NoAnswer {
        /// What happened.
        class: ErrorClass,
        /// Why it has that class: one of a fixed set.
        reason: &'static str,
    },
    /// It cannot be written down for this receiver.
    Form,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the receiver answered {status}"),
            Self::NoAnswer { class, reason } => {
                write!(f, "no answer from the receiver: {class} ({reason})")
            }
            Self::Form => f.write_str("the escalation cannot be written down for the receiver"),
        }
    }
}

impl std::error::Error for SendError {}
