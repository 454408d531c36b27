//! The twelve classes: what happened, and what each layer does about it by default.

use std::fmt;
use std::str::FromStr;

/// What happened to an attempt. A class says what happened, never what to do; the four layers each
/// read their own column of the table from it.
///
/// The enum is closed on purpose: two classes are kept apart only where at least one layer treats
/// them differently, and a `match` without a wildcard makes the compiler find every reader when
/// that changes. Success is not a class.
///
/// | class | retry | breaker | fallback | escalate |
/// |---|---|---|---|---|
/// | `Transient` | safe | failure | yes | on exhaustion |
/// | `Timeout` | safe, deadline left | failure | yes | on exhaustion |
/// | `Throttled` | safe, slow backoff | ignore | yes | on exhaustion |
/// | `Contention` | unit | success | no | on exhaustion |
/// | `Auth` | once, after a refresh | ignore | no | now |
/// | `Quota` | no | ignore | yes | now |
/// | `Internal` | no | failure | yes | now |
/// | `Permanent` | no | success | no | never |
/// | `Declined` | no | success | yes | on exhaustion |
/// | `Cancelled` | no | ignore | no | never |
/// | `Rejected` | no | ignore | yes | on exhaustion |
/// | `Unknown` | no | failure | yes | on exhaustion |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ErrorClass {
    /// The attempt broke, or the dependency cannot serve just now; time alone may help.
    Transient,
    /// No answer in time. Like `Transient`, but never after the overall deadline, and the work may still be running.
    Timeout,
    /// The dependency refused because of rate or load.
    Throttled,
    /// Lost a race with other work; the dependency is healthy and the whole unit of work must run again.
    Contention,
    /// A credential is missing, expired or refused; a refresh may cure it.
    Auth,
    /// A hard limit, balance or storage is used up; somebody must act, or a far reset must pass.
    Quota,
    /// A defect, or corrupted data, on either side of the wire.
    Internal,
    /// A definite negative answer to this request: bad, absent, forbidden, unsupported.
    Permanent,
    /// Well formed, but not for this backend: content policy, context too long, unknown model, read-only replica.
    Declined,
    /// Our side gave up.
    Cancelled,
    /// Our own protection refused before sending: open circuit, load shed, local limit.
    Rejected,
    /// The classifier cannot tell.
    Unknown,
}

/// When a retry of a class may be considered at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryRule {
    /// Only if the peer did nothing, or the request may be repeated.
    Safe,
    /// Only if the request is the complete unit of work.
    Unit,
    /// Once, after new credentials were obtained.
    Refresh,
    /// Not without an explicit rule.
    Never,
}

/// How one outcome counts for a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Vote {
    /// Says that the dependency works.
    Success,
    /// Says that the dependency does not work.
    Failure,
    /// Says nothing about the dependency: recorded nowhere, and a probe slot is given back.
    Ignore,
}

/// When a failure of a class reaches somebody who can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EscalateWhen {
    /// At the first occurrence, even if a fallback hides it.
    Now,
    /// When the outcome that leaves the stack is still this failure.
    OnExhaustion,
    /// Not at all.
    Never,
}

impl ErrorClass {
    /// Every class, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::Transient,
        Self::Timeout,
        Self::Throttled,
        Self::Contention,
        Self::Auth,
        Self::Quota,
        Self::Internal,
        Self::Permanent,
        Self::Declined,
        Self::Cancelled,
        Self::Rejected,
        Self::Unknown,
    ];

    /// The class's name: a fixed set of twelve, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "Transient",
            Self::Timeout => "Timeout",
            Self::Throttled => "Throttled",
            Self::Contention => "Contention",
            Self::Auth => "Auth",
            Self::Quota => "Quota",
            Self::Internal => "Internal",
            Self::Permanent => "Permanent",
            Self::Declined => "Declined",
            Self::Cancelled => "Cancelled",
            Self::Rejected => "Rejected",
            Self::Unknown => "Unknown",
        }
    }

    /// Position in [`ErrorClass::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The retry column of the table.
    #[must_use]
    pub const fn retry(self) -> RetryRule {
        match self {
            Self::Transient | Self::Timeout | Self::Throttled => RetryRule::Safe,
            Self::Contention => RetryRule::Unit,
            Self::Auth => RetryRule::Refresh,
            Self::Quota
            | Self::Internal
            | Self::Permanent
            | Self::Declined
            | Self::Cancelled
            | Self::Rejected
            | Self::Unknown => RetryRule::Never,
        }
    }

    /// The breaker column of the table. A verdict may carry another vote (HTTP 529 is `Throttled`
    /// and still a failure of the service).
    #[must_use]
    pub const fn vote(self) -> Vote {
        match self {
            Self::Transient | Self::Timeout | Self::Internal | Self::Unknown => Vote::Failure,
            Self::Contention | Self::Permanent | Self::Declined => Vote::Success,
            Self::Throttled | Self::Auth | Self::Quota | Self::Cancelled | Self::Rejected => {
                Vote::Ignore
            }
        }
    }

    /// The fallback column of the table: can another way reach the same goal?
    #[must_use]
    pub const fn fallback(self) -> bool {
        match self {
            Self::Transient
            | Self::Timeout
            | Self::Throttled
            | Self::Quota
            | Self::Internal
            | Self::Declined
            | Self::Rejected
            | Self::Unknown => true,
            Self::Contention | Self::Auth | Self::Permanent | Self::Cancelled => false,
        }
    }

    /// The escalation column of the table.
    #[must_use]
    pub const fn escalate(self) -> EscalateWhen {
        match self {
            Self::Auth | Self::Quota | Self::Internal => EscalateWhen::Now,
            Self::Transient
            | Self::Timeout
            | Self::Throttled
            | Self::Contention
            | Self::Declined
            | Self::Rejected
            | Self::Unknown => EscalateWhen::OnExhaustion,
            Self::Permanent | Self::Cancelled => EscalateWhen::Never,
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ErrorClass {
    type Err = crate::ConfigError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|class| class.as_str().eq_ignore_ascii_case(s))
            .ok_or_else(|| crate::ConfigError::new("class", s, "no such error class"))
    }
}

/// A set of error classes, as a layer's configuration names them.
///
/// ```
/// use tower_triage_core::{ClassSet, ErrorClass};
///
/// let set = ClassSet::from([ErrorClass::Transient, ErrorClass::Rejected]);
/// assert!(set.contains(ErrorClass::Rejected));
/// assert!(!set.contains(ErrorClass::Permanent));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClassSet(u16);

impl ClassSet {
    /// No class.
    pub const NONE: Self = Self(0);
    /// All twelve.
    pub const ALL: Self = Self(0x0fff);

    /// The classes for which another way can reach the goal (the table's fallback column).
    #[must_use]
    pub fn bypassable() -> Self {
        ErrorClass::ALL.into_iter().filter(|class| class.fallback()).collect()
    }

    /// Is `class` in the set?
    #[must_use]
    pub const fn contains(self, class: ErrorClass) -> bool {
        self.0 & (1 << class.index()) != 0
    }

    /// The set with `class` added.
    #[must_use]
    pub const fn with(self, class: ErrorClass) -> Self {
        Self(self.0 | 1 << class.index())
    }

    /// The set with `class` taken out.
    #[must_use]
    pub const fn without(self, class: ErrorClass) -> Self {
        Self(self.0 & !(1 << class.index()))
    }

    /// The classes of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The classes in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Is there no class in the set?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The classes in the set, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = ErrorClass> {
        ErrorClass::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

impl fmt::Debug for ClassSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl From<ErrorClass> for ClassSet {
    fn from(class: ErrorClass) -> Self {
        Self::NONE.with(class)
    }
}

impl<const N: usize> From<[ErrorClass; N]> for ClassSet {
    fn from(classes: [ErrorClass; N]) -> Self {
        classes.into_iter().collect()
    }
}

impl FromIterator<ErrorClass> for ClassSet {
    fn from_iter<I: IntoIterator<Item = ErrorClass>>(classes: I) -> Self {
        classes.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for ClassSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ClassSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<ErrorClass>::deserialize(deserializer).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A set of classes is what a set of them is anywhere else.
        #[test]
        fn a_set_of_classes_is_a_set(a in 0_u16..=0x0fff, b in 0_u16..=0x0fff, class in 0..12_usize) {
            let class = ErrorClass::ALL[class];
            let (a, b) = (ClassSet(a), ClassSet(b));
            let plain = |set: ClassSet| set.iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(plain(a).into_iter().collect::<ClassSet>(), a);
            prop_assert_eq!(a.is_empty(), plain(a).is_empty());
            prop_assert_eq!(a.contains(class), plain(a).contains(&class));
            prop_assert_eq!(plain(a.union(b)), &plain(a) | &plain(b));
            prop_assert_eq!(plain(a.intersection(b)), &plain(a) & &plain(b));
            prop_assert_eq!(plain(a.with(class)), &plain(a) | &BTreeSet::from([class]));
            prop_assert_eq!(plain(a.without(class)), &plain(a) - &BTreeSet::from([class]));
            prop_assert_eq!(ClassSet::from([class]), ClassSet::from(class));
            prop_assert_eq!(plain(class.into()), BTreeSet::from([class]));
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_set_is_written_as_the_names_in_it() {
        let set = ClassSet::from([ErrorClass::Unknown, ErrorClass::Quota]);
        let json = serde_json::to_string(&set).unwrap();
        assert_eq!(json, r#"["Quota","Unknown"]"#);
        assert_eq!(serde_json::from_str::<ClassSet>(&json).unwrap(), set);
    }

    /// The fallback column of the table.
    #[test]
    fn what_another_way_can_reach() {
        let not = [
            ErrorClass::Contention,
            ErrorClass::Auth,
            ErrorClass::Permanent,
            ErrorClass::Cancelled,
        ];
        let rest = not.into_iter().fold(ClassSet::ALL, ClassSet::without);
        assert_eq!(ClassSet::bypassable(), rest);
    }

    #[test]
    fn index_is_the_position_in_all() {
        for (position, class) in ErrorClass::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), position);
            assert_eq!(class.as_str().parse::<ErrorClass>().unwrap(), class);
        }
        assert_eq!(ClassSet::ALL.iter().count(), 12);
    }

    /// A class without a reader of its own would be two names for one thing.
    #[test]
    fn no_two_classes_have_the_same_consequences() {
        let row = |c: ErrorClass| (c.retry(), c.vote(), c.fallback(), c.escalate());
        for a in ErrorClass::ALL {
            for b in ErrorClass::ALL {
                // Timeout differs from Transient by the deadline, Throttled by its vote.
                let told_elsewhere = matches!(
                    (a, b),
                    (ErrorClass::Transient, ErrorClass::Timeout)
                        | (ErrorClass::Timeout, ErrorClass::Transient)
                );
                assert!(a == b || told_elsewhere || row(a) != row(b), "{a} and {b}");
            }
        }
    }
}
