//! How cases are timed, and how their allocations are counted.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::case::Case;
use crate::work::begin_anew;

/// What was measured of one case, per call.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The median over the rounds.
    pub nanoseconds: f64,
    /// Allocations on the heap.
    pub allocations: f64,
}

/// How long a turn of a case is meant to take.
const TURN: Duration = Duration::from_millis(1);
/// The median is taken over this many rounds.
const ROUNDS: usize = 41;

/// The runtime that every case runs on: one thread, with time.
#[must_use]
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime can be built here")
}

/// Measures all cases, taking turns, so that what disturbs the machine disturbs all alike.
#[must_use]
pub fn measure(runtime: &Runtime, cases: &[Case]) -> Vec<Cost> {
    let turns: Vec<u64> = cases.iter().map(|case| calls_in_a_turn(runtime, case)).collect();
    let mut rounds = vec![Vec::with_capacity(ROUNDS); cases.len()];
    for _ in 0..ROUNDS {
        for ((case, calls), times) in cases.iter().zip(&turns).zip(&mut rounds) {
            times.push(time(runtime, case, *calls) / *calls as f64);
        }
    }
    cases
        .iter()
        .zip(rounds)
        .zip(turns)
        .map(|((case, times), calls)| Cost {
            nanoseconds: median(times) * 1e9,
            allocations: allocations(runtime, case, calls.clamp(100, 1_000)),
        })
        .collect()
}

/// Warms the case up; then as many calls as fit into a turn, an even number.
#[must_use]
pub fn calls_in_a_turn(runtime: &Runtime, case: &Case) -> u64 {
    let slow = time(runtime, case, 2) / 2.0;
    let each = if slow > 1e-4 { slow } else { time(runtime, case, 1_000) / 1_000.0 };
    let calls = TURN.as_secs_f64() / each.max(1e-9);
    (calls as u64).clamp(4, 20_000) & !1
}

/// Seconds that `calls` calls take.
fn time(runtime: &Runtime, case: &Case, calls: u64) -> f64 {
    begin_anew();
    let begun = Instant::now();
    runtime.block_on(case.kept.run(calls));
    begun.elapsed().as_secs_f64()
}

/// The middle one; zero of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Allocations per call, over `calls` of them. Exact: the difference of two runs, so that what happens once per run falls
/// out.
#[must_use]
pub fn allocations(runtime: &Runtime, case: &Case, calls: u64) -> f64 {
    let count = |calls| {
        begin_anew();
        allocation_counter::measure(|| runtime.block_on(case.kept.run(calls))).count_total
    };
    // What is made once, at the first call or at the first failure, is made here.
    runtime.block_on(case.kept.run(3 * calls));
    let (few, many) = (count(20), count(20 + calls));
    many.saturating_sub(few) as f64 / calls as f64
}
