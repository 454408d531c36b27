//! HTTP: what the size of a future is taken over, and what the end-to-end comparison runs.

pub mod calls;
pub mod client;
pub mod layers;
pub mod load;
pub mod reqwest;
pub mod server;

use std::fmt;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use tower_service::Service;
use tower_triage_core::{CircuitOpen, ClassifyError, ErrorClass, Failure};
use tower_triage_http::HttpErrors;

/// The body of requests and answers.
pub type Body = Full<Bytes>;
/// A request.
pub type Request = ::http::Request<Body>;
/// An answer.
pub type Response = ::http::Response<Body>;

/// A small request.
#[must_use]
pub fn request() -> Request {
    ::http::Request::new(Body::default())
}

/// A small answer.
#[must_use]
pub fn response() -> Response {
    ::http::Response::new(Body::default())
}

/// Answers every HTTP request at once.
#[derive(Clone, Copy, Debug)]
pub struct ReadyHttp;

/// The error of [`ReadyHttp`], which never happens.
#[derive(Clone, Copy, Debug)]
pub enum Failed {
    /// A breaker did not let the call through.
    Rejected,
}

impl Service<Request> for ReadyHttp {
    type Response = Response;
    type Error = Failed;
    type Future = Ready<Result<Response, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(response()))
    }
}

impl ClassifyError<Failed> for HttpErrors {
    fn error(&self, error: &Failed) -> Failure {
        match error {
            Failed::Rejected => ErrorClass::Rejected.into(),
        }
    }
}

impl From<CircuitOpen> for Failed {
    fn from(_: CircuitOpen) -> Self {
        Self::Rejected
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the circuit is open")
    }
}

impl std::error::Error for Failed {}
