//! What the classifier says of one outcome.

use std::time::Duration;

use crate::class::{ErrorClass, RetryRule, Vote};

/// The classifier's word on one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The outcome is what the caller asked for.
    Success,
    /// It is not; here is what happened.
    Failure(Failure),
}

impl Verdict {
    /// The failure, if it is one.
    #[must_use]
    pub const fn failure(self) -> Option<Failure> {
        match self {
            Self::Success => None,
            Self::Failure(failure) => Some(failure),
        }
    }

    /// The same verdict, as the last word of a `ClassifyLayer`.
    pub(crate) const fn stamped(self) -> Self {
        match self {
            Self::Success => self,
            Self::Failure(failure) => Self::Failure(Failure { stamped: true, ..failure }),
        }
    }

    /// Is it one?
    pub(crate) const fn is_stamped(self) -> bool {
        matches!(self, Self::Failure(Failure { stamped: true, .. }))
    }

    /// Is it a success?
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl From<Failure> for Verdict {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<ErrorClass> for Verdict {
    fn from(class: ErrorClass) -> Self {
        Self::Failure(class.into())
    }
}

/// What is known of the work behind a failed attempt. It is per hop: a proxy must not report its
/// own caller's request as `NotSent` because its next hop said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Disposition {
    /// The request never left us.
    NotSent,
    /// The peer vouches that it did nothing.
    NotProcessed,
    /// Nobody knows.
    MaybeProcessed,
    /// The peer worked on it.
    Processed,
}

impl Disposition {
    /// May the peer have done the work?
    #[must_use]
    pub const fn may_be_processed(self) -> bool {
        matches!(self, Self::MaybeProcessed | Self::Processed)
    }
}

/// When the server wants to see us again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RetryAfter {
    /// Not before this time has passed (`Retry-After`, RFC 9110 section 10.2.3): a lower bound,
    /// and jitter only goes upward from it. Zero asks for no wait of its own.
    AtLeast(Duration),
    /// Exactly after this time (`grpc-retry-pushback-ms`, gRPC A6).
    Exactly(Duration),
    /// A number too large to represent: longer than any cap.
    Never,
}

impl RetryAfter {
    /// The delay; [`Duration::MAX`] for [`RetryAfter::Never`].
    #[must_use]
    pub const fn duration(self) -> Duration {
        match self {
            Self::AtLeast(delay) | Self::Exactly(delay) => delay,
            Self::Never => Duration::MAX,
        }
    }
}

/// The server's explicit word on repeating, which outranks the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ServerWord {
    /// It said nothing.
    #[default]
    Silent,
    /// It forbade a retry (`x-should-retry: false`, a negative pushback); or the request's deadline
    /// has passed, after which nobody asks for one ([`Elapsed`](crate::Elapsed)).
    Forbidden,
    /// It asked for a retry (`x-should-retry: true`): lifts class and "safe", not attempts, cap, deadline or budget.
    Demanded,
}

/// One failed outcome, classified. `Copy`, and free of the user's types, so that it can travel
/// between layers, into an incident and over a wire.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Failure {
    /// What happened.
    pub class: ErrorClass,
    /// What is known of the work behind it. Default: [`Disposition::MaybeProcessed`], except for
    /// classes that say that nothing was done.
    pub disposition: Disposition,
    /// When the server wants to see us again, uncapped.
    pub retry_after: Option<RetryAfter>,
    /// The server's explicit word.
    pub server: ServerWord,
    /// How it counts for a breaker. Default: the class's.
    pub vote: Vote,
    /// Why the class was chosen, from a fixed set: fit for a metric label. Default: the class's name.
    pub reason: &'static str,
    /// A `ClassifyLayer` said so: its word is not adjusted or overridden once more.
    pub(crate) stamped: bool,
    /// The rules could not tell, and it is treated so by experience.
    pub(crate) learned: bool,
}

/// By what it says; who said it makes no difference.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        let said = |f: &Self| (f.class, f.disposition, f.retry_after, f.server, f.vote, f.reason);
        said(self) == said(other)
    }
}

impl Eq for Failure {}

impl Failure {
    /// A failure of `class` with the class's defaults.
    pub const fn new(class: ErrorClass) -> Self {
        let disposition = match class {
            ErrorClass::Rejected => Disposition::NotSent,
            ErrorClass::Throttled
            | ErrorClass::Contention
            | ErrorClass::Auth
            | ErrorClass::Quota
            | ErrorClass::Permanent
            | ErrorClass::Declined => Disposition::NotProcessed,
            ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::Internal
            | ErrorClass::Cancelled
            | ErrorClass::Unknown => Disposition::MaybeProcessed,
        };
        Self {
            class,
            disposition,
            retry_after: None,
            server: ServerWord::Silent,
            vote: class.vote(),
            reason: class.as_str(),
            stamped: false,
            learned: false,
        }
    }

    /// With what is known of the work behind it.
    pub const fn disposition(mut self, disposition: Disposition) -> Self {
        self.disposition = disposition;
        self
    }

    /// With the server's hint.
    pub const fn retry_after(mut self, hint: RetryAfter) -> Self {
        self.retry_after = Some(hint);
        self
    }

    /// With the server's explicit word.
    pub const fn server(mut self, word: ServerWord) -> Self {
        self.server = word;
        self
    }

    /// With another vote than the class's.
    pub const fn vote(mut self, vote: Vote) -> Self {
        self.vote = vote;
        self
    }

    /// With the reason for the class. Keep the set of reasons small: it becomes a metric label.
    pub const fn reason(mut self, reason: &'static str) -> Self {
        self.reason = reason;
        self
    }

    /// The same failure under another class, with that class's vote; everything else stays.
    pub const fn reclassified(mut self, class: ErrorClass) -> Self {
        self.class = class;
        self.vote = class.vote();
        self
    }

    /// A failure that the rules cannot tell, treated as one of `class` by experience. What is known of
    /// the work behind it stays, and so does the reason: nothing new was found out about it. Its
    /// [fingerprint](crate::Fingerprint) is that of the unknown failure.
    pub const fn learned(mut self, class: ErrorClass) -> Self {
        self.learned = true;
        self.reclassified(class)
    }

    /// Was it unknown to the rules, and is it treated so by experience?
    #[must_use]
    pub const fn is_learned(&self) -> bool {
        self.learned
    }

    /// May the very same request be sent again, given what is known of it? This is the class's
    /// rule alone (classification, section 2): no attempts, hints, deadlines or budgets.
    #[must_use]
    pub const fn repeatable(&self, repeatable: bool, unit_of_work: bool) -> bool {
        match self.server {
            ServerWord::Forbidden => false,
            ServerWord::Demanded => true,
            ServerWord::Silent => match self.class.retry() {
                RetryRule::Safe => repeatable || !self.disposition.may_be_processed(),
                RetryRule::Unit => unit_of_work,
                RetryRule::Refresh | RetryRule::Never => false,
            },
        }
    }
}

impl From<ErrorClass> for Failure {
    fn from(class: ErrorClass) -> Self {
        Self::new(class)
    }
}
