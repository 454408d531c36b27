//! Long random runs against textbook models: windows and budgets, exactly on one thread; on two
//! threads what must hold however they are scheduled.
//!
//! The textbook models keep every event and count by hand; none of the structures that make the
//! real ones fast is in them.

mod breaker;
mod budget;
mod budgets;
mod threads;
mod windows;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// What one run found: how many events it compared, or where the two first differed.
pub type Outcome = Result<u64, String>;

/// A named run of about so many events, from a seed.
pub struct Run {
    /// What it is about.
    pub name: String,
    run: Box<dyn Fn(u64, u64) -> Outcome>,
}

impl Run {
    fn new(name: impl Into<String>, run: impl Fn(u64, u64) -> Outcome + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Where the real thing and the textbook differ, or an invariant is broken.
    pub fn run(&self, events: u64, seed: u64) -> Outcome {
        (self.run)(events, seed)
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every run: each kind of window and of budget, on one thread and on two.
#[must_use]
pub fn runs() -> Vec<Run> {
    let mut runs = windows::runs();
    runs.extend(budgets::runs());
    runs.extend(threads::runs());
    runs
}

fn rng(seed: u64, part: u64) -> StdRng {
    StdRng::seed_from_u64(seed ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// `Err` with what differs, unless both are the same.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: T, textbook: T) -> Result<(), String> {
    if real == textbook {
        Ok(())
    } else {
        Err(format!("{what}: is {real:?}, by the textbook {textbook:?}"))
    }
}
