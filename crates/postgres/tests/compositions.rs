//! All layers around the services, un-boxed, in tasks.

mod common;

use std::time::Duration;

use tokio_postgres::{Config, NoTls};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, State};
use tower_triage_core::{AnyError, CircuitOpen, ClassSet, Classifier, ErrorClass};
use tower_triage_escalate::{Desk, EscalateLayer};
use tower_triage_fallback::FallbackLayer;
use tower_triage_postgres::{
    Reconnect, Statement, Statements, Transactions, Unit, postgres, work_fn,
};
use tower_triage_timeout::TimeoutLayer;

use crate::common::{Database, cents, retry, tell};

/// Nobody listens there.
fn nowhere() -> Reconnect {
    let port = tower_triage_test_support::closed_port().port();
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user("nobody");
    Reconnect::new(config, NoTls)
}

#[tokio::test]
async fn a_database_that_is_down_opens_the_breaker_and_a_backup_answers() {
    let Some(database) = Database::create().await else { return };
    let classifier = Classifier::new(postgres());
    let policy = BreakerPolicy::new().consecutive_failures(4).build().unwrap();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).name("database").policy(policy);
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), Desk::log()))
        .layer(
            FallbackLayer::new(classifier.clone())
                .or_service(ClassSet::bypassable(), database.transactions()),
        )
        .layer(retry(postgres()))
        .layer(breaker)
        .layer(TimeoutLayer::new(classifier, Duration::from_secs(30)).unwrap())
        .service(Transactions::new(nowhere()));

    for call in 0..3 {
        let stack = stack.clone();
        let answer = tokio::spawn(async move {
            let take = work_fn(|tx| {
                Box::pin(async move {
                    let take = "UPDATE account SET cents = cents - 1 WHERE id = 1 RETURNING cents";
                    Ok(tx.query_one(take, &[]).await?.try_get::<_, i64>(0)?)
                })
            });
            stack.oneshot(Unit::new("take", take)).await
        });
        assert_eq!(answer.await.unwrap().unwrap(), 999 - call);
    }
    assert_eq!(handle.state(), State::Open);
    assert_eq!(cents(&database.side().await, 1).await, 997);
}

#[tokio::test]
async fn an_open_circuit_is_an_error_of_the_services() {
    let classifier = Classifier::new(postgres());
    let breaker = CircuitBreakerLayer::new(classifier.clone()).name("database");
    breaker.handle().force_open();
    let stack = ServiceBuilder::new()
        .layer(retry(postgres()))
        .layer(breaker)
        .layer(TimeoutLayer::new(classifier, Duration::from_secs(30)).unwrap())
        .service(Statements::new(nowhere()));
    let call = tokio::spawn(async move {
        let told = tell(stack.oneshot(Statement::new("one", "SELECT 1"))).await;
        (told.reasons(), told.outcome.map(drop).map_err(AnyError::into_inner))
    });
    let (reasons, outcome) = call.await.unwrap();
    assert!(reasons.iter().all(|(class, _)| *class == ErrorClass::Rejected), "{reasons:?}");
    assert!(outcome.unwrap_err().is::<CircuitOpen>());
}
