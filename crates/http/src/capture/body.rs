//! Which bodies can be captured.

use bytes::Bytes;
use http_body::Body;
use http_body_util::{Empty, Full};

use crate::replay_body::ReplayBody;

/// A body whose bytes are at hand when an attempt is over, and that can be made of them again.
///
/// | body | its bytes are at hand |
/// |---|---|
/// | `Bytes`, `String`, `Vec<u8>`, `Full<Bytes>`, `Empty<Bytes>`, `()` | always |
/// | [`ReplayBody`] | if an attempt has read it to its end, within its limit |
///
/// So a request that streams and could not even be sent (no connection) has no body to capture:
/// read it whole above the layer, if such requests have to be driven again.
#[diagnostic::on_unimplemented(
    message = "the bytes of a body of type `{Self}` are not at hand",
    note = "for a body that streams put `ReplayBodyLayer::new()` above the layer that captures"
)]
pub trait CaptureBody: Sized {
    /// The bytes.
    ///
    /// # Errors
    /// Why they are not at hand; from a small set.
    fn captured(&self) -> Result<Bytes, &'static str>;

    /// A body of these bytes.
    fn restored(bytes: Bytes) -> Self;
}

impl CaptureBody for () {
    fn captured(&self) -> Result<Bytes, &'static str> {
        Ok(Bytes::new())
    }

    fn restored(_bytes: Bytes) -> Self {}
}

impl CaptureBody for Bytes {
    fn captured(&self) -> Result<Bytes, &'static str> {
        Ok(self.clone())
    }

    fn restored(bytes: Bytes) -> Self {
        bytes
    }
}

impl CaptureBody for Vec<u8> {
    fn captured(&self) -> Result<Bytes, &'static str> {
        Ok(Bytes::copy_from_slice(self))
    }

    fn restored(bytes: Bytes) -> Self {
        bytes.into()
    }
}

/// What is not UTF-8 did not come from a text.
impl CaptureBody for String {
    fn captured(&self) -> Result<Bytes, &'static str> {
        Ok(Bytes::copy_from_slice(self.as_bytes()))
    }

    fn restored(bytes: Bytes) -> Self {
        Self::from_utf8_lossy(&bytes).into_owned()
    }
}

impl CaptureBody for Full<Bytes> {
    fn captured(&self) -> Result<Bytes, &'static str> {
        // A clone is cheap, and begins at the beginning.
        Ok(self.clone().into_inner().unwrap_or_default())
    }

    fn restored(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

impl CaptureBody for Empty<Bytes> {
    fn captured(&self) -> Result<Bytes, &'static str> {
        Ok(Bytes::new())
    }

    fn restored(_bytes: Bytes) -> Self {
        Self::new()
    }
}

impl<B: Body> CaptureBody for ReplayBody<B> {
    fn captured(&self) -> Result<Bytes, &'static str> {
        self.read_so_far()
    }

    fn restored(bytes: Bytes) -> Self {
        Self::of_bytes(bytes)
    }
}
