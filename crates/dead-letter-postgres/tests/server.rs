//! What happens to the server, and between processes.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_postgres::{Client, Config, NoTls};
use tower_triage_core::incident::IncidentId;
use tower_triage_dead_letter_postgres::{PostgresOptions, PostgresStore};
use tower_triage_escalate::Escalation;
use tower_triage_escalate::store::{
    Change, Filter, LeaseRequest, Put, Retention, Store, StoreError,
};
use tower_triage_test_support::postgres::PostgresServer;

fn escalation(n: u32) -> Escalation {
    let now = "2026-03-01T12:00:00.000Z";
    serde_json::from_value(json!({
        "schema": 1, "id": IncidentId::from_bits(u128::from(n)), "task_type": "look_into_it",
        "priority": "high", "from": "shop", "to": ["ops"], "operation": "orders.create",
        "outcome": "failed", "class": "Transient", "reason": "transient",
        "fingerprint": "00000000000000aa", "summary": "", "detail": "connection reset",
        "attempts": [], "impact": "", "suggestion": "", "context": {},
        "first_time": now, "last_time": now, "count": 1,
    }))
    .unwrap()
}

/// A database of one test's own on the server that the tests share.
struct Database {
    server: Arc<PostgresServer>,
    name: String,
}

impl Database {
    async fn create(settings: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap()?;
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let admin = side(&server.config().parse().unwrap()).await;
        admin.batch_execute(&format!("CREATE DATABASE {name} {settings}")).await.unwrap();
        Some(Self { server, name })
    }

    fn config(&self) -> Config {
        let mut config: Config = self.server.config().parse().unwrap();
        config.dbname(&self.name);
        config
    }

    async fn store(&self) -> PostgresStore {
        open(self.config()).await.unwrap()
    }
}

async fn open(config: Config) -> Result<PostgresStore, StoreError> {
    // Long for a loaded machine.
    let options = PostgresOptions::new().timeout(Duration::from_secs(60));
    PostgresStore::connect_with(options, config, NoTls).await
}

async fn side(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// Long for a loaded machine, short for a test that hangs.
async fn in_time<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), call).await.expect("it ends")
}

#[tokio::test]
async fn several_processes_that_start_together_make_the_tables_once() {
    let Some(database) = Database::create("").await else { return };
    let starting = (0..8).map(|_| tokio::spawn(open(database.config())));
    let mut stores = Vec::new();
    for store in starting.collect::<Vec<_>>() {
        stores.push(store.await.unwrap().unwrap());
    }
    for (n, store) in (1..).zip(&stores) {
        assert_eq!(store.put(escalation(n)).await.unwrap(), Put::New);
    }
    assert_eq!(stores[0].stats().await.unwrap().total, 8);
}

#[tokio::test]
async fn tables_of_a_newer_program_are_left_alone() {
    let Some(database) = Database::create("").await else { return };
    drop(database.store().await);
    let side = side(&database.config()).await;
    side.batch_execute("UPDATE tower_triage_store SET version = 7").await.unwrap();
    let error = open(database.config()).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("version 7") && text.contains("newer program"), "{text}");
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused() {
    let latin = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    let Some(database) = Database::create(latin).await else { return };
    let error = open(database.config()).await.unwrap_err();
    assert!(error.to_string().contains("LATIN1"), "{error}");
}

#[tokio::test]
async fn who_may_not_make_tables_can_use_them() {
    let Some(database) = Database::create("").await else { return };
    let store = database.store().await;
    assert_eq!(store.put(escalation(1)).await.unwrap(), Put::New);
    let role = format!("reader_{}", database.name);
    let side = side(&database.config()).await;
    let grants = format!(
        "CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC; \
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"
    );
    side.batch_execute(&grants).await.unwrap();
    let mut config = database.config();
    config.user(&role);
    let reader = open(config).await.unwrap();
    assert_eq!(reader.list(Filter::any(), None, 10).await.unwrap().letters.len(), 1);
    let error = reader.put(escalation(2)).await.unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
    // An error is not the end of the connection, nor of the store.
    assert_eq!(reader.stats().await.unwrap().total, 1);
}

#[tokio::test]
async fn no_error_shows_the_password() {
    let Some(database) = Database::create("").await else { return };
    let port = database.server.port();
    let closed = tower_triage_test_support::closed_port().port();
    let mut texts = Vec::new();
    for url in [
        format!("postgres://postgres:hunter2@127.0.0.1:{closed}/postgres"),
        format!("postgres://postgres:hunter2@127.0.0.1:{port}/no_such_database"),
        format!("postgres://nobody:hunter2@127.0.0.1:{port}/postgres"),
        "postgres://postgres:hunter2@[::1/x".to_owned(),
        "host=127.0.0.1 password=very hunter2".to_owned(),
        "host=127.0.0.1 password='hunter2".to_owned(),
        "hunter2".to_owned(),
    ] {
        let error = PostgresStore::connect(&url).await.unwrap_err();
        texts.push(format!("{error} {error:?} {error:#?}"));
    }
    let mut config = database.config();
    config.password("hunter2");
    let store = open(config).await.unwrap();
    texts.push(format!("{store:?} {store:#?}"));
    for text in texts {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn a_letter_that_cannot_be_read_is_in_nobodys_way() {
    let Some(database) = Database::create("").await else { return };
    let store = database.store().await;
    for n in 1..=3 {
        assert_eq!(store.put(escalation(n)).await.unwrap(), Put::New);
    }
    let side = side(&database.config()).await;
    let spoil = "UPDATE tower_triage_letter SET letter = '{\"hunter2\":' WHERE seq = 2";
    side.batch_execute(spoil).await.unwrap();
    assert_eq!(store.lease(LeaseRequest::new("worker", 9)).await.unwrap().len(), 2);
    let error = store.list(Filter::any(), None, 9).await.unwrap_err();
    assert!(error.to_string().contains("letter number 2"), "it says which: {error}");
    assert!(!format!("{error:?}").contains("hunter2"), "and not what is in it");
    // Who reads goes on behind it.
    assert_eq!(store.list(Filter::any(), Some(2), 9).await.unwrap().letters.len(), 1);
    assert_eq!(store.stats().await.unwrap().total, 3);
}

#[tokio::test]
async fn two_that_drop_letters_at_the_same_time_drop_no_more_than_one() {
    let Some(database) = Database::create("").await else { return };
    let (one, other) = (database.store().await, database.store().await);
    for n in 0..60 {
        assert_eq!(one.put(escalation(n)).await.unwrap(), Put::New);
    }
    let retention = Retention::new().most(20);
    let (first, second) = tokio::join!(one.retain(retention), other.retain(retention));
    assert_eq!(first.unwrap().open + second.unwrap().open, 40);
    let stats = one.stats().await.unwrap();
    assert_eq!((stats.total, stats.dropped), (20, 40));
}

#[tokio::test]
async fn letters_that_come_at_the_same_time_are_stored_together() {
    let Some(database) = Database::create("").await else { return };
    let store = Arc::new(database.store().await);
    let callers = (0..64).map(|caller| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..20 {
                assert_eq!(store.put(escalation(caller * 20 + n)).await.unwrap(), Put::New);
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let side = side(&database.config()).await;
    let count = "SELECT count(*), count(DISTINCT xmin::text) FROM tower_triage_letter";
    let row = side.query_one(count, &[]).await.unwrap();
    let (letters, commits): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(letters, 64 * 20);
    assert!(commits * 10 <= letters, "{commits} commits for {letters} letters");
}

/// Some commits take longer than others: a reader must not see number 2 before number 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_follows_the_end_does_not_overtake_a_slow_commit() {
    const WRITERS: u32 = 6;
    const EACH: u32 = 10;
    let Some(database) = Database::create("").await else { return };
    let reader = database.store().await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN PERFORM pg_sleep((NEW.seq % 3) * 0.01); RETURN NULL; END $$; \
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON tower_triage_letter \
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()";
    side(&database.config()).await.batch_execute(slow).await.unwrap();
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = database.store().await;
        writers.push(tokio::spawn(async move {
            for n in 0..EACH {
                assert_eq!(store.put(escalation(writer * EACH + n)).await.unwrap(), Put::New);
            }
        }));
    }
    let (mut seen, mut after) = (0, None);
    loop {
        let last_look = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let page = reader.list(Filter::any(), after, 100).await.unwrap();
        after = page.letters.last().map(|letter| letter.seq).or(after);
        seen += page.letters.len();
        if page.letters.is_empty() && last_look {
            break;
        }
    }
    assert_eq!(seen, (WRITERS * EACH) as usize);
}

/// More than one statement drops.
#[tokio::test]
async fn many_letters_are_dropped_bit_by_bit() {
    let Some(database) = Database::create("").await else { return };
    let store = Arc::new(database.store().await);
    let puts = (0..2500).map(|n| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.put(escalation(n)).await.unwrap() })
    });
    for put in puts.collect::<Vec<_>>() {
        assert_eq!(put.await.unwrap(), Put::New);
    }
    assert_eq!(store.retain(Retention::new().most(100)).await.unwrap().open, 2400);
    assert_eq!(store.stats().await.unwrap().total, 100);
}

/// Does something slow with a server.
async fn with(
    mut server: PostgresServer,
    f: impl FnOnce(&mut PostgresServer) + Send + 'static,
) -> PostgresServer {
    let done = tokio::task::spawn_blocking(move || {
        f(&mut server);
        server
    });
    done.await.unwrap()
}

#[tokio::test]
async fn after_a_crash_of_the_server_it_works_again() {
    let Some(mut server) = PostgresServer::own(&[]) else { return };
    let config: Config = server.config().parse().unwrap();
    let store = open(config.clone()).await.unwrap();
    let mut stored = 0;
    for _ in 0..2 {
        stored += 1;
        assert_eq!(store.put(escalation(stored)).await.unwrap(), Put::New);
        store.changed().await;
        server = with(server, |server| server.stop(true)).await;
        in_time(async {
            let error = store.put(escalation(99)).await.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            assert!(store.get(escalation(1).id).await.is_err());
            assert!(store.list(Filter::any(), None, 1).await.is_err());
            assert!(store.lease(LeaseRequest::new("worker", 1)).await.is_err());
            assert!(store.change(escalation(1).id, Change::Expired).await.is_err());
            assert!(store.stats().await.is_err());
            assert!(store.retain(Retention::new()).await.is_err());
            store.changed().await;
        })
        .await;
        server = with(server, |server| server.resume().unwrap()).await;
        in_time(async {
            assert_eq!(store.stats().await.unwrap().total, u64::from(stored));
            // Who waits is told by the server again, and not by the second that is over.
            let other = open(config.clone()).await.unwrap();
            store.changed().await;
            loop {
                let (started, changed) = (Instant::now(), store.changed());
                stored += 1;
                assert_eq!(other.put(escalation(stored)).await.unwrap(), Put::New);
                changed.await;
                if started.elapsed() < Duration::from_millis(900) {
                    break;
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_service_can_start_while_its_server_is_away() {
    let Some(mut server) = PostgresServer::own(&[]) else { return };
    let config: Config = server.config().parse().unwrap();
    server = with(server, |server| server.stop(false)).await;
    assert!(open(config.clone()).await.is_err());
    // Long for a loaded machine.
    let options = PostgresOptions::new().timeout(Duration::from_secs(60));
    let store = PostgresStore::unconnected(options, config, NoTls).unwrap();
    in_time(store.put(escalation(1))).await.unwrap_err();
    let _server = with(server, |server| server.resume().unwrap()).await;
    assert_eq!(store.put(escalation(1)).await.unwrap(), Put::New);
    assert_eq!(store.stats().await.unwrap().total, 1);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_their_names() {
    let options = PostgresOptions::new;
    for (options, field) in
        [(options().connections(0), "connections"), (options().timeout(Duration::ZERO), "timeout")]
    {
        let error = PostgresStore::unconnected(options, Config::new(), NoTls).unwrap_err();
        assert!(error.to_string().contains(&format!("`{field}` is 0")), "{error}");
    }
}

async fn until(watch: &mut tokio::sync::watch::Receiver<bool>, stopped: bool) {
    _ = watch.wait_for(|now| *now == stopped).await;
}

/// A server that takes connections, and then says nothing: between them sits a proxy that stops.
#[tokio::test]
async fn a_server_that_does_not_answer_is_not_waited_for() {
    let Some(database) = Database::create("").await else { return };
    let (listener, stopped) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), tokio::sync::watch::Sender::new(false));
    let (port, upstream) = (listener.local_addr().unwrap().port(), database.server.port());
    let watch = stopped.subscribe();
    let proxy = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut watch = watch.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    () = until(&mut watch, true) => {}
                }
                // Open, and silent, until the proxy works again.
                until(&mut watch, false).await;
            });
        }
    });
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user("postgres").dbname(&database.name);
    let limit = Duration::from_millis(300);
    let options = PostgresOptions::new().timeout(limit).connections(2);
    // On a loaded machine connecting may take longer than that.
    let store = in_time(async {
        loop {
            let store = PostgresStore::connect_with(options, config.clone(), NoTls).await;
            if let Ok(store) = store {
                return Arc::new(store);
            }
        }
    })
    .await;
    while store.put(escalation(1)).await.is_err() {}
    stopped.send(true).unwrap();
    let started = Instant::now();
    let calls = (0..200).map(|n| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.put(escalation(10 + n)).await.unwrap_err() })
    });
    for call in calls.collect::<Vec<_>>() {
        let error = in_time(call).await.unwrap();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
    for failed in [store.stats().await.is_err(), store.get(escalation(1).id).await.is_err()] {
        assert!(failed);
    }
    let took = started.elapsed();
    assert!(took < 20 * limit, "all at once, not one after the other: {took:?}");
    stopped.send(false).unwrap();
    in_time(async {
        while store.put(escalation(2)).await.is_err() {}
        assert!(store.get(escalation(2).id).await.unwrap().is_some());
    })
    .await;
    proxy.abort();
}

/// Whoever drops a call in its middle does not spoil the connection for the next one.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_half_done() {
    let Some(database) = Database::create("").await else { return };
    let store = Arc::new(
        PostgresStore::connect_with(
            PostgresOptions::new().connections(1).timeout(Duration::from_secs(60)),
            database.config(),
            NoTls,
        )
        .await
        .unwrap(),
    );
    for n in 0..20 {
        assert_eq!(store.put(escalation(n)).await.unwrap(), Put::New);
    }
    for polls in 0..12 {
        let mut lease = store.lease(LeaseRequest::new("worker", 1));
        for _ in 0..polls {
            let done = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(lease.as_mut().poll(cx).is_ready())
            });
            if done.await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(lease);
        let stats = in_time(store.stats()).await.unwrap();
        assert_eq!(stats.total, 20);
    }
    // No lock is left: all that is not leased can be.
    let leased = store.stats().await.unwrap().leased;
    let rest = in_time(store.lease(LeaseRequest::new("worker", 100))).await.unwrap();
    assert_eq!(rest.len() as u64 + leased, 20);
}

/// A server that speaks something else.
#[tokio::test]
async fn what_is_no_postgresql_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = [0; 64];
        _ = stream.read(&mut heard);
        _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let error = in_time(PostgresStore::connect(&url)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    other.join().unwrap();
}
