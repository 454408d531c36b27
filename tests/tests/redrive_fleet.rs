//! Two processes with eight workers each drive 10,000 letters from PostgreSQL again. One of them is
//! killed in the middle, and another takes its place.

use std::collections::{HashMap, HashSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::NoTls;
use tower_triage_core::incident::IncidentId;
use tower_triage_dead_letter_postgres::{PostgresOptions, PostgresStore};
use tower_triage_escalate::store::{Filter, Letter, LetterState, Put, Store};
use tower_triage_escalate::{Codec, Escalation, Timestamp};
use tower_triage_http::HttpCodec;
use tower_triage_test_support::postgres::PostgresServer;

const LETTERS: u32 = 10_000;
const WORKERS: usize = 8;
/// How many letters a worker has under way.
const CONCURRENCY: usize = 4;
/// What a killed process may have had under way.
const IN_FLIGHT: usize = WORKERS * CONCURRENCY;
const LEASE: Duration = Duration::from_secs(6);
/// Long for a loaded machine, short for a test that hangs.
const LONG: Duration = Duration::from_secs(300);

/// Who receives the requests: which came with each id.
struct Receiver {
    received: Mutex<HashMap<String, Vec<String>>>,
    more: Notify,
    /// `Some` while nobody is answered: whose requests wait.
    held: watch::Sender<Option<HashSet<String>>>,
}

impl Receiver {
    fn new() -> Arc<Self> {
        let (received, more) = Default::default();
        Arc::new(Self { received, more, held: watch::Sender::new(None) })
    }

    async fn start(self: &Arc<Self>) -> u16 {
        let app = Router::new().route("/orders", post(receive)).with_state(Arc::clone(self));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        port
    }

    fn count(&self) -> usize {
        self.received.lock().unwrap().values().map(Vec::len).sum()
    }

    async fn wait_for(&self, count: usize) {
        let waiting = async {
            loop {
                let notified = self.more.notified();
                if self.count() >= count {
                    return;
                }
                notified.await;
            }
        };
        timeout(LONG, waiting).await.expect("requests go on coming");
    }

    /// May this request be answered? Otherwise it waits.
    fn answers(&self, key: &str) -> bool {
        let mut answers = false;
        self.held.send_if_modified(|held| match held {
            None => {
                answers = true;
                false
            }
            Some(held) => held.insert(key.to_owned()),
        });
        answers
    }

    /// Answers nobody until `process` has letters under way that it cannot settle without an answer.
    async fn hold(&self, store: &dyn Store, process: u32) {
        self.held.send_replace(Some(HashSet::new()));
        let (owner, mut held) = (format!("process {process}"), self.held.subscribe());
        let waiting = async {
            loop {
                let ids = held.borrow_and_update().clone().expect("nobody is answered");
                for id in ids {
                    let letter = store.get(id.parse().unwrap()).await.unwrap().expect("stored");
                    if letter.lease.is_some_and(|lease| lease.owner == owner) {
                        return;
                    }
                }
                held.changed().await.expect("it is still there");
            }
        };
        timeout(LONG, waiting).await.expect("it is at work");
    }
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, order: String) {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    receiver.received.lock().unwrap().entry(key.clone()).or_default().push(order);
    receiver.more.notify_waiters();
    let mut held = receiver.held.subscribe();
    while !receiver.answers(&key) {
        held.changed().await.expect("it is answered later");
    }
}

fn process(database: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_redriving"))
        .arg(database)
        .args([WORKERS.to_string(), CONCURRENCY.to_string(), LEASE.as_secs().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("it is built with this test")
}

fn id(n: u32) -> IncidentId {
    IncidentId::from_bits(u128::from(n))
}

/// A failed order with its request.
fn failed(n: u32, port: u16) -> Escalation {
    let now = Timestamp::from(std::time::SystemTime::now());
    let mut escalation: Escalation = serde_json::from_value(json!({
        "schema": 1, "id": id(n), "task_type": "look_into_it", "priority": "high",
        "from": "shop", "to": ["ops"], "operation": "POST", "outcome": "failed",
        "class": "Transient", "reason": "transient", "fingerprint": "00000000000000aa",
        "summary": "", "detail": "connection reset", "attempts": [], "impact": "",
        "suggestion": "", "context": {}, "first_time": now, "last_time": now, "count": 1,
    }))
    .unwrap();
    let request = http::Request::post(format!("http://127.0.0.1:{port}/orders"))
        .body(Full::new(Bytes::from(format!("order {n}"))))
        .unwrap();
    escalation.request = Some(Arc::new(HttpCodec::new().encode(&request).unwrap()));
    escalation
}

async fn fill(store: &Arc<dyn Store>, port: u16) {
    let writers = (0..64).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for n in (writer..LETTERS).step_by(64) {
                assert_eq!(store.put(failed(n, port)).await.unwrap(), Put::New);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

async fn letters(store: &dyn Store) -> Vec<Letter> {
    let (mut letters, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(Filter::any(), after, 1000).await.unwrap();
        letters.extend(page.letters);
        after = page.next;
        if after.is_none() {
            return letters;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_settles_each_letter_once_though_one_of_it_is_killed() {
    let Some(server) = PostgresServer::own(&[]) else { return };
    let options = PostgresOptions::new().timeout(LONG);
    let config = server.config().parse().unwrap();
    let store = PostgresStore::connect_with(options, config, NoTls).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let receiver = Receiver::new();
    let port = receiver.start().await;
    fill(&store, port).await;

    let (mut doomed, mut survivor) = (process(&server.config()), process(&server.config()));
    receiver.wait_for(LETTERS as usize / 3).await;
    receiver.hold(&*store, doomed.id().expect("it runs")).await;
    doomed.start_kill().expect("it is at work");
    doomed.wait().await.unwrap();
    receiver.held.send_replace(None);
    let mut successor = process(&server.config());
    let working = async {
        while store.stats().await.unwrap().of(LetterState::Redriven) < u64::from(LETTERS) {
            store.changed().await;
        }
    };
    timeout(LONG, working).await.expect("the killed one's letters come back");
    for process in [&mut survivor, &mut successor] {
        drop(process.stdin.take());
        let end = timeout(LONG, process.wait()).await.expect("it ends when told to");
        assert!(end.unwrap().success());
    }

    let stats = store.stats().await.unwrap();
    assert_eq!((stats.total, stats.leased), (u64::from(LETTERS), 0));
    assert_eq!(stats.by_state.len(), 1, "all are redriven: {:?}", stats.by_state);
    let mut again = 0;
    for letter in letters(&*store).await {
        let times = |what| letter.history.iter().filter(|event| event.what == what).count();
        assert_eq!(times("redriven"), 1, "{:?}", letter.history);
        assert_eq!(times("leased"), letter.tries as usize);
        again += usize::from(letter.tries > 1);
    }
    assert!((1..=IN_FLIGHT).contains(&again), "{again} letters were leased again");

    let received = receiver.received.lock().unwrap();
    assert_eq!(received.len(), LETTERS as usize, "each was sent");
    let mut duplicates = 0;
    for n in 0..LETTERS {
        let orders = &received[&id(n).to_string()];
        assert!(orders.iter().all(|order| *order == format!("order {n}")), "{n}: {orders:?}");
        duplicates += orders.len() - 1;
    }
    println!("{duplicates} duplicates, {again} letters that the killed process had leased");
    assert!(duplicates <= again, "only what the killed process had sent comes twice");
}
