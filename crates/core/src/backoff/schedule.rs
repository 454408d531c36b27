//! The schedule: curve, cap and jitter.

use std::time::Duration;

use super::curve::Curve;
use super::{Delays, HintMode, Iter, Jitter};
use crate::config::ConfigError;
use crate::verdict::RetryAfter;

/// A schedule of delays: a curve, a cap and a jitter. Plain data; every step is pure, total and
/// saturating: no retry number, base or factor makes it panic, wrap around or fall back to zero.
/// What nothing caps ends at [`Duration::MAX`].
///
/// ```
/// use std::time::Duration;
/// use tower_triage_core::{Backoff, Jitter};
///
/// let backoff = Backoff::exponential(Duration::from_millis(100), 2.0)
///     .cap(Duration::from_secs(1))
///     .jitter(Jitter::Equal);
/// // The middle of every draw:
/// let listed: Vec<u128> = backoff.iter(|| 0.5).take(5).map(|d| d.as_millis()).collect();
/// assert_eq!(listed, [75, 150, 300, 600, 750]);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "super::text::Text", into = "super::text::Text"))]
pub struct Backoff {
    pub(super) curve: Curve,
    pub(super) first_immediate: bool,
    pub(super) cap: Option<Duration>,
    pub(super) cap_when: CapWhen,
    pub(super) jitter: Jitter,
}

/// Where in the making of a delay the cap is put on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum CapWhen {
    /// Before and after the jitter: no delay is longer than the cap, and those that have reached it
    /// are still spread below it.
    #[default]
    Both,
    /// Before the jitter only, which may go over the cap (gRPC A6).
    BeforeJitter,
    /// After the jitter only: once the curve is far above the cap, every delay is the cap.
    AfterJitter,
}

impl Backoff {
    const fn new(curve: Curve) -> Self {
        Self {
            curve,
            first_immediate: false,
            cap: None,
            cap_when: CapWhen::Both,
            jitter: Jitter::None,
        }
    }

    /// No wait.
    #[must_use]
    pub const fn immediate() -> Self {
        Self::fixed(Duration::ZERO)
    }

    /// The same wait each time.
    #[must_use]
    pub const fn fixed(delay: Duration) -> Self {
        Self::new(Curve::Fixed { base: delay })
    }

    /// `base + (n - 1) * step` before the n-th retry.
    #[must_use]
    pub const fn linear(base: Duration, step: Duration) -> Self {
        Self::new(Curve::Linear { base, step })
    }

    /// `base * factor^(n - 1)` before the n-th retry; `factor` is at least 1.
    #[must_use]
    pub const fn exponential(base: Duration, factor: f64) -> Self {
        Self::new(Curve::Exponential { base, factor, whole_millis: false })
    }

    /// Uniform between two bounds. Takes no jitter: it is one.
    #[must_use]
    pub const fn range(min: Duration, max: Duration) -> Self {
        Self::new(Curve::Range { min, max })
    }

    /// AWS's decorrelated jitter: uniform between `base` and three times the delay before. Takes
    /// no other jitter; give it a cap.
    #[must_use]
    pub const fn decorrelated(base: Duration) -> Self {
        Self::new(Curve::Decorrelated { base })
    }

    /// The given delays; the last repeats. There must be at least one.
    #[must_use]
    pub fn list(delays: impl Into<Vec<Duration>>) -> Self {
        Self::new(Curve::List { delays: delays.into() })
    }

    /// The first retry comes at once, then the schedule begins.
    #[must_use]
    pub const fn first_immediate(mut self) -> Self {
        self.first_immediate = true;
        self
    }

    /// Cuts each step of an exponential schedule to whole milliseconds, as systems do that count in
    /// them (resilience4j): 100 ms with the factor 1.5 is then 337 ms after 225, not 337.5. Other
    /// schedules have no such steps and stay as they are.
    #[must_use]
    pub const fn whole_millis(mut self) -> Self {
        if let Curve::Exponential { whole_millis, .. } = &mut self.curve {
            *whole_millis = true;
        }
        self
    }

    /// No delay is longer, jitter included.
    #[must_use]
    pub const fn cap(self, cap: Duration) -> Self {
        self.cap_when(cap, CapWhen::Both)
    }

    /// No delay is longer before the jitter; the jitter may go over it.
    #[must_use]
    pub const fn cap_before_jitter(self, cap: Duration) -> Self {
        self.cap_when(cap, CapWhen::BeforeJitter)
    }

    /// A cap, and where it is put on.
    #[must_use]
    pub const fn cap_when(mut self, cap: Duration, when: CapWhen) -> Self {
        self.cap = Some(cap);
        self.cap_when = when;
        self
    }

    /// What is drawn around each delay. Default: nothing.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    /// Names the schedule as `name`, the field of the policy that it is in, and says what is wrong
    /// with it: a factor below 1 or not finite, an empty list, a range that ends before it begins,
    /// a ratio out of its range, a jitter on a schedule that draws by itself, a cap of zero.
    pub fn check(&self, name: &'static str) -> Result<(), ConfigError> {
        let wrong = |value: String, problem| Err(ConfigError::new(name, value, problem));
        match &self.curve {
            Curve::Exponential { factor, .. } if !(*factor >= 1.0 && factor.is_finite()) => {
                return wrong(
                    format!("exponential by {factor}"),
                    "a factor is finite and at least 1",
                );
            }
            Curve::Range { min, max } if min > max => {
                return wrong(
                    format!("{min:?} to {max:?}"),
                    "a range ends where it begins or later",
                );
            }
            Curve::List { delays } if delays.is_empty() => {
                return wrong("an empty list".to_owned(), "a list has at least one delay");
            }
            _ => {}
        }
        if self.curve.is_random() && self.jitter != Jitter::None {
            let value = format!("{:?} on a schedule that draws", self.jitter);
            return wrong(value, "a range or decorrelated schedule takes no jitter");
        }
        if let Some(problem) = self.jitter.problem() {
            return wrong(format!("{:?}", self.jitter), problem);
        }
        if self.cap == Some(Duration::ZERO) {
            return wrong("capped at 0".to_owned(), "a cap is above 0, or left away");
        }
        Ok(())
    }

    /// The next delay; `u` is uniform in [0, 1).
    pub fn next(&self, delays: &mut Delays, u: f64) -> Duration {
        delays.taken = delays.taken.saturating_add(1);
        let n = match (self.first_immediate, delays.taken) {
            (true, 1) => return Duration::ZERO,
            (true, n) => n - 1,
            (false, n) => n,
        };
        let (before, after) = match (self.cap, self.cap_when) {
            (None, _) => (Duration::MAX, Duration::MAX),
            (Some(cap), CapWhen::Both) => (cap, cap),
            (Some(cap), CapWhen::BeforeJitter) => (cap, Duration::MAX),
            (Some(cap), CapWhen::AfterJitter) => (Duration::MAX, cap),
        };
        let delay = self.curve.delay(n, delays.previous, u, before).min(before);
        // Two draws with one `u` would not be two draws.
        let jitter = if self.curve.is_random() { Jitter::None } else { self.jitter };
        let drawn = jitter.draw(delay, u).min(after);
        delays.previous = Some(drawn);
        drawn
    }

    /// The next delay, given what the server asked for.
    pub fn next_hinted(
        &self,
        delays: &mut Delays,
        hint: Option<RetryAfter>,
        mode: HintMode,
        u: f64,
    ) -> Duration {
        let own = self.next(delays, u);
        let Some(hint) = hint else { return own };
        let hinted = mode.merge(hint, own, self.cap, u);
        if hinted.restart {
            delays.restart();
        }
        hinted.delay
    }

    /// The delays one after the other, for a listing or a test; `uniform` gives numbers in [0, 1),
    /// such as `|| random.unit()`.
    pub fn iter<F: FnMut() -> f64>(&self, uniform: F) -> Iter<'_, F> {
        Iter { backoff: self, delays: Delays::new(), uniform }
    }
}
