//! How a case is timed, and how its allocations and instructions are counted.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// Something that can be called `n` times.
pub struct Case {
    /// Its row in the table.
    pub name: &'static str,
    run: Box<dyn Fn(u64) -> Running>,
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// What was measured of one case, per call.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The median over the rounds.
    pub nanoseconds: f64,
    /// Allocations on the heap.
    pub allocations: f64,
}

/// Each round gives every case this many calls.
const CALLS: u64 = 10_000;
/// The median is taken over this many rounds.
const ROUNDS: usize = 41;

impl Case {
    /// `run` makes as many calls as it is told. What it does once per run (cloning the service)
    /// is spread over all calls.
    pub fn new<F, Fut>(name: &'static str, run: F) -> Self
    where
        F: Fn(u64) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Self { name, run: Box::new(move |calls| Box::pin(run(calls))) }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The runtime that every case runs on: one thread, with time.
#[must_use]
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime can be built here")
}

/// Measures all cases, taking turns, so that what disturbs the machine disturbs all alike.
#[must_use]
pub fn measure(runtime: &Runtime, cases: &[Case]) -> Vec<Cost> {
    let mut rounds = vec![Vec::with_capacity(ROUNDS); cases.len()];
    for round in 0..=ROUNDS {
        for (case, times) in cases.iter().zip(&mut rounds) {
            let begun = Instant::now();
            runtime.block_on((case.run)(CALLS));
            // The first round warms up.
            if round > 0 {
                times.push(begun.elapsed());
            }
        }
    }
    cases
        .iter()
        .zip(rounds)
        .map(|(case, times)| Cost {
            nanoseconds: median(times).as_secs_f64() * 1e9 / CALLS as f64,
            allocations: allocations(runtime, case),
        })
        .collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Exact: the difference of two runs, so that what happens once per run falls out.
fn allocations(runtime: &Runtime, case: &Case) -> f64 {
    let count = |calls| {
        let run = || runtime.block_on((case.run)(calls));
        allocation_counter::measure(run).count_total
    };
    let (few, many) = (count(100), count(1_100));
    many.saturating_sub(few) as f64 / 1_000.0
}

/// Runs one case and nothing else, for a tool that watches the process.
pub fn run_alone(runtime: &Runtime, cases: &[Case], name: &str, calls: u64) {
    for case in cases.iter().filter(|case| case.name == name) {
        runtime.block_on((case.run)(calls));
    }
}

/// Instructions per call, counted by callgrind as the difference of two runs of this program with
/// `--alone`; `None` if valgrind is not there or cannot run it.
#[must_use]
pub fn instructions(name: &str) -> Option<f64> {
    let count = |calls: u64| {
        let program = std::env::current_exe().ok()?;
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args(["--alone", name, &calls.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let (_, count) = text.split_once("Collected :")?;
        count.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some((count(11_000)? - count(1_000)?) / 10_000.0)
}
