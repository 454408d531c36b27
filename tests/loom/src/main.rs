//! `scripts/check loom` runs every model; `scripts/check loom NAME...` those whose names say so.

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
