//! What the tests against a real server have in common.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, GenericClient, NoTls, Transaction};
use tower_triage_core::incident::{self, StepKind};
use tower_triage_core::{AnyError, Backoff, Classifier, ErrorClass, Failure, Refusal};
use tower_triage_postgres::{BoxWork, PostgresRules, Reconnect, Transactions, Unit, Work, work_fn};
use tower_triage_retry::budget::Budget;
use tower_triage_retry::{ClassRule, RetryLayer, RetryPolicy};
use tower_triage_test_support::postgres::PostgresServer;

/// The default policy with short waits, so that a test waits for events and not for us.
pub(crate) fn quick() -> RetryPolicy {
    let rule =
        |attempts| ClassRule::new(Backoff::fixed(Duration::from_millis(5))).attempts(attempts);
    RetryPolicy::default()
        .retry(ErrorClass::Transient, rule(3))
        .retry(ErrorClass::Throttled, rule(3))
        .retry(ErrorClass::Timeout, rule(2))
        .retry(ErrorClass::Contention, rule(2))
}

/// A retry layer over `rules`, with short waits and the default numbers of attempts.
pub(crate) fn retry<R>(rules: R) -> RetryLayer<R> {
    RetryLayer::new(Classifier::new(rules)).policy(quick().build().unwrap())
}

/// A retry layer that goes on for long.
pub(crate) fn stubborn(rules: PostgresRules) -> RetryLayer<PostgresRules> {
    let rule = ClassRule::new(Backoff::fixed(Duration::from_millis(5))).attempts(2000);
    let policy = RetryPolicy::default()
        .attempts(2000)
        .retry(ErrorClass::Transient, rule.clone())
        .retry(ErrorClass::Throttled, rule.clone())
        .retry(ErrorClass::Timeout, rule.clone())
        .retry(ErrorClass::Contention, rule);
    RetryLayer::new(Classifier::new(rules))
        .policy(policy.build().unwrap())
        .budget(Budget::unlimited())
}

/// A database of one test's own, with the table `account(id, cents)`: accounts 1 and 2 hold 1000.
pub(crate) struct Database {
    server: Arc<PostgresServer>,
    name: String,
}

impl Database {
    /// On the server that the tests of this process share. `None` if they are to be left out.
    pub(crate) async fn create() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap()?;
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let (admin, _task) = connect(&server.config().parse().unwrap()).await;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let database = Self { server, name };
        set_up(&database.side().await).await;
        Some(database)
    }

    pub(crate) fn config(&self) -> Config {
        let mut config: Config = self.server.config().parse().unwrap();
        config.dbname(&self.name);
        config
    }

    /// The same database behind a proxy on another port.
    pub(crate) fn config_at(&self, port: u16) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user("postgres").dbname(&self.name);
        config
    }

    /// A connection beside the stack, to look and to disturb.
    pub(crate) async fn side(&self) -> Client {
        connect(&self.config()).await.0
    }

    pub(crate) fn transactions(&self) -> Transactions<Reconnect> {
        Transactions::new(Reconnect::new(self.config(), NoTls))
    }
}

/// Accounts 1 and 2 with 1000 each.
pub(crate) async fn set_up(client: &Client) {
    let schema = "CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL);
        INSERT INTO account VALUES (1, 1000), (2, 1000)";
    client.batch_execute(schema).await.unwrap();
}

pub(crate) async fn connect(config: &Config) -> (Client, JoinHandle<()>) {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    let task = tokio::spawn(async move { drop(connection.await) });
    (client, task)
}

pub(crate) async fn cents(client: &Client, id: i32) -> i64 {
    client.query_one("SELECT cents FROM account WHERE id = $1", &[&id]).await.unwrap().get(0)
}

/// How often something ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Arc<AtomicU32>);

impl Runs {
    /// Counts one run, and gives its number, from 1.
    pub(crate) fn begin(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What came of a call, and what its incident tells.
#[derive(Debug)]
pub(crate) struct Told<T> {
    pub(crate) outcome: Result<T, AnyError>,
    /// The failed attempts, in their order.
    pub(crate) failures: Vec<Failure>,
    /// Why the last one was not repeated.
    pub(crate) refusal: Option<Refusal>,
}

impl<T> Told<T> {
    /// Class and reason of the failed attempts.
    pub(crate) fn reasons(&self) -> Vec<(ErrorClass, &'static str)> {
        self.failures.iter().map(|failure| (failure.class, failure.reason)).collect()
    }
}

pub(crate) async fn tell<T>(call: impl Future<Output = Result<T, AnyError>>) -> Told<T> {
    // Long for a loaded machine, short for a test that hangs.
    let limit = Duration::from_secs(60);
    let call = tokio::time::timeout(limit, incident::scope(call));
    let (outcome, incident) = call.await.expect("the call ends");
    let mut told = Told { outcome, failures: Vec::new(), refusal: None };
    for step in incident.into_iter().flat_map(|incident| incident.steps) {
        match step.kind {
            StepKind::Failed { failure, .. } => told.failures.push(failure),
            StepKind::NotRetried { why } => told.refusal = Some(why),
            _ => {}
        }
    }
    told
}

/// A unit that is told which run of it this is, from 1.
pub(crate) fn unit<T, F>(runs: &Runs, f: F) -> Unit<impl Work<Output = T> + Clone + 'static>
where
    T: Send + 'static,
    F: for<'a> Fn(u32, &'a mut Transaction<'_>) -> BoxWork<'a, T> + Clone + Send + Sync + 'static,
{
    let runs = runs.clone();
    Unit::new("unit", work_fn(move |tx| f(runs.begin(), tx)))
}

/// The backend behind a connection.
pub(crate) async fn pid(client: &impl GenericClient) -> Result<i32, tokio_postgres::Error> {
    Ok(client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0))
}

/// Ends a backend, and returns when it is gone.
pub(crate) async fn terminate(side: &Client, pid: i32) {
    let gone = side.query_one("SELECT pg_terminate_backend($1, 10000)", &[&pid]).await.unwrap();
    assert!(gone.get::<_, bool>(0), "the backend did not end");
}

/// Returns when a backend of `side`'s database is in the state that `condition` on
/// `pg_stat_activity` describes.
pub(crate) async fn wait_for(side: &Client, condition: &str) -> i32 {
    let look = format!(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND {condition}"
    );
    loop {
        if let Some(row) = side.query_opt(&look, &[]).await.unwrap() {
            return row.get(0);
        }
        // A pause between two looks, not a guess at how long it takes.
        side.batch_execute("SELECT pg_sleep(0.005)").await.unwrap();
    }
}

/// Work that has a name, and one statement.
#[derive(Clone, Copy)]
pub(crate) struct TakeWork;

impl Work for TakeWork {
    type Output = ();

    async fn run(&self, tx: &mut Transaction<'_>) -> Result<(), AnyError> {
        Ok(tx.batch_execute("WORK").await?)
    }
}
