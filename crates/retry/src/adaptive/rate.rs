//! How fast to send: pure, with the time as an argument.

use std::time::Duration;

/// A send rate in requests per second, found by trial: cut to 0.7 of what was sent when the
/// dependency throttles, then raised along a [cubic curve](Cubic), and never above twice of what is
/// really sent. Until it throttles for the first time there is no limit.
///
/// The constants are those of the AWS SDKs' adaptive retry mode. `now` is the time since some fixed
/// moment; it does not go back.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_retry::SendRate;
///
/// let at = Duration::from_millis;
/// let mut rate = SendRate::default();
/// for n in 0..20 {
///     assert_eq!(rate.take(at(n * 100)), Duration::ZERO); // 10 a second
///     rate.observe(false, at(n * 100));
/// }
/// rate.observe(true, at(2000)); // too fast
/// assert!(rate.per_second().is_some_and(|rate| rate < 8.0));
/// assert!(rate.take(at(2000)) > Duration::ZERO);
/// ```
#[derive(Clone, Debug, Default)]
pub struct SendRate {
    measured: Measured,
    cubic: Cubic,
    /// There is one from the first throttling on.
    tokens: Option<Tokens>,
    fill: f64,
}

impl SendRate {
    /// The rate never falls below one request in two seconds.
    const LEAST: f64 = 0.5;
    /// The bucket always holds a request.
    const LEAST_CAPACITY: f64 = 1.0;

    /// Takes the right to send one request, if it is there: then zero. If not, nothing is taken, and
    /// it will be there after so long, unless the rate changes before.
    #[must_use = "more than zero means that nothing was taken"]
    pub fn take(&mut self, now: Duration) -> Duration {
        let wait = self.wait_for(1.0, now);
        if let (true, Some(tokens)) = (wait.is_zero(), &mut self.tokens) {
            tokens.left -= 1.0;
        }
        wait
    }

    /// How long it takes until there are so many tokens, as the rate is now.
    pub(super) fn wait_for(&mut self, wanted: f64, now: Duration) -> Duration {
        let Some(tokens) = &mut self.tokens else { return Duration::ZERO };
        tokens.refill(self.fill, now);
        let missing = wanted - tokens.left;
        if missing <= 0.0 {
            return Duration::ZERO;
        }
        // Rounded up: when the time has passed they must be there.
        let wait = Duration::try_from_secs_f64(missing / self.fill).unwrap_or(Duration::MAX);
        wait.saturating_add(Duration::from_nanos(1))
    }

    /// What was taken was not used.
    pub fn give_back(&mut self) {
        if let Some(tokens) = &mut self.tokens {
            tokens.left = (tokens.left + 1.0).min(tokens.capacity);
        }
    }

    /// A request was answered, and `throttled` or not.
    pub fn observe(&mut self, throttled: bool, now: Duration) {
        self.measured.count(now);
        let sent = self.measured.rate;
        let wanted = if throttled {
            let last = if self.tokens.is_some() { sent.min(self.fill) } else { sent };
            self.cubic = Cubic { max_rate: last, throttled_at: now };
            last * Cubic::BETA
        } else {
            self.cubic.rate(now)
        };
        if let Some(tokens) = &mut self.tokens {
            tokens.refill(self.fill, now);
        } else if throttled {
            self.tokens = Some(Tokens { left: 0.0, capacity: 0.0, at: now });
        }
        let rate = wanted.min(2.0 * sent);
        self.fill = rate.max(Self::LEAST);
        if let Some(tokens) = &mut self.tokens {
            tokens.capacity = rate.max(Self::LEAST_CAPACITY);
            tokens.left = tokens.left.min(tokens.capacity);
        }
    }

    /// Requests per second at most; `None` as long as nothing was throttled.
    #[must_use]
    pub const fn per_second(&self) -> Option<f64> {
        match self.tokens {
            Some(_) => Some(self.fill),
            None => None,
        }
    }

    /// The rate that would hold, were it limited.
    #[must_use]
    pub const fn fill_rate(&self) -> f64 {
        self.fill
    }

    /// Requests per second as they were really sent: smoothed over half seconds.
    #[must_use]
    pub const fn measured(&self) -> f64 {
        self.measured.rate
    }
}

/// How the rate grows after a throttling: fast back to where it was, slowly past it, then fast again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cubic {
    /// The rate at which it was throttled.
    pub max_rate: f64,
    /// When.
    pub throttled_at: Duration,
}

impl Cubic {
    /// What is left of the rate after a throttling.
    pub const BETA: f64 = 0.7;
    /// How steep the curve is.
    pub const SCALE: f64 = 0.4;

    /// The rate at `now`.
    #[must_use]
    pub fn rate(&self, now: Duration) -> f64 {
        let flat = (self.max_rate * (1.0 - Self::BETA) / Self::SCALE).cbrt();
        let since = now.saturating_sub(self.throttled_at).as_secs_f64();
        Self::SCALE * (since - flat).powi(3) + self.max_rate
    }
}

/// Requests per second, as they are.
#[derive(Clone, Debug, Default)]
struct Measured {
    rate: f64,
    /// In the half seconds since `half`.
    count: u32,
    /// The half second that is counted, from the clock's begin.
    half: u128,
}

impl Measured {
    /// How much the last half seconds weigh.
    const SMOOTH: f64 = 0.8;

    fn count(&mut self, now: Duration) {
        self.count = self.count.saturating_add(1);
        let half = now.as_millis() / 500;
        if half > self.half {
            let seconds = (half - self.half) as f64 / 2.0;
            let rate = f64::from(self.count) / seconds;
            self.rate = rate * Self::SMOOTH + self.rate * (1.0 - Self::SMOOTH);
            (self.count, self.half) = (0, half);
        }
    }
}

/// What may be sent at once.
#[derive(Clone, Debug)]
struct Tokens {
    left: f64,
    capacity: f64,
    at: Duration,
}

impl Tokens {
    fn refill(&mut self, rate: f64, now: Duration) {
        let since = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + since * rate).min(self.capacity);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_limited_until_something_is_throttled() {
        let mut rate = SendRate::default();
        for n in 0..1000 {
            let now = Duration::from_millis(n);
            assert_eq!(rate.take(now), Duration::ZERO);
            rate.observe(false, now);
        }
        assert_eq!(rate.per_second(), None);
        rate.observe(true, Duration::from_secs(1));
        assert!(rate.per_second().is_some());
    }

    #[test]
    fn what_is_not_there_yet_is_not_taken_and_what_is_given_back_is_used() {
        let at = Duration::from_secs;
        let mut rate = SendRate::default();
        rate.observe(true, at(10));
        assert_eq!(rate.per_second(), Some(0.5));
        assert_eq!(rate.take(at(10)).as_secs(), 2);
        assert_eq!(rate.take(at(11)).as_secs(), 1, "no one has taken it");
        assert_eq!(rate.take(at(12)), Duration::ZERO);
        assert_eq!(rate.take(at(12)).as_secs(), 2);
        rate.give_back();
        assert_eq!(rate.take(at(12)), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn the_rate_stays_between_its_least_and_twice_what_is_sent(
            events in proptest::collection::vec((0u64..700, any::<bool>()), 1..300),
        ) {
            let (mut rate, mut now) = (SendRate::default(), Duration::ZERO);
            for (gap, throttled) in events {
                now += Duration::from_millis(gap);
                let wait = rate.take(now);
                rate.observe(throttled, now);
                prop_assert!(rate.fill_rate().is_finite() && rate.fill_rate() >= SendRate::LEAST);
                prop_assert!(rate.fill_rate() <= (2.0 * rate.measured()).max(SendRate::LEAST));
                prop_assert!(wait == Duration::ZERO || rate.per_second().is_some());
                let mut later = rate.clone();
                let wait = later.take(now);
                prop_assert!(wait.is_zero() || later.take(now + wait).is_zero(), "{wait:?}");
            }
        }
    }
}
