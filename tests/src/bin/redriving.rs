//! Workers that drive dead letters from PostgreSQL again, for a test that kills them: `redriving
//! DATABASE WORKERS CONCURRENCY LEASE`, the last in seconds. Ends when its input does, with what is
//! under way finished.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_triage_core::{AnyError, BoxError, Classifier};
use tower_triage_dead_letter_postgres::PostgresStore;
use tower_triage_escalate::store::Store;
use tower_triage_escalate::{Redrive, RedrivePolicy};
use tower_triage_http::{HttpCodec, http};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, workers, concurrency, lease] = arguments.as_slice() else {
        return Err("usage: redriving DATABASE WORKERS CONCURRENCY LEASE".into());
    };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(database).await?);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let policy = RedrivePolicy::new()
        .owner(format!("process {}", std::process::id()))
        .rate(f64::INFINITY)
        .concurrency(concurrency.parse()?)
        .lease(Duration::from_secs(lease.parse()?));

    let (ended, end) = watch::channel(false);
    std::thread::spawn(move || {
        // Also an error is an end.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        ended.send_replace(true);
    });
    let mut work = JoinSet::new();
    for _ in 0..workers.parse()? {
        let service = client.clone().map_err(AnyError::from);
        let (store, mut end) = (Arc::clone(&store), end.clone());
        let mut worker = Redrive::new(store, HttpCodec::new(), Classifier::new(http()), service)
            .policy(policy.clone())?;
        work.spawn(async move {
            worker.run(async move { _ = end.wait_for(|ended| *ended).await }).await
        });
    }
    for progress in work.join_all().await {
        println!("{progress:?}");
    }
    Ok(())
}
