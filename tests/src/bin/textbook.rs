//! `cargo run --release -p tower-triage-tests --bin textbook -- [EVENTS [SEED]]`: long random runs of
//! every window and budget against textbook models (default: 1,000,000 events each, seed 1).

use std::process::ExitCode;

use tokio::time::Instant;
use tower_triage_tests::textbook;

fn main() -> ExitCode {
    let numbers: Option<Vec<u64>> = std::env::args().skip(1).map(|arg| arg.parse().ok()).collect();
    let (events, seed) = match numbers.as_deref() {
        Some([]) => (1_000_000, 1),
        Some([events]) => (*events, 1),
        Some([events, seed]) => (*events, *seed),
        _ => {
            eprintln!("usage: textbook [EVENTS [SEED]]");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    for run in textbook::runs() {
        let begun = Instant::now();
        match run.run(events, seed) {
            Ok(events) => {
                let seconds = begun.elapsed().as_secs_f64();
                println!("{:62} {events:>9} events, {seconds:4.1} s", run.name);
            }
            Err(difference) => {
                failed = true;
                println!("{:62} FAILED with seed {seed}: {difference}", run.name);
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
