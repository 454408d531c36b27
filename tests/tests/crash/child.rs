//! The process that fails, and what it says.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdout, Command};
use tokio::time::timeout;
use tower_triage_core::incident::IncidentId;

/// Longer than anything takes; who waits for it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// What the binary `failing` is to do.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub tasks: u32,
    /// Every so many-th record is refused by the store.
    pub refused: u32,
    /// Ballast of each record.
    pub bytes: u32,
}

pub(crate) struct Child {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

/// A line of it.
#[derive(Debug)]
pub(crate) enum Said {
    Ready,
    Recorded(IncidentId),
    Nowhere(IncidentId),
    /// How many lines of the spill file were half-written.
    Skipped(u64),
    Other(String),
}

impl Child {
    /// Starts it; `command` is the program and what comes before its own arguments.
    pub(crate) fn start(mut command: Command, folder: &Path, load: Load) -> Self {
        let numbers = [load.tasks, load.refused, load.bytes].map(|number| number.to_string());
        let mut process = command
            .arg(folder)
            .args(numbers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program is built with this test");
        let stdout = process.stdout.take().expect("it is piped");
        Self { process, lines: BufReader::new(stdout).lines() }
    }

    /// The program itself.
    pub(crate) fn program() -> Command {
        Command::new(env!("CARGO_BIN_EXE_failing"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    /// Its next line; `None` when it has ended. Nothing is lost if this is dropped.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        let line = self.lines.next_line().await.expect("it writes text")?;
        let id = |text: &str| text.parse().unwrap_or_else(|_| panic!("half a line: {line}"));
        Some(match line.split(' ').collect::<Vec<_>>()[..] {
            ["ready"] => Said::Ready,
            ["recorded", text] => Said::Recorded(id(text)),
            ["nowhere", text] => Said::Nowhere(id(text)),
            ["replayed", _, "known", _, "skipped", skipped] => {
                Said::Skipped(skipped.parse().expect("a number"))
            }
            _ => Said::Other(line),
        })
    }

    /// SIGKILL. What it had said before is still to be read.
    pub(crate) fn kill(&mut self) {
        self.process.start_kill().expect("it runs");
    }

    /// Lets it end; gives what it said until then.
    pub(crate) async fn end(mut self) -> Vec<Said> {
        drop(self.process.stdin.take());
        let rest = timeout(LONG, self.rest()).await.expect("it ends");
        assert!(self.process.wait().await.unwrap().success(), "{:?}", rest.last());
        rest
    }

    /// Everything up to its end.
    pub(crate) async fn rest(&mut self) -> Vec<Said> {
        let mut rest = Vec::new();
        while let Some(said) = self.next().await {
            rest.push(said);
        }
        rest
    }
}
