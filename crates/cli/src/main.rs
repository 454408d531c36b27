//! The command by itself.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    tower_triage_cli::run(std::env::args_os()).await
}
