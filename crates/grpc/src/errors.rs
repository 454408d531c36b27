//! An attempt without an answer: the error half of the rules.

use std::convert::Infallible;
use std::error::Error;
use std::{fmt, io};

use tonic::{ConnectError, Status, TimeoutExpired};
use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, ClassifyError, Disposition, Elapsed, ErrorClass, Failure,
    Note, Phase, Stamp, Verdict, causes, local_failure, stamped, wall_clock, write_chain,
};
use tower_triage_http::{TransportFact, transport_failure};

use crate::decision::Said;
use crate::details::StatusDetails;

/// Judges the errors of gRPC clients and of what lies around them, through every wrapper: tonic's
/// channel and timeout, a [`Status`], hyper, h2, I/O, timers, and our own rejections; bare, boxed,
/// or in an [`AnyError`].
///
/// For an error type of your own implement [`ClassifyError`] for it on this type (it is allowed,
/// because your type is local to you), or swap this half (`grpc().errors(OwnError)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcErrors;

/// Classifies `error` by the types along its chain of sources, outermost first: what tonic says,
/// then whatever [`transport_failure`] knows.
///
/// A [`Status`] that stands for something else (tonic's CANCELLED for its own timeout, UNKNOWN for a
/// broken connection) has it as its source, which says more.
pub fn grpc_failure(error: &(dyn Error + 'static)) -> Failure {
    for cause in causes(error) {
        if let Some(failure) = local_failure(cause) {
            return failure;
        }
        if cause.is::<TimeoutExpired>() {
            return Failure::new(ErrorClass::Timeout).reason(Elapsed::REASON);
        }
        if let Some(connect) = cause.downcast_ref::<ConnectError>() {
            let inside = connect.source().map(while_connecting);
            return TransportFact::Connect { inside }.failure();
        }
        if let Some(status) = cause.downcast_ref::<Status>() {
            return of_status(status);
        }
        if cause.is::<hyper::Error>() || cause.is::<h2::Error>() {
            break;
        }
    }
    transport_failure(error, Phase::Unknown)
}

/// What failed inside of a connector: whatever it was, nothing was sent.
fn while_connecting(error: &(dyn Error + 'static)) -> Failure {
    match causes(error).any(|cause| cause.is::<TimeoutExpired>()) {
        true => Failure::new(ErrorClass::Timeout)
            .reason(Elapsed::REASON)
            .disposition(Disposition::NotSent),
        false => transport_failure(error, Phase::Connect),
    }
}

fn of_status(status: &Status) -> Failure {
    let said_more = status.source().map(grpc_failure);
    if let Some(failure) = said_more.filter(|failure| failure.class != ErrorClass::Unknown) {
        return failure;
    }
    let said = Said {
        code: status.code(),
        metadata: status.metadata().as_ref(),
        details: StatusDetails::of_message(status.details()),
        too_large: false,
        now: wall_clock(),
    };
    match said.verdict() {
        Verdict::Failure(failure) => failure,
        // An error that says OK.
        Verdict::Success => Failure::new(ErrorClass::Unknown).reason("grpc_ok_as_error"),
    }
}

impl ClassifyError<AnyError> for GrpcErrors {
    fn error(&self, error: &AnyError) -> Failure {
        stamped(error).unwrap_or_else(|| grpc_failure(error.as_error()))
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        error.annotate(note);
        true
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        write_chain(error.as_error(), out);
    }
}

impl Stamp<AnyError> for GrpcErrors {}

impl ClassifyError<BoxError> for GrpcErrors {
    fn error(&self, error: &BoxError) -> Failure {
        grpc_failure(&**error)
    }

    fn explain(&self, error: &BoxError, out: &mut dyn fmt::Write) {
        write_chain(&**error, out);
    }
}

impl ClassifyError<Infallible> for GrpcErrors {
    fn error(&self, error: &Infallible) -> Failure {
        match *error {}
    }
}

impl Stamp<Infallible> for GrpcErrors {}

impl ClassifyError<Status> for GrpcErrors {
    fn error(&self, error: &Status) -> Failure {
        grpc_failure(error)
    }

    fn explain(&self, error: &Status, out: &mut dyn fmt::Write) {
        // Neither metadata nor details.
        let _ = write!(out, "{:?}: {}", error.code(), error.message());
    }
}

impl ClassifyError<hyper::Error> for GrpcErrors {
    fn error(&self, error: &hyper::Error) -> Failure {
        grpc_failure(error)
    }

    fn explain(&self, error: &hyper::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<h2::Error> for GrpcErrors {
    fn error(&self, error: &h2::Error) -> Failure {
        grpc_failure(error)
    }

    fn explain(&self, error: &h2::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<io::Error> for GrpcErrors {
    fn error(&self, error: &io::Error) -> Failure {
        grpc_failure(error)
    }

    fn explain(&self, error: &io::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<CircuitOpen> for GrpcErrors {
    fn error(&self, error: &CircuitOpen) -> Failure {
        grpc_failure(error)
    }

    fn explain(&self, error: &CircuitOpen, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

#[cfg(feature = "channel")]
impl ClassifyError<tonic::transport::Error> for GrpcErrors {
    fn error(&self, error: &tonic::transport::Error) -> Failure {
        grpc_failure(error)
    }

    fn explain(&self, error: &tonic::transport::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}
