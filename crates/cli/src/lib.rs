//! The command `triage`: looks at dead letters, answers them, and drives them again.
//!
//! See `triage help`, and the README for what programs can rely on: exit codes and the form of
//! `--json`. A program can be the command too, to have it where it is deployed itself:
//!
//! ```no_run
//! #[tokio::main]
//! async fn main() -> std::process::ExitCode {
//!     tower_triage_cli::run(std::env::args_os()).await
//! }
//! ```

mod args;
mod commands;
mod exit;
mod letters;
mod out;
mod send;
mod store;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::args::Args;
use self::exit::Exit;

/// Runs the command with `args`, of which the first is the program's name. Errors go to the standard
/// error. Wrong usage, `--help` and `--version` end the process.
///
/// Needs a tokio runtime with time and I/O.
pub async fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match commands::run(Args::parse_from(args)).await {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has read enough.
        Err(Exit::Closed) => ExitCode::SUCCESS,
        Err(exit) => {
            eprintln!("triage: {}", out::plain(&exit.to_string()));
            ExitCode::from(exit.code())
        }
    }
}
