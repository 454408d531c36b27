//! Requests as data, so that they can be driven again.
//!
//! A [`Codec`] makes a [`Captured`] of a request, and a request of that. It is opt-in: a record
//! holds no request unless a layer is given a codec.

mod captured;
mod error;
mod json;
mod redact;

pub use self::{captured::Captured, error::CaptureError, json::JsonCodec, redact::RedactJson};

use std::sync::Arc;

use tower_triage_core::incident::IncidentId;

/// Makes data of a request, and the request of the data: what
/// [`EscalateLayer`](crate::EscalateLayer) and a re-drive worker need.
///
/// What it writes is what is stored: secrets are taken out of it already, and its size is bounded.
///
/// A request that can be written only in part (its body is gone, or too long) is written in part;
/// reading it back says why it cannot be driven again. An error is for what cannot be written at
/// all. In both cases the record itself is stored.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot capture requests of type `{Req}`",
    note = "`JsonCodec` captures types that are `Serialize` and `DeserializeOwned`; `HttpCodec` of tower-triage-http captures HTTP requests"
)]
pub trait Codec<Req>: Send + Sync {
    /// The request as data, without secrets, within the bounds.
    ///
    /// # Errors
    /// It cannot be written.
    fn encode(&self, request: &Req) -> Result<Captured, CaptureError>;

    /// The request as it was, but for what the redactor took out and the caller puts back.
    ///
    /// # Errors
    /// It was written by another codec, is not complete, or cannot be read.
    fn decode(&self, captured: &Captured) -> Result<Req, CaptureError>;

    /// The request with the id of its letter, the same on each sending, for a receiver that keeps
    /// one of those with the same id. Default: the request as it is.
    fn identified(&self, request: Req, id: IncidentId) -> Req {
        _ = id;
        request
    }
}

impl<Req, C: Codec<Req> + ?Sized> Codec<Req> for Arc<C> {
    fn encode(&self, request: &Req) -> Result<Captured, CaptureError> {
        (**self).encode(request)
    }

    fn decode(&self, captured: &Captured) -> Result<Req, CaptureError> {
        (**self).decode(captured)
    }

    fn identified(&self, request: Req, id: IncidentId) -> Req {
        (**self).identified(request, id)
    }
}
