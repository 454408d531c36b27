//! Randomness: injectable, seedable, asked on the failure path only.

use std::fmt;
use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Where a layer takes its random numbers from.
#[derive(Default)]
pub struct Random(Source);

#[derive(Default)]
enum Source {
    /// The thread's generator: no lock, no state of ours.
    #[default]
    Thread,
    /// A seeded one, for tests and simulations: the same calls give the same numbers.
    Seeded(Box<Mutex<StdRng>>),
}

impl Random {
    /// Numbers that repeat for the same seed and the same order of calls.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Box::new(Mutex::new(StdRng::seed_from_u64(seed)))))
    }

    /// The next number, uniform in [0, 1).
    #[must_use]
    pub fn unit(&self) -> f64 {
        match &self.0 {
            Source::Thread => rand::random(),
            // A poisoned generator is as random as before.
            Source::Seeded(rng) => {
                rng.lock().unwrap_or_else(std::sync::PoisonError::into_inner).random()
            }
        }
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Thread => "Random(thread)",
            Source::Seeded(_) => "Random(seeded)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_all_of_them_in_range() {
        let draw = |random: Random| (0..100).map(|_| random.unit()).collect::<Vec<_>>();
        let drawn = draw(Random::seeded(7));
        assert_eq!(drawn, draw(Random::seeded(7)));
        assert_ne!(drawn, draw(Random::seeded(8)));
        assert_ne!(draw(Random::default()), draw(Random::default()));
        assert!(drawn.iter().all(|u| (0.0..1.0).contains(u)));
        assert!(drawn.iter().any(|u| *u < 0.2) && drawn.iter().any(|u| *u > 0.8));
    }
}
