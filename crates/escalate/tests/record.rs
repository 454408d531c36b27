//! What a record tells, and what it keeps to itself.

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::{Broken, Memory, Order, TRACE, always, classifier, desk};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_triage_core::{Backoff, ErrorClass, RetryAfter, incident};
use tower_triage_escalate::{CloudEvent, EscalateLayer, Escalation, LogSink};
use tower_triage_retry::{RetryLayer, RetryPolicy, replay_fn};

fn again(order: &Order) -> Option<Order> {
    Some(Order { id: order.id, headers: order.headers.clone(), body: order.body })
}

/// Three attempts a second apart, all of them failing.
async fn three_attempts() -> Escalation {
    let (sink, classifier) = (Memory::default(), classifier());
    let plan = RetryPolicy::default()
        .backoff(&Backoff::fixed(Duration::from_secs(3)))
        .attempts(3)
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk(&sink)).from("shop"))
        .layer(RetryLayer::new(classifier).policy(plan).replay(replay_fn(again)))
        .service(always(|| {
            Err(Broken(
                ErrorClass::Transient,
                "reset while reading https://u:hunter3@shop.example/orders?key=hunter3",
            ))
        }));
    let order = Order {
        id: Some("r-1"),
        headers: vec![
            ("authorization", "hunter2"),
            ("cookie", "hunter2"),
            ("x-api-key", "hunter2"),
        ],
        body: r#"{"card":"hunter2"}"#,
    };
    service.oneshot(order).await.unwrap_err();
    sink.one()
}

#[tokio::test(start_paused = true)]
async fn kf58_a_record_one_can_act_on() {
    let before = SystemTime::now();
    let record = three_attempts().await;
    assert_eq!(record.schema, Escalation::SCHEMA);
    assert_eq!(record.class, ErrorClass::Transient);
    assert!(record.first_time.to_system_time() + Duration::from_millis(1) >= before);
    let span = record.last_time.to_system_time().duration_since(record.first_time.to_system_time());
    assert!(span.unwrap() >= Duration::from_secs(6), "{:?}", record.last_time);
    let attempts = record
        .attempts
        .iter()
        .map(|a| (a.number, a.strategy.as_str(), a.class.unwrap(), a.delay.as_secs()));
    let transient = ErrorClass::Transient;
    assert_eq!(
        attempts.collect::<Vec<_>>(),
        [(1, "call", transient, 0), (2, "retry", transient, 3), (3, "retry", transient, 3)]
    );
    assert!(record.detail.starts_with("reset while reading https://shop.example/orders"));
    assert_eq!(record.method.as_deref(), Some("POST"));
    assert_eq!(record.target.as_deref(), Some("shop.example/orders"));
    assert_eq!(record.context.trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(record.context.traceparent.unwrap().to_string(), TRACE);
    assert_eq!(record.context.request_id.as_deref(), Some("r-1"));
    assert_eq!(record.server_hint, Some(RetryAfter::AtLeast(Duration::from_secs(2))));
    assert_eq!(record.operation, "orders.create");
    assert!(record.summary.contains("orders.create") && record.summary.contains("3 attempts"));
    assert!(!record.impact.is_empty() && !record.suggestion.is_empty());
}

#[tokio::test(start_paused = true)]
async fn kf57_secrets_stay_out() {
    let record = three_attempts().await;
    let json = serde_json::to_string(&CloudEvent::new(&record)).unwrap();
    for text in [json, format!("{record:?}"), format!("{:#?}", record.attempts)] {
        assert!(!text.contains("hunter"), "{text}");
    }
    let debug = format!("{record:?}");
    assert!(debug.contains(&record.id.to_string()) && debug.contains("r-1"), "{debug}");
    assert!(!debug.contains("reset") && !debug.contains("shop.example"), "ids only: {debug}");
}

/// What is logged on the way: by the layers, and by the sink for logs.
#[tokio::test(start_paused = true)]
async fn kf57_secrets_stay_out_of_the_log() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let record = three_attempts().await;
    LogSink.oneshot(record.clone()).await.unwrap();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!text.contains("hunter2"), "headers and body: {text}");
    let line = text.lines().find(|line| line.contains("tower_triage::escalation")).unwrap();
    assert!(!line.contains("hunter"), "and what an error quotes of a URL: {line}");
    assert!(line.contains(&record.id.to_string()) && line.contains("WARN"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_record_is_read_back_as_it_was_written() {
    let record = three_attempts().await;
    let json = serde_json::to_string(&record).unwrap();
    let mut again: Escalation = serde_json::from_str(&json).unwrap();
    assert_eq!(again, record);
    // A later version's fields are no obstacle, and what may be missing may be missing.
    let mut value: serde_json::Value = serde_json::from_str(&json).unwrap();
    value["new"] = 1.into();
    value.as_object_mut().unwrap().remove("server_hint");
    again.server_hint = None;
    assert_eq!(serde_json::from_value::<Escalation>(value).unwrap(), again);
}

/// By hand, from an incident that a caller's scope collected.
#[tokio::test]
async fn an_incident_at_hand_can_be_told_of() {
    let (sink, other) = (Memory::default(), Memory::default());
    let service = EscalateLayer::new(classifier(), desk(&other))
        .layer(always(|| Err(Broken(ErrorClass::Quota, "balance used up"))));
    let (_, incident) = incident::scope(service.oneshot(Order::default())).await;
    let desk = desk(&sink);
    let escalation = desk.write("batch", &incident.unwrap()).unwrap();
    let delivered = desk.deliver(escalation, Duration::from_secs(1)).await;
    assert_eq!(delivered.taken, 1);
    let told = sink.one();
    assert_eq!((told.from.as_str(), told.class), ("batch", ErrorClass::Quota));
    assert_eq!(told.detail, "balance used up");
}
