//! `cargo run --bin conformance -- FILE...`: runs vector files against the public API.

use std::process::ExitCode;

use tower_triage_tests::conformance::{self, Report};

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: conformance FILE...   (JSON files in the formats of tests/vectors)");
        return ExitCode::from(2);
    }
    let mut report = Report::default();
    for file in files {
        match std::fs::read_to_string(&file) {
            Ok(text) => conformance::run(&file, &text, &mut report),
            Err(error) => report.fail(&file, "a readable file", error),
        }
    }
    report.print_summary();
    if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
