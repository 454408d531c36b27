//! The error of a time limit.

use std::fmt;
use std::time::Duration;

use crate::class::{ErrorClass, Vote};
use crate::classify::ToFailure;
use crate::verdict::{Disposition, Failure, ServerWord};

/// A time limit cut the call off: there was no answer in time.
///
/// It lives in core so that every classifier knows it by type. It enters a stack by
/// `S::Error: From<Elapsed>`: a `#[from]` variant of your error enum, or
/// [`AnyError`](crate::AnyError), just work.
///
/// Of an attempt's own limit or of the request's deadline: after the first the request may be
/// repeated, after the second nobody waits for the answer any more.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_core::{Elapsed, ErrorClass};
///
/// let slow = Elapsed::limit(Duration::from_secs(4)).failure();
/// let late = Elapsed::deadline(Duration::from_secs(4)).failure();
/// assert_eq!((slow.class, late.class), (ErrorClass::Timeout, ErrorClass::Timeout));
/// assert!(slow.repeatable(true, true));
/// assert!(!late.repeatable(true, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    cause: Cause,
    after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Limit,
    Deadline,
    NotSent,
}

impl Elapsed {
    /// The reason under which every classifier of ours reports an attempt that reached its limit.
    pub const REASON: &'static str = "elapsed";

    /// The reason under which every classifier of ours reports that the request's own deadline has
    /// passed.
    pub const DEADLINE_REASON: &'static str = "deadline_elapsed";

    /// The attempt was cut off at its limit, so long `after` it began.
    #[must_use]
    pub const fn limit(after: Duration) -> Self {
        Self { cause: Cause::Limit, after }
    }

    /// The attempt was cut off at the request's deadline, so long `after` it began.
    #[must_use]
    pub const fn deadline(after: Duration) -> Self {
        Self { cause: Cause::Deadline, after }
    }

    /// The request's deadline had passed before the attempt began: nothing was sent.
    #[must_use]
    pub const fn not_sent() -> Self {
        Self { cause: Cause::NotSent, after: Duration::ZERO }
    }

    /// How long the attempt was given.
    #[must_use]
    pub const fn after(&self) -> Duration {
        self.after
    }

    /// Was it the request's own deadline?
    #[must_use]
    pub const fn is_deadline(&self) -> bool {
        matches!(self.cause, Cause::Deadline | Cause::NotSent)
    }

    /// Was anything sent? If not, the deadline had passed before.
    #[must_use]
    pub const fn was_sent(&self) -> bool {
        !matches!(self.cause, Cause::NotSent)
    }

    /// What every classifier of ours makes of it: `Timeout`, and the work may be done all the same.
    /// After the request's own deadline a retry is forbidden; a call that was not even sent says
    /// nothing of the dependency.
    pub const fn failure(&self) -> Failure {
        let failure = Failure::new(ErrorClass::Timeout);
        let late = failure.reason(Self::DEADLINE_REASON).server(ServerWord::Forbidden);
        match self.cause {
            Cause::Limit => failure.reason(Self::REASON),
            Cause::Deadline => late,
            Cause::NotSent => late.disposition(Disposition::NotSent).vote(Vote::Ignore),
        }
    }
}

impl ToFailure for Elapsed {
    fn to_failure(&self) -> Failure {
        self.failure()
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Limit => write!(f, "no answer within {:?}", self.after),
            Cause::Deadline => write!(f, "no answer by the deadline, {:?} later", self.after),
            Cause::NotSent => f.write_str("the deadline had passed before anything was sent"),
        }
    }
}

impl std::error::Error for Elapsed {}
