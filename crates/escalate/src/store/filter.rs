//! Which letters.

use serde::{Deserialize, Serialize};
use tower_triage_core::{ClassSet, Fingerprint};

use crate::routes;
use crate::store::letter::{Letter, LetterState};
use crate::timestamp::Timestamp;

/// Which letters; what is left out matches all. Patterns may hold any number of `*`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Filter {
    /// The failure's class.
    pub classes: ClassSet,
    /// Pattern of the operation.
    pub operation: String,
    /// Pattern of who failed.
    pub from: String,
    /// Name of a receiver that was told.
    pub receiver: Option<String>,
    /// Where it stands; empty: anywhere.
    pub states: Vec<LetterState>,
    /// The kind of failure.
    pub fingerprint: Option<Fingerprint>,
    /// Stored before.
    pub before: Option<Timestamp>,
    /// Stored at that time or after.
    pub after: Option<Timestamp>,
    /// Only those with a question that a call waits for.
    pub asking: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            classes: ClassSet::ALL,
            operation: "*".to_owned(),
            from: "*".to_owned(),
            receiver: None,
            states: Vec::new(),
            fingerprint: None,
            before: None,
            after: None,
            asking: false,
        }
    }
}

impl Filter {
    /// All letters.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Only of these classes.
    #[must_use]
    pub fn classes(mut self, classes: impl Into<ClassSet>) -> Self {
        self.classes = classes.into();
        self
    }

    /// Only of operations that match `pattern`.
    #[must_use]
    pub fn operation(mut self, pattern: impl Into<String>) -> Self {
        self.operation = pattern.into();
        self
    }

    /// Only where who failed matches `pattern`.
    #[must_use]
    pub fn from(mut self, pattern: impl Into<String>) -> Self {
        self.from = pattern.into();
        self
    }

    /// Only what this receiver was told of.
    #[must_use]
    pub fn receiver(mut self, name: impl Into<String>) -> Self {
        self.receiver = Some(name.into());
        self
    }

    /// Only in one of these states.
    #[must_use]
    pub fn states(mut self, states: impl IntoIterator<Item = LetterState>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// Only failures of this kind.
    #[must_use]
    pub const fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Only what was stored before.
    #[must_use]
    pub const fn before(mut self, moment: Timestamp) -> Self {
        self.before = Some(moment);
        self
    }

    /// Only what was stored at that time or after.
    #[must_use]
    pub const fn after(mut self, moment: Timestamp) -> Self {
        self.after = Some(moment);
        self
    }

    /// Only questions that a call waits for.
    #[must_use]
    pub const fn asking(mut self) -> Self {
        self.asking = true;
        self
    }

    /// Is it one of them?
    #[must_use]
    pub fn matches(&self, letter: &Letter, now: Timestamp) -> bool {
        let escalation = &letter.escalation;
        self.classes.contains(escalation.class)
            && (self.states.is_empty() || self.states.contains(&letter.state))
            && self.fingerprint.is_none_or(|kind| kind == escalation.fingerprint)
            && self.before.is_none_or(|moment| letter.stored < moment)
            && self.after.is_none_or(|moment| letter.stored >= moment)
            && self.receiver.as_ref().is_none_or(|name| escalation.to.contains(name))
            && routes::matches(&self.operation, &escalation.operation)
            && routes::matches(&self.from, &escalation.from)
            && (!self.asking || letter.asks(now))
    }
}

/// Some letters, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// The letters.
    pub letters: Vec<Letter>,
    /// Where the next page begins: to be given as `after`. `None` if there is none.
    pub next: Option<u64>,
}

impl Page {
    /// A page, and where the next begins.
    #[must_use]
    pub const fn new(letters: Vec<Letter>, next: Option<u64>) -> Self {
        Self { letters, next }
    }
}
