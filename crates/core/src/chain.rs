//! Any error → failure, by the types found along its source chain; never by text.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::any_error::{AnyError, BoxError};
use crate::class::{ErrorClass, Vote};
use crate::classify::ClassifyError;
use crate::elapsed::Elapsed;
use crate::note::{Note, Stamp};
use crate::rejection::CircuitOpen;
use crate::verdict::{Disposition, Failure, RetryAfter};

/// Error half for std, tokio and tower errors and for our own rejections: boxed, in an
/// [`AnyError`], or bare. What it does not know is `Unknown`.
///
/// The outermost type that decides wins; an [`io::ErrorKind`] decides last. Protocol crates have
/// halves of their own that also know their protocol's types.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain;

impl ClassifyError<AnyError> for Chain {
    fn error(&self, error: &AnyError) -> Failure {
        stamped(error).unwrap_or_else(|| classify_chain(error.as_error(), Phase::Unknown))
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        error.annotate(note);
        true
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        write_chain(error.as_error(), out);
    }
}

impl Stamp<AnyError> for Chain {}

impl ClassifyError<BoxError> for Chain {
    fn error(&self, error: &BoxError) -> Failure {
        classify_chain(&**error, Phase::Unknown)
    }

    fn explain(&self, error: &BoxError, out: &mut dyn fmt::Write) {
        write_chain(&**error, out);
    }
}

impl ClassifyError<io::Error> for Chain {
    fn error(&self, error: &io::Error) -> Failure {
        classify_chain(error, Phase::Unknown)
    }

    fn explain(&self, error: &io::Error, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<CircuitOpen> for Chain {
    fn error(&self, error: &CircuitOpen) -> Failure {
        classify_chain(error, Phase::Unknown)
    }

    fn explain(&self, error: &CircuitOpen, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<Elapsed> for Chain {
    fn error(&self, error: &Elapsed) -> Failure {
        error.failure()
    }

    fn explain(&self, error: &Elapsed, out: &mut dyn fmt::Write) {
        write_chain(error, out);
    }
}

impl ClassifyError<std::convert::Infallible> for Chain {
    fn error(&self, error: &std::convert::Infallible) -> Failure {
        match *error {}
    }
}

impl Stamp<std::convert::Infallible> for Chain {}

/// The failure that a `ClassifyLayer` stamped on `error`. A stamp that says "success" cannot make
/// an `Err` one, so it leaves the class open.
#[must_use]
pub fn stamped(error: &AnyError) -> Option<Failure> {
    error.verdict().map(|verdict| verdict.failure().unwrap_or(ErrorClass::Unknown.into()))
}

/// What an attempt was doing when it met an I/O error. Before the request was written nothing can
/// have been processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Resolving a name.
    Dns,
    /// Opening a connection.
    Connect,
    /// A TLS handshake.
    Tls,
    /// Sending the request.
    Write,
    /// Waiting for or reading the answer.
    Read,
    /// A local file.
    File,
    /// Not known: treated like `Read`.
    Unknown,
}

impl Phase {
    /// In this phase nothing can have reached the peer.
    #[must_use]
    pub const fn before_sending(self) -> bool {
        matches!(self, Self::Dns | Self::Connect | Self::Tls)
    }
}

/// Classifies an I/O error from its plain facts (classification, section 6). `os` is the raw
/// error number, which decides where the standard library has no kind for it.
pub fn io_failure(kind: io::ErrorKind, os: Option<i32>, phase: Phase) -> Failure {
    use io::ErrorKind as Kind;

    // Linux numbers that have no stable kind of their own.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    const EHOSTDOWN: i32 = 112;

    let (class, reason) = match (kind, os) {
        (_, Some(ENFILE | EMFILE | ENOBUFS)) => (ErrorClass::Rejected, "out_of_sockets"),
        (_, Some(EHOSTDOWN)) => (ErrorClass::Transient, "host_down"),
        (Kind::ConnectionRefused, _) => (ErrorClass::Transient, "connection_refused"),
        (Kind::ConnectionReset, _) => (ErrorClass::Transient, "connection_reset"),
        (Kind::ConnectionAborted, _) => (ErrorClass::Transient, "connection_aborted"),
        (Kind::BrokenPipe, _) => (ErrorClass::Transient, "broken_pipe"),
        (Kind::UnexpectedEof, _) => (ErrorClass::Transient, "unexpected_eof"),
        (Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown, _) => {
            (ErrorClass::Transient, "unreachable")
        }
        (
            Kind::NotConnected | Kind::WriteZero | Kind::Interrupted | Kind::StaleNetworkFileHandle,
            _,
        ) => (ErrorClass::Transient, "io_interrupted"),
        (Kind::TimedOut | Kind::WouldBlock, _) => (ErrorClass::Timeout, "io_timed_out"),
        (Kind::AddrNotAvailable | Kind::AddrInUse, _) => (ErrorClass::Rejected, "no_local_address"),
        (Kind::OutOfMemory, _) => (ErrorClass::Rejected, "out_of_memory"),
        // A Unix socket whose server has not started yet.
        (Kind::NotFound, _) if phase == Phase::Connect => (ErrorClass::Transient, "socket_missing"),
        (Kind::InvalidData, _) => (ErrorClass::Internal, "invalid_data"),
        (Kind::ReadOnlyFilesystem, _) => (ErrorClass::Internal, "read_only_filesystem"),
        (Kind::StorageFull | Kind::QuotaExceeded, _) => (ErrorClass::Quota, "storage_full"),
        (Kind::ResourceBusy | Kind::ExecutableFileBusy | Kind::Deadlock, _) => {
            (ErrorClass::Contention, "resource_busy")
        }
        (
            Kind::NotFound
            | Kind::PermissionDenied
            | Kind::InvalidInput
            | Kind::Unsupported
            | Kind::AlreadyExists
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::DirectoryNotEmpty
            | Kind::ArgumentListTooLong
            | Kind::NotSeekable
            | Kind::FileTooLarge
            | Kind::TooManyLinks
            | Kind::CrossesDevices,
            _,
        ) => (ErrorClass::Permanent, "io_permanent"),
        // Their names became stable after our oldest compiler, or are not yet.
        (kind, _) if matches!(&*format!("{kind:?}"), "InvalidFilename" | "FilesystemLoop") => {
            (ErrorClass::Permanent, "io_permanent")
        }
        // Resolvers have no kind of their own: the phase tells.
        _ if phase == Phase::Dns => (ErrorClass::Transient, "dns"),
        _ => (ErrorClass::Unknown, "io_unknown"),
    };
    let failure = Failure::new(class).reason(reason);
    let failure = match class {
        // A local answer says nothing about the peer.
        ErrorClass::Permanent => failure.vote(Vote::Ignore),
        _ => failure,
    };
    // Else the class's own: what broke on the way may have been processed.
    if phase.before_sending() { failure.disposition(Disposition::NotSent) } else { failure }
}

/// Classifies `error` and its sources with what core knows. `Unknown` if no type along the chain
/// decides.
pub fn classify_chain(error: &(dyn Error + 'static), phase: Phase) -> Failure {
    let mut io = None;
    for cause in causes(error) {
        if let Some(failure) = local_failure(cause) {
            return failure;
        }
        // Adapters wrap one I/O error in another, of kind `Other`: the one with a kind of its own
        // decides.
        if io.is_none_or(|io: &io::Error| io.kind() == io::ErrorKind::Other) {
            io = cause.downcast_ref().or(io);
        }
    }
    match io {
        Some(io) => io_failure(io.kind(), io.raw_os_error(), phase),
        None => Failure::new(ErrorClass::Unknown).reason("unknown_error"),
    }
}

/// What one link of a chain says by itself, if it is a rejection or time limit of ours, a timer of
/// tokio or tower, or an error of a tower layer. Protocol crates ask this first and add their own types.
#[must_use]
pub fn local_failure(cause: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(open) = cause.downcast_ref::<CircuitOpen>() {
        let failure = Failure::new(ErrorClass::Rejected).reason(CircuitOpen::REASON);
        // Zero is no hint: a probe is due or in flight, and nobody knows when it ends.
        return Some(match open.retry_after() {
            Duration::ZERO => failure,
            left => failure.retry_after(RetryAfter::AtLeast(left)),
        });
    }
    if let Some(elapsed) = cause.downcast_ref::<Elapsed>() {
        return Some(elapsed.failure());
    }
    if cause.is::<tokio::time::error::Elapsed>() {
        return Some(Failure::new(ErrorClass::Timeout).reason(Elapsed::REASON));
    }
    if let Some(join) = cause.downcast_ref::<tokio::task::JoinError>() {
        return Some(if join.is_cancelled() {
            Failure::new(ErrorClass::Cancelled).reason("task_cancelled")
        } else {
            Failure::new(ErrorClass::Internal).reason("task_panicked")
        });
    }
    tower_failure(cause)
}

#[cfg(feature = "tower")]
fn tower_failure(cause: &(dyn Error + 'static)) -> Option<Failure> {
    if cause.is::<tower::timeout::error::Elapsed>() {
        return Some(Failure::new(ErrorClass::Timeout).reason(Elapsed::REASON));
    }
    if cause.is::<tower::load_shed::error::Overloaded>() {
        return Some(Failure::new(ErrorClass::Rejected).reason("load_shed"));
    }
    if cause.is::<tower::buffer::error::Closed>() {
        return Some(Failure::new(ErrorClass::Internal).reason("buffer_closed"));
    }
    balance_failure(cause)
}

#[cfg(not(feature = "tower"))]
fn tower_failure(_cause: &(dyn Error + 'static)) -> Option<Failure> {
    None
}

#[cfg(feature = "tower-balance")]
fn balance_failure(cause: &(dyn Error + 'static)) -> Option<Failure> {
    cause.is::<tower::balance::error::Discover>().then(|| {
        Failure::new(ErrorClass::Transient).disposition(Disposition::NotSent).reason("no_endpoint")
    })
}

#[cfg(all(feature = "tower", not(feature = "tower-balance")))]
fn balance_failure(_cause: &(dyn Error + 'static)) -> Option<Failure> {
    None
}

/// `error` and its sources, outermost first. Boxes that hide in an `io::Error` are walked too.
/// Bounded, so that a chain that bites its tail ends.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    const DEPTH: usize = 64;
    std::iter::successors(Some(error), |error| next_cause(*error)).take(DEPTH)
}

fn next_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // `io::Error::source` skips the error it was made from and goes on with that one's source.
    if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return Some(inner);
    }
    // `Box<dyn Error>` is not an `Error`; a `Box<T>` is, and its `source` is T's, so T itself
    // would be missed if it only shows as the box.
    if let Some(inner) = error.downcast_ref::<Box<io::Error>>() {
        return Some(&**inner);
    }
    error.source()
}

/// The first `T` along `error`'s chain, itself included.
#[must_use]
pub fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// Writes the chain's texts, outermost first, joined by `: `. A cause whose text the one above
/// already ends with is not repeated.
pub fn write_chain(error: &dyn Error, out: &mut dyn fmt::Write) {
    const DEPTH: usize = 16;
    let mut last = error.to_string();
    let _ = out.write_str(&last);
    let mut next = error.source();
    for _ in 0..DEPTH {
        let Some(cause) = next else { return };
        let text = cause.to_string();
        if !last.ends_with(&text) {
            let _ = write!(out, ": {text}");
        }
        last = text;
        next = cause.source();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_of_kind_other_hides_neither_kind_nor_number() {
        let no_sockets = io::Error::other(io::Error::from_raw_os_error(24));
        assert_eq!(classify_chain(&no_sockets, Phase::Connect).class, ErrorClass::Rejected);

        #[derive(Debug)]
        struct Foreign(io::Error);
        impl fmt::Display for Foreign {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("foreign")
            }
        }
        impl Error for Foreign {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let reset = io::Error::other(Foreign(io::ErrorKind::ConnectionReset.into()));
        assert_eq!(classify_chain(&reset, Phase::Read).reason, "connection_reset");
    }
}
