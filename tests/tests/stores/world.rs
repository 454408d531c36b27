//! The stores, each in a world of its own for each test.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::NoTls;
use tower_triage_dead_letter_postgres::{PostgresOptions, PostgresStore};
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::WallClock;
use tower_triage_escalate::store::{
    Change, Filter, LeaseRequest, Letter, MemoryStore, Refused, Stats, Store, StoreError,
};

use tower_triage_test_support::postgres::PostgresServer;

use super::fixture::{escalation, id, t0};

/// One store, empty, with a clock that the test steps.
pub(crate) struct World {
    name: &'static str,
    pub(crate) store: Arc<dyn Store>,
    clock: WallClock,
    /// Another handle on the same data; nothing if the data ends with the handle.
    open: Option<Open>,
    /// What has to live as long as the store.
    _home: Box<dyn Any>,
}

type Opened = Pin<Box<dyn Future<Output = Arc<dyn Store>>>>;
type Open = Box<dyn Fn(WallClock) -> Opened>;

/// Runs `test` in a world of each store, one after the other.
pub(crate) async fn each(test: impl AsyncFn(&mut World)) {
    for name in NAMES {
        if let Some(mut world) = world(name).await {
            test(&mut world).await;
        }
    }
}

/// The names of the stores, to make a world of one of them.
pub(crate) const NAMES: [&str; 3] = ["memory", "sqlite", "postgres"];

/// A world of the store of this name; nothing if its tests are to be left out.
pub(crate) async fn world(name: &str) -> Option<World> {
    match name {
        "memory" => Some(memory()),
        "sqlite" => Some(sqlite().await),
        "postgres" => postgres().await,
        _ => unreachable!("{name}"),
    }
}

fn memory() -> World {
    let clock = WallClock::stepped(t0());
    let store = Arc::new(MemoryStore::new().clock(clock.clone()));
    World { name: "memory", store, clock, open: None, _home: Box::new(()) }
}

async fn sqlite() -> World {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letters.db");
    let open: Open = Box::new(move |clock| {
        let path = path.clone();
        Box::pin(async move {
            // It reads and writes the file before it is there.
            let store = tokio::task::spawn_blocking(move || SqliteStore::open(path));
            Arc::new(store.await.unwrap().unwrap().clock(clock)) as Arc<dyn Store>
        })
    });
    let clock = WallClock::stepped(t0());
    let store = open(clock.clone()).await;
    World { name: "sqlite", store, clock, open: Some(open), _home: Box::new(folder) }
}

/// Each world has a schema of its own on the server that the tests of a process share.
async fn postgres() -> Option<World> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap()?;
    let schema = format!("world_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
    let (admin, connection) = tokio_postgres::connect(&server.config(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    admin.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    drop(admin);
    connection.await.unwrap().unwrap();
    let url = format!("{} options=-csearch_path={schema}", server.config());
    let open: Open = Box::new(move |clock| {
        let url = url.clone();
        Box::pin(async move {
            // Long for a loaded machine.
            let options = PostgresOptions::new().timeout(Duration::from_secs(60));
            let config = url.parse().unwrap();
            let store = PostgresStore::connect_with(options, config, NoTls).await.unwrap();
            Arc::new(store.clock(clock)) as Arc<dyn Store>
        })
    });
    let clock = WallClock::stepped(t0());
    let store = open(clock.clone()).await;
    Some(World { name: "postgres", store, clock, open: Some(open), _home: Box::new(server) })
}

impl World {
    pub(crate) fn step(&self, by: Duration) {
        self.clock.step(by);
    }

    /// Another handle on the same data: another process, as far as that can be in one.
    pub(crate) async fn other(&self) -> Arc<dyn Store> {
        match &self.open {
            Some(open) => open(self.clock.clone()).await,
            None => Arc::clone(&self.store),
        }
    }

    /// Drops the store as a crash would, without a word, and opens it again. False if the data
    /// ended with it.
    pub(crate) async fn restart(&mut self) -> bool {
        let Some(open) = &self.open else { return false };
        // Nothing is left of the first one when the second is opened.
        self.store = Arc::new(MemoryStore::new());
        self.store = open(self.clock.clone()).await;
        true
    }

    /// Stores the escalations 1 to `n`.
    pub(crate) async fn filled(&self, n: u32) {
        for n in 1..=n {
            _ = self.store.put(escalation(n)).await.unwrap();
        }
    }

    pub(crate) async fn letter(&self, n: u32) -> Letter {
        self.store.get(id(n)).await.unwrap().expect("it is stored")
    }

    /// All letters, in their order.
    pub(crate) async fn all(&self) -> Vec<Letter> {
        let page = self.store.list(Filter::any(), None, 1_000_000).await.unwrap();
        assert_eq!(page.next, None);
        page.letters
    }

    pub(crate) async fn stats(&self) -> Stats {
        self.store.stats().await.unwrap()
    }

    pub(crate) async fn lease(&self, request: LeaseRequest) -> Vec<Letter> {
        self.store.lease(request).await.unwrap()
    }

    /// Leases the next letter.
    pub(crate) async fn next(&self) -> Letter {
        self.lease(LeaseRequest::new("worker", 1)).await.pop().expect("there is one")
    }

    pub(crate) async fn change(&self, n: u32, change: Change) -> Letter {
        self.store.change(id(n), change).await.unwrap()
    }

    pub(crate) async fn refused(&self, n: u32, change: Change) -> Refused {
        let before = self.letter(n).await;
        let error = self.store.change(id(n), change).await.unwrap_err();
        assert_eq!(self.letter(n).await, before, "a change that was refused changed something");
        match error {
            StoreError::Refused(which, why) if which == id(n) => why,
            error => panic!("{error:?}"),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the store: {}", self.name);
        }
    }
}
