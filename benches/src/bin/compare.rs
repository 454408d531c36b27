//! Prints one table: what each case costs per call. `--instructions` counts those as well, with
//! callgrind, if it is installed.

use std::process::ExitCode;

use tower_triage_benches::measure::{instructions, measure, run_alone, runtime};
use tower_triage_benches::peers::NOT_COMPARED;

fn main() -> ExitCode {
    let runtime = runtime();
    let cases = {
        let _inside = runtime.enter();
        tower_triage_benches::cases()
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let count = match arguments[..] {
        [] => false,
        ["--instructions"] => true,
        ["--alone", name, calls] => {
            let Ok(calls) = calls.parse() else { return usage() };
            run_alone(&runtime, &cases, name, calls);
            return ExitCode::SUCCESS;
        }
        _ => return usage(),
    };
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its times mean nothing (use --release)");
    }

    let costs = measure(&runtime, &cases);
    let bare = costs[0].nanoseconds;
    println!("{:<34}{:>9}{:>9}{:>9}{:>14}", "case", "ns", "x bare", "allocs", "instructions");
    for (case, cost) in cases.iter().zip(&costs) {
        let counted = if count { instructions(case.name) } else { None };
        println!(
            "{:<34}{:>9.1}{:>9.1}{:>9.1}{:>14}",
            case.name,
            cost.nanoseconds,
            cost.nanoseconds / bare,
            cost.allocations,
            counted.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}")),
        );
    }
    if count && instructions(cases[0].name).is_none() {
        println!("no instructions: valgrind is not installed, or cannot run this program");
    }
    for (peer, why) in NOT_COMPARED {
        println!("not compared: {peer}: {why}");
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: compare [--instructions]");
    ExitCode::FAILURE
}
