//! What is drawn around a delay.

use std::time::Duration;

use super::curve::{between, scale};

/// What is drawn around a delay `d`, so that callers who failed together do not come back together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Jitter {
    /// `d` itself.
    #[default]
    None,
    /// `0 ..= d`.
    Full,
    /// `d / 2 ..= d`.
    Equal,
    /// `d * (1 - r) ..= d * (1 + r)`; `r` from 0 to 1.
    Ratio(f64),
    /// `d - span ..= d + span`, and not below 0.
    Span(#[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))] Duration),
    /// `d ..= d * (1 + r)`; `r` from 0.
    Additive(f64),
}

impl Jitter {
    /// The shortest and the longest delay that can be drawn around `delay`.
    #[must_use]
    pub fn bounds(self, delay: Duration) -> (Duration, Duration) {
        match self {
            Self::None => (delay, delay),
            Self::Full => (Duration::ZERO, delay),
            Self::Equal => (delay / 2, delay),
            Self::Ratio(r) => (scale(delay, 1.0 - r).min(delay), scale(delay, 1.0 + r).max(delay)),
            Self::Span(span) => (delay.saturating_sub(span), delay.saturating_add(span)),
            Self::Additive(r) => (delay, scale(delay, 1.0 + r).max(delay)),
        }
    }

    /// The delay that `u` draws around `delay`: the shortest at 0, the longest towards 1.
    pub(super) fn draw(self, delay: Duration, u: f64) -> Duration {
        match self {
            // Centred on `delay` even where the span reaches below zero: what is drawn is cut, not
            // the range that it is drawn from.
            Self::Span(span) => between(Duration::ZERO, span.saturating_mul(2), u)
                .saturating_add(delay)
                .saturating_sub(span),
            _ => {
                let (shortest, longest) = self.bounds(delay);
                between(shortest, longest, u)
            }
        }
    }

    /// What is wrong with it, if something is.
    pub(super) fn problem(self) -> Option<&'static str> {
        match self {
            Self::Ratio(r) if !(0.0..=1.0).contains(&r) => Some("a jitter ratio is from 0 to 1"),
            Self::Additive(r) if !(r >= 0.0 && r.is_finite()) => {
                Some("an additive jitter's ratio is finite and not below 0")
            }
            _ => None,
        }
    }
}
