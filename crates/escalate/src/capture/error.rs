//! Why a request could not be captured, or not be made again.

use std::error::Error;
use std::fmt;

use tower_triage_core::redact::Redactor;

/// Why a request could not be captured, or could not be made again from its data. Its text holds
/// nothing of the request but names of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// The data was written by another codec.
    OtherCodec {
        /// The codec that was asked.
        asked: String,
        /// The codec that wrote it.
        wrote: String,
    },
    /// Part of the request is missing in the data: it was gone, or too long.
    Incomplete(String),
    /// The redactor took out what must be sent again: these paths.
    Redacted(Vec<String>),
    /// The data would be longer than what may be stored, in bytes.
    TooLarge {
        /// The bound.
        limit: usize,
    },
    /// It cannot be written or read at all.
    Unreadable(String),
}

impl CaptureError {
    /// What serde says, without the values that it quotes.
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let mut quoted = false;
        let pieces = text.split('"').map(|piece| {
            quoted = !quoted;
            if quoted { piece } else { "\"..\"" }
        });
        Self::Unreadable(Redactor::new().text(&pieces.collect::<String>()).into_owned())
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCodec { asked, wrote } => {
                write!(f, "the request was captured by codec `{wrote}`, not by `{asked}`")
            }
            Self::Incomplete(what) => write!(f, "the request was not captured whole: {what}"),
            Self::Redacted(paths) => {
                write!(f, "the request is not what it was without {}", paths.join(", "))
            }
            Self::TooLarge { limit } => {
                write!(f, "the request is larger than the {limit} bytes that are captured")
            }
            Self::Unreadable(why) => write!(f, "the request cannot be read or written: {why}"),
        }
    }
}

impl Error for CaptureError {}
