//! A storm at the desk: 100,000 failures of 50 kinds within a minute, through the layer, the desk and
//! a store. All are stored; people get at most one notification per kind and window, then that it is
//! over, and the counts add up; what the desk itself holds is bounded.
//!
//! What it does to other calls in the same process is measured by `desk_storm` (benches).

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::{AnyError, AnyOk, Chain, Classifier, Fingerprint, Halves};
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::{MemoryStore, Store, StoreSink};
use tower_triage_escalate::{
    Desk, DeskCounts, DeskPolicy, EscalateLayer, EscalatePolicy, Escalation, Receiver, Route,
    Routes,
};

const FAILURES: u64 = 100_000;
const KINDS: u64 = 50;
const CALLERS: u64 = 256;
const MINUTE: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(300);

/// What the process may grow by while 100,000 letters go to the disk: the desk's queue and storm
/// control, the store's batches and page cache, buffers of the allocator. Letters are about 1 KiB,
/// so keeping them would take more than 100 MiB.
const GROWTH_KIB: u64 = 32 * 1024;

/// One test at a time: what the other one holds in memory is not this one's.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// People, who remember what they were told and when.
#[derive(Clone)]
struct People {
    started: tokio::time::Instant,
    told: Arc<Mutex<Vec<(Duration, Told)>>>,
}

struct Told {
    fingerprint: Fingerprint,
    count: u64,
    over: bool,
}

impl Service<Escalation> for People {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, it: Escalation) -> Self::Future {
        let told =
            Told { fingerprint: it.fingerprint, count: it.count, over: it.resolved.is_some() };
        self.told.lock().unwrap().push((self.started.elapsed(), told));
        ready(Ok(()))
    }
}

impl People {
    fn new() -> Self {
        Self { started: tokio::time::Instant::now(), told: Arc::default() }
    }

    /// What was told of each kind, in its order.
    fn by_kind(&self) -> HashMap<Fingerprint, Vec<(Duration, u64, bool)>> {
        let mut kinds = HashMap::<_, Vec<_>>::new();
        for (at, told) in &*self.told.lock().unwrap() {
            kinds.entry(told.fingerprint).or_default().push((*at, told.count, told.over));
        }
        kinds
    }
}

fn desk(store: &Arc<dyn Store>, people: &People) -> Desk {
    let receiver =
        Receiver::new("on-call").record(StoreSink::new(Arc::clone(store))).notify(people.clone());
    let routes = Routes::new(Route::new(["on-call"], "infra_failure"));
    let policy = DeskPolicy::new().window(MINUTE).resolve_after(Some(QUIET));
    Desk::with_policy(policy, routes, [receiver]).unwrap()
}

/// Two letters: a digit would be the same kind.
fn kind(n: u64) -> String {
    let letter = |n: u64| char::from(b'a' + u8::try_from(n % 26).unwrap());
    format!("{}{}", letter(n), letter(n / 26))
}

/// A call of the service that fails.
async fn fail(desk: &Desk, n: u64) {
    let rules = Halves { response: AnyOk, error: Chain };
    let layer = EscalateLayer::new(Classifier::new(rules), desk.clone())
        .from("shop")
        .policy(EscalatePolicy::new().wait(MINUTE));
    let down = service_fn(|n: u64| async move {
        let text = format!("shard {} is gone", kind(n % KINDS));
        Err::<(), _>(AnyError::from(io::Error::new(io::ErrorKind::ConnectionReset, text)))
    });
    layer.layer(down).oneshot(n).await.unwrap_err();
}

fn no_loss(counts: &DeskCounts) {
    assert_eq!((counts.delivered, counts.not_recorded, counts.dropped), (FAILURES, 0, 0));
}

/// A minute of stepped time, and what comes after.
#[tokio::test(start_paused = true)]
async fn a_storm_is_stored_and_told_once_per_kind_and_window() {
    let _alone = ALONE.lock().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let people = People::new();
    let desk = desk(&store, &people);
    // A minute and a bit: so that a second window begins.
    let step = Duration::from_micros(610);
    for n in 0..FAILURES {
        fail(&desk, n).await;
        tokio::time::advance(step).await;
    }
    no_loss(&desk.counts());
    assert_eq!(store.stats().await.unwrap().total, FAILURES, "all are stored");
    let kinds = people.by_kind();
    assert_eq!(kinds.len() as u64, KINDS);
    for told in kinds.values() {
        let times: Vec<_> = told.iter().map(|(at, ..)| *at).collect();
        assert_eq!(times.len(), 2, "at once, and once more when the window was over");
        assert!(times[0] < Duration::from_secs(1));
        assert!(times[1] - times[0] >= MINUTE);
    }

    tokio::time::sleep(QUIET + MINUTE).await;
    for told in people.by_kind().values() {
        assert_eq!(told.len(), 3);
        assert!(told[2].2, "it is over");
        let counted: u64 = told.iter().map(|(_, count, _)| count).sum();
        assert_eq!(counted, FAILURES / KINDS, "each failure is in one count");
    }
    assert_eq!(desk.counts().resolved, KINDS);
}

/// At full speed, onto the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_onto_the_disk_stays_within_its_memory() {
    let _alone = ALONE.lock().await;
    let home = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path().join("desk.db")).unwrap());
    let people = People::new();
    let desk = desk(&store, &people);
    let before = resident_kib();
    let mut most = before;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let desk = desk.clone();
        callers.spawn(async move {
            for n in (caller..FAILURES).step_by(usize::try_from(CALLERS).unwrap()) {
                fail(&desk, n).await;
            }
        });
    }
    let look = Duration::from_millis(50);
    while !callers.is_empty() {
        if let Ok(Some(done)) = tokio::time::timeout(look, callers.join_next()).await {
            done.unwrap();
        }
        most = most.max(resident_kib());
    }
    let took = people.started.elapsed();
    no_loss(&desk.counts());
    assert_eq!(store.stats().await.unwrap().total, FAILURES, "all are stored");
    let windows = took.as_secs() / MINUTE.as_secs() + 1;
    for told in people.by_kind().values() {
        assert!(told.len() as u64 <= windows, "{} in {took:?}", told.len());
    }
    let grown = most - before;
    println!("{FAILURES} failures in {took:?}; {grown} KiB more at the most");
    if cfg!(target_os = "linux") {
        assert!(grown < GROWTH_KIB, "{grown} KiB");
    }
}

/// What the process holds in memory; 0 where the system does not say.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
