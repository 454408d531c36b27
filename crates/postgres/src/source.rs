//! Where connections come from.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use tokio_postgres::Client;

/// Gives a connection to each transaction or statement. [`Reconnect`](crate::Reconnect) is one; a
/// pool is another:
///
/// ```
/// use deadpool_postgres::{Object, Pool, PoolError};
/// use tokio_postgres::Client;
/// use tower_triage_postgres::ConnectionSource;
///
/// struct Deadpool(Pool);
///
/// impl ConnectionSource for Deadpool {
///     type Connection = Object;
///     type Error = PoolError;
///
///     async fn take(&self) -> Result<Object, PoolError> {
///         self.0.get().await
///     }
///
///     fn client(connection: &mut Object) -> &mut Client {
///         connection // an `Object` is a `ClientWrapper`, which is a `Client`
///     }
///
///     fn discard(&self, connection: Object) {
///         drop(Object::take(connection)); // out of the pool
///     }
/// }
/// ```
pub trait ConnectionSource: Send + Sync {
    /// A connection in use.
    type Connection: Send;

    /// Why there is none.
    type Error: Error + Send + Sync + 'static;

    /// A connection on which no transaction is open. One that is known to be broken is never given
    /// out.
    ///
    /// # Errors
    /// What kept it from connecting; everything up to here counts as not sent.
    fn take(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// The client to speak through.
    fn client(connection: &mut Self::Connection) -> &mut Client;

    /// The work is over, and no transaction is open on `connection`. Default: it is dropped, as
    /// pools like it.
    fn give_back(&self, connection: Self::Connection) {
        drop(connection);
    }

    /// Nobody knows the state of `connection`: it broke, or its call was dropped in the middle.
    /// Nobody must get it again. Called from a `Drop`, so it must not block.
    fn discard(&self, connection: Self::Connection);
}

impl<C: ConnectionSource> ConnectionSource for Arc<C> {
    type Connection = C::Connection;
    type Error = C::Error;

    fn take(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send {
        (**self).take()
    }

    fn client(connection: &mut Self::Connection) -> &mut Client {
        C::client(connection)
    }

    fn give_back(&self, connection: Self::Connection) {
        (**self).give_back(connection);
    }

    fn discard(&self, connection: Self::Connection) {
        (**self).discard(connection);
    }
}

/// A connection in use, which is discarded unless it was given back: an error on the way, a panic,
/// a dropped call.
pub(crate) struct InUse<'a, C: ConnectionSource> {
    source: &'a C,
    connection: Option<C::Connection>,
}

impl<'a, C: ConnectionSource> InUse<'a, C> {
    pub(crate) const fn new(source: &'a C, connection: C::Connection) -> Self {
        Self { source, connection: Some(connection) }
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        let connection = self.connection.as_mut();
        C::client(connection.expect("it is there until `give_back`, which consumes self"))
    }

    pub(crate) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.source.give_back(connection);
        }
    }
}

impl<C: ConnectionSource> Drop for InUse<'_, C> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.source.discard(connection);
        }
    }
}
