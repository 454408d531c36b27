//! What becomes of a unit of work when its connection goes, comes late, or cannot be had.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::{Manager, Object, Pool, PoolError, Runtime};
use tokio::sync::Notify;
use tokio_postgres::{Client, NoTls};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{Classifier, Disposition, ErrorClass, Refusal, Vote};
use tower_triage_postgres::{
    ConnectionSource, Reconnect, Stage, Transactions, UnitError, postgres,
};
use tower_triage_retry::RetryLayer;
use tower_triage_test_support::postgres::PostgresServer;

use crate::common::{
    Database, Runs, cents, connect, pid, quick, retry, set_up, stubborn, tell, terminate, unit,
    wait_for,
};

const TAKE: &str = "UPDATE account SET cents = cents - 100 WHERE id = 1";

#[tokio::test]
async fn a_terminated_backend_rolls_back_and_the_unit_runs_on_another() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let (runs, side) = (Runs::default(), Arc::new(database.side().await));
    let killer = Arc::clone(&side);
    let take = unit(&runs, move |run, tx| {
        let killer = Arc::clone(&killer);
        Box::pin(async move {
            let own = pid(tx).await?;
            tx.batch_execute(TAKE).await?;
            if run == 1 {
                terminate(&killer, own).await;
            }
            tx.batch_execute(TAKE).await?;
            Ok(own)
        })
    });
    let told = tell(stack.oneshot(take)).await;
    assert_eq!(told.failures.len(), 1);
    assert_eq!(told.failures[0].class, ErrorClass::Transient);
    assert_eq!(told.failures[0].disposition, Disposition::NotProcessed);
    assert_eq!(told.failures[0].vote, Vote::Failure);
    told.outcome.unwrap();
    assert_eq!(runs.count(), 2);
    assert_eq!(cents(&side, 1).await, 800, "nothing of the first run is left");
}

/// While a statement runs, the server says why the session ends.
#[tokio::test]
async fn a_backend_terminated_in_a_statement_says_57p01() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let (runs, side) = (Runs::default(), Arc::new(database.side().await));
    let killer = Arc::clone(&side);
    let take = unit(&runs, move |run, tx| {
        let killer = Arc::clone(&killer);
        Box::pin(async move {
            let own = pid(tx).await?;
            if run == 1 {
                let sleep = tx.batch_execute("SELECT pg_sleep(60)");
                let kill = async {
                    let asleep = format!("pid = {own} AND wait_event = 'PgSleep'");
                    wait_for(&killer, &asleep).await;
                    terminate(&killer, own).await;
                };
                tokio::join!(sleep, kill).0?;
            }
            Ok(tx.batch_execute(TAKE).await?)
        })
    });
    let told = tell(stack.oneshot(take)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "admin_shutdown")]);
    told.outcome.unwrap();
    assert_eq!(runs.count(), 2);
}

/// A trigger that waits for a lock holds the COMMIT, so that its session can be ended there.
async fn slow_commits(side: &Client) {
    let trigger = "
        CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER hold AFTER UPDATE ON account
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
        SELECT pg_advisory_lock(7)";
    side.batch_execute(trigger).await.unwrap();
}

#[tokio::test]
async fn a_commit_whose_outcome_is_unknown_is_repeated_only_if_that_does_no_harm() {
    let Some(database) = Database::create().await else { return };
    let (holder, side) = (database.side().await, database.side().await);
    slow_commits(&holder).await;
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let set = "UPDATE account SET cents = 500 WHERE id = 1";
    let committing = "query = 'COMMIT' AND wait_event_type = 'Lock'";

    let runs = Runs::default();
    let once = unit(&runs, move |_, tx| Box::pin(async move { Ok(tx.batch_execute(set).await?) }));
    let end = async {
        let backend = wait_for(&side, committing).await;
        terminate(&side, backend).await;
    };
    let (told, ()) = tokio::join!(tell(stack.clone().oneshot(once.clone())), end);
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "admin_shutdown")]);
    assert_eq!(told.failures[0].disposition, Disposition::MaybeProcessed);
    assert_eq!(told.refusal, Some(Refusal::NotIdempotent));
    assert_eq!(runs.count(), 1);
    let error = told.outcome.unwrap_err();
    assert_eq!(error.find::<UnitError>().unwrap().stage(), Stage::Commit);
    assert!(error.find::<UnitError>().unwrap().outcome_unknown());

    // The very same unit, but twice is as good as once.
    let end = async {
        let backend = wait_for(&side, committing).await;
        terminate(&side, backend).await;
        holder.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
    };
    let (told, ()) = tokio::join!(tell(stack.oneshot(once.idempotent(true))), end);
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "admin_shutdown")]);
    told.outcome.unwrap();
    assert_eq!(runs.count(), 3);
    assert_eq!(cents(&side, 1).await, 500);
}

#[tokio::test]
async fn a_lost_commit_can_be_looked_up() {
    let Some(database) = Database::create().await else { return };
    let (holder, side) = (database.side().await, database.side().await);
    slow_commits(&holder).await;
    // The pool has no second connection to ask with.
    let manager = Manager::new(database.config(), NoTls);
    let pool = Pool::builder(manager).max_size(1).runtime(Runtime::Tokio1).build().unwrap();
    let transactions = Transactions::new(Deadpool(pool)).look_up_commits(Duration::from_secs(60));
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(transactions);
    let runs = Runs::default();
    let take = unit(&runs, |_, tx| Box::pin(async move { Ok(tx.batch_execute(TAKE).await?) }));
    let end = async {
        let committing = "query = 'COMMIT' AND wait_event_type = 'Lock'";
        terminate(&side, wait_for(&side, committing).await).await;
        holder.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
    };
    let (told, ()) = tokio::join!(tell(stack.oneshot(take)), end);
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "admin_shutdown")]);
    assert_eq!(told.failures[0].disposition, Disposition::NotProcessed, "the server said so");
    told.outcome.unwrap();
    assert_eq!(runs.count(), 2);
    assert_eq!(cents(&side, 1).await, 900);
}

#[tokio::test]
async fn connections_are_kept_and_a_broken_one_is_replaced() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let side = database.side().await;
    let whoami = unit(&Runs::default(), |_, tx| Box::pin(async move { Ok(pid(tx).await?) }));

    let first = stack.clone().oneshot(whoami.clone()).await.unwrap();
    assert_eq!(stack.clone().oneshot(whoami.clone()).await.unwrap(), first);

    // An ERROR leaves the session as it was.
    let wrong = unit(&Runs::default(), |_, tx| {
        Box::pin(async move { Ok(tx.batch_execute("SELEKT 1").await?) })
    });
    stack.clone().oneshot(wrong).await.unwrap_err();
    assert_eq!(stack.clone().oneshot(whoami.clone()).await.unwrap(), first);

    // Ended while nobody used it: noticed before, or the BEGIN fails and is repeated.
    terminate(&side, first).await;
    let told = tell(stack.clone().oneshot(whoami)).await;
    assert_ne!(told.outcome.unwrap(), first);
    let nothing_done = |disposition| disposition == Disposition::NotProcessed;
    assert!(told.failures.iter().all(|failure| nothing_done(failure.disposition)));
}

#[tokio::test]
async fn a_broken_connection_is_neither_kept_nor_given_out() {
    let Some(database) = Database::create().await else { return };
    let (side, source) = (database.side().await, Reconnect::new(database.config(), NoTls));
    let client = source.take().await.unwrap();
    let first = pid(&client).await.unwrap();
    source.give_back(client);
    let client = source.take().await.unwrap();
    assert_eq!(pid(&client).await.unwrap(), first);

    terminate(&side, first).await;
    while !client.is_closed() {
        tokio::task::yield_now().await;
    }
    source.give_back(client);
    let client = source.take().await.unwrap();
    assert_ne!(pid(&client).await.unwrap(), first);
}

#[tokio::test]
async fn without_idle_connections_each_call_gets_its_own() {
    let Some(database) = Database::create().await else { return };
    let source = Reconnect::new(database.config(), NoTls).max_idle(0);
    let transactions = Transactions::new(source);
    let whoami = unit(&Runs::default(), |_, tx| Box::pin(async move { Ok(pid(tx).await?) }));
    let first = transactions.clone().oneshot(whoami.clone()).await.unwrap();
    assert_ne!(transactions.clone().oneshot(whoami).await.unwrap(), first);
}

#[tokio::test]
async fn a_dropped_call_leaves_neither_its_effect_nor_its_locks() {
    let Some(database) = Database::create().await else { return };
    let side = database.side().await;
    let transactions = database.transactions();
    let slow = unit(&Runs::default(), |_, tx| {
        Box::pin(async move {
            tx.batch_execute(TAKE).await?;
            Ok(tx.batch_execute("SELECT pg_sleep(600)").await?)
        })
    });
    let call = tokio::spawn(transactions.clone().oneshot(slow));
    wait_for(&side, "wait_event = 'PgSleep'").await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());

    // It would wait for ten minutes, if the statement went on.
    let take =
        unit(&Runs::default(), |_, tx| Box::pin(async move { Ok(tx.batch_execute(TAKE).await?) }));
    tell(transactions.oneshot(take)).await.outcome.unwrap();
    assert_eq!(cents(&side, 1).await, 900);
}

/// Dropped while the statement is on its way, where a single cancellation may come too early.
#[tokio::test]
async fn a_call_dropped_at_any_moment_leaves_no_locks() {
    let Some(database) = Database::create().await else { return };
    let transactions = database.transactions();
    for _ in 0..10 {
        let about_to = Arc::new(Notify::new());
        let begun = Arc::clone(&about_to);
        let slow = unit(&Runs::default(), move |_, tx| {
            let begun = Arc::clone(&begun);
            Box::pin(async move {
                tx.batch_execute(TAKE).await?;
                begun.notify_one();
                Ok(tx.batch_execute("SELECT pg_sleep(600)").await?)
            })
        });
        let call = tokio::spawn(transactions.clone().oneshot(slow));
        about_to.notified().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        let look = unit(&Runs::default(), |_, tx| {
            Box::pin(async move { Ok(tx.batch_execute("LOCK account").await?) })
        });
        tell(transactions.clone().oneshot(look)).await.outcome.unwrap();
    }
    assert_eq!(cents(&database.side().await, 1).await, 1000);
}

#[tokio::test]
async fn a_refused_connection_was_never_sent() {
    let port = tower_triage_test_support::closed_port().port();
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(port).user("nobody");
    let stack = ServiceBuilder::new()
        .layer(retry(postgres()))
        .service(Transactions::new(Reconnect::new(config, NoTls)));
    let runs = Runs::default();
    let nothing = unit(&runs, |_, _| Box::pin(async { Ok(()) }));
    let told = tell(stack.oneshot(nothing)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "connection_refused"); 3]);
    assert!(told.failures.iter().all(|failure| failure.disposition == Disposition::NotSent));
    assert_eq!(told.refusal, Some(Refusal::AttemptsUsedUp));
    assert_eq!(runs.count(), 0);
    assert_eq!(told.outcome.unwrap_err().find::<UnitError>().unwrap().stage(), Stage::Connect);
}

#[tokio::test]
async fn refused_credentials_are_tried_once_more_after_a_refresh() {
    let Some(database) = Database::create().await else { return };
    let side = database.side().await;
    // Roles belong to the whole server, which other tests share.
    side.batch_execute("CREATE ROLE locked_out NOLOGIN").await.unwrap();
    let mut old = database.config();
    old.user("locked_out");
    let source = Arc::new(Reconnect::new(old, NoTls));
    let runs = Runs::default();
    let whoami = unit(&runs, |_, tx| {
        Box::pin(async move {
            Ok(tx.query_one("SELECT session_user::text", &[]).await?.get::<_, String>(0))
        })
    });

    let transactions = Transactions::shared(Arc::clone(&source));
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(transactions.clone());
    let told = tell(stack.oneshot(whoami.clone())).await;
    assert_eq!(told.reasons(), [(ErrorClass::Auth, "authorization")]);
    assert_eq!(told.refusal, Some(Refusal::ClassNotRetried));
    assert_eq!(runs.count(), 0);

    let new = database.config();
    let refreshed = retry(postgres()).refresh(move |_| {
        source.set_config(new.clone());
        async { true }
    });
    let stack = ServiceBuilder::new().layer(refreshed).service(transactions);
    let told = tell(stack.oneshot(whoami)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Auth, "authorization")]);
    assert_eq!(told.outcome.unwrap(), "postgres");
}

#[tokio::test]
async fn too_many_connections_throttle() {
    let settings = &["max_connections=3", "superuser_reserved_connections=0"];
    let Some(server) = own(settings).await else { return };
    let config: tokio_postgres::Config = server.config().parse().unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(connect(&config).await);
    }
    let transactions = Transactions::new(Reconnect::new(config, NoTls));
    let runs = Runs::default();
    let nothing = unit(&runs, |_, _| Box::pin(async { Ok(()) }));

    let stack = ServiceBuilder::new().layer(retry(postgres())).service(transactions.clone());
    let told = tell(stack.oneshot(nothing.clone())).await;
    assert_eq!(told.reasons(), [(ErrorClass::Throttled, "too_many_connections"); 3]);
    assert!(told.failures.iter().all(|failure| failure.disposition == Disposition::NotSent));
    assert!(told.failures.iter().all(|failure| failure.vote == Vote::Failure));
    assert_eq!(runs.count(), 0);

    // One of them goes; the server notices some time later.
    let (client, task) = held.pop().unwrap();
    drop(client);
    task.await.unwrap();
    let stack = ServiceBuilder::new().layer(stubborn(postgres())).service(transactions);
    tell(stack.oneshot(nothing)).await.outcome.unwrap();
    assert_eq!(runs.count(), 1);
}

async fn own(settings: &'static [&'static str]) -> Option<PostgresServer> {
    tokio::task::spawn_blocking(move || PostgresServer::own(settings)).await.unwrap()
}

/// Restarts in the middle of a unit's first run, as an administrator does, and as a crash does.
#[tokio::test]
async fn a_unit_survives_a_restart_of_the_server() {
    let Some(server) = own(&[]).await else { return };
    let config: tokio_postgres::Config = server.config().parse().unwrap();
    set_up(&connect(&config).await.0).await;
    let server = Arc::new(Mutex::new(server));
    let transactions = Transactions::new(Reconnect::new(config.clone(), NoTls));

    for (crash, expected) in [(false, 900), (true, 800)] {
        let stack = ServiceBuilder::new().layer(retry(postgres())).service(transactions.clone());
        let (runs, server) = (Runs::default(), Arc::clone(&server));
        let take = unit(&runs, move |run, tx| {
            let server = Arc::clone(&server);
            Box::pin(async move {
                tx.batch_execute(TAKE).await?;
                if run == 1 {
                    let restart = move || {
                        let mut server = server.lock().unwrap();
                        server.stop(crash);
                        server.resume().unwrap();
                    };
                    tokio::task::spawn_blocking(restart).await?;
                }
                Ok(tx.query_one("SELECT 1", &[]).await.map(drop)?)
            })
        });
        let told = tell(stack.oneshot(take)).await;
        assert_eq!(told.failures.len(), 1, "{told:?}");
        assert_eq!(told.failures[0].class, ErrorClass::Transient);
        assert_eq!(told.failures[0].disposition, Disposition::NotProcessed);
        told.outcome.unwrap();
        assert_eq!(runs.count(), 2);
        assert_eq!(cents(&connect(&config).await.0, 1).await, expected);
    }
}

/// While it is down connections are refused; while it comes up it says 57P03; then it works.
#[tokio::test]
async fn a_unit_waits_for_a_server_that_comes_back() {
    let Some(mut server) = own(&[]).await else { return };
    let config: tokio_postgres::Config = server.config().parse().unwrap();
    set_up(&connect(&config).await.0).await;
    let stack = ServiceBuilder::new()
        .layer(stubborn(postgres()))
        .service(Transactions::new(Reconnect::new(config.clone(), NoTls)));
    let runs = Runs::default();
    let take = unit(&runs, |_, tx| Box::pin(async move { Ok(tx.batch_execute(TAKE).await?) }));

    server.stop(true);
    let once = ServiceBuilder::new()
        .layer(RetryLayer::new(Classifier::new(postgres())).policy(quick().build().unwrap()))
        .service(Transactions::new(Reconnect::new(config.clone(), NoTls)));
    let told = tell(once.oneshot(take.clone())).await;
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "connection_refused"); 3]);

    let call = tokio::spawn(tell(stack.oneshot(take)));
    let _server = tokio::task::spawn_blocking(move || server.resume().map(|()| server)).await;
    let told = call.await.unwrap();
    told.outcome.unwrap();
    assert!(told.failures.iter().all(|failure| failure.class == ErrorClass::Transient));
    assert_eq!(runs.count(), 1);
    assert_eq!(cents(&connect(&config).await.0, 1).await, 900);
}

struct Deadpool(Pool);

impl ConnectionSource for Deadpool {
    type Connection = Object;
    type Error = PoolError;

    async fn take(&self) -> Result<Object, PoolError> {
        self.0.get().await
    }

    fn client(connection: &mut Object) -> &mut Client {
        connection
    }

    fn discard(&self, connection: Object) {
        drop(Object::take(connection));
    }
}

#[tokio::test]
async fn a_pool_is_a_source() {
    let Some(database) = Database::create().await else { return };
    let manager = Manager::new(database.config(), NoTls);
    let pool = Pool::builder(manager).max_size(1).runtime(Runtime::Tokio1).build().unwrap();
    let stack = ServiceBuilder::new()
        .layer(retry(postgres()))
        .service(Transactions::new(Deadpool(pool.clone())));
    let whoami = unit(&Runs::default(), |_, tx| Box::pin(async move { Ok(pid(tx).await?) }));
    let first = stack.clone().oneshot(whoami.clone()).await.unwrap();
    assert_eq!(stack.clone().oneshot(whoami.clone()).await.unwrap(), first);

    let side = Arc::new(database.side().await);
    let killer = Arc::clone(&side);
    let runs = Runs::default();
    let take = unit(&runs, move |run, tx| {
        let killer = Arc::clone(&killer);
        Box::pin(async move {
            if run == 1 {
                terminate(&killer, pid(tx).await?).await;
            }
            Ok(tx.batch_execute(TAKE).await?)
        })
    });
    let told = tell(stack.clone().oneshot(take)).await;
    told.outcome.unwrap();
    assert_eq!(runs.count(), 2);
    assert_eq!(cents(&side, 1).await, 900);
    assert_ne!(stack.clone().oneshot(whoami).await.unwrap(), first);
    assert_eq!(pool.status().size, 1);
}
