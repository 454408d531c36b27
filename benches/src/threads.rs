//! What a second thread brings: calls per time of two threads on one shared state, against one.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::case::{Case, Made};
use crate::measure::{calls_in_a_turn, median, runtime};

/// How much two threads get done, as a multiple of what one does: 2 if neither notices the other.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// Of the case.
    pub shared: f64,
    /// Of two loops that share nothing, right before and right after, the smaller of both: what the
    /// machine has to give.
    pub control: f64,
}

/// The median is taken over this many rounds, or as many as fit into the time.
const ROUNDS: usize = 21;
const TIME: Duration = Duration::from_millis(400);
const FEWEST_ROUNDS: usize = 5;
/// A control of this much had a second processor.
const SECOND_PROCESSOR: f64 = 1.6;

/// The gain with a service that each thread keeps, and with one that is cloned for each call; the
/// latter only of cases that have such a loop.
#[must_use]
pub fn gains(runtime: &Runtime, case: &Case) -> (Gain, Option<Gain>) {
    let calls = 2 * calls_in_a_turn(runtime, case);
    (gain(&case.kept, calls), case.cloned.as_ref().map(|cloned| gain(cloned, calls)))
}

fn gain(made: &Made, calls: u64) -> Gain {
    let case = |runtime: &Runtime, calls| runtime.block_on(made.run(calls));
    let independent = |_: &Runtime, calls| spin(calls);
    let begun = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS && (rounds.len() < FEWEST_ROUNDS || begun.elapsed() < TIME) {
        let control = || 2.0 * seconds(1, SPINS, independent) / seconds(2, SPINS, independent);
        let before = control();
        let shared = 2.0 * seconds(1, calls, case) / seconds(2, calls, case);
        rounds.push(Gain { shared, control: before.min(control()) });
    }
    Gain::typical(&rounds)
}

impl Gain {
    /// Medians, over the rounds in which the machine had a second processor to give, if it had in
    /// some: on a shared machine it comes and goes.
    fn typical(rounds: &[Self]) -> Self {
        let given: Vec<Self> =
            rounds.iter().filter(|round| round.control >= SECOND_PROCESSOR).copied().collect();
        let rounds = if given.len() >= 3 { &given } else { rounds };
        Self {
            shared: median(rounds.iter().map(|round| round.shared).collect()),
            control: median(rounds.iter().map(|round| round.control).collect()),
        }
    }
}

/// How long it takes until each of `threads` threads has made `calls` calls, from the moment the
/// first one begins.
fn seconds(threads: usize, calls: u64, work: impl Fn(&Runtime, u64) + Copy + Sync) -> f64 {
    let together = Barrier::new(threads);
    let begin = || {
        let runtime = runtime();
        let _inside = runtime.enter();
        work(&runtime, calls / 10 + 2);
        together.wait();
        let begun = Instant::now();
        work(&runtime, calls);
        (begun, Instant::now())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(begin)).collect();
        let times: Vec<_> = running
            .into_iter()
            .map(|thread| thread.join().expect("a case does not panic"))
            .collect();
        let first = times.iter().map(|(begun, _)| *begun).min();
        let last = times.iter().map(|(_, ended)| *ended).max();
        first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64())
    })
}

/// About two milliseconds of [`spin`].
const SPINS: u64 = 2_000_000;

/// Arithmetic that needs neither memory nor anybody else.
fn spin(steps: u64) {
    let mut x = black_box(1_u64);
    for step in 0..steps {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
    }
    black_box(x);
}
