//! What a caller gets where there is no answer of the peer.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tower_triage_circuit_breaker::Reject;
use tower_triage_core::{AnyError, BoxError, CircuitOpen, Failure, Note, RetryAfter, find};

use crate::code::code_of;
use crate::details::with_retry_info;
use crate::errors::grpc_failure;
use crate::pushback::PUSHBACK;

/// Turns an open circuit into an answer with the status UNAVAILABLE, under any error type: for a
/// server, whose services have no errors, and for a client that wants no error of ours.
///
/// What is left of the open time is in the details, as `google.rpc.RetryInfo`: a lower bound, so
/// that those who were turned away do not all come back in the same moment. Nothing is said while a
/// probe is under way, since nobody knows how long that takes.
///
/// ```
/// use tower_triage_circuit_breaker::CircuitBreakerLayer;
/// use tower_triage_core::Classifier;
/// use tower_triage_grpc::{Unavailable, grpc};
///
/// let breaker = CircuitBreakerLayer::new(Classifier::new(grpc())).reject_with(Unavailable::new());
/// # let _ = breaker;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Unavailable {
    pushback: bool,
}

impl Unavailable {
    /// With a `RetryInfo` alone.
    #[must_use]
    pub const fn new() -> Self {
        Self { pushback: false }
    }

    /// Also with `grpc-retry-pushback-ms`, which clients with a retry policy of their own understand:
    /// they come back after exactly this time.
    #[must_use]
    pub const fn pushback(mut self) -> Self {
        self.pushback = true;
        self
    }
}

#[diagnostic::do_not_recommend]
impl<B: Default, E> Reject<Response<B>, E> for Unavailable {
    fn reject(&self, rejection: CircuitOpen) -> Result<Response<B>, E> {
        let left = rejection.retry_after();
        let left = (!left.is_zero()).then_some(left);
        // The name of the breaker is no business of whoever is outside.
        let mut status = status(Code::Unavailable, "the service is not available now", left);
        if let (true, Some(left)) = (self.pushback, left) {
            let millis = i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
            status.metadata_mut().insert(PUSHBACK, millis.into());
        }
        Ok(status.into_http())
    }
}

/// Turns an open circuit into an error that is a [`Status`]: UNAVAILABLE, with the time to wait, and
/// the [`CircuitOpen`] as its source. For a client whose error type is a status, or is made from one.
///
/// A stack over [`AnyError`] needs it not: [`with_status`] on top does the same for every error.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsStatus;

#[diagnostic::do_not_recommend]
impl<Res, E: From<Status>> Reject<Res, E> for AsStatus {
    fn reject(&self, rejection: CircuitOpen) -> Result<Res, E> {
        let failure = grpc_failure(&rejection);
        Err(told(&failure, rejection.to_string(), Arc::new(rejection)).into())
    }
}

/// Gives an error a [`Status`], if there is none in it: the topmost part of a client's stack, since a
/// generated client makes UNKNOWN of everything else.
///
/// The code is that of the failure ([`code_of`]): UNAVAILABLE for an open circuit or a broken
/// connection, with the time to wait as `google.rpc.RetryInfo` if it is known; DEADLINE_EXCEEDED for
/// a time limit, tonic's own included, which would be CANCELLED. The error is the status's source,
/// and notes stay.
///
/// ```
/// use std::time::Duration;
/// use tonic::{Code, Status};
/// use tower_triage_core::{AnyError, CircuitOpen};
/// use tower_triage_grpc::with_status;
///
/// let open = CircuitOpen::new("orders".into(), Duration::from_secs(9));
/// let error = with_status(AnyError::from(open));
/// let status = Status::from_error(error.into());
/// assert_eq!(status.code(), Code::Unavailable);
/// ```
#[must_use]
pub fn with_status(error: AnyError) -> AnyError {
    if error.find::<Status>().is_some() {
        return error;
    }
    let failure = grpc_failure(error.as_error());
    let message = format!("{error:#}");
    let notes = error.notes().clone();
    let source: BoxError = error.into_inner();
    let mut error = AnyError::from(told(&failure, message, Arc::from(source)));
    let verdict = notes.verdict.map(Note::Verdict);
    for note in verdict.into_iter().chain(notes.incident.map(Note::Incident)) {
        error.annotate(&note);
    }
    error
}

fn told(failure: &Failure, message: String, source: Arc<dyn Error + Send + Sync>) -> Status {
    let wait = failure.retry_after.map(RetryAfter::duration);
    let mut status = status(code_of(failure), message, wait);
    status.set_source(source);
    status
}

fn status(code: Code, message: impl Into<String>, wait: Option<Duration>) -> Status {
    let message = message.into();
    let details = wait.map(|wait| with_retry_info(code, &message, wait)).unwrap_or_default();
    Status::with_details_and_metadata(code, message, Bytes::from(details), MetadataMap::new())
}

/// The open circuit behind an error that a client got, if it was refused by a breaker of its own.
///
/// ```
/// use tower_triage_core::{AnyError, CircuitOpen};
/// use tower_triage_grpc::{circuit_open, with_status};
///
/// let open = CircuitOpen::new("orders".into(), std::time::Duration::from_secs(9));
/// let status = tonic::Status::from_error(with_status(open.into()).into());
/// assert_eq!(circuit_open(&status).unwrap().name(), "orders");
/// ```
#[must_use]
pub fn circuit_open(status: &Status) -> Option<&CircuitOpen> {
    find(status)
}
