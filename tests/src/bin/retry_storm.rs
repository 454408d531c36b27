//! `cargo run --release -p tower-triage-tests --bin retry_storm -- [--check]`: simulates retry storms
//! and contention, prints the figures, and writes the pictures and tables in `docs/`; with `--check` it
//! only says whether they are still what it would write. Takes about a minute.

use std::path::Path;
use std::process::ExitCode;

use tower_triage_tests::retry_storm::Page;

/// The pictures are of the runs of this seed.
const SEED: u64 = 1;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let check = match args.as_slice() {
        [] => false,
        [arg] if arg == "--check" => true,
        _ => {
            eprintln!("usage: retry_storm [--check]");
            return ExitCode::from(2);
        }
    };
    match run(check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("FAILED: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(check: bool) -> Result<(), String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = Page::new(SEED).map_err(|error| error.to_string())?;
    for (name, table) in &page.tables {
        println!("{name}\n{table}");
    }
    let text = docs.join("retry-storms.md");
    let filled = page.fill(&read(&text)?)?;
    let pictures = page.pictures.iter().map(|(name, svg)| (docs.join(name), svg.clone()));
    for (file, content) in pictures.chain([(text, filled)]) {
        if !check {
            let written = std::fs::write(&file, content);
            written.map_err(|error| format!("{}: {error}", file.display()))?;
        } else if read(&file)? != content {
            return Err(format!("{} is not what is simulated now", file.display()));
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}
