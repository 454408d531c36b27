//! Instructions per call, counted by callgrind.

use std::process::Command;

use tokio::runtime::Runtime;

use crate::case::Case;

/// A program that knows the same cases is run with this word, a case's name and a number of calls.
const ALONE: &str = "--alone";

/// The difference of runs of so many calls is taken; multiples of every case's unit.
const FEW: u64 = 3_000;
const MANY: u64 = 12_000;

/// Is valgrind here, and does it run?
#[must_use]
pub fn is_here() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// If this process was started to run one case and nothing else, runs it; tells whether it was.
#[must_use]
pub fn ran_alone<'a>(runtime: &Runtime, cases: impl IntoIterator<Item = &'a Case>) -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [word, name, calls] = &arguments[..] else { return false };
    let Ok(calls) = calls.parse() else { return false };
    if word != ALONE {
        return false;
    }
    for case in cases.into_iter().filter(|case| case.name() == *name) {
        runtime.block_on(case.kept.run(calls));
    }
    true
}

/// Instructions per call of each case, from runs of this very program under callgrind, as many at a
/// time as there are processors. `None` where valgrind cannot run it.
#[must_use]
pub fn instructions(cases: &[&Case]) -> Vec<Option<f64>> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let names: Vec<String> = cases.iter().map(|case| case.name()).collect();
    let mut counts = vec![None; names.len()];
    let share = names.len().div_ceil(workers).max(1);
    std::thread::scope(|scope| {
        for (names, counts) in names.chunks(share).zip(counts.chunks_mut(share)) {
            scope.spawn(move || {
                for (name, count) in names.iter().zip(counts) {
                    *count = count_one(name);
                }
            });
        }
    });
    counts
}

fn count_one(name: &str) -> Option<f64> {
    Some((collected(name, MANY)? - collected(name, FEW)?) / (MANY - FEW) as f64)
}

fn collected(name: &str, calls: u64) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args([ALONE, name, &calls.to_string()])
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, count) = text.split_once("Collected :")?;
    count.split_whitespace().next()?.parse().ok()
}
