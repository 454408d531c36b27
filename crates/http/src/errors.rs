//! The error half of the HTTP rules: a list of impls on one local type.

use std::convert::Infallible;
use std::error::Error;
use std::{fmt, io};

use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, ClassifyError, Failure, Note, Phase, Stamp, stamped,
    write_chain,
};

use crate::transport::transport_failure;

/// Judges the errors of HTTP clients and of what lies around them, through every wrapper: hyper,
/// hyper-util's legacy client (feature `hyper-util`), h2, I/O, timers, and our own rejections,
/// bare, boxed, or in an [`AnyError`].
///
/// For an error type of your own implement [`ClassifyError`] for it on this type (it is allowed,
/// because your type is local to you), or swap this half (`http().errors(OwnError)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpErrors;

fn judge(error: &(dyn Error + 'static)) -> Failure {
    transport_failure(error, Phase::Unknown)
}

impl ClassifyError<AnyError> for HttpErrors {
    fn error(&self, error: &AnyError) -> Failure {
        stamped(error).unwrap_or_else(|| judge(error.as_error()))
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        error.annotate(note);
        true
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        write_chain(error.as_error(), out);
    }
}

impl Stamp<AnyError> for HttpErrors {}

impl ClassifyError<BoxError> for HttpErrors {
    fn error(&self, error: &BoxError) -> Failure {
        judge(&**error)
    }

    fn explain(&self, error: &BoxError, out: &mut dyn fmt::Write) {
        write_chain(&**error, out);
    }
}

impl ClassifyError<Infallible> for HttpErrors {
    fn error(&self, error: &Infallible) -> Failure {
        match *error {}
    }
}

impl Stamp<Infallible> for HttpErrors {}

impl ClassifyError<hyper::Error> for HttpErrors {
    fn error(&self, error: &hyper::Error) -> Failure {
        judge(error)
    }

    fn explain(&self, error: &hyper::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<h2::Error> for HttpErrors {
    fn error(&self, error: &h2::Error) -> Failure {
        judge(error)
    }

    fn explain(&self, error: &h2::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<io::Error> for HttpErrors {
    fn error(&self, error: &io::Error) -> Failure {
        judge(error)
    }

    fn explain(&self, error: &io::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<CircuitOpen> for HttpErrors {
    fn error(&self, error: &CircuitOpen) -> Failure {
        judge(error)
    }

    fn explain(&self, error: &CircuitOpen, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

#[cfg(feature = "hyper-util")]
impl ClassifyError<hyper_util::client::legacy::Error> for HttpErrors {
    fn error(&self, error: &hyper_util::client::legacy::Error) -> Failure {
        judge(error)
    }

    fn explain(&self, error: &hyper_util::client::legacy::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}
