//! Failures that are on the disk before their callers hear of them: how many a second, and what the
//! callers wait. `desk [seconds]` takes about so many seconds, 40 if not told.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tower_triage_benches::desk::{AtOnce, Load, RECEIVER, appends, failing_calls};
use tower_triage_dead_letter_postgres::PostgresStore;
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::{Filter, Store, StoreSink};
use tower_triage_escalate::{IntoSink, JsonLinesSink, Receiver};
use tower_triage_test_support::postgres::PostgresServer;

/// Callers that fail at the same time.
const CALLERS: [usize; 2] = [1, 64];
/// Each case has its turn in every round, so that what disturbs the machine disturbs all alike.
const ROUNDS: u32 = 5;
const DEFAULT_SECONDS: u32 = 40;

fn main() -> ExitCode {
    let seconds = match std::env::args().nth(1).map(|seconds| seconds.parse::<u32>()) {
        None => DEFAULT_SECONDS,
        Some(Ok(seconds)) if seconds > 0 => seconds,
        Some(_) => {
            eprintln!("usage: desk [seconds]");
            return ExitCode::FAILURE;
        }
    };
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures mean nothing (use --release)");
    }
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.expect("a runtime can be built here").block_on(compare(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Case {
    name: &'static str,
    receiver: Box<dyn Fn() -> Receiver>,
    /// One for each number of callers.
    loads: [Load; CALLERS.len()],
}

impl Case {
    fn new(name: &'static str, sink: impl IntoSink + Clone + 'static) -> Self {
        let receiver = Box::new(move || Receiver::new(RECEIVER).record(sink.clone()));
        Self { name, receiver, loads: Default::default() }
    }
}

async fn compare(seconds: u32) -> Result<(), Box<dyn Error>> {
    // Beside the program: on the disk that has the build, which is not in memory.
    let program = std::env::current_exe()?;
    let folder = tempfile::tempdir_in(program.parent().unwrap_or(Path::new(".")))?;
    let store = Arc::new(SqliteStore::open(folder.path().join("store"))?);
    let mut cases = vec![
        Case::new("nowhere: taken at once", AtOnce),
        Case::new("SQLite", StoreSink::new(store.clone())),
        Case::new("JSON lines", JsonLinesSink::open(folder.path().join("spill.jsonl"))?),
    ];

    // The server's files are in the system's folder for temporary ones.
    let server = PostgresServer::start(&["fsync=on"]);
    match &server {
        Ok(server) => {
            let store = PostgresStore::connect(&server.config()).await?;
            cases.insert(2, Case::new("PostgreSQL", StoreSink::new(Arc::new(store))));
        }
        Err(why) => eprintln!("PostgreSQL is left out: {why}"),
    }

    let each = Duration::from_secs(seconds.into()) / (ROUNDS * (2 * cases.len() as u32 + 1));
    // Warms up, and tells how large a record is.
    for case in &cases {
        failing_calls((case.receiver)(), 8, each / 4).await;
    }
    let letter =
        store.list(Filter::any(), None, 1).await?.letters.pop().ok_or("nothing was stored")?;
    let bytes = serde_json::to_vec(&letter)?.len();

    let mut limit = Load::default();
    for _ in 0..ROUNDS {
        limit.add(appends(&folder.path().join("appended"), bytes, each)?);
        for case in &mut cases {
            for (callers, load) in CALLERS.into_iter().zip(&mut case.loads) {
                load.add(failing_calls((case.receiver)(), callers, each).await);
            }
        }
    }
    print(&cases, &limit, bytes);
    Ok(())
}

fn print(cases: &[Case], limit: &Load, bytes: usize) {
    println!("Failing calls through an `EscalateLayer` in durable mode; records of {bytes} bytes.");
    println!("Added: the call beside the same call whose sink takes everything at once.");
    println!();
    println!(
        "| where the record is | callers | durable writes/s | added, p50 | added, p99 | 64 / 1 |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    println!(
        "| a file, appended to and synced one by one | 1 | {:.0} | {} | {} | |",
        limit.rate(),
        millis(limit.percentile(0.5)),
        millis(limit.percentile(0.99)),
    );
    let [nowhere, rest @ ..] = cases else { return };
    for case in rest {
        let single = case.loads[0].rate();
        for ((callers, load), taken) in CALLERS.iter().zip(&case.loads).zip(&nowhere.loads) {
            let added = |share| millis(load.percentile(share) - taken.percentile(share));
            let ratio = match callers {
                1 => String::new(),
                _ => format!("{:.1}", load.rate() / single),
            };
            println!(
                "| {} | {callers} | {:.0} | {} | {} | {ratio} |",
                case.name,
                load.rate(),
                added(0.5),
                added(0.99),
            );
        }
    }
}

fn millis(micros: f64) -> String {
    format!("{:.2} ms", micros / 1_000.0)
}
