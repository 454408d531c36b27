//! Connections straight from tokio-postgres, kept while they work.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, Socket};

use crate::source::ConnectionSource;

/// Connects by [`Config::connect`], keeps what is given back, and connects anew when a kept
/// connection has broken in the meantime.
///
/// It keeps up to [`max_idle`](Self::max_idle) connections (default 8) and does not limit how many
/// are in use: put a concurrency limit on top, or use a pool as the [`ConnectionSource`].
///
/// # Tasks
/// Each connection has a task of its own, because tokio-postgres wants it so; it ends with its
/// client, or when the connection breaks. After a call that was dropped in the middle one more task
/// asks the server to cancel the abandoned statement, which would otherwise run on and hold its
/// locks against the next attempt; it ends after at most five seconds.
///
/// ```no_run
/// use tokio_postgres::{Config, NoTls};
/// use tower_triage_postgres::{Reconnect, Transactions};
///
/// # fn main() -> Result<(), tokio_postgres::Error> {
/// let config: Config = "host=127.0.0.1 user=shop connect_timeout=2 \
///     options='-c statement_timeout=5s -c lock_timeout=1s'".parse()?;
/// let transactions = Transactions::new(Reconnect::new(config, NoTls));
/// # let _ = transactions;
/// # Ok(()) }
/// ```
pub struct Reconnect<T = NoTls> {
    tls: T,
    max_idle: usize,
    state: Mutex<State>,
}

struct State {
    config: Arc<Config>,
    idle: Vec<Client>,
}

impl<T> Reconnect<T> {
    /// Connects with `config`, and `tls` ([`NoTls`] or a connector of your TLS crate). A time limit
    /// for connecting belongs into the configuration
    /// ([`connect_timeout`](Config::connect_timeout)).
    #[must_use]
    pub fn new(config: Config, tls: T) -> Self {
        let state = State { config: Arc::new(config), idle: Vec::new() };
        Self { tls, max_idle: 8, state: Mutex::new(state) }
    }

    /// How many unused connections are kept. Default: 8; with 0 each call gets a fresh one.
    #[must_use]
    pub const fn max_idle(mut self, connections: usize) -> Self {
        self.max_idle = connections;
        self
    }

    /// From now on connects with `config`, and lets go of the connections that are not in use: for
    /// new credentials, from the `refresh` hook of a retry layer, or for a database that moved.
    pub fn set_config(&self, config: Config) {
        let old = {
            let mut state = self.state();
            state.config = Arc::new(config);
            std::mem::take(&mut state.idle)
        };
        drop(old);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept connection that still works, as far as we know; else how to make one.
    fn idle(&self) -> Result<Client, Arc<Config>> {
        let mut state = self.state();
        while let Some(client) = state.idle.pop() {
            if !client.is_closed() {
                return Ok(client);
            }
        }
        Err(Arc::clone(&state.config))
    }
}

impl<T> ConnectionSource for Reconnect<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    type Connection = Client;
    type Error = tokio_postgres::Error;

    async fn take(&self) -> Result<Client, tokio_postgres::Error> {
        let config = match self.idle() {
            Ok(client) => return Ok(client),
            Err(config) => config,
        };
        let (client, connection) = config.connect(self.tls.clone()).await?;
        tokio::spawn(async move {
            // Whoever waits for an answer gets an error of their own; this tells of one that broke
            // while nobody used it.
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "connection ended");
            }
        });
        Ok(client)
    }

    fn client(connection: &mut Client) -> &mut Client {
        connection
    }

    fn give_back(&self, connection: Client) {
        let mut state = self.state();
        if state.idle.len() < self.max_idle && !connection.is_closed() {
            state.idle.push(connection);
        }
    }

    fn discard(&self, connection: Client) {
        const LIMIT: Duration = Duration::from_secs(5);
        if connection.is_closed() {
            return;
        }
        // Without a runtime (it is shutting down) nobody could wait for the connection either.
        let Ok(runtime) = Handle::try_current() else { return };
        let tls = self.tls.clone();
        runtime.spawn(async move {
            let _ = tokio::time::timeout(LIMIT, cancel(&connection, tls)).await;
        });
    }
}

/// Cancels what `connection` was dropped in the middle of, and returns when it is over.
async fn cancel<T>(connection: &Client, tls: T)
where
    T: MakeTlsConnect<Socket> + Clone,
{
    const PAUSE: Duration = Duration::from_millis(200);
    // Comes behind everything that was sent, so its answer, whatever it is, is the end of that.
    let mut over = pin!(connection.batch_execute(""));
    // One is not enough: it is lost if it arrives before the statement.
    loop {
        let token = connection.cancel_token();
        let _ = tokio::time::timeout(PAUSE, token.cancel_query(tls.clone())).await;
        if tokio::time::timeout(PAUSE, over.as_mut()).await.is_ok() {
            return;
        }
    }
}

/// Without the configuration, which holds the password.
impl<T> fmt::Debug for Reconnect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnect")
            .field("max_idle", &self.max_idle)
            .field("idle", &self.state().idle.len())
            .finish_non_exhaustive()
    }
}
