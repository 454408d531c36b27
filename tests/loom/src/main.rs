//! `scripts/check loom` runs every model. With arguments this binary runs the models whose names
//! contain one of them.

use std::process::ExitCode;

#[cfg(triage_loom)]
fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    tower_triage_loom::run(&wanted)
}

#[cfg(not(triage_loom))]
fn main() -> ExitCode {
    eprintln!("the models need RUSTFLAGS='--cfg triage_loom': scripts/check loom");
    ExitCode::from(2)
}
