//! What fails, how, and what helps.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tower_triage_core::{ErrorClass, Failure, Fingerprint, Operation, ToFailure};

/// How many kinds of failure there are.
const KINDS: usize = 40;
/// How often a remedy works that is the right one.
const WORKS: f64 = 0.95;

/// What helps against a kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// Another attempt.
    Retry,
    /// One after a longer wait.
    Wait,
    /// One with a changed request.
    Nudge,
    /// Another request.
    Replan,
    /// Another service.
    Backup,
    /// Nothing: somebody must be told.
    None,
}

impl Cure {
    const ALL: [Self; 6] =
        [Self::Retry, Self::Wait, Self::Nudge, Self::Replan, Self::Backup, Self::None];

    /// The class under which a failure gets there.
    pub(super) const fn class(self) -> ErrorClass {
        match self {
            Self::Retry => ErrorClass::Transient,
            Self::Wait => ErrorClass::Throttled,
            Self::Nudge => ErrorClass::Timeout,
            Self::Replan => ErrorClass::Quota,
            Self::Backup => ErrorClass::Declined,
            Self::None => ErrorClass::Internal,
        }
    }

    /// Another one, which the first does not contain: a longer wait is another attempt too.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Retry => Self::Nudge,
            Self::Wait => Self::Replan,
            Self::Nudge => Self::Backup,
            Self::Replan | Self::None => Self::Retry,
            Self::Backup => Self::Wait,
        }
    }
}

/// How often the kinds occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequencies {
    /// All alike.
    Even,
    /// The n-th one n times as seldom as the first (Zipf's law).
    Zipf,
}

/// Kinds of failure, what helps against each, and chance.
pub(super) struct World {
    seed: u64,
    frequencies: Frequencies,
    cures: Vec<Cure>,
    /// Known to the classifier.
    known: Vec<bool>,
    chance: Arc<Mutex<StdRng>>,
}

impl World {
    /// The world of a seed.
    pub(super) fn new(seed: u64, frequencies: Frequencies) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut known: Vec<bool> = (0..KINDS).map(|kind| kind < KINDS / 2).collect();
        known.shuffle(&mut rng);
        let cures = (0..KINDS).map(|_| Cure::ALL[rng.random_range(0..Cure::ALL.len())]).collect();
        Self { seed, frequencies, cures, known, chance: Arc::new(Mutex::new(rng)) }
    }

    /// The same world with fresh luck: whoever goes through it meets the same calls, not the same luck.
    pub(super) fn again(&self, part: u64) -> Self {
        let rng = StdRng::seed_from_u64(self.seed ^ (part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            cures: self.cures.clone(),
            known: self.known.clone(),
            chance: Arc::new(Mutex::new(rng)),
            ..*self
        }
    }

    /// The kinds of so many calls.
    pub(super) fn calls(&self, part: u64, calls: usize) -> Vec<usize> {
        let mut rng = StdRng::seed_from_u64(self.seed.rotate_left(17) ^ part);
        let weight = |kind: usize| match self.frequencies {
            Frequencies::Even => 1.0,
            Frequencies::Zipf => 1.0 / (kind as f64 + 1.0),
        };
        let total: f64 = (0..KINDS).map(weight).sum();
        let draw = |u: f64| {
            let mut left = u * total;
            (0..KINDS)
                .find(|kind| {
                    left -= weight(*kind);
                    left < 0.0
                })
                .unwrap_or(KINDS - 1)
        };
        (0..calls).map(|_| draw(rng.random())).collect()
    }

    /// The kinds that the classifier does not know.
    pub(super) fn unknown(&self) -> impl Iterator<Item = usize> {
        (0..KINDS).filter(|kind| !self.known[*kind])
    }

    /// What helps against it.
    pub(super) fn cure(&self, kind: usize) -> Cure {
        self.cures[kind]
    }

    pub(super) fn set_cure(&mut self, kind: usize, cure: Cure) {
        self.cures[kind] = cure;
    }

    pub(super) fn knows(&self, kind: usize) -> bool {
        self.known[kind]
    }

    pub(super) fn works(&self) -> bool {
        self.draw() < WORKS
    }

    fn draw(&self) -> f64 {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    /// A failure of this kind: the words are its own, numbers, ids and names are not.
    pub(super) fn failure(&self, kind: usize, class: ErrorClass) -> SimulatedError {
        const WHAT: [&str; 8] =
            ["shard", "model", "tool", "planner", "index", "worker", "cache", "schema"];
        const HOW: [&str; 5] =
            ["is moving", "ran into a loop", "lost its place", "gave no reason", "is not itself"];
        let (what, how) = (WHAT[kind % WHAT.len()], HOW[kind / WHAT.len()]);
        let (number, name) = ((self.draw() * 1e6) as u32, (self.draw() * 1e6) as u32);
        let text =
            format!("{what} {number} of 'tenant {name}' {how} (request {name:06x}-{number:x})");
        SimulatedError { class, text }
    }

    /// Its fingerprint, as long as nobody knows what it is.
    pub(super) fn fingerprint(&self, kind: usize) -> Fingerprint {
        let error = self.failure(kind, ErrorClass::Unknown);
        Fingerprint::of(&Operation::EMPTY, &error.to_failure(), &error.text)
    }
}

/// What a service of the simulation fails with.
#[derive(Debug)]
pub(super) struct SimulatedError {
    class: ErrorClass,
    text: String,
}

impl fmt::Display for SimulatedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SimulatedError {}

impl ToFailure for SimulatedError {
    fn to_failure(&self) -> Failure {
        self.class.into()
    }
}
