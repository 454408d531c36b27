//! `triage`: looks at dead letters, answers them, and drives them again. See `triage help`, and the
//! README for what programs can rely on: exit codes and the form of `--json`.

mod args;
mod commands;
mod exit;
mod letters;
mod out;
mod send;
mod store;
mod table;

use std::process::ExitCode;

use clap::Parser;

use self::args::Args;
use self::exit::Exit;

#[tokio::main]
async fn main() -> ExitCode {
    // Wrong usage ends here, with code 2.
    let args = Args::parse();
    match commands::run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has read enough.
        Err(Exit::Closed) => ExitCode::SUCCESS,
        Err(exit) => {
            eprintln!("triage: {exit}");
            ExitCode::from(exit.code())
        }
    }
}
