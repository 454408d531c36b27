//! What learning is worth: a seeded simulation of a stack that meets forty kinds of failure, of which
//! its classifier knows half, beside an oracle that knows all of them.
//!
//! Each kind has one remedy, which works in 19 of 20 cases: another attempt, one after a longer
//! wait, one with a changed request, a plan of another kind, another service; or none at all. Stack
//! and classifier are the real ones, time is tokio's paused time.

mod stack;
mod world;

use std::fmt;
use std::time::{Duration, SystemTime};

use tower_triage_learn::{LearnPolicy, Learner, Mode};

use self::stack::{Knows, Unknown, drive};
use self::world::World;
pub use self::world::{Cure, Frequencies};

/// What came of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How many were made.
    pub calls: u32,
    /// How many got an answer.
    pub solved: u32,
    /// How often a service was called for that.
    pub attempts: u32,
}

impl Figures {
    /// Attempts that gave no answer.
    #[must_use]
    pub const fn wasted(&self) -> u32 {
        self.attempts - self.solved
    }

    /// Solved, as a share of all calls.
    #[must_use]
    pub fn solved_of_all(&self) -> f64 {
        f64::from(self.solved) / f64::from(self.calls)
    }

    /// Solved by this, as a share of what `oracle` solves.
    #[must_use]
    pub fn solved_of(&self, oracle: &Self) -> f64 {
        f64::from(self.solved) / f64::from(oracle.solved)
    }

    /// Attempts wasted by this beyond those that `oracle` wastes, as a share of those. (The first
    /// attempt of each call is one: it fails.)
    #[must_use]
    pub fn wasted_beyond(&self, oracle: &Self) -> f64 {
        f64::from(self.wasted()) / f64::from(oracle.wasted()) - 1.0
    }

    /// The same, as a share of all that the oracle makes.
    #[must_use]
    pub fn wasted_of_all(&self, oracle: &Self) -> f64 {
        (f64::from(self.wasted()) - f64::from(oracle.wasted())) / f64::from(oracle.attempts)
    }
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.solved += other.solved;
        self.attempts += other.attempts;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, solved, attempts } = self;
        write!(f, "{calls} calls, {solved} solved, {attempts} attempts, {} wasted", self.wasted())
    }
}

/// One seed's worth of a comparison: figures of the same calls, and of as many more after them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Comparison {
    /// Who knows every remedy.
    pub oracle: [Figures; 2],
    /// Who knows half of the kinds, and leaves the rest.
    pub half: [Figures; 2],
    /// Who knows half of the kinds, and tries everything on the rest.
    pub blind: [Figures; 2],
    /// Who knows half of the kinds, tries one remedy per call on the rest, and remembers.
    pub learned: [Figures; 2],
    /// Who tries everything on the rest until one remedy is known well enough.
    pub watching: [Figures; 2],
}

/// A learner whose calendar stands still: what is measured is what trials teach, not what time takes.
fn learner(policy: LearnPolicy) -> Learner {
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let plan = policy.build().expect("a policy of this file");
    Learner::with_clock(plan, move || noon)
}

/// The policy of the learner that tries.
fn trying(mode: Mode) -> LearnPolicy {
    LearnPolicy::default().mode(mode).remedies(stack::remedies()).explore(true)
}

/// Runs twice `calls` calls of a world made from `seed` through each stack.
pub async fn compare(seed: u64, calls: usize, frequencies: Frequencies, mode: Mode) -> Comparison {
    let mut compared = Comparison::default();
    let world = World::new(seed, frequencies);
    let trying = learner(trying(mode));
    let watching = learner(LearnPolicy::default().mode(mode).remedies(stack::reached()));
    for part in 0..2 {
        let kinds = world.calls(part, calls);
        let run = async |knows: Knows, unknown: Unknown, learner: Option<&Learner>| {
            drive(&world.again(part), knows, unknown, learner, &kinds).await
        };
        let at = part as usize;
        compared.oracle[at] = run(Knows::All, Unknown::Leave, None).await;
        compared.half[at] = run(Knows::Half, Unknown::Leave, None).await;
        compared.blind[at] = run(Knows::Half, Unknown::TryAll, None).await;
        compared.learned[at] = run(Knows::Half, Unknown::Leave, Some(&trying)).await;
        compared.watching[at] = run(Knows::Half, Unknown::TryAll, Some(&watching)).await;
    }
    compared
}

/// What became of a remedy that stops working.
#[derive(Clone, Copy, Debug)]
pub struct Unlearned {
    /// The kind's remedy before.
    pub before: Cure,
    /// And from one moment on.
    pub after: Cure,
    /// Calls until the old one was no longer applied without asking; `None` if it never was, because
    /// the mode is too cautious for a remedy that works in 19 of 20 cases.
    pub forgotten: Option<u32>,
    /// Calls until one was solved by the new one; `None` if that had the bad luck to fail twice when
    /// it was tried, so that it is not tried again for some days.
    pub solved: Option<u32>,
}

/// Lets the remedy of every unknown kind change after it has worked `calls` times, and counts the
/// calls of that kind until the stack has noticed. Gives up after 100.
pub async fn unlearn(seed: u64, calls: usize, mode: Mode) -> Vec<Unlearned> {
    const MOST: u32 = 100;
    let mut unlearned = Vec::new();
    let world = World::new(seed, Frequencies::Even);
    for kind in world.unknown() {
        let before = world.cure(kind);
        if before == Cure::None {
            continue;
        }
        let learner = learner(trying(mode));
        let mut world = world.again(0);
        let call = async |world: &World, learner: &Learner, times: usize| {
            drive(world, Knows::Half, Unknown::Leave, Some(learner), &vec![kind; times]).await
        };
        call(&world, &learner, calls).await;
        let applied = |world: &World| {
            let advice = learner.advise(world.fingerprint(kind));
            advice.filter(|advice| !advice.trial).map(|advice| advice.remedy)
        };
        let old = applied(&world);
        let after = before.other();
        world.set_cure(kind, after);
        let mut found = Unlearned { before, after, forgotten: None, solved: None };
        for n in 1..=MOST {
            let solved = call(&world, &learner, 1).await.solved;
            if old.is_some() && found.forgotten.is_none() && applied(&world) != old {
                found.forgotten = Some(n);
            }
            if solved > 0 {
                found.solved = Some(n);
                break;
            }
        }
        unlearned.push(found);
    }
    unlearned
}
