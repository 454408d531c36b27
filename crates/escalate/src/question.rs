//! What somebody is asked, and what they answer.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_triage_core::duration_text;

use crate::timestamp::Timestamp;

/// A question that comes with an escalation: the call waits for the answer, not for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Question {
    /// What is asked, for a person.
    pub text: String,
    /// Answers to choose from.
    #[serde(default)]
    pub options: Vec<Choice>,
    /// When the call stops waiting. Its first answer wins, whenever it comes before.
    pub deadline: Timestamp,
    /// What the call does without an answer.
    pub on_timeout: Decision,
    /// What the call can do besides giving up.
    #[serde(default)]
    pub accepts: Accepts,
    /// Who is asked, one level after the other. The last is asked until the deadline.
    #[serde(default)]
    pub levels: Vec<Level>,
}

/// What a call can do with an answer, besides giving up. Other answers are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Accepts {
    /// Send the request again, as it was or changed.
    pub retry: bool,
    /// Answer its caller with a value.
    pub respond: bool,
}

impl Default for Accepts {
    fn default() -> Self {
        Self { retry: true, respond: true }
    }
}

impl Accepts {
    /// Is it one of them?
    #[must_use]
    pub const fn contains(self, decision: &Decision) -> bool {
        match decision {
            Decision::Retry | Decision::RetryWith(_) => self.retry,
            Decision::Respond(_) => self.respond,
            Decision::Abort => true,
        }
    }
}

/// An answer to choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// For a person.
    pub label: String,
    /// What the call then does.
    pub decision: Decision,
}

/// Who is asked, and how long they may think before the next level is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Names of receivers at the desk.
    pub to: Vec<String>,
    /// Counted from when they are asked.
    #[serde(with = "duration_text")]
    pub within: Duration,
}

/// What a call does that waited for an answer.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The same request again.
    Retry,
    /// The request again, changed as the value says.
    RetryWith(Value),
    /// The caller gets an answer made of the value.
    Respond(Value),
    /// The caller gets the failure.
    Abort,
}

impl Decision {
    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::RetryWith(_) => "retry_with",
            Self::Respond(_) => "respond",
            Self::Abort => "abort",
        }
    }

    /// The value that comes with it.
    #[must_use]
    pub const fn value(&self) -> Option<&Value> {
        match self {
            Self::RetryWith(value) | Self::Respond(value) => Some(value),
            Self::Retry | Self::Abort => None,
        }
    }

    /// Is the request to be sent again?
    #[must_use]
    pub const fn retries(&self) -> bool {
        matches!(self, Self::Retry | Self::RetryWith(_))
    }
}

/// Its name: the value may hold what must not be printed.
impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A decision with who made it, why and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// What is to be done.
    pub decision: Decision,
    /// Who decided.
    pub by: String,
    /// Why, in their words.
    pub why: String,
    /// When.
    pub at: Timestamp,
}
