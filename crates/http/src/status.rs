//! One row per HTTP status: classification, section 4.

use tower_triage_core::{Disposition, ErrorClass, Failure, ServerWord, Vote};

/// What the status alone says; `None` for 1xx, 2xx and 3xx, which are no failures.
///
/// An unregistered status counts as the x00 of its hundred, and one outside of 100 to 599 as a 5xx
/// (RFC 9110, section 15).
pub(crate) fn failure_of(status: u16) -> Option<Failure> {
    use ErrorClass as C;

    let failure = match status {
        100..=399 => return None,

        401 => Failure::new(C::Auth).reason("http_401"),
        407 => Failure::new(C::Auth).reason("http_407"),
        511 => Failure::new(C::Auth).reason("http_511"),

        402 => Failure::new(C::Quota).reason("http_402"),
        507 => Failure::new(C::Quota).reason("http_507"),

        // tower-http and Envoy answer 408 for a slow handler, so the work may be under way.
        408 => Failure::new(C::Timeout).reason("http_408"),
        504 => Failure::new(C::Timeout).reason("http_504"),

        409 => Failure::new(C::Contention).reason("http_409"),
        // Whoever holds the lock decides when it goes: trying again does not help (RFC 4918,
        // section 11.3).
        423 => Failure::new(C::Contention).server(ServerWord::Forbidden).reason("http_423"),

        // Neither was processed, and both say how to repeat: on another connection (RFC 9110,
        // section 15.5.20), and not in early data (RFC 8470, section 5.2).
        421 => untouched(C::Transient).vote(Vote::Ignore).reason("http_421"),
        425 => untouched(C::Transient).vote(Vote::Ignore).reason("http_425"),

        429 => Failure::new(C::Throttled).reason("http_429"),
        // Overloaded as a whole, not only for us.
        529 => Failure::new(C::Throttled).vote(Vote::Failure).reason("http_529"),

        499 => Failure::new(C::Cancelled).reason("http_499"),

        403 => Failure::new(C::Permanent).reason("http_403"),
        404 => Failure::new(C::Permanent).reason("http_404"),
        413 => Failure::new(C::Permanent).reason("http_413"),
        422 => Failure::new(C::Permanent).reason("http_422"),
        400..=499 => Failure::new(C::Permanent).reason("http_4xx"),
        // The server says that it never will, which tells nothing about its health.
        501 | 505 | 506 | 510 => Failure::new(C::Permanent).reason("http_unsupported"),

        508 => Failure::new(C::Internal).reason("http_508"),

        500 => Failure::new(C::Transient).reason("http_500"),
        502 => Failure::new(C::Transient).reason("http_502"),
        503 => Failure::new(C::Transient).reason("http_503"),
        _ => Failure::new(C::Transient).reason("http_5xx"),
    };
    Some(failure)
}

/// A failure whose sender vouches that it did nothing.
pub(crate) const fn untouched(class: ErrorClass) -> Failure {
    Failure::new(class).disposition(Disposition::NotProcessed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(status: u16) -> Option<ErrorClass> {
        failure_of(status).map(|failure| failure.class)
    }

    #[test]
    fn every_status_has_a_row_and_the_ranges_are_what_is_left() {
        for status in 0..=u16::MAX {
            let expected = match status {
                100..=399 => None,
                401 | 407 | 511 => Some(ErrorClass::Auth),
                402 | 507 => Some(ErrorClass::Quota),
                408 | 504 => Some(ErrorClass::Timeout),
                409 | 423 => Some(ErrorClass::Contention),
                421 | 425 => Some(ErrorClass::Transient),
                429 | 529 => Some(ErrorClass::Throttled),
                499 => Some(ErrorClass::Cancelled),
                501 | 505 | 506 | 510 => Some(ErrorClass::Permanent),
                508 => Some(ErrorClass::Internal),
                400..=499 => Some(ErrorClass::Permanent),
                _ => Some(ErrorClass::Transient),
            };
            assert_eq!(class(status), expected, "{status}");
        }
    }

    #[test]
    fn a_lock_is_never_waited_for() {
        assert!(!failure_of(423).unwrap().repeatable(true, true));
        assert!(failure_of(409).unwrap().repeatable(false, true));
    }
}
