//! Connections: a pool of them, and what the server tells unasked.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use deadpool_postgres::{ClientWrapper, Connect, Manager, ManagerConfig, Object, Pool};
use tokio::sync::{Mutex, Notify, OnceCell};
use tokio::task::JoinHandle;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, Socket};
use tower_triage_escalate::store::StoreError;

use crate::error::{failed, no_connection};
use crate::query::CHANNEL;
use crate::schema::migrate;

/// What each connection begins with: the statements rely on it, whatever the server's defaults are.
/// A session whose process has vanished must not hold its locks for long, and what is committed has
/// to be on the disk.
const SESSION: &str = "
    SET default_transaction_isolation = 'read committed';
    SET idle_in_transaction_session_timeout = '60s';
    SET statement_timeout = '60s';
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";

pub(crate) struct Connections {
    pool: Pool,
    /// The tables are as they have to be.
    ready: OnceCell<()>,
    /// A letter was changed, here or elsewhere.
    pub(crate) changed: Arc<Notify>,
    /// The session that hears of changes elsewhere, once somebody has waited for one.
    listener: Mutex<Option<ClientWrapper>>,
}

impl Connections {
    pub(crate) fn new<T>(config: Config, tls: T, most: usize) -> Result<Self, StoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync + 'static,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let changed = Arc::new(Notify::new());
        let connector = Connector { tls, changed: Arc::clone(&changed) };
        let manager = Manager::from_connect(config, connector, ManagerConfig::default());
        let pool = Pool::builder(manager).max_size(most).build();
        let pool = pool.map_err(|error| StoreError::unavailable(error.to_string()))?;
        Ok(Self { pool, ready: OnceCell::new(), changed, listener: Mutex::default() })
    }

    pub(crate) async fn lend(&self) -> Result<Lent, StoreError> {
        let client = self.pool.get().await.map_err(no_connection)?;
        let mut client = Lent { client: Some(client), busy: false };
        self.ready.get_or_try_init(|| migrate(&mut client)).await?;
        Ok(client)
    }

    /// Sees to it that changes elsewhere are heard of; true if they were not until now.
    pub(crate) async fn listen(&self) -> Result<bool, StoreError> {
        let mut listener = self.listener.lock().await;
        if listener.as_ref().is_some_and(|client| !client.is_closed()) {
            return Ok(false);
        }
        let client = Object::take(self.pool.get().await.map_err(no_connection)?);
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(failed)?;
        *listener = Some(client);
        Ok(true)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("status", &self.pool.status()).finish_non_exhaustive()
    }
}

/// A connection that is given back to the pool when nothing is under way on it, and closed
/// otherwise: after a call that was dropped or took too long, nobody knows what it is doing.
pub(crate) struct Lent {
    /// There until it is dropped.
    client: Option<Object>,
    busy: bool,
}

impl Lent {
    fn client(&self) -> Result<&Object, StoreError> {
        self.client.as_ref().ok_or_else(|| StoreError::unavailable("the connection was closed"))
    }

    pub(crate) async fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let before = std::mem::replace(&mut self.busy, true);
        let client = self.client()?;
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let rows = client.query(&statement, params).await;
        self.busy = before;
        rows.map_err(failed)
    }

    /// Begins a transaction. It is undone when the connection is dropped before
    /// [`commit`](Self::commit).
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        self.busy = true;
        self.run("BEGIN").await
    }

    pub(crate) async fn commit(&mut self) -> Result<(), StoreError> {
        self.run("COMMIT").await?;
        self.busy = false;
        Ok(())
    }

    /// Runs statements of our own, within a transaction.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        self.client()?.batch_execute(sql).await.map_err(failed)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (true, Some(client)) = (self.busy, self.client.take()) {
            drop(Object::take(client));
        }
    }
}

/// Connects, and passes on what the server tells unasked.
struct Connector<T> {
    tls: T,
    changed: Arc<Notify>,
}

type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;

impl<T> Connect for Connector<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + Sync + 'static,
    T::TlsConnect: Send + Sync,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect(&self, config: &Config) -> Connecting<'_> {
        let (config, tls, changed) = (config.clone(), self.tls.clone(), Arc::clone(&self.changed));
        Box::pin(async move {
            let (client, mut connection) = config.connect(tls).await?;
            // The driver wants a task per connection. It ends with the connection, or is aborted
            // when the client is dropped.
            let task = tokio::spawn(poll_fn(move |cx| {
                loop {
                    match std::task::ready!(connection.poll_message(cx)) {
                        Some(Ok(AsyncMessage::Notification(_))) => changed.notify_waiters(),
                        Some(Ok(_)) => {}
                        // Whoever waits for an answer gets an error of their own.
                        Some(Err(error)) => {
                            tracing::debug!(%error, "a connection to PostgreSQL ended");
                            return Poll::Ready(());
                        }
                        None => return Poll::Ready(()),
                    }
                }
            }));
            let guard = Aborts(Some(task));
            client.batch_execute(SESSION).await?;
            Ok((client, guard.keep()))
        })
    }
}

/// A task that ends with its owner, until that is somebody else.
struct Aborts(Option<JoinHandle<()>>);

impl Aborts {
    fn keep(mut self) -> JoinHandle<()> {
        self.0.take().expect("it is taken here only, with all of it")
    }
}

impl Drop for Aborts {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
