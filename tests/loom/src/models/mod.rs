//! The models, and how they are run.

mod breaker;
mod budget;
mod share;
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread::JoinHandle;
use tokio::time::Instant;

use crate::share::thread::numbered;

/// One protocol, with what must hold at the end of every interleaving.
#[derive(Clone, Copy)]
struct Model {
    name: &'static str,
    run: fn(),
    preemptions: usize,
}

const fn model(name: &'static str, run: fn()) -> Model {
    Model { name, run, preemptions: PREEMPTIONS }
}

impl Model {
    /// For a model that would take too long otherwise.
    const fn preempted(self, preemptions: usize) -> Self {
        Self { preemptions, ..self }
    }
}

/// At most so many preemptions of a thread that could go on; more find more and take longer.
const PREEMPTIONS: usize = 8;

/// Runs both at once and waits for both. Neither is the thread that set the scene: to loom that one
/// has seen too much to read an old value.
fn race<A: 'static, B: 'static>(
    one: impl FnOnce() -> A + 'static,
    other: impl FnOnce() -> B + 'static,
) -> (A, B) {
    let (one, other) = (spawn(one), spawn(other));
    (one.join().unwrap(), other.join().unwrap())
}

/// Starts a thread.
fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    loom::thread::spawn(numbered(f))
}

/// Runs the models whose names contain one of `wanted`, or all.
pub fn run(wanted: &[String]) -> ExitCode {
    let chosen = |model: &&Model| {
        wanted.is_empty() || wanted.iter().any(|name| model.name.contains(name.as_str()))
    };
    let models = [share::MODELS, breaker::MODELS, waiting::MODELS, budget::MODELS];
    let (mut ran, mut failed) = (0, 0);
    println!("{:42} {:>13} {:>7}", "model", "interleavings", "s");
    for model in models.concat().iter().filter(chosen) {
        ran += 1;
        let tried = Arc::new(AtomicUsize::new(0));
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(model.preemptions);
        let begun = Instant::now();
        let body = {
            let (tried, run) = (Arc::clone(&tried), model.run);
            move || {
                tried.fetch_add(1, Ordering::Relaxed);
                run();
            }
        };
        let sound = catch_unwind(AssertUnwindSafe(|| builder.check(body))).is_ok();
        failed += usize::from(!sound);
        println!(
            "{:42} {:>13} {:>7.1}{}",
            model.name,
            tried.load(Ordering::Relaxed),
            begun.elapsed().as_secs_f64(),
            if sound { "" } else { "  FAILED" },
        );
    }
    println!("{ran} models, {failed} failed");
    if failed == 0 && ran > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
