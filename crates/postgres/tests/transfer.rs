//! Transfers between two accounts: many at a time, serializable, with backends terminated at
//! random, in any stage, and commits that are lost on their way or whose answer is. Nothing is lost,
//! and nothing is done twice.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_postgres::{Client, IsolationLevel, Transaction};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::AnyError;
use tower_triage_postgres::{TransactionOptions, Unit, UnitError, Work, postgres};

use crate::common::{Database, Runs, cents, stubborn};

const TASKS: i32 = 16;
const TRANSFERS: i32 = 10;

#[derive(Clone)]
struct Transfer {
    id: i32,
    from: i32,
    to: i32,
    cents: i64,
    runs: Runs,
}

impl Work for Transfer {
    type Output = ();

    async fn run(&self, tx: &mut Transaction<'_>) -> Result<(), AnyError> {
        self.runs.begin();
        // Where the id is unique, this finds that an earlier attempt was committed after all.
        let book = "INSERT INTO book VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
        if tx.execute(book, &[&self.id, &self.from, &self.to, &self.cents]).await? == 0 {
            return Ok(());
        }
        let read = "SELECT cents FROM account WHERE id = $1";
        let write = "UPDATE account SET cents = $2 WHERE id = $1";
        let from: i64 = tx.query_one(read, &[&self.from]).await?.get(0);
        let to: i64 = tx.query_one(read, &[&self.to]).await?.get(0);
        tx.execute(write, &[&self.from, &(from - self.cents)]).await?;
        tx.execute(write, &[&self.to, &(to + self.cents)]).await?;
        Ok(())
    }
}

/// Stands between the transfers and the server. Of some commits the answer is lost, of others the
/// commit itself: to the client they look the same.
async fn lossy(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let commits = Arc::new(AtomicU32::new(0));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let commits = Arc::clone(&commits);
            tokio::spawn(async move {
                let server = TcpStream::connect(("127.0.0.1", server)).await?;
                forward(client, server, &commits).await
            });
        }
    });
    port
}

async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    commits: &AtomicU32,
) -> std::io::Result<()> {
    let has = |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    let (mut asked, mut answered) = (vec![0; 8192], vec![0; 8192]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match &asked[..read?] {
                [] => return Ok(()),
                bytes if has(bytes, b"COMMIT\0") => match commits.fetch_add(1, Ordering::SeqCst) % 20 {
                    0 => return Ok(()),
                    10 => {
                        server.write_all(bytes).await?;
                        loop {
                            let end = server.read(&mut answered).await?;
                            let words = [&b"COMMIT\0"[..], b"ERROR\0", b"FATAL\0"];
                            if end == 0 || words.iter().any(|word| has(&answered[..end], word)) {
                                return Ok(());
                            }
                        }
                    }
                    _ => server.write_all(bytes).await?,
                },
                bytes => server.write_all(bytes).await?,
            },
            read = server.read(&mut answered) => match &answered[..read?] {
                [] => return Ok(()),
                bytes => client.write_all(bytes).await?,
            },
        }
    }
}

/// Ends a random session of the transfers again and again, until told to stop; gives how many.
async fn terminate_at_random(side: Client, stop: Arc<AtomicBool>) -> i64 {
    let one = "SELECT count(pg_terminate_backend(pid))::bigint FROM (
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'transfers'
        ORDER BY random() LIMIT 1) AS chosen";
    let mut ended = 0;
    while !stop.load(Ordering::SeqCst) {
        ended += side.query_one(one, &[]).await.unwrap().get::<_, i64>(0);
        side.batch_execute("SELECT pg_sleep(0.01)").await.unwrap();
    }
    ended
}

/// Not marked as idempotent, and without anything in the database that would notice a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_under_contention_and_terminated_backends_lose_and_duplicate_nothing() {
    let Some(told) = transfer(false, None).await else { return };
    assert!(!told.unknown.is_disjoint(&told.booked), "no answer was lost");
    assert!(!told.unknown.is_subset(&told.booked), "no commit was lost");
}

/// With a unique id twice is as good as once, so nothing has to stay unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_transfers_are_all_done_once() {
    let Some(told) = transfer(true, None).await else { return };
    assert!(told.unknown.is_empty());
    assert_eq!(told.booked.len(), usize::try_from(TASKS * TRANSFERS).unwrap());
}

/// Without it too, if the server is asked what became of a lost commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_whose_lost_commits_are_looked_up_are_all_done_once() {
    let Some(told) = transfer(false, Some(Duration::from_secs(60))).await else { return };
    assert!(told.unknown.is_empty());
    assert_eq!(told.booked.len(), usize::try_from(TASKS * TRANSFERS).unwrap());
}

/// What the callers were told, and what the database holds.
struct Told {
    unknown: BTreeSet<i32>,
    booked: BTreeSet<i32>,
}

async fn transfer(idempotent: bool, look_up: Option<Duration>) -> Option<Told> {
    let database = Database::create().await?;
    let side = database.side().await;
    let unique = if idempotent { "UNIQUE" } else { "" };
    let book = format!("CREATE TABLE book (id int {unique}, source int, target int, cents bigint)");
    side.batch_execute(&book).await.unwrap();
    let config = database.config();
    let Some(&server) = config.get_ports().first() else { panic!("it has a port") };
    let mut config = database.config_at(lossy(server).await);
    config.application_name("transfers");
    let source = tower_triage_postgres::Reconnect::new(config, tokio_postgres::NoTls);
    let mut transactions = tower_triage_postgres::Transactions::new(source)
        .options(TransactionOptions::new().isolation(IsolationLevel::Serializable));
    if let Some(limit) = look_up {
        transactions = transactions.look_up_commits(limit);
    }
    let stack = ServiceBuilder::new()
        .layer(stubborn(postgres()))
        .concurrency_limit(8)
        .service(transactions);

    let stop = Arc::new(AtomicBool::new(false));
    let killer = tokio::spawn(terminate_at_random(database.side().await, Arc::clone(&stop)));
    let (runs, mut calls) = (Runs::default(), JoinSet::new());
    for task in 0..TASKS {
        let (stack, runs) = (stack.clone(), runs.clone());
        calls.spawn(async move {
            let mut told = Vec::new();
            for number in 0..TRANSFERS {
                let (from, to) = if (task + number) % 2 == 0 { (1, 2) } else { (2, 1) };
                let id = task * TRANSFERS + number;
                let cents = i64::from(id * 7919 % 1000);
                let transfer = Transfer { id, from, to, cents, runs: runs.clone() };
                let unit = Unit::new("transfer", transfer).idempotent(idempotent);
                told.push((id, stack.clone().oneshot(unit).await));
            }
            told
        });
    }
    let (mut done, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    let all = tokio::time::timeout(Duration::from_secs(300), async {
        while let Some(told) = calls.join_next().await {
            for (id, outcome) in told.unwrap() {
                match outcome {
                    Ok(()) => assert!(done.insert(id)),
                    // The one thing that must not be repeated: nobody knows whether it is done.
                    Err(error) if error.find::<UnitError>().unwrap().outcome_unknown() => {
                        assert!(unknown.insert(id));
                    }
                    Err(error) => panic!("transfer {id}: {error:#}"),
                }
            }
        }
    });
    all.await.expect("the transfers end");
    stop.store(true, Ordering::SeqCst);
    let ended = killer.await.unwrap();

    let rows = side.query("SELECT id, source, cents FROM book", &[]).await.unwrap();
    let mut booked = BTreeSet::new();
    let mut first = 1000;
    for row in &rows {
        let (id, source, cents): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
        assert!(booked.insert(id), "transfer {id} was done twice");
        first += if source == 1 { -cents } else { cents };
    }
    assert!(done.is_subset(&booked), "lost: {:?}", done.difference(&booked));
    let open: BTreeSet<_> = done.union(&unknown).copied().collect();
    assert!(booked.is_subset(&open));
    assert_eq!(open.len(), usize::try_from(TASKS * TRANSFERS).unwrap());
    assert_eq!((cents(&side, 1).await, cents(&side, 2).await), (first, 2000 - first));
    println!(
        "{} transfers in {} runs, {ended} backends ended; {} of unknown outcome, {} of them done",
        TASKS * TRANSFERS,
        runs.count(),
        unknown.len(),
        unknown.intersection(&booked).count()
    );
    assert!(ended > 10, "only {ended} backends were ended");
    assert!(runs.count() > u32::try_from(TASKS * TRANSFERS).unwrap(), "nothing was repeated");
    Some(Told { unknown, booked })
}
