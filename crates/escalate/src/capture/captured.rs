//! A request, kept so that it can be driven again.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capture::CaptureError;

/// A request as data: what a codec made of it, so that it can be driven again.
///
/// It goes to stores and to the spill file only, never to a log, a channel or a webhook. `Debug`
/// shows its codec and size.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Captured {
    /// The name of the codec that can read it.
    pub codec: String,
    /// The request.
    pub data: Value,
    /// What the redactor took out and a codec cannot put back: the request cannot be driven again
    /// as it was. Paths in `data`, with dots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
}

impl Captured {
    /// A request as `codec` wrote it.
    #[must_use]
    pub fn new(codec: impl Into<String>, data: Value) -> Self {
        Self { codec: codec.into(), data, redacted: Vec::new() }
    }

    /// Was it written by `codec`, with nothing taken out that must be sent again? For codecs.
    ///
    /// # Errors
    /// It was not.
    pub fn is_whole(&self, codec: &str) -> Result<(), CaptureError> {
        if self.codec != codec {
            let (asked, wrote) = (codec.to_owned(), self.codec.clone());
            return Err(CaptureError::OtherCodec { asked, wrote });
        }
        if !self.redacted.is_empty() {
            return Err(CaptureError::Redacted(self.redacted.clone()));
        }
        Ok(())
    }
}

/// Without the request.
impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured")
            .field("codec", &self.codec)
            .field("redacted", &self.redacted.len())
            .finish_non_exhaustive()
    }
}
