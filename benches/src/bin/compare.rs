//! Prints what each case costs per call, ours beside the peers', as tables in Markdown.
//! `--instructions` counts those as well (callgrind); `dependencies` prints what a small user takes
//! in.

use std::process::ExitCode;

use tokio::runtime::Runtime;
use tower_triage_benches::callgrind::{self, instructions};
use tower_triage_benches::case::Case;
use tower_triage_benches::http::calls::HTTP;
use tower_triage_benches::measure::{Cost, measure, runtime};
use tower_triage_benches::peers::NOT_COMPARED;
use tower_triage_benches::sizes::{http_request, over_http};
use tower_triage_benches::threads::{Gain, gains};
use tower_triage_benches::user::weigh;
use tower_triage_benches::work::{NOTHING_FAILS, OPEN};

fn main() -> ExitCode {
    let runtime = runtime();
    let _inside = runtime.enter();
    let cases = tower_triage_benches::cases();
    if callgrind::ran_alone(&runtime, &cases) {
        return ExitCode::SUCCESS;
    }
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its times mean nothing (use --release)");
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => calls(&runtime, &cases, false),
        ["--instructions"] => calls(&runtime, &cases, true),
        ["dependencies"] => return dependencies(),
        _ => {
            eprintln!("usage: compare [--instructions | dependencies]");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A case of so many nanoseconds a call waits for a timer; its instructions are the runtime's.
const WAITS: f64 = 20_000.0;

fn calls(runtime: &Runtime, cases: &[Case], count: bool) {
    let costs = measure(runtime, cases);
    let mut counts = vec![None; cases.len()];
    if count {
        let busy = |cost: &Cost| cost.nanoseconds < WAITS;
        let counted: Vec<usize> = (0..cases.len()).filter(|at| busy(&costs[*at])).collect();
        let found = instructions(&counted.iter().map(|at| &cases[*at]).collect::<Vec<_>>());
        for (at, instructions) in counted.into_iter().zip(found) {
            counts[at] = instructions;
        }
    }
    println!(
        "| what | who | ns | ours = 1 | allocations | instructions | future, bytes | two threads, kept | cloned per call |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for ((case, cost), counted) in cases.iter().zip(&costs).zip(&counts) {
        let (kept, cloned) = match case.two_threads {
            true => {
                let (kept, cloned) = gains(runtime, case);
                (Some(kept), cloned)
            }
            false => (None, None),
        };
        println!(
            "| {} | {} | {} | {} | {:.1} | {} | {} | {} | {} |",
            case.group,
            case.who,
            nanoseconds(cost.nanoseconds),
            ratio(cost.nanoseconds, reference(cases, &costs, case.group)),
            cost.allocations,
            counted.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}")),
            case.size.map_or_else(|| "-".to_owned(), |size| size.to_string()),
            gain(kept),
            gain(cloned),
        );
    }
    if count && !callgrind::is_here() {
        println!("\nNo instructions: valgrind is not installed.");
    }
    print_sizes();
    println!();
    for (what, why) in NOT_COMPARED {
        println!("Not compared: {what}: {why}.");
    }
}

/// What the others of a group are compared with: our full stack with a count window, our breaker
/// where only that is called.
fn reference(cases: &[Case], costs: &[Cost], group: &str) -> f64 {
    let who = match group {
        NOTHING_FAILS => "ours, four, count window",
        OPEN => "ours, breaker",
        HTTP => "ours, four, time window",
        _ => "ours, four",
    };
    let found = cases.iter().zip(costs).find(|(case, _)| case.group == group && case.who == who);
    found.map_or(f64::NAN, |(_, cost)| cost.nanoseconds)
}

fn nanoseconds(nanoseconds: f64) -> String {
    if nanoseconds < 100.0 { format!("{nanoseconds:.1}") } else { format!("{nanoseconds:.0}") }
}

fn ratio(nanoseconds: f64, ours: f64) -> String {
    format!("{:.2}", nanoseconds / ours)
}

fn gain(gain: Option<Gain>) -> String {
    gain.map_or_else(
        || "-".to_owned(),
        |Gain { shared, control }| format!("{shared:.2} of {control:.2}"),
    )
}

fn print_sizes() {
    println!(
        "\n| future over an HTTP request of {} bytes | bytes | from the heap |",
        http_request()
    );
    println!("|---|--:|--:|");
    for size in over_http() {
        println!("| {} | {} | {} |", size.who, size.bytes, size.heap);
    }
}

fn dependencies() -> ExitCode {
    match weigh() {
        Ok(weights) => {
            println!("| a user of | crates | release build, s |");
            println!("|---|--:|--:|");
            for weight in weights {
                let seconds = weight.build.as_secs_f64();
                println!("| {} | {} | {seconds:.1} |", weight.who, weight.crates);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
