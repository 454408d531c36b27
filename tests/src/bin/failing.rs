//! A service whose calls fail, from several tasks at once, for tests that kill it: `failing FOLDER
//! TASKS REFUSED BYTES`. The store in the folder, which refuses every REFUSED-th record (0: none),
//! is the desk's first choice, the spill file its last; what was spilled is replayed at the start. Each record has
//! BYTES bytes more than it needs.
//!
//! What its callers are told it prints, a line each, once they know: `recorded ID`, `nowhere ID`
//! (not recorded) or `unknown ID`. It ends when its input does.

use std::io::{self, Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::incident::scope;
use tower_triage_core::{
    AnyError, AnyOk, Backoff, BoxError, Chain, Classifier, Halves, Incident, Resolution,
};
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::StoreSink;
use tower_triage_escalate::{
    Desk, DeskPolicy, EscalateLayer, EscalatePolicy, Escalation, JsonLinesSink, Receiver, Route,
    Routes,
};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, tasks, refused, bytes] = arguments.as_slice() else {
        return Err("usage: failing FOLDER TASKS REFUSED BYTES".into());
    };
    let (tasks, refused, bytes) = (tasks.parse()?, refused.parse()?, bytes.parse()?);
    let desk = desk(Path::new(folder), refused).await?;
    println!("ready");

    let (ended, end) = watch::channel(false);
    std::thread::spawn(move || {
        // Also an error is an end.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        ended.send_replace(true);
    });
    let mut work = JoinSet::new();
    for _ in 0..tasks {
        work.spawn(fail(desk.clone(), "x".repeat(bytes), end.clone()));
    }
    work.join_all().await;
    // What a caller did not wait for.
    desk.idle().await;
    println!("{:?}, {} queued", desk.counts(), desk.queued());
    Ok(())
}

async fn desk(folder: &Path, refused: u64) -> Result<Desk, BoxError> {
    let store = Arc::new(SqliteStore::open(folder.join("store"))?);
    let spill = folder.join("spill.jsonl");
    let replayed = JsonLinesSink::replay(&spill, &*store).await?;
    println!("replayed {} known {} skipped {}", replayed.stored, replayed.known, replayed.skipped);
    let store = Refusing { inner: StoreSink::new(store), every: refused, count: Arc::default() };
    let receiver = Receiver::new("ops").record(store).record(JsonLinesSink::open(&spill)?);
    let policy = DeskPolicy::new().tries(1).backoff(Backoff::fixed(Duration::from_millis(1)));
    let routes = Routes::new(Route::new(["ops"], "look_into_it"));
    Ok(Desk::with_policy(policy, routes, [receiver])?)
}

/// Makes failing calls, one after the other, until the end.
async fn fail(desk: Desk, ballast: String, end: watch::Receiver<bool>) {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let policy = EscalatePolicy::new().wait(Duration::from_secs(60));
    let mut service = ServiceBuilder::new()
        .layer(
            EscalateLayer::new(classifier, desk)
                .policy(policy)
                .enrich(move |escalation| escalation.impact.clone_from(&ballast)),
        )
        .service(service_fn(|()| async {
            Err::<(), _>(AnyError::from(io::Error::from(io::ErrorKind::ConnectionReset)))
        }));
    while !*end.borrow() {
        let call = async { service.ready().await?.call(()).await };
        if let (Err(_), Some(incident)) = scope(call).await {
            // In one piece, and before the next call.
            let mut out = io::stdout().lock();
            if writeln!(out, "{} {}", told(&incident), incident.id).is_err() {
                return;
            }
        }
    }
}

fn told(incident: &Incident) -> &'static str {
    match incident.resolution {
        Resolution::Escalated => "recorded",
        _ if incident.not_recorded => "nowhere",
        _ => "unknown",
    }
}

/// Refuses every so many-th record.
#[derive(Clone)]
struct Refusing {
    inner: StoreSink,
    every: u64,
    count: Arc<AtomicU64>,
}

impl Service<Escalation> for Refusing {
    type Response = ();
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if self.every > 0 && count.is_multiple_of(self.every) {
            return Box::pin(async { Err("refused".into()) });
        }
        let sent = self.inner.call(escalation);
        Box::pin(async { Ok(sent.await?) })
    }
}
