//! How often something worked, and how sure that makes us.

use std::time::Duration;

use crate::policy::LearnPlan;

/// Successes and failures of one remedy for one kind of failure, both fading: with time, and with
/// each later trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tally {
    pub(crate) worked: f64,
    pub(crate) failed: f64,
    /// As of when, since 1970.
    pub(crate) at: Duration,
}

impl Tally {
    pub(crate) const NOTHING: Self = Self { worked: 0.0, failed: 0.0, at: Duration::ZERO };

    /// What is left of it at `now`. A clock that was set back lets nothing fade.
    pub(crate) fn faded(self, now: Duration, plan: &LearnPlan) -> Self {
        let age = now.saturating_sub(self.at).as_secs_f64();
        let left = (-age / plan.half_life.as_secs_f64()).exp2();
        Self { worked: self.worked * left, failed: self.failed * left, at: now.max(self.at) }
    }

    /// With one more trial. A failure makes the older ones fade faster than a success does: what
    /// stops working is to be forgotten soon, however long it worked.
    pub(crate) fn with(self, worked: bool, now: Duration, plan: &LearnPlan) -> Self {
        let span = if worked { plan.span } else { plan.failure_span };
        let before = self.faded(now, plan).weighed_down(span);
        Self {
            worked: before.worked + f64::from(u8::from(worked)),
            failed: before.failed + f64::from(u8::from(!worked)),
            ..before
        }
    }

    /// Less by one part in `span`.
    pub(crate) fn weighed_down(self, span: f64) -> Self {
        let left = 1.0 - 1.0 / span;
        Self { worked: self.worked * left, failed: self.failed * left, ..self }
    }

    /// Both, as one. No more than the span can hold by itself.
    pub(crate) fn merged(self, other: Self, plan: &LearnPlan) -> Self {
        let now = self.at.max(other.at);
        let (a, b) = (self.faded(now, plan), other.faded(now, plan));
        let (worked, failed) = (a.worked + b.worked, a.failed + b.failed);
        let scale = (plan.span / (worked + failed)).min(1.0);
        Self { worked: worked * scale, failed: failed * scale, at: now }
    }

    /// How many trials it stands for.
    pub(crate) fn trials(self) -> f64 {
        self.worked + self.failed
    }

    /// The chance that it works, as far as one may rely on it: the lower bound of Wilson's score
    /// interval, one-sided, 95 %. Two successes of two give 0.42, seven 0.71, 34 in a row 0.9.
    pub(crate) fn confidence(self) -> f64 {
        const Z: f64 = 1.644_853_626_951_472_2;
        let n = self.trials();
        if n <= 0.0 {
            return 0.0;
        }
        let p = self.worked / n;
        let z2 = Z * Z;
        let spread = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).max(0.0).sqrt();
        ((p + z2 / (2.0 * n) - spread) / (1.0 + z2 / n)).clamp(0.0, 1.0)
    }

    /// The chance that it works, best guess: nothing is known at 0.5 (Laplace's rule of succession).
    pub(crate) fn chance(self) -> f64 {
        (self.worked + 1.0) / (self.trials() + 2.0)
    }

    /// May it be part of a memory? For what comes from a file.
    pub(crate) fn is_sound(self) -> bool {
        let sound = |count: f64| count.is_finite() && count >= 0.0;
        sound(self.worked) && sound(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LearnPolicy, Mode};
    use proptest::prelude::*;

    fn plan() -> LearnPlan {
        LearnPolicy::default().build().unwrap()
    }

    fn after(trials: &[bool]) -> Tally {
        let plan = plan();
        trials.iter().fold(Tally::NOTHING, |tally, worked| tally.with(*worked, NOW, &plan))
    }

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn two_successes_are_not_certainty() {
        let needed = |mode: Mode| {
            (1..).find(|n| after(&vec![true; *n]).confidence() >= mode.threshold()).unwrap()
        };
        assert_eq!(needed(Mode::Aggressive), 3);
        assert_eq!(needed(Mode::Balanced), 7);
        assert_eq!(needed(Mode::Cautious), 34);
        assert!((after(&[true, true]).confidence() - 0.42).abs() < 0.01);
        assert_eq!(after(&[]).confidence(), 0.0);
        assert!(after(&[false; 9]).confidence() < 0.01);
    }

    /// However long something worked.
    #[test]
    fn what_stops_working_is_forgotten_within_a_dozen_trials() {
        let plan = plan();
        for (mode, most) in [(Mode::Cautious, 2), (Mode::Balanced, 7), (Mode::Aggressive, 12)] {
            let mut tally = after(&[true; 1000]);
            let mut failures = 0;
            while tally.confidence() >= mode.threshold() {
                tally = tally.with(false, NOW, &plan);
                failures += 1;
            }
            assert_eq!(failures, most, "{mode}");
        }
    }

    #[test]
    fn a_record_fades_with_time_and_a_clock_set_back_does_no_harm() {
        let plan = plan();
        let tally = after(&[true; 40]);
        let later = tally.faded(NOW + plan.half_life, &plan);
        assert!((later.worked * 2.0 - tally.worked).abs() < 1e-9);
        assert!(tally.confidence() >= 0.9 && later.confidence() < 0.9);
        assert_eq!(tally.faded(Duration::ZERO, &plan), tally);
        let long = tally.faded(Duration::MAX, &plan);
        assert!(long.is_sound() && long.trials() < 1e-9);
    }

    proptest! {
        #[test]
        fn confidence_is_a_share_below_the_rate_and_counts_stay_bounded(
            trials in proptest::collection::vec(any::<bool>(), 0..300),
        ) {
            let (tally, plan) = (after(&trials), plan());
            prop_assert!(tally.is_sound());
            prop_assert!(tally.trials() <= plan.span + 1e-9);
            let rate = tally.worked / tally.trials().max(1e-300);
            prop_assert!((0.0..=1.0).contains(&tally.confidence()));
            prop_assert!(tally.confidence() <= rate + 1e-9);
            // One more success never makes it less sure, one more failure never more.
            prop_assert!(tally.with(true, NOW, &plan).confidence() >= tally.confidence() - 1e-9);
            prop_assert!(tally.with(false, NOW, &plan).confidence() <= tally.confidence() + 1e-9);
        }
    }
}
