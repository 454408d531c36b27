//! The five levels, and where a failure enters.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tower_triage_core::{ClassSet, ErrorClass};

/// A rung of the ladder. One that does not help is left upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The same action again.
    Retry,
    /// The same approach, with adjusted parameters.
    Nudge,
    /// Another approach to the same goal.
    Replan,
    /// Somebody else: another agent, model, service.
    Fallback,
    /// An end in order: what there is, and an explanation.
    Finish,
}

impl Level {
    /// From the bottom up.
    pub const ALL: [Self; 5] =
        [Self::Retry, Self::Nudge, Self::Replan, Self::Fallback, Self::Finish];

    /// Its number, from 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32 + 1
    }

    pub(crate) const fn is_below(self, other: Self) -> bool {
        self.number() < other.number()
    }

    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Nudge => "nudge",
            Self::Replan => "replan",
            Self::Fallback => "fallback",
            Self::Finish => "finish",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// At which level a failure enters the ladder, by its class. In a file a table of class names; those
/// that are left out keep their defaults.
///
/// | class | enters at |
/// |---|---|
/// | Transient, Timeout, Throttled, Contention | retry |
/// | Unknown | nudge: what is ambiguous is not repeated as it is |
/// | Permanent | replan: the same again gets the same answer |
/// | Declined, Quota, Internal, Rejected | fallback: not this one, or not now |
/// | Auth, Cancelled | finish |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry(BTreeMap<ErrorClass, Level>);

impl Default for Entry {
    fn default() -> Self {
        let level = |class| match class {
            ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::Throttled
            | ErrorClass::Contention => Level::Retry,
            ErrorClass::Unknown => Level::Nudge,
            ErrorClass::Permanent => Level::Replan,
            ErrorClass::Declined
            | ErrorClass::Quota
            | ErrorClass::Internal
            | ErrorClass::Rejected => Level::Fallback,
            ErrorClass::Auth | ErrorClass::Cancelled => Level::Finish,
        };
        Self(ErrorClass::ALL.into_iter().map(|class| (class, level(class))).collect())
    }
}

impl Entry {
    /// The level at which `class` enters.
    #[must_use]
    pub fn of(&self, class: ErrorClass) -> Level {
        self.0.get(&class).copied().unwrap_or(Level::Finish)
    }

    /// With failures of `class` entering at `level`.
    #[must_use]
    pub fn at(mut self, class: ErrorClass, level: Level) -> Self {
        self.0.insert(class, level);
        self
    }

    /// The classes that come by `level`: those that enter there, and those that enter below and
    /// climb.
    #[must_use]
    pub fn reaching(&self, level: Level) -> ClassSet {
        ErrorClass::ALL.into_iter().filter(|class| self.of(*class) <= level).collect()
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entry = Self::default();
        entry.0.extend(BTreeMap::<ErrorClass, Level>::deserialize(deserializer)?);
        Ok(entry)
    }
}
