//! Delays before cap and jitter.

use std::time::Duration;

/// How the delay grows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Curve {
    Fixed { base: Duration },
    Linear { base: Duration, step: Duration },
    Exponential { base: Duration, factor: f64, whole_millis: bool },
    Range { min: Duration, max: Duration },
    Decorrelated { base: Duration },
    List { delays: Vec<Duration> },
}

impl Curve {
    /// Does the curve itself draw? Then no jitter is put on it.
    pub(super) const fn is_random(&self) -> bool {
        matches!(self, Self::Range { .. } | Self::Decorrelated { .. })
    }

    /// The delay before retry `n`, counted from 1; `previous` is the delay before the one before.
    /// Nothing needs to be exact above `ceiling`.
    pub(super) fn delay(
        &self,
        n: u64,
        previous: Option<Duration>,
        u: f64,
        ceiling: Duration,
    ) -> Duration {
        let steps = n.saturating_sub(1);
        match self {
            Self::Fixed { base } => *base,
            Self::Linear { base, step } => base.saturating_add(times(*step, steps)),
            Self::Exponential { base, factor, whole_millis: false } => grow(*base, *factor, steps),
            Self::Exponential { base, factor, whole_millis: true } => {
                grow_in_millis(*base, *factor, steps, ceiling)
            }
            Self::Range { min, max } => between(*min, *max, u),
            Self::Decorrelated { base } => {
                between(*base, times(previous.unwrap_or(*base), 3).max(*base), u)
            }
            Self::List { delays } => {
                let at = usize::try_from(steps).unwrap_or(usize::MAX);
                delays.get(at).or(delays.last()).copied().unwrap_or_default()
            }
        }
    }
}

/// `base * factor^steps`, saturating; a factor that is not at least 1 counts as 1.
fn grow(base: Duration, factor: f64, steps: u64) -> Duration {
    // Zero stays zero, also times infinity; and a large base must not be rounded below itself.
    if base.is_zero() || steps == 0 {
        return base;
    }
    scale(base, factor.max(1.0).powf(steps as f64)).max(base)
}

/// The same, cut to whole milliseconds at each step, as systems do that count in integers.
fn grow_in_millis(base: Duration, factor: f64, steps: u64, ceiling: Duration) -> Duration {
    // Ends long before for every factor in use: the delay stands still or passes the ceiling.
    // For one that creeps, the rest of the way is taken in one stride.
    const STEPS: u64 = 10_000;
    let mut delay = whole_millis(base);
    for step in 0..steps {
        if step == STEPS {
            return whole_millis(grow(delay, factor, steps - step));
        }
        let next = whole_millis(grow(delay, factor, 1));
        if next == delay || delay > ceiling {
            break;
        }
        delay = next;
    }
    delay
}

const fn whole_millis(delay: Duration) -> Duration {
    Duration::new(delay.as_secs(), delay.subsec_millis() * 1_000_000)
}

/// `delay * n`, saturating.
pub(super) fn times(delay: Duration, n: u64) -> Duration {
    // At most 2^94 nanoseconds times 2^64 does not fit; the saturated product is too long anyway.
    from_nanos(delay.as_nanos().saturating_mul(u128::from(n)))
}

/// `delay * x`, saturating at both ends; not a number counts as 0.
pub(super) fn scale(delay: Duration, x: f64) -> Duration {
    // The cast saturates, and takes what is not a number for 0.
    from_nanos((delay.as_nanos() as f64 * x) as u128)
}

/// The point `u` of the way from one delay to another: never outside, whatever `u` is.
pub(super) fn between(from: Duration, to: Duration, u: f64) -> Duration {
    from.saturating_add(scale(to.saturating_sub(from), u)).min(to.max(from))
}

fn from_nanos(nanos: u128) -> Duration {
    const NANOS_PER_SEC: u128 = 1_000_000_000;
    u64::try_from(nanos / NANOS_PER_SEC)
        .map_or(Duration::MAX, |secs| Duration::new(secs, (nanos % NANOS_PER_SEC) as u32))
}
