//! `cargo run --release -p tower-triage-tests --bin soak -- [--seconds N] [--seed N]`: the full stack
//! under random load (default: 600 seconds).

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut seconds, mut seed) = (600, 1);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let place = match arg.as_str() {
            "--seconds" => &mut seconds,
            "--seed" => &mut seed,
            _ => return usage(),
        };
        let Some(number) = args.next().and_then(|number| number.parse().ok()) else {
            return usage();
        };
        *place = number;
    }
    match tower_triage_tests::soak::run(seconds, seed) {
        Ok(()) => {
            println!("everything adds up");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("FAILED with seed {seed}: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: soak [--seconds N] [--seed N]");
    ExitCode::from(2)
}
