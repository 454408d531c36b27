//! Each failure that a real server can be brought to: its class, and what is made of it.

mod common;

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio_postgres::error::SqlState;
use tokio_postgres::{IsolationLevel, NoTls};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{Classifier, Disposition, ErrorClass, Refusal, Vote};
use tower_triage_fallback::FallbackLayer;
use tower_triage_postgres::{
    CancelledByUs, PostgresRulesExt, Reconnect, Stage, TransactionOptions, Transactions, UnitError,
    postgres,
};

use crate::common::{Database, Runs, cents, pid, retry, tell, unit, wait_for};

const TAKE: &str = "UPDATE account SET cents = cents - 100 WHERE id = 1";

#[tokio::test]
async fn a_lock_timeout_is_contention() {
    let Some(database) = Database::create().await else { return };
    let side = Arc::new(database.side().await);
    side.batch_execute(&format!("BEGIN; {TAKE}")).await.unwrap();
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());

    let runs = Runs::default();
    let take = unit(&runs, |_, tx| {
        Box::pin(async move {
            tx.batch_execute("SET LOCAL lock_timeout = '20ms'").await?;
            tx.batch_execute(TAKE).await?;
            Ok(())
        })
    });
    let told = tell(stack.clone().oneshot(take)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Contention, "lock_not_available"); 2]);
    assert_eq!(told.refusal, Some(Refusal::AttemptsUsedUp));
    assert_eq!(runs.count(), 2);
    assert!(told.failures.iter().all(|failure| failure.vote == Vote::Success));
    let error = told.outcome.unwrap_err();
    assert_eq!(error.find::<UnitError>().unwrap().stage(), Stage::Work);

    // The lock is given back after the first attempt.
    let (runs, holder) = (Runs::default(), Arc::clone(&side));
    let take = unit(&runs, move |_, tx| {
        let holder = Arc::clone(&holder);
        Box::pin(async move {
            tx.batch_execute("SET LOCAL lock_timeout = '20ms'").await?;
            let taken = tx.batch_execute(TAKE).await;
            if taken.is_err() {
                holder.batch_execute("ROLLBACK").await?;
            }
            Ok(taken?)
        })
    });
    let told = tell(stack.oneshot(take)).await;
    told.outcome.unwrap();
    assert_eq!(runs.count(), 2);
    assert_eq!(cents(&side, 1).await, 900);
}

#[tokio::test]
async fn a_statement_timeout_is_a_timeout_and_rolled_back() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let runs = Runs::default();
    let slow = unit(&runs, |_, tx| {
        Box::pin(async move {
            tx.batch_execute(TAKE).await?;
            tx.batch_execute("SET LOCAL statement_timeout = '20ms'").await?;
            tx.batch_execute("SELECT pg_sleep(60)").await?;
            Ok(())
        })
    });
    let told = tell(stack.oneshot(slow)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Timeout, "statement_timeout"); 2]);
    assert!(told.failures.iter().all(|failure| failure.disposition == Disposition::NotProcessed));
    assert_eq!(runs.count(), 2, "it is repeated although nobody said that it is idempotent");
    assert!(!told.outcome.unwrap_err().find::<UnitError>().unwrap().outcome_unknown());
    assert_eq!(cents(&database.side().await, 1).await, 1000);
}

#[tokio::test]
async fn a_statement_that_we_cancelled_is_not_repeated() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let (runs, side) = (Runs::default(), Arc::new(database.side().await));
    let slow = unit(&runs, move |_, tx| {
        let side = Arc::clone(&side);
        Box::pin(async move {
            let token = tx.cancel_token();
            let asleep = format!("pid = {} AND wait_event = 'PgSleep'", pid(tx).await?);
            let cancel = async {
                wait_for(&side, &asleep).await;
                token.cancel_query(NoTls).await
            };
            let (slept, cancelled) = tokio::join!(tx.batch_execute("SELECT pg_sleep(600)"), cancel);
            cancelled?;
            Ok(slept.map_err(CancelledByUs)?)
        })
    });
    let told = tell(stack.oneshot(slow)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Cancelled, "query_canceled")]);
    assert_eq!(told.refusal, Some(Refusal::ClassNotRetried));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_serialization_failure_runs_the_whole_unit_again() {
    let Some(database) = Database::create().await else { return };
    let transactions = database
        .transactions()
        .options(TransactionOptions::new().isolation(IsolationLevel::RepeatableRead));
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(transactions);
    let (runs, side) = (Runs::default(), Arc::new(database.side().await));
    let rival = Arc::clone(&side);
    let double = unit(&runs, move |run, tx| {
        let rival = Arc::clone(&rival);
        Box::pin(async move {
            let seen: i64 =
                tx.query_one("SELECT cents FROM account WHERE id = 1", &[]).await?.get(0);
            if run == 1 {
                rival.batch_execute(TAKE).await?;
            }
            tx.execute("UPDATE account SET cents = $1 WHERE id = 1", &[&(seen * 2)]).await?;
            Ok(seen)
        })
    });
    let told = tell(stack.oneshot(double)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Contention, "serialization_failure")]);
    assert_eq!(told.outcome.unwrap(), 900, "the second attempt read again");
    assert_eq!(runs.count(), 2);
    assert_eq!(cents(&side, 1).await, 1800);
}

/// Write skew: whoever commits second fails, with its statements or with its COMMIT.
#[tokio::test]
async fn a_serialization_failure_at_commit_is_known_not_to_be_committed() {
    let Some(database) = Database::create().await else { return };
    let transactions = database
        .transactions()
        .options(TransactionOptions::new().isolation(IsolationLevel::Serializable));
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(transactions);
    let (runs, side) = (Runs::default(), Arc::new(database.side().await));
    let rival = Arc::clone(&side);
    let sum = "SELECT sum(cents)::bigint FROM account";
    let withdraw = unit(&runs, move |run, tx| {
        let rival = Arc::clone(&rival);
        Box::pin(async move {
            let total: i64 = tx.query_one(sum, &[]).await?.get(0);
            if total >= 2000 {
                tx.batch_execute("UPDATE account SET cents = cents - 1500 WHERE id = 1").await?;
            }
            if run == 1 {
                let script = format!(
                    "BEGIN ISOLATION LEVEL SERIALIZABLE; {sum};
                     UPDATE account SET cents = cents - 1500 WHERE id = 2; COMMIT"
                );
                rival.batch_execute(&script).await?;
            }
            Ok(total)
        })
    });
    let told = tell(stack.oneshot(withdraw)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Contention, "serialization_failure")]);
    assert_eq!(told.outcome.unwrap(), 500);
    assert_eq!(runs.count(), 2);
    assert_eq!((cents(&side, 1).await, cents(&side, 2).await), (1000, -500));
}

#[tokio::test]
async fn of_two_in_a_deadlock_one_runs_again() {
    let Some(database) = Database::create().await else { return };
    let mut config = database.config();
    config.options("-c deadlock_timeout=20ms");
    let transactions = Transactions::new(Reconnect::new(config, NoTls));
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(transactions);
    let (runs, meet) = (Runs::default(), Arc::new(Barrier::new(2)));
    let pay = |from: i32, to: i32| {
        let meet = Arc::clone(&meet);
        let change = "UPDATE account SET cents = cents + $2 WHERE id = $1";
        let work = unit(&runs, move |run, tx| {
            let meet = Arc::clone(&meet);
            Box::pin(async move {
                tx.execute(change, &[&from, &-100_i64]).await?;
                if run <= 2 {
                    meet.wait().await; // each has its first lock
                }
                tx.execute(change, &[&to, &100_i64]).await?;
                Ok(())
            })
        });
        tell(stack.clone().oneshot(work))
    };
    let (one, other) = tokio::join!(pay(1, 2), pay(2, 1));
    let reasons = [one.reasons(), other.reasons()].concat();
    assert_eq!(reasons, [(ErrorClass::Contention, "deadlock_detected")]);
    one.outcome.unwrap();
    other.outcome.unwrap();
    assert_eq!(runs.count(), 3);
    let side = database.side().await;
    assert_eq!((cents(&side, 1).await, cents(&side, 2).await), (1000, 1000));
}

#[tokio::test]
async fn a_read_only_database_declines_and_another_one_takes_it() {
    let Some(database) = Database::create().await else { return };
    let replica = database.transactions().options(TransactionOptions::new().read_only(true));
    let classifier = Classifier::new(postgres());
    let stack = ServiceBuilder::new()
        .layer(
            FallbackLayer::new(classifier)
                .or_service(ErrorClass::Declined, database.transactions()),
        )
        .layer(retry(postgres()))
        .service(replica.clone());

    let runs = Runs::default();
    let take = unit(&runs, |_, tx| Box::pin(async move { Ok(tx.execute(TAKE, &[]).await?) }));
    let told = tell(ServiceExt::oneshot(
        ServiceBuilder::new().layer(retry(postgres())).service(replica),
        take.clone(),
    ))
    .await;
    assert_eq!(told.reasons(), [(ErrorClass::Declined, "read_only_transaction")]);
    assert_eq!(told.refusal, Some(Refusal::ClassNotRetried));
    assert_eq!(runs.count(), 1);

    let told = tell(stack.oneshot(take)).await;
    assert_eq!(told.outcome.unwrap(), 1);
    assert_eq!(runs.count(), 3, "one at the replica, one at the primary");
    assert_eq!(cents(&database.side().await, 1).await, 900);
}

#[tokio::test]
async fn a_unique_violation_is_permanent_unless_you_say_that_it_is_a_race() {
    let Some(database) = Database::create().await else { return };
    let insert = |run: u32| format!("INSERT INTO account VALUES ({run}, 0)");

    // Key 1 is taken, 2 as well, 3 is free; who draws again gets another one.
    let runs = Runs::default();
    let open = unit(&runs, move |run, tx| {
        Box::pin(async move { Ok(tx.batch_execute(&insert(run + 1)).await?) })
    });
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let told = tell(stack.oneshot(open)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Permanent, "integrity_violation")]);
    assert_eq!(told.refusal, Some(Refusal::ClassNotRetried));
    assert_eq!(runs.count(), 1);

    let runs = Runs::default();
    let open = unit(&runs, move |run, tx| {
        Box::pin(async move { Ok(tx.batch_execute(&insert(run + 1)).await?) })
    });
    let race = postgres().sqlstate(&SqlState::UNIQUE_VIOLATION, ErrorClass::Contention);
    let stack = ServiceBuilder::new().layer(retry(race)).service(database.transactions());
    let told = tell(stack.oneshot(open)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Contention, "sqlstate_override")]);
    told.outcome.unwrap();
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_constraint_that_fails_at_commit_is_known_not_to_be_committed() {
    let Some(database) = Database::create().await else { return };
    let side = database.side().await;
    let table = "CREATE TABLE seat (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
        INSERT INTO seat VALUES (1)";
    side.batch_execute(table).await.unwrap();
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let runs = Runs::default();
    let book = unit(&runs, |_, tx| {
        Box::pin(async move { Ok(tx.batch_execute("INSERT INTO seat VALUES (1)").await?) })
    });
    let told = tell(stack.oneshot(book)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Permanent, "integrity_violation")]);
    assert_eq!(runs.count(), 1);
    let error = told.outcome.unwrap_err();
    let unit = error.find::<UnitError>().unwrap();
    assert_eq!(unit.stage(), Stage::Commit);
    assert!(!unit.outcome_unknown());
}

#[tokio::test]
async fn a_syntax_error_is_permanent() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let runs = Runs::default();
    let wrong = unit(&runs, |_, tx| {
        Box::pin(async move {
            tx.batch_execute(TAKE).await?;
            Ok(tx.batch_execute("SELEKT 1").await?)
        })
    });
    let told = tell(stack.oneshot(wrong)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Permanent, "syntax_or_access")]);
    assert_eq!(told.refusal, Some(Refusal::ClassNotRetried));
    assert_eq!(runs.count(), 1);
    assert_eq!(cents(&database.side().await, 1).await, 1000, "rolled back");
}

/// PostgreSQL answers the COMMIT of an aborted transaction with ROLLBACK, and no error.
#[tokio::test]
async fn a_swallowed_error_does_not_look_like_a_commit() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let runs = Runs::default();
    let careless = unit(&runs, |_, tx| {
        Box::pin(async move {
            tx.batch_execute(TAKE).await?;
            let _ = tx.batch_execute("INSERT INTO account VALUES (1, 0)").await;
            Ok(())
        })
    });
    let told = tell(stack.clone().oneshot(careless)).await;
    assert_eq!(told.reasons(), [(ErrorClass::Permanent, "invalid_state")]);
    let error = told.outcome.unwrap_err();
    let code = error.find::<tokio_postgres::error::DbError>().unwrap().code().clone();
    assert_eq!(code, SqlState::IN_FAILED_SQL_TRANSACTION);
    assert!(!error.find::<UnitError>().unwrap().outcome_unknown());
    assert_eq!(cents(&database.side().await, 1).await, 1000);

    // In a savepoint it may fail.
    let careful = unit(&runs, |_, tx| {
        Box::pin(async move {
            tx.batch_execute(TAKE).await?;
            let savepoint = tx.transaction().await?;
            let inserted = savepoint.batch_execute("INSERT INTO account VALUES (1, 0)").await;
            savepoint.rollback().await?;
            Ok(inserted.is_err())
        })
    });
    assert!(tell(stack.oneshot(careful)).await.outcome.unwrap());
    assert_eq!(cents(&database.side().await, 1).await, 900);
}

#[tokio::test]
async fn an_error_of_ones_own_rolls_back_and_is_found_by_type() {
    #[derive(Debug, PartialEq)]
    struct Overdrawn(i64);
    impl std::fmt::Display for Overdrawn {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("overdrawn")
        }
    }
    impl std::error::Error for Overdrawn {}

    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(database.transactions());
    let runs = Runs::default();
    let take = unit(&runs, |_, tx| {
        Box::pin(async move {
            tx.batch_execute(TAKE).await?;
            Err::<(), _>(Overdrawn(100).into())
        })
    });
    let told = tell(stack.oneshot(take)).await;
    assert_eq!(told.failures[0].disposition, Disposition::NotProcessed);
    assert_eq!(told.outcome.unwrap_err().find::<Overdrawn>(), Some(&Overdrawn(100)));
    assert_eq!(runs.count(), 1);
    assert_eq!(cents(&database.side().await, 1).await, 1000);
}

#[tokio::test]
async fn options_reach_the_server() {
    let Some(database) = Database::create().await else { return };
    let defaults = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .read_only(true)
        .deferrable(true);
    let stack = ServiceBuilder::new()
        .layer(retry(postgres()))
        .service(database.transactions().options(defaults));
    let show = unit(&Runs::default(), |_, tx| {
        Box::pin(async move {
            let all = "SELECT current_setting('transaction_isolation'),
                current_setting('transaction_read_only'), current_setting('transaction_deferrable')";
            let row = tx.query_one(all, &[]).await?;
            Ok([row.get::<_, String>(0), row.get(1), row.get(2)])
        })
    });
    let shown = stack.clone().oneshot(show.clone()).await.unwrap();
    assert_eq!(shown, ["serializable", "on", "on"]);
    let changed = show.isolation(IsolationLevel::ReadCommitted).read_only(false).deferrable(false);
    assert_eq!(stack.oneshot(changed).await.unwrap(), ["read committed", "off", "off"]);
}
