//! A share of the requests of the last while, and a reserve.

use std::sync::PoisonError;
use std::time::Duration;

use tower_triage_core::ConfigError;

use super::fixed::{ONE, units};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// In any period of [`ttl`](Self::ttl): retries up to [`ratio`](Self::ratio) of its requests, and
/// [`min_retries_per_sec`](Self::min_retries_per_sec) on top. Needs the clock.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct WindowSettings {
    /// How long a request counts, from 100 ms to a day. Default: 10 s.
    #[cfg_attr(feature = "serde", serde(with = "tower_triage_core::duration_text"))]
    pub ttl: Duration,
    /// The reserve: this many retries per second of `ttl`, whatever the traffic. Default: 10.
    pub min_retries_per_sec: u32,
    /// Retries per request, from 0 to 1000. Default: 0.2.
    pub ratio: f64,
}

impl Default for WindowSettings {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), min_retries_per_sec: 10, ratio: 0.2 }
    }
}

/// Slots per window. More make it more exact and summing it dearer.
const SLOTS: u64 = 20;

/// The shared window. It errs on the strict side only: a request is forgotten up to one slot
/// before its time, a retry up to one slot after, so no period of `ttl` sees more than its share.
#[derive(Debug)]
pub(super) struct Window {
    /// Width of a slot in nanoseconds.
    width: u64,
    reserve: u64,
    ratio: u64,
    requests: Requests,
    retries: Mutex<Retries>,
}

impl Window {
    pub(super) fn new(settings: &WindowSettings) -> Result<Self, ConfigError> {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        if settings.ttl < Duration::from_millis(100) || settings.ttl > DAY {
            let ttl = format!("{:?}", settings.ttl);
            return Err(ConfigError::new("ttl", ttl, "from 100 ms to a day"));
        }
        let ratio = units("ratio", settings.ratio, 1000.0, "retries per request, from 0 to 1000")?;
        let nanos = nanos(settings.ttl);
        // A nanosecond is a unit, as it happens: retries per second times nanoseconds.
        let reserve = u64::from(settings.min_retries_per_sec).saturating_mul(nanos);
        Ok(Self {
            width: nanos.div_ceil(SLOTS),
            reserve,
            ratio,
            requests: Requests::default(),
            retries: Mutex::default(),
        })
    }

    pub(super) fn deposit(&self, now: Duration) {
        self.requests.add(self.slot(now));
    }

    /// Checks and subtracts in one step.
    pub(super) fn withdraw(&self, now: Duration) -> bool {
        let mut retries = self.retries();
        let slot = retries.advance(self.slot(now));
        let allowed = self.left(slot, &retries) >= ONE;
        if allowed {
            retries.add(slot);
        }
        allowed
    }

    pub(super) fn units(&self, now: Duration) -> u64 {
        let mut retries = self.retries();
        let slot = retries.advance(self.slot(now));
        self.left(slot, &retries)
    }

    fn left(&self, slot: u64, retries: &Retries) -> u64 {
        let gained = u128::from(self.requests.sum(slot)) * u128::from(self.ratio);
        let spent = u128::from(retries.sum(slot)) * u128::from(ONE);
        let left = (gained + u128::from(self.reserve)).saturating_sub(spent);
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    fn slot(&self, now: Duration) -> u64 {
        nanos(now) / self.width
    }

    fn retries(&self) -> MutexGuard<'_, Retries> {
        // Every state is a valid one, a panicking holder's too.
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The requests of the last `SLOTS` slots, the current one included; no lock.
///
/// A cell holds the number of its slot above and a count below. The number wraps after ten years of
/// the narrowest slots, and the count stops at 268 million.
#[derive(Debug, Default)]
struct Requests([AtomicU64; SLOTS as usize]);

const COUNT_BITS: u32 = 28;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl Requests {
    fn add(&self, slot: u64) {
        let stamp = slot << COUNT_BITS;
        // Relaxed: the cell is whole in itself and orders nothing else. The update is refused only
        // by a full cell, or one that a thread with a later clock has already taken over.
        let _ = self.0[(slot % SLOTS) as usize].fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            |cell| {
                if cell & !COUNT == stamp {
                    (cell & COUNT < COUNT).then_some(cell + 1)
                } else {
                    let ahead = stamp.wrapping_sub(cell & !COUNT);
                    (ahead <= u64::MAX / 2).then_some(stamp | 1)
                }
            },
        );
    }

    fn sum(&self, now: u64) -> u64 {
        let oldest = (now + 1).saturating_sub(SLOTS);
        (oldest..=now)
            .map(|slot| {
                let cell = self.0[(slot % SLOTS) as usize].load(Ordering::Relaxed);
                if cell & !COUNT == slot << COUNT_BITS { cell & COUNT } else { 0 }
            })
            .sum()
    }
}

/// The retries of the current slot and the `SLOTS` before it.
#[derive(Debug, Default)]
struct Retries {
    slots: [(u64, u64); SLOTS as usize + 1],
    latest: u64,
}

impl Retries {
    /// The slot to reckon with: threads that read the clock in one order may arrive in another.
    fn advance(&mut self, slot: u64) -> u64 {
        self.latest = self.latest.max(slot);
        self.latest
    }

    fn add(&mut self, slot: u64) {
        let cell = &mut self.slots[(slot % (SLOTS + 1)) as usize];
        *cell = if cell.0 == slot { (slot, cell.1 + 1) } else { (slot, 1) };
    }

    fn sum(&self, now: u64) -> u64 {
        let oldest = now.saturating_sub(SLOTS);
        self.slots.iter().filter(|(slot, _)| (oldest..=now).contains(slot)).map(|(_, n)| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn window(ttl: Duration, min_retries_per_sec: u32, ratio: f64) -> Window {
        let settings = WindowSettings { ttl, min_retries_per_sec, ratio };
        Window::new(&settings).expect("sound settings")
    }

    #[test]
    fn a_ratio_is_that_ratio() {
        for (ratio, allowed) in [(0.6, 600), (0.4, 400), (0.2, 200), (0.75, 750), (2.0, 1000)] {
            let window = window(SEC, 0, ratio);
            let granted = (0..1000)
                .filter(|_| {
                    window.deposit(Duration::ZERO);
                    window.withdraw(Duration::ZERO)
                })
                .count();
            assert_eq!(granted, allowed, "ratio {ratio}");
        }
    }

    #[test]
    fn the_reserve_is_there_from_the_start_and_comes_back() {
        let window = window(SEC, 5, 0.0);
        let granted = |at| (0..9).filter(|_| window.withdraw(SEC.mul_f64(at))).count();
        assert_eq!(granted(0.0), 5);
        assert_eq!(granted(0.95), 0);
        assert_eq!(granted(1.05), 5);
    }

    #[test]
    fn requests_count_for_the_window_and_no_longer() {
        let window = window(SEC, 0, 1.0);
        window.deposit(Duration::ZERO);
        window.deposit(Duration::ZERO);
        assert!(window.withdraw(SEC.mul_f64(0.9)));
        assert!(!window.withdraw(SEC));
    }

    #[test]
    fn a_late_clock_neither_panics_nor_gives_more() {
        let window = window(SEC, 1, 1.0);
        assert!(window.withdraw(SEC * 100));
        window.deposit(Duration::ZERO);
        assert!(!window.withdraw(Duration::ZERO));
        window.deposit(SEC * 100_000_000);
        assert_eq!(window.units(SEC * 100_000_000), 2 * ONE);
        window.deposit(Duration::MAX);
        assert!(window.units(Duration::MAX) <= 2 * ONE);
    }

    /// A thread that read the clock long ago takes nothing from those that are ahead of it.
    #[test]
    fn a_cell_that_others_have_moved_on_with_is_left_alone() {
        let requests = Requests::default();
        requests.add(2 * SLOTS);
        requests.add(2 * SLOTS);
        for late in [0, SLOTS] {
            requests.add(late);
            assert_eq!((requests.sum(late), requests.sum(2 * SLOTS)), (0, 2));
        }
        requests.add(3 * SLOTS);
        assert_eq!((requests.sum(2 * SLOTS), requests.sum(3 * SLOTS)), (0, 1));
    }

    #[test]
    fn a_full_cell_stays_full() {
        let requests = Requests::default();
        requests.0[3].store((3 << COUNT_BITS) | (COUNT - 1), Ordering::Relaxed);
        requests.add(3);
        requests.add(3);
        assert_eq!((requests.sum(3), requests.sum(4)), (COUNT, COUNT));
    }

    #[test]
    fn wrong_settings_name_the_field() {
        let field = |ttl, ratio| {
            let settings = WindowSettings { ttl, ratio, ..WindowSettings::default() };
            Window::new(&settings).map(|_| ()).map_err(|error| error.field())
        };
        assert_eq!(field(Duration::ZERO, 0.2), Err("ttl"));
        assert_eq!(field(Duration::MAX, 0.2), Err("ttl"));
        assert_eq!(field(SEC, f64::NAN), Err("ratio"));
        assert_eq!(field(SEC, 1000.5), Err("ratio"));
        assert_eq!(field(SEC, 0.0), Ok(()));
    }

    proptest! {
        /// In no period of `ttl` that ends with a retry are there more of them than the reserve
        /// and the share of that period's requests.
        #[test]
        fn never_more_than_its_share(
            ratio_milli in 0_u64..2000,
            reserve in 0_u32..5,
            events in proptest::collection::vec((0_u64..400, any::<bool>()), 0..200),
        ) {
            let window = window(SEC, reserve, ratio_milli as f64 / 1000.0);
            let (mut requests, mut retries) = (Vec::new(), Vec::new());
            let mut now = 0;
            for (step, deposit) in events {
                // Bursts as well as pauses.
                now += step / 4;
                let at = Duration::from_millis(now);
                if deposit {
                    requests.push(now);
                    window.deposit(at);
                } else if window.withdraw(at) {
                    retries.push(now);
                    let within = |times: &[u64]| times.iter().filter(|&&t| t + 1000 > now).count() as u64;
                    prop_assert!(
                        within(&retries) * 1000 <= within(&requests) * ratio_milli + u64::from(reserve) * 1000
                    );
                }
            }
        }
    }
}
