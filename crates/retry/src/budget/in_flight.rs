//! A share of the calls in flight, as Envoy and failsafe-go have it.

use tower_triage_core::ConfigError;

use super::fixed::{ONE, units};
use crate::sync::{AtomicU64, Ordering};

/// Of the attempts in flight, retries may be [`max_ratio`](Self::max_ratio), and
/// [`min`](Self::min) always. A retry is denied when at least `min` retries run and their share
/// is above `max_ratio` already; one that waits for its turn counts as running. No clock.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct InFlightSettings {
    /// The share, from 0 to 1. Default: 0.2.
    pub max_ratio: f64,
    /// Retries that may always run, in all. Default: 3.
    pub min: u32,
}

impl Default for InFlightSettings {
    fn default() -> Self {
        Self { max_ratio: 0.2, min: 3 }
    }
}

/// The shared counts, in one word so that checking and taking is one step: attempts in flight
/// below (retries among them), retries above.
#[derive(Debug)]
pub(super) struct InFlight {
    max_ratio: u64,
    min: u64,
    counts: AtomicU64,
}

const CALL: u64 = 1;
const RETRY: u64 = (1 << 32) | CALL;

impl InFlight {
    pub(super) fn new(settings: &InFlightSettings) -> Result<Self, ConfigError> {
        let max_ratio = units("max_ratio", settings.max_ratio, 1.0, "a share, from 0 to 1")?;
        Ok(Self { max_ratio, min: u64::from(settings.min), counts: AtomicU64::new(0) })
    }

    pub(super) fn start_call(&self) {
        // Relaxed, here and below: the counts order nothing else.
        self.counts.fetch_add(CALL, Ordering::Relaxed);
    }

    pub(super) fn end_call(&self) {
        self.counts.fetch_sub(CALL, Ordering::Relaxed);
    }

    pub(super) fn try_start_retry(&self) -> bool {
        self.counts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |counts| {
                let (calls, retries) = split(counts);
                self.allows(calls, retries).then_some(counts + RETRY)
            })
            .is_ok()
    }

    pub(super) fn end_retry(&self) {
        self.counts.fetch_sub(RETRY, Ordering::Relaxed);
    }

    const fn allows(&self, calls: u64, retries: u64) -> bool {
        // Both counts are below 2^32 and the share is at most 10^9: no overflow.
        retries < self.min || retries * ONE <= self.max_ratio * calls
    }

    /// How many more retries could start now, one after the other.
    pub(super) fn balance(&self) -> u64 {
        let (calls, retries) = split(self.counts.load(Ordering::Relaxed));
        // A retry counts on both sides, so with each the share comes nearer to all.
        let Some(growth) = ONE.checked_sub(self.max_ratio).filter(|growth| *growth > 0) else {
            return u64::MAX;
        };
        let by_share =
            (self.max_ratio * calls).checked_sub(retries * ONE).map_or(0, |room| room / growth + 1);
        by_share.max(self.min.saturating_sub(retries))
    }
}

const fn split(counts: u64) -> (u64, u64) {
    (counts & u32::MAX as u64, counts >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wrong_settings_name_the_field() {
        for max_ratio in [-0.1, 1.1, f64::NAN] {
            let settings = InFlightSettings { max_ratio, min: 3 };
            let field = InFlight::new(&settings).map(|_| ()).map_err(|error| error.field());
            assert_eq!(field, Err("max_ratio"));
        }
    }

    proptest! {
        #[test]
        fn equals_two_plain_counters(
            percent in 0_u64..=100,
            min in 0_u32..4,
            events in proptest::collection::vec(0..4, 0..300),
        ) {
            let settings = InFlightSettings { max_ratio: percent as f64 / 100.0, min };
            let budget = InFlight::new(&settings).expect("sound settings");
            let (mut calls, mut retries) = (0_u64, 0_u64);
            for event in events {
                match event {
                    0 => {
                        budget.start_call();
                        calls += 1;
                    }
                    1 if calls > 0 => {
                        budget.end_call();
                        calls -= 1;
                    }
                    2 if retries > 0 => {
                        budget.end_retry();
                        retries -= 1;
                    }
                    3 => {
                        let denied = retries >= u64::from(min)
                            && retries * 100 > percent * (calls + retries);
                        prop_assert_eq!(budget.balance() == 0, denied);
                        prop_assert_eq!(budget.try_start_retry(), !denied);
                        retries += u64::from(!denied);
                    }
                    _ => {}
                }
                prop_assert_eq!(split(budget.counts.load(Ordering::Relaxed)), (calls + retries, retries));
            }
        }

        #[test]
        fn the_balance_is_what_can_start(percent in 0_u64..100, min in 0_u32..9, calls in 0..50) {
            let settings = InFlightSettings { max_ratio: percent as f64 / 100.0, min };
            let budget = InFlight::new(&settings).expect("sound settings");
            (0..calls).for_each(|_| budget.start_call());
            let balance = budget.balance();
            let started = (0..10_000).take_while(|_| budget.try_start_retry()).count() as u64;
            prop_assert_eq!(started, balance);
        }
    }
}
