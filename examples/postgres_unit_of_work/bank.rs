//! The bank: its tables, its one unit of work, and the stack around it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::{Client, Config, IsolationLevel, NoTls, Transaction};
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;
use tower_triage::postgres::{
    PostgresRules, Reconnect, TransactionOptions, Transactions, Unit, Work,
};
use tower_triage::retry::ClassRule;
use tower_triage::retry::budget::BucketSettings;
use tower_triage::{
    AnyError, Backoff, BreakerPolicy, Budget, CircuitBreakerLayer, Classifier, ConfigError,
    ErrorClass, FallbackLayer, Jitter, RetryLayer, RetryPolicy,
};

pub(crate) const ACCOUNTS: i64 = 11;
pub(crate) const CENTS_EACH: i64 = 1_000;

pub(crate) async fn found(client: &Client) -> Result<(), tokio_postgres::Error> {
    let tables = format!(
        "CREATE TABLE account (id bigint PRIMARY KEY, cents bigint NOT NULL);
         INSERT INTO account SELECT id, {CENTS_EACH} FROM generate_series(0, {ACCOUNTS} - 1) AS id;
         CREATE TABLE book (id bigint UNIQUE, source bigint, target bigint, cents bigint);"
    );
    client.batch_execute(&tables).await
}

pub(crate) async fn version(client: &Client) -> Result<String, tokio_postgres::Error> {
    let version: String = client.query_one("SHOW server_version", &[]).await?.try_get(0)?;
    Ok(format!("PostgreSQL {version}"))
}

/// Some cents from one account to another.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) id: i64,
    from: i64,
    to: i64,
    cents: i64,
}

impl Transfer {
    /// A transfer that follows from its number.
    pub(crate) const fn number(id: i64) -> Self {
        let from = id * 7 % ACCOUNTS;
        let to = (from + 1 + id % (ACCOUNTS - 1)) % ACCOUNTS;
        Self { id, from, to, cents: 10 + id * 37 % 290 }
    }
}

/// A definite no, of the bank and not of the database.
#[derive(Debug)]
pub(crate) struct Overdrawn;

impl fmt::Display for Overdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the account does not hold so much")
    }
}

impl std::error::Error for Overdrawn {}

#[derive(Debug)]
pub(crate) enum Booked {
    Done,
    Queued,
}

impl Work for Transfer {
    type Output = Booked;

    async fn run(&self, tx: &mut Transaction<'_>) -> Result<Booked, AnyError> {
        let book = "INSERT INTO book VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
        if tx.execute(book, &[&self.id, &self.from, &self.to, &self.cents]).await? == 0 {
            return Ok(Booked::Done); // an attempt whose answer was lost had done it
        }
        let held = "SELECT cents FROM account WHERE id = $1";
        let held: i64 = tx.query_one(held, &[&self.from]).await?.try_get(0)?;
        if held < self.cents {
            return Err(Overdrawn.into());
        }
        let change = "UPDATE account SET cents = cents + $2 WHERE id = $1";
        tx.execute(change, &[&self.from, &-self.cents]).await?;
        tx.execute(change, &[&self.to, &self.cents]).await?;
        Ok(Booked::Done)
    }
}

/// Transfers that could not be booked in time.
#[derive(Clone, Default)]
pub(crate) struct Queue(Arc<Mutex<Vec<Unit<Transfer>>>>);

impl Queue {
    fn push(&self, unit: Unit<Transfer>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(unit);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn take(&self) -> Vec<Unit<Transfer>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) type TransferStack = BoxCloneSyncService<Unit<Transfer>, Booked, AnyError>;

/// A queue under retry over breaker over serializable transactions, one classifier for all.
pub(crate) fn stack(
    classifier: &Classifier<PostgresRules>,
    mut config: Config,
    queue: Queue,
) -> Result<TransferStack, ConfigError> {
    let later = [
        ErrorClass::Transient,
        ErrorClass::Timeout,
        ErrorClass::Throttled,
        ErrorClass::Contention,
        ErrorClass::Rejected,
    ];
    let fallback = FallbackLayer::new(classifier.clone()).or_call_with(
        later,
        move |unit: Unit<Transfer>, _failed| {
            queue.push(unit);
            async { Ok(Booked::Queued) }
        },
    );
    let quick = Backoff::exponential(Duration::from_millis(10), 2.0)
        .cap(Duration::from_millis(200))
        .jitter(Jitter::Full);
    let retry = RetryPolicy::default()
        .attempts(6)
        .backoff(&quick)
        .retry(ErrorClass::Contention, ClassRule::new(quick.clone()));
    // Serializable transactions lose races all day, and that is no sign of trouble: more retries
    // than the usual tenth of the requests.
    let races = Budget::bucket(BucketSettings { gain: 1.0, capacity: 100, initial: 50 })?;
    let breaker = BreakerPolicy::new()
        .time_window(Duration::from_secs(1))
        .minimum_calls(20)
        .failure_rate(0.8)
        .open_for(Backoff::fixed(Duration::from_millis(250)).jitter(Jitter::Ratio(0.2)));

    config.application_name("teller").options("-c lock_timeout=100ms -c statement_timeout=2s");
    let serializable = TransactionOptions::new().isolation(IsolationLevel::Serializable);
    let stack = ServiceBuilder::new()
        .layer(fallback)
        .layer(RetryLayer::new(classifier.clone()).policy(retry.build()?).budget(races))
        .layer(CircuitBreakerLayer::new(classifier.clone()).name("bank").policy(breaker.build()?))
        .service(Transactions::new(Reconnect::new(config, NoTls)).options(serializable));
    Ok(BoxCloneSyncService::new(stack))
}
