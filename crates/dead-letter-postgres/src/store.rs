//! The store.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, Row, Socket};
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::store::{
    Change, Dropped, Filter, LeaseRequest, Letter, Page, Pending, Put, Retention, Stats, Store,
    StoreError,
};
use tower_triage_escalate::{Escalation, Timestamp, WallClock};

use crate::connection::{Connections, Lent};
use crate::error::{ended, within};
use crate::options::PostgresOptions;
use crate::query::{FREE, Query, update};
use crate::row::{Found, Rows};
use crate::writer::{self, Inserted, Job};
use crate::{retain, stats};

/// How many letters are read at a time.
const READ: usize = 256;

/// Keeps letters in PostgreSQL. Several processes may have a store on one database; each has a pool
/// of connections, and a task that stores new letters, which ends with the store.
///
/// Needs a tokio runtime with time and I/O, and belongs to the one that it is made in.
///
/// # Errors
/// Every call ends within [`PostgresOptions::timeout`], with [`StoreError::Unavailable`] if the
/// server is out of reach, and works again when it is back ([`retain`](Store::retain) has that time
/// for each thousand letters). No error shows a password, or what a letter holds.
pub struct PostgresStore {
    connections: Arc<Connections>,
    limit: Duration,
    clock: WallClock,
    jobs: mpsc::Sender<Job>,
}

impl PostgresStore {
    /// Connects without TLS and with the default options, and brings the tables to the present form.
    /// `url` is what libpq takes: `postgres://user:password@host/database`, or `host=.. user=..`.
    /// Tables are made in the first schema of the search path; `options=-csearch_path%3Dtriage` in
    /// the URL names another, which has to exist.
    ///
    /// # Errors
    /// The URL cannot be read, the server is out of reach or refuses, or the tables were made by a
    /// newer program ([`StoreError::Corrupt`]).
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        // Without what is wrong with it: that may quote a part of the password.
        let unreadable = "it is no URL of a PostgreSQL database, nor a list of settings for one";
        let config = url.parse().map_err(|_| StoreError::unavailable(unreadable))?;
        Self::connect_with(PostgresOptions::default(), config, NoTls).await
    }

    /// Connects with options of your own, and with `tls`: [`NoTls`] or a connector of your TLS crate.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and what [`PostgresOptions`] says of its fields.
    pub async fn connect_with<T>(
        options: PostgresOptions,
        config: Config,
        tls: T,
    ) -> Result<Self, StoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync + 'static,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let store = Self::unconnected(options, config, tls)?;
        within(store.limit, store.connections.lend()).await?;
        Ok(store)
    }

    /// Connects, and looks at the tables, when it is first used: for a service that has to start
    /// while its database is away.
    ///
    /// # Errors
    /// What [`PostgresOptions`] says of its fields.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn unconnected<T>(
        options: PostgresOptions,
        config: Config,
        tls: T,
    ) -> Result<Self, StoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync + 'static,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        options.check()?;
        let limit = options.timeout;
        let connections = Arc::new(Connections::new(config, tls, options.connections)?);
        let jobs = writer::start(Arc::clone(&connections), limit);
        Ok(Self { connections, limit, clock: WallClock::new(), jobs })
    }

    /// With a clock that tests step. Without one it is the server that tells the time, because the
    /// clocks of its clients differ.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    fn call<'a, T: 'a>(
        &'a self,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> Pending<'a, T> {
        Box::pin(within(self.limit, call))
    }

    async fn store(&self, mut escalation: Escalation) -> Result<Put, StoreError> {
        let id = escalation.id;
        loop {
            let (done, answer) = oneshot::channel();
            let job = Job { escalation, at: self.clock.fixed(), done };
            self.jobs.send(job).await.map_err(|_| ended())?;
            escalation = match answer.await.map_err(|_| ended())?? {
                Inserted::New => return Ok(Put::New),
                Inserted::Known(escalation) => *escalation,
            };
            let again = self.alter(id, |letter, now| {
                let put = letter.put_again(escalation.clone(), now);
                Ok((put, put != Put::Known))
            });
            // Nothing if it has been dropped by retention at this moment.
            if let Some((put, _)) = again.await? {
                return Ok(put);
            }
        }
    }

    /// Reads a letter, has it changed, and writes it back if it is to be and nobody else has changed
    /// it in between; else once more. `None` if there is no such letter.
    async fn alter<T>(
        &self,
        id: IncidentId,
        mut change: impl FnMut(&mut Letter, Timestamp) -> Result<(T, bool), StoreError>,
    ) -> Result<Option<(T, Letter)>, StoreError> {
        let mut client = self.connections.lend().await?;
        loop {
            let mut query = Query::letters(self.clock.fixed());
            query.push(" AND id = ", id.to_string(), "::text::uuid");
            let rows = client.query(&query.sql, &query.params()).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let Found { mut letter, version, now } = Found::read(row)?;
            let (told, write) = change(&mut letter, now)?;
            if !write || write_back(&mut client, &[(&letter, version)]).await? == 1 {
                return Ok(Some((told, letter)));
            }
        }
    }

    async fn page(
        &self,
        filter: Filter,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        let limit = limit as usize;
        // One more tells whether there is another page.
        let wanted = limit.saturating_add(1);
        let mut client = self.connections.lend().await?;
        // Nothing is behind what is no number.
        let mut from = i64::try_from(after.unwrap_or(0)).ok();
        let mut letters = Vec::new();
        while let (Some(behind), true) = (from, letters.len() < wanted) {
            let most = READ.min(wanted - letters.len());
            let mut query = Query::letters(self.clock.fixed());
            query.filter(&filter);
            let rows;
            (rows, from) = next(&mut client, query, behind, most, "").await?;
            for row in &rows {
                let Found { letter, now, .. } = Found::read(row)?;
                if filter.matches(&letter, now) {
                    letters.push(letter);
                }
            }
        }
        let more = letters.len() > limit;
        letters.truncate(limit);
        let next = letters.last().filter(|_| more).map(|letter| letter.seq);
        Ok(Page::new(letters, next))
    }

    async fn take(&self, request: LeaseRequest) -> Result<Vec<Letter>, StoreError> {
        let limit = request.limit as usize;
        let ids: Vec<_> = request.ids.iter().map(IncidentId::to_string).collect();
        let mut client = self.connections.lend().await?;
        client.begin().await?;
        let (mut leased, mut parked, mut from) = (Vec::new(), Vec::new(), Some(0));
        while let (Some(behind), true) = (from, leased.len() < limit) {
            let most = READ.min(limit - leased.len());
            let mut query = Query::letters(self.clock.fixed());
            query.sql.push_str(&format!(" AND {FREE}"));
            // Whoever wants any letter passes by those that somebody else looks at just now; whoever
            // wants this one waits for it.
            let lock = if ids.is_empty() {
                query.sql.push_str(" AND state = 'open' AND due <= now");
                query.filter(&request.filter);
                " FOR UPDATE OF tower_triage_letter SKIP LOCKED"
            } else {
                query.sql.push_str(" AND state IN ('open', 'parked')");
                query.push(" AND id = ANY (", ids.clone(), "::text[]::uuid[])");
                " FOR UPDATE OF tower_triage_letter"
            };
            let rows;
            (rows, from) = next(&mut client, query, behind, most, lock).await?;
            for row in &rows {
                match Found::read(row) {
                    Ok(Found { mut letter, version, now }) => {
                        if letter.is_leasable(&request, now) {
                            let list = match letter.lease(&request, now) {
                                true => &mut leased,
                                false => &mut parked,
                            };
                            list.push((letter, version));
                        }
                    }
                    // It must not be in the way of the others.
                    Err(error) => tracing::error!(%error, "a letter cannot be leased"),
                }
            }
        }
        let changed: Vec<_> =
            leased.iter().chain(&parked).map(|(letter, version)| (letter, *version)).collect();
        write_back(&mut client, &changed).await?;
        client.commit().await?;
        Ok(leased.into_iter().map(|(letter, _)| letter).collect())
    }
}

/// Up to `most` rows of `query` behind number `behind`, in their order; and behind which number
/// there may be more.
async fn next(
    client: &mut Lent,
    mut query: Query,
    behind: i64,
    most: usize,
    lock: &str,
) -> Result<(Vec<Row>, Option<i64>), StoreError> {
    query.push(" AND seq > ", behind, " ORDER BY seq");
    query.push(" LIMIT ", i64::try_from(most).unwrap_or(i64::MAX), lock);
    let rows = client.query(&query.sql, &query.params()).await?;
    let last = rows.last().map(|row| row.get("seq"));
    let more = last.filter(|_| rows.len() == most);
    Ok((rows, more))
}

/// Writes letters back that were read in these versions, unless somebody else has changed them
/// since; gives how many it were.
async fn write_back(client: &mut Lent, letters: &[(&Letter, i64)]) -> Result<usize, StoreError> {
    if letters.is_empty() {
        return Ok(0);
    }
    let mut rows = Rows::default();
    for (letter, version) in letters {
        rows.add(letter, *version)?;
    }
    // Somebody may wait for what becomes of a question, and nobody for the rest.
    let tell = letters.iter().any(|(letter, _)| letter.escalation.question.is_some());
    Ok(client.query(update(tell), &rows.params()).await?.len())
}

impl Store for PostgresStore {
    fn put(&self, escalation: Escalation) -> Pending<'_, Put> {
        self.call(async move {
            let put = self.store(escalation).await?;
            self.connections.changed.notify_waiters();
            Ok(put)
        })
    }

    fn get(&self, id: IncidentId) -> Pending<'_, Option<Letter>> {
        self.call(async move {
            let looked = self.alter(id, |_, _| Ok(((), false))).await?;
            Ok(looked.map(|((), letter)| letter))
        })
    }

    fn list(&self, filter: Filter, after: Option<u64>, limit: u32) -> Pending<'_, Page> {
        self.call(self.page(filter, after, limit))
    }

    fn lease(&self, request: LeaseRequest) -> Pending<'_, Vec<Letter>> {
        self.call(self.take(request))
    }

    fn change(&self, id: IncidentId, change: Change) -> Pending<'_, Letter> {
        self.call(async move {
            let changed = self.alter(id, |letter, now| {
                let applied = letter.apply(change.clone(), now);
                applied.map_err(|why| StoreError::Refused(id, why))?;
                Ok(((), true))
            });
            let ((), letter) = changed.await?.ok_or(StoreError::NotFound(id))?;
            self.connections.changed.notify_waiters();
            Ok(letter)
        })
    }

    fn stats(&self) -> Pending<'_, Stats> {
        self.call(stats::count(&self.connections, self.clock.fixed()))
    }

    fn retain(&self, retention: Retention) -> Pending<'_, Dropped> {
        Box::pin(retain::retain(&self.connections, self.limit, retention, self.clock.fixed()))
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // Hears of what comes from now on.
        let notified = self.connections.changed.notified();
        Box::pin(async move {
            let told = async {
                // What was changed elsewhere before it listened, nobody told.
                if !self.connections.listen().await.unwrap_or(false) {
                    notified.await;
                }
            };
            _ = tokio::time::timeout(Duration::from_secs(1), told).await;
        })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
