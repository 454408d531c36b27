//! Requests that serde can write and read.

use std::fmt;
use std::io;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use tower_triage_core::redact::Redactor;

use crate::capture::{CaptureError, Captured, Codec, RedactJson};

/// The bound of a whole capture, in bytes of JSON.
pub(crate) const LIMIT: usize = 256 * 1024;

/// Captures requests that are `Serialize` and `DeserializeOwned`, as JSON.
///
/// | setting | default |
/// |---|---|
/// | [`name`](Self::name) | `json` |
/// | [`limit`](Self::limit) | 256 KiB |
/// | [`redactor`](Self::redactor) | [`Redactor::new`] |
///
/// Fields that the redactor takes out must be sent again, so such a request is stored without them
/// and cannot be driven again: [`CaptureError::Redacted`].
///
/// ```
/// use tower_triage_escalate::{CaptureError, Codec, JsonCodec};
///
/// let codec = JsonCodec::<(String, u32)>::new();
/// let captured = codec.encode(&("order".to_owned(), 7)).unwrap();
/// assert_eq!(codec.decode(&captured).unwrap(), ("order".to_owned(), 7));
///
/// let captured = codec.encode(&("Bearer s3cr3t".to_owned(), 7)).unwrap();
/// assert_eq!(captured.data, serde_json::json!(["Bearer [redacted]", 7]));
/// assert_eq!(codec.decode(&captured), Err(CaptureError::Redacted(vec!["0".to_owned()])));
/// ```
pub struct JsonCodec<Req> {
    name: String,
    limit: usize,
    redactor: Redactor,
    request: PhantomData<fn(&Req) -> Req>,
}

impl<Req> JsonCodec<Req> {
    /// With the defaults.
    #[must_use]
    pub fn new() -> Self {
        let (name, redactor) = ("json".to_owned(), Redactor::new());
        Self { name, limit: LIMIT, redactor, request: PhantomData }
    }

    /// What the data is called. Only a codec of the same name reads it: change it when an old
    /// request can no longer be read.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Longer requests are not captured; in bytes of JSON.
    #[must_use]
    pub const fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// What is taken out.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }
}

impl<Req: Serialize + DeserializeOwned> Codec<Req> for JsonCodec<Req> {
    fn encode(&self, request: &Req) -> Result<Captured, CaptureError> {
        // Counted first, so that a long one does not become a large value.
        let mut counter = Counter { left: self.limit, over: false };
        let counted = serde_json::to_writer(&mut counter, request);
        if counter.over {
            return Err(CaptureError::TooLarge { limit: self.limit });
        }
        let mut data = counted
            .and_then(|()| serde_json::to_value(request))
            .map_err(|error| CaptureError::json(&error))?;
        let redacted = self.redactor.json(&mut data);
        Ok(Captured { redacted, ..Captured::new(&*self.name, data) })
    }

    fn decode(&self, captured: &Captured) -> Result<Req, CaptureError> {
        captured.is_whole(&self.name)?;
        Req::deserialize(&captured.data).map_err(|error| CaptureError::json(&error))
    }
}

/// Counts what is written to it, up to a limit.
struct Counter {
    left: usize,
    over: bool,
}

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => {
                self.left = left;
                Ok(bytes.len())
            }
            None => {
                self.over = true;
                Err(io::ErrorKind::FileTooLarge.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<Req> Default for JsonCodec<Req> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Req> Clone for JsonCodec<Req> {
    fn clone(&self) -> Self {
        let Self { name, limit, redactor, request } = self;
        Self { name: name.clone(), limit: *limit, redactor: redactor.clone(), request: *request }
    }
}

impl<Req> fmt::Debug for JsonCodec<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonCodec")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
