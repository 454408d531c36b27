//! The server's hint and the own schedule.

use std::time::Duration;

use super::curve::{between, scale};
use crate::verdict::RetryAfter;

/// What becomes of the own delay when the server said when it wants to see us again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum HintMode {
    /// The longer of the two, and up to a tenth of the hint on top, so that those who got the same
    /// hint do not all come at its end; never earlier than the hint. A [`RetryAfter::Exactly`]
    /// hint is followed as under [`HintMode::ExactThenRestart`] instead.
    #[default]
    AtLeast,
    /// The hint, but no longer than the schedule's cap.
    Cap,
    /// The hint, but not below the own delay nor more than this above it (AWS SDKs: 5 s).
    ClampToOwnPlus(#[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))] Duration),
    /// The hint, whatever it is.
    AsGiven,
    /// The hint exactly; the schedule starts over after it (gRPC A6, pushback).
    ExactThenRestart,
}

/// A delay that heeds a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hinted {
    /// How long to wait.
    pub delay: Duration,
    /// Does the schedule start over after it?
    pub restart: bool,
}

impl HintMode {
    /// Merges `hint` into `own`, the schedule's jittered delay; `cap` is the schedule's cap, `u` is
    /// uniform in [0, 1), and may be the one that `own` was drawn with.
    ///
    /// Whether a hint is too long to be waited for is not decided here:
    /// [`RetryAfter::Never`] is [`Duration::MAX`].
    #[must_use]
    pub fn merge(self, hint: RetryAfter, own: Duration, cap: Option<Duration>, u: f64) -> Hinted {
        let asked = hint.duration();
        let exact = Hinted { delay: asked, restart: true };
        let delay = match self {
            Self::ExactThenRestart => return exact,
            Self::AtLeast => match hint {
                RetryAfter::Exactly(_) => return exact,
                RetryAfter::AtLeast(_) | RetryAfter::Never => {
                    between(asked, scale(asked, 1.1).max(asked), u).max(own)
                }
            },
            Self::Cap => asked.min(cap.unwrap_or(Duration::MAX)),
            Self::ClampToOwnPlus(more) => asked.clamp(own, own.saturating_add(more)),
            Self::AsGiven => asked,
        };
        Hinted { delay, restart: false }
    }
}
