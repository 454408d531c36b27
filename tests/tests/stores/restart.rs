//! The server crashes and comes back, again and again, while calls fail.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::{Config, NoTls};
use tower::{Layer, ServiceExt};
use tower_triage_core::incident::IncidentId;
use tower_triage_core::{Backoff, Resolution, incident};
use tower_triage_dead_letter_postgres::{PostgresOptions, PostgresStore};
use tower_triage_escalate::store::{Filter, Store, StoreSink};
use tower_triage_escalate::{DeskPolicy, JsonLinesSink};
use tower_triage_test_support::postgres::PostgresServer;

use super::fixture::SECOND;
use super::shop::{DOWN, Fails, Order, classifier, desk_with, durable, ops};

const CALLERS: usize = 16;
const CRASHES: usize = 5;
/// How many calls fail between crash and return, and between return and crash.
const FAILURES: usize = 300;

/// What callers were told, as it comes in.
#[derive(Default)]
struct Told {
    enough: AtomicBool,
    calls: AtomicUsize,
    more: Notify,
}

impl Told {
    /// Waits for so many more.
    async fn wait_for(&self, more: usize) {
        let end = self.calls.load(Ordering::SeqCst) + more;
        let waiting = async {
            loop {
                let notified = self.more.notified();
                if self.calls.load(Ordering::SeqCst) >= end {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(120 * SECOND, waiting).await.expect("calls go on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_was_told_recorded_is_recorded_whatever_happens_to_the_server() {
    let Some(mut server) = PostgresServer::own(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let spill = folder.path().join("spill.jsonl");
    let config: Config = server.config().parse().unwrap();
    let options = PostgresOptions::new().timeout(2 * SECOND);
    let store = PostgresStore::connect_with(options, config, NoTls).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let policy = DeskPolicy::new().tries(2).backoff(Backoff::fixed(Duration::from_millis(5)));
    let receiver = ops()
        .record(StoreSink::new(Arc::clone(&store)))
        .record(JsonLinesSink::open(&spill).unwrap());
    let desk = desk_with(policy, receiver);
    let layer = durable(classifier().0, &desk);

    let told = Arc::new(Told::default());
    let callers = (0..CALLERS).map(|_| {
        let (service, told) = (layer.layer(Fails(DOWN)), Arc::clone(&told));
        tokio::spawn(async move {
            let mut recorded = Vec::new();
            while !told.enough.load(Ordering::SeqCst) {
                let call = service.clone().oneshot(Order::default());
                let (outcome, incident) = incident::scope(call).await;
                assert_eq!(outcome.unwrap_err(), DOWN, "the caller gets its own failure");
                let incident = incident.expect("it failed");
                assert_eq!(incident.resolution, Resolution::Escalated, "there is a last resort");
                recorded.push(incident.id);
                told.calls.fetch_add(1, Ordering::SeqCst);
                told.more.notify_waiters();
            }
            recorded
        })
    });
    let callers: Vec<_> = callers.collect();
    fills(&*store, &told).await;
    let before = resident();
    for _ in 0..CRASHES {
        server = slow(server, |server| server.stop(true)).await;
        told.wait_for(FAILURES).await;
        server = slow(server, |server| server.resume().unwrap()).await;
        fills(&*store, &told).await;
    }
    let after = resident();
    told.enough.store(true, Ordering::SeqCst);
    let mut recorded = Vec::new();
    for caller in callers {
        recorded.extend(caller.await.expect("nothing panics"));
    }
    desk.idle().await;
    assert_eq!((desk.counts().not_recorded, desk.counts().dropped), (0, 0));
    assert!(after < before + 64 * 1024, "{before} kB before, {after} kB after");

    let stored = ids(&*store).await;
    let spilled = spilled(&std::fs::read_to_string(&spill).unwrap());
    let both = stored.intersection(&spilled).count();
    println!(
        "{} told recorded: {} stored, {} spilled, {both} of them both",
        recorded.len(),
        stored.len(),
        spilled.len()
    );
    assert!(!spilled.is_empty() && stored.len() > CRASHES * FAILURES, "both had their turn");
    let lost = recorded.iter().filter(|id| !stored.contains(id) && !spilled.contains(id)).count();
    assert_eq!(lost, 0);
    let distinct: HashSet<_> = recorded.iter().copied().collect();
    assert_eq!(distinct.len(), recorded.len());

    drop((layer, desk));
    // The last resort again, as a program that starts does it.
    let replayed = JsonLinesSink::replay(&spill, &*store).await.unwrap();
    assert_eq!((replayed.stored + replayed.known, replayed.skipped), (spilled.len() as u64, 0));
    assert_eq!(replayed.known, both as u64);
    assert_eq!(ids(&*store).await, distinct, "each is there, and nothing else");
    drop(server);
}

/// Waits until so many more calls were told, and so many more records are stored: how many are
/// spilled until the connections are back depends on the machine.
async fn fills(store: &dyn Store, told: &Told) {
    let begun = async {
        loop {
            match store.stats().await {
                Ok(stats) => return stats.total,
                Err(_) => told.wait_for(CALLERS).await,
            }
        }
    };
    let filling = async {
        let end = begun.await + FAILURES as u64;
        told.wait_for(FAILURES).await;
        while store.stats().await.map_or(true, |stats| stats.total < end) {
            told.wait_for(CALLERS).await;
        }
    };
    tokio::time::timeout(120 * SECOND, filling).await.expect("the store works again");
}

/// The ids in the store. One that comes twice, or that was counted twice, is a failure.
async fn ids(store: &dyn Store) -> HashSet<IncidentId> {
    let (mut ids, mut after) = (HashSet::new(), None);
    loop {
        let page = store.list(Filter::any(), after, 500).await.unwrap();
        for letter in &page.letters {
            assert!(ids.insert(letter.id()) && letter.failures == 1, "{} twice", letter.id());
        }
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

/// The ids in the spill file. One that comes twice is a failure.
fn spilled(lines: &str) -> HashSet<IncidentId> {
    let mut ids = HashSet::new();
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("whole lines");
        let id: IncidentId = line["id"].as_str().unwrap().parse().unwrap();
        assert!(ids.insert(id), "{id} was spilled twice");
    }
    ids
}

/// Does something slow with the server.
async fn slow(
    mut server: PostgresServer,
    f: impl FnOnce(&mut PostgresServer) + Send + 'static,
) -> PostgresServer {
    let done = tokio::task::spawn_blocking(move || {
        f(&mut server);
        server
    });
    done.await.unwrap()
}

/// Memory in use, in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
