//! Status codes: from the wire, into a failure, and back from one.

use tonic::Code;
use tower_triage_core::{ErrorClass, Failure};

/// The code in a `grpc-status` header: its plain number, or UNKNOWN for whatever else is in there
/// (also "014" and numbers that nobody registered).
pub(crate) fn code_of_header(value: &[u8]) -> Code {
    let number = match *value {
        [digit @ b'0'..=b'9'] => i32::from(digit - b'0'),
        [b'1', digit @ b'0'..=b'6'] => 10 + i32::from(digit - b'0'),
        _ => return Code::Unknown,
    };
    Code::from_i32(number)
}

/// What a code says by itself (classification, section 5); `None` for OK.
pub(crate) fn failure_of(code: Code) -> Option<Failure> {
    use ErrorClass as C;

    let class = match code {
        Code::Ok => return None,
        Code::Cancelled => C::Cancelled,
        Code::Unknown => C::Unknown,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => C::Permanent,
        Code::DeadlineExceeded => C::Timeout,
        Code::ResourceExhausted => C::Throttled,
        Code::Aborted => C::Contention,
        Code::Internal | Code::DataLoss => C::Internal,
        Code::Unavailable => C::Transient,
        Code::Unauthenticated => C::Auth,
    };
    Some(Failure::new(class).reason(reason(code)))
}

/// The reason under which a failure with this code is reported.
pub(crate) const fn reason(code: Code) -> &'static str {
    match code {
        Code::Ok => "grpc_ok",
        Code::Cancelled => "grpc_cancelled",
        Code::Unknown => "grpc_unknown",
        Code::InvalidArgument => "grpc_invalid_argument",
        Code::DeadlineExceeded => "grpc_deadline_exceeded",
        Code::NotFound => "grpc_not_found",
        Code::AlreadyExists => "grpc_already_exists",
        Code::PermissionDenied => "grpc_permission_denied",
        Code::ResourceExhausted => "grpc_resource_exhausted",
        Code::FailedPrecondition => "grpc_failed_precondition",
        Code::Aborted => "grpc_aborted",
        Code::OutOfRange => "grpc_out_of_range",
        Code::Unimplemented => "grpc_unimplemented",
        Code::Internal => "grpc_internal",
        Code::Unavailable => "grpc_unavailable",
        Code::DataLoss => "grpc_data_loss",
        Code::Unauthenticated => "grpc_unauthenticated",
    }
}

/// RESOURCE_EXHAUSTED without a hint: Throttled, and not repeated, for a server that could serve
/// again soon would say when (OTLP).
pub(crate) const NO_HINT: &str = "grpc_resource_exhausted_no_hint";

/// All seventeen.
pub(crate) fn all() -> impl Iterator<Item = Code> {
    (0..=16).map(Code::from_i32)
}

/// A code's name in a service config, in upper case.
pub(crate) fn name(code: Code) -> String {
    reason(code).trim_start_matches("grpc_").to_ascii_uppercase()
}

/// The status code of a failure: the peer's own, or the one that gRPC gives to a failure of its
/// transport.
///
/// ```
/// use tonic::Code;
/// use tower_triage_core::{ErrorClass, Failure};
///
/// let reset = Failure::new(ErrorClass::Transient).reason("connection_reset");
/// assert_eq!(tower_triage_grpc::code_of(&reset), Code::Unavailable);
/// ```
#[must_use]
pub fn code_of(failure: &Failure) -> Code {
    if failure.reason == NO_HINT {
        return Code::ResourceExhausted;
    }
    if let Some(code) = all().find(|code| reason(*code) == failure.reason) {
        return code;
    }
    match failure.class {
        // A rejection of ours: the way to the peer is closed for now.
        ErrorClass::Transient | ErrorClass::Rejected => Code::Unavailable,
        ErrorClass::Timeout => Code::DeadlineExceeded,
        ErrorClass::Throttled | ErrorClass::Quota => Code::ResourceExhausted,
        ErrorClass::Contention => Code::Aborted,
        ErrorClass::Auth => Code::Unauthenticated,
        ErrorClass::Internal => Code::Internal,
        ErrorClass::Permanent | ErrorClass::Declined => Code::FailedPrecondition,
        ErrorClass::Cancelled => Code::Cancelled,
        ErrorClass::Unknown => Code::Unknown,
    }
}

/// The code that stands for an HTTP status where no `grpc-status` came (grpc/doc,
/// http-grpc-status-mapping).
pub(crate) const fn code_of_http(status: u16) -> Code {
    match status {
        400 | 431 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        // Also 200: a stream that ended without a status was cut off.
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_plain_number_is_a_code() {
        assert_eq!(code_of_header(b"0"), Code::Ok);
        assert_eq!(code_of_header(b"14"), Code::Unavailable);
        for odd in ["", "00", "014", "17", "-1", "+1", "1 ", "abc", "99999999999"] {
            assert_eq!(code_of_header(odd.as_bytes()), Code::Unknown, "{odd:?}");
        }
        for code in all() {
            assert_eq!(code_of_header((code as i32).to_string().as_bytes()), code);
        }
    }

    #[test]
    fn a_failure_remembers_its_code() {
        for code in all().skip(1) {
            assert_eq!(code_of(&failure_of(code).unwrap()), code);
        }
    }

    proptest! {
        #[test]
        fn any_header_is_a_code(value: Vec<u8>) {
            let read = code_of_header(&value);
            prop_assert_eq!(read, Code::from_bytes(&value));
        }
    }
}
