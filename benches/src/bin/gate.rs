//! Compares what our layers cost with the recorded figures (`gate.json`): allocations, instructions
//! (callgrind), sizes of futures; and checks that cost does not grow. `--record` writes the file.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

use tokio::runtime::Runtime;
use tower_triage_benches::callgrind;
use tower_triage_benches::case::Case;
use tower_triage_benches::growth::{self, Pair};
use tower_triage_benches::measure::{allocations, runtime};
use tower_triage_benches::ours;
use tower_triage_benches::peers;
use tower_triage_benches::record::{Record, TOLERANCE};
use tower_triage_benches::sizes::{ours_over_http, ours_over_u64};

/// The large case of a pair may cost this much more than the small one: where keys hash to is up to
/// chance, and a long incident gives the allocator more at once than its caches hold.
const GROWTH: f64 = 0.15;

/// Peers whose instructions tell whether this machine counts as the recorded one did.
const CONTROLS: [&str; 2] =
    ["nothing fails: tower-resilience 0.13, three", "nothing fails: seatbelt 0.11, three, Tower"];

fn main() -> io::Result<ExitCode> {
    let runtime = runtime();
    let _inside = runtime.enter();
    let (guarded, pairs) = (ours::cases(), growth::pairs());
    let mut controls = peers::cases();
    controls.retain(|case| CONTROLS.contains(&case.name().as_str()));
    assert_eq!(controls.len(), CONTROLS.len(), "a control has another name now");
    let grown = pairs.iter().flat_map(|pair| [&pair.small, &pair.large]);
    if callgrind::ran_alone(&runtime, guarded.iter().chain(&controls).chain(grown)) {
        return Ok(ExitCode::SUCCESS);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let recording = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--record"] => true,
        _ => {
            eprintln!("usage: gate [--record]");
            return Ok(ExitCode::FAILURE);
        }
    };
    let counts = callgrind::is_here();
    if !counts {
        eprintln!(
            "gate: VALGRIND IS MISSING: instructions are NOT checked, nor that cost does not grow"
        );
        if recording {
            eprintln!("gate: nothing recorded: a record without instructions would guard nothing");
            return Ok(ExitCode::FAILURE);
        }
    }
    let now = measure(&runtime, &guarded, &controls, counts)?;
    let mut violations = if counts { growing(&pairs)? } else { Vec::new() };
    if recording {
        now.write()?;
    } else {
        let recorded = Record::read()?;
        if counts && !recorded.counts_as(&now) {
            eprintln!(
                "gate: THIS MACHINE COUNTS OTHERWISE (the peers' instructions differ from the \
                 record): our instructions are NOT compared"
            );
        }
        violations.extend(recorded.differences(&now).iter().map(ToString::to_string));
    }
    Ok(report(&now, &violations))
}

/// Everything that is recorded, as it is now.
fn measure(
    runtime: &Runtime,
    cases: &[Case],
    controls: &[Case],
    counts: bool,
) -> io::Result<Record> {
    let mut now = Record::default();
    for case in cases {
        now.allocations.insert(case.name(), allocations(runtime, case, 1_000));
    }
    for size in ours_over_u64().into_iter().chain(ours_over_http()) {
        now.sizes.insert(size.who, size.bytes as f64);
    }
    if counts {
        now.instructions = counted(&cases.iter().collect::<Vec<_>>())?;
        now.controls = counted(&controls.iter().collect::<Vec<_>>())?;
    }
    Ok(now)
}

/// Instructions per call by name, to the nearest one.
fn counted(cases: &[&Case]) -> io::Result<BTreeMap<String, f64>> {
    let counts = callgrind::instructions(cases);
    let count_of = |(case, count): (&&Case, Option<f64>)| match count {
        Some(count) => Ok((case.name(), count.round())),
        None => Err(io::Error::other(format!("callgrind could not run `{}`", case.name()))),
    };
    cases.iter().zip(counts).map(count_of).collect()
}

/// Where cost grows with size.
fn growing(pairs: &[Pair]) -> io::Result<Vec<String>> {
    let cases: Vec<&Case> = pairs.iter().flat_map(|pair| [&pair.small, &pair.large]).collect();
    let counts = counted(&cases)?;
    let mut violations = Vec::new();
    for Pair { small, large } in pairs {
        let (small, large) = (small.name(), large.name());
        let (few, many) = (counts[&small], counts[&large]);
        println!("{small}: {few} instructions, {large}: {many}");
        if many > few * (1.0 + GROWTH) {
            violations.push(format!("cost grows: {small} {few}, {large} {many} instructions"));
        }
    }
    Ok(violations)
}

fn report(now: &Record, violations: &[String]) -> ExitCode {
    if violations.is_empty() {
        println!(
            "gate: {} allocation counts, {} instruction counts, {} sizes as recorded",
            now.allocations.len(),
            now.instructions.len(),
            now.sizes.len()
        );
        return ExitCode::SUCCESS;
    }
    for violation in violations {
        eprintln!("gate: {violation}");
    }
    eprintln!(
        "gate: {} not as recorded in benches/gate.json (instructions may differ by {} %). If that is meant:\n\
         \x20     cargo run --release -p tower-triage-benches --bin gate -- --record",
        violations.len(),
        TOLERANCE * 100.0
    );
    ExitCode::FAILURE
}
