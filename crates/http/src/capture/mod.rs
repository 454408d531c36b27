//! HTTP requests as data, so that they can be driven again.

mod body;
mod codec;
mod form;

pub use self::{body::CaptureBody, codec::HttpCodec};
