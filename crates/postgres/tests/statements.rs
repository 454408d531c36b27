//! Single statements: those that commit themselves, and those inside an open transaction.

mod common;

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{
    AnyError, Classifier, Disposition, ErrorClass, Refusal, RequestFacts, RulesExt,
};
use tower_triage_postgres::{
    PostgresRulesExt, Reconnect, Stage, Statement, Statements, UnitError, postgres,
};
use tower_triage_retry::RetryLayer;

use crate::common::{Database, cents, quick, retry, tell, terminate, wait_for};

/// Waits for the lock that `side` may hold, then takes.
const TAKE: &str = "UPDATE account SET cents = cents - $1 WHERE id = 1 RETURNING cents";

fn statements(database: &Database) -> Statements<Reconnect> {
    Statements::new(Reconnect::new(database.config(), NoTls))
}

#[tokio::test]
async fn a_statement_answers_with_its_rows() {
    let Some(database) = Database::create().await else { return };
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(statements(&database));
    let take = Statement::new("take", TAKE).bind(100_i64);
    let rows = stack.clone().oneshot(take.clone()).await.unwrap();
    assert_eq!(rows[0].get::<_, i64>(0), 900);

    let too_few = tell(stack.clone().oneshot(Statement::new("take", TAKE))).await;
    assert_eq!(too_few.reasons(), [(ErrorClass::Permanent, "unexpected_answer")]);
    let wrong_type = tell(stack.clone().oneshot(Statement::new("take", TAKE).bind("much"))).await;
    assert_eq!(wrong_type.reasons(), [(ErrorClass::Permanent, "type_conversion")]);
    let wrong = tell(stack.oneshot(Statement::new("wrong", "SELEKT 1"))).await;
    assert_eq!(wrong.reasons(), [(ErrorClass::Permanent, "syntax_or_access")]);
    assert_eq!(wrong.outcome.unwrap_err().find::<UnitError>().unwrap().stage(), Stage::Begin);
    assert_eq!(cents(&database.side().await, 1).await, 900);
}

#[tokio::test]
async fn a_statement_that_loses_a_race_is_its_own_unit_of_work() {
    let Some(database) = Database::create().await else { return };
    let mut config = database.config();
    config.options("-c lock_timeout=20ms");
    let stack = ServiceBuilder::new()
        .layer(retry(postgres()))
        .service(Statements::new(Reconnect::new(config, NoTls)));
    let side = database.side().await;
    side.batch_execute("BEGIN; UPDATE account SET cents = 0 WHERE id = 1").await.unwrap();
    let told = tell(stack.oneshot(Statement::new("take", TAKE).bind(100_i64))).await;
    assert_eq!(told.reasons(), [(ErrorClass::Contention, "lock_not_available"); 2]);
}

#[tokio::test]
async fn a_statement_whose_connection_is_lost_is_repeated_only_if_idempotent() {
    let Some(database) = Database::create().await else { return };
    let (side, killer) = (database.side().await, database.side().await);
    let stack = ServiceBuilder::new().layer(retry(postgres())).service(statements(&database));
    let waiting = "query LIKE 'UPDATE account%RETURNING%' AND wait_event_type = 'Lock'";

    side.batch_execute("BEGIN; UPDATE account SET cents = 500 WHERE id = 1").await.unwrap();
    let take = Statement::new("take", TAKE).bind(100_i64);
    let end = async { terminate(&killer, wait_for(&killer, waiting).await).await };
    let (told, ()) = tokio::join!(tell(stack.clone().oneshot(take.clone())), end);
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "admin_shutdown")]);
    assert_eq!(told.failures[0].disposition, Disposition::MaybeProcessed);
    assert_eq!(told.refusal, Some(Refusal::NotIdempotent));
    assert!(told.outcome.unwrap_err().find::<UnitError>().unwrap().outcome_unknown());

    let end = async {
        terminate(&killer, wait_for(&killer, waiting).await).await;
        side.batch_execute("ROLLBACK").await.unwrap();
    };
    let (told, ()) = tokio::join!(tell(stack.oneshot(take.idempotent(true))), end);
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "admin_shutdown")]);
    assert_eq!(told.outcome.unwrap()[0].get::<_, i64>(0), 900);
}

/// A service of the user's own, whose requests are statements of one open transaction. Whatever
/// happens to one of them, the transaction is gone, and the statement alone is not the work.
#[tokio::test]
async fn a_statement_inside_an_open_transaction_is_never_repeated() {
    let Some(database) = Database::create().await else { return };
    let side = Arc::new(database.side().await);
    let open = Arc::new(database.side().await);
    open.batch_execute("BEGIN").await.unwrap();

    let rules = postgres()
        .in_open_transaction()
        .describe(|_: &String| RequestFacts::new("statement").unit_of_work(false));
    let run = |client: Arc<Client>| {
        service_fn(move |sql: String| {
            let client = Arc::clone(&client);
            async move { client.batch_execute(&sql).await.map_err(AnyError::from) }
        })
    };
    let layer = || RetryLayer::new(Classifier::new(rules)).policy(quick().build().unwrap());
    let stack = ServiceBuilder::new().layer(layer()).service(run(Arc::clone(&open)));

    // Lost a race: only the whole transaction may run again.
    side.batch_execute("BEGIN; UPDATE account SET cents = 0 WHERE id = 1").await.unwrap();
    let take = "SET LOCAL lock_timeout = '20ms'; UPDATE account SET cents = 1 WHERE id = 1";
    let told = tell(stack.clone().oneshot(take.to_owned())).await;
    assert_eq!(told.reasons(), [(ErrorClass::Contention, "lock_not_available")]);
    assert!(told.refusal.is_some());

    // The connection is gone: what the transaction did before is rolled back, so nothing was
    // processed, and still the statement is not sent again.
    open.batch_execute("ROLLBACK; BEGIN").await.unwrap();
    let own = common::pid(&*open).await.unwrap();
    terminate(&side, own).await;
    let told = tell(stack.oneshot("SELECT 1".to_owned())).await;
    assert_eq!(told.failures.len(), 1);
    assert_eq!(told.failures[0].class, ErrorClass::Transient);
    assert_eq!(told.failures[0].disposition, Disposition::NotProcessed);
    assert_eq!(told.refusal, Some(Refusal::ServerForbade));
}
