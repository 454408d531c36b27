//! KF-53 to KF-60, through layer, desk and sink, against every store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{Backoff, ErrorClass, Resolution, RetryAfter};
use tower_triage_escalate::store::{Put, StoreSink};
use tower_triage_escalate::{DeskPolicy, EscalatePolicy, Escalation, Outcome, Overflow};
use tower_triage_fallback::FallbackLayer;
use tower_triage_retry::{RetryLayer, RetryPlan, RetryPolicy, replay_fn};

use super::fixture::SECOND;
use super::shop::{
    Broken, DOWN, Fails, Fault, Faulty, Order, TRACE, classifier, desk, desk_with, durable, ops,
};
use super::world::{World, each};

fn sink(world: &World) -> StoreSink {
    StoreSink::new(Arc::clone(&world.store))
}

fn three_attempts() -> RetryPlan {
    let backoff = Backoff::fixed(Duration::from_millis(3));
    RetryPolicy::default().backoff(&backoff).attempts(3).build().unwrap()
}

fn again(order: &Order) -> Option<Order> {
    Some(order.clone())
}

#[tokio::test]
async fn kf53_a_failed_write_is_not_swallowed() {
    each(async |world| {
        let faulty = Faulty::new(&world.store, Fault::FailsFor("r-2"));
        let (classifier, seen) = classifier();
        let desk = desk(ops().record(faulty.clone()));
        let layer = durable(classifier, &desk);
        let mut ends = Vec::new();
        for id in ["r-1", "r-2", "r-3"] {
            let error = layer.layer(Fails(DOWN)).oneshot(Order::with_id(id)).await.unwrap_err();
            assert_eq!(error, DOWN, "the caller gets the original error");
            let incident = seen.last();
            ends.push((incident.resolution, incident.not_recorded));
        }
        let recorded = (Resolution::Escalated, false);
        assert_eq!(ends, [recorded, (Resolution::Failed, true), recorded]);
        assert_eq!(faulty.tries(), 1 + 3 + 1, "bounded");
        assert_eq!((desk.counts().delivered, desk.counts().not_recorded), (2, 1));
        let stored = world.all().await;
        let ids = stored.iter().map(|letter| letter.escalation.context.request_id.as_deref());
        assert_eq!(ids.collect::<Vec<_>>(), [Some("r-1"), Some("r-3")]);
    })
    .await;
}

#[tokio::test]
async fn kf53_a_write_that_fails_twice_is_repeated_and_then_the_next_sink_takes_over() {
    each(async |world| {
        for (failures, tries) in [(2, 3), (usize::MAX, 3)] {
            let faulty = Faulty::new(&world.store, Fault::FailsFirst(failures));
            let (classifier, seen) = classifier();
            let desk = desk(ops().record(faulty.clone()).record(sink(world)));
            let service = durable(classifier, &desk).layer(Fails(DOWN));
            service.oneshot(Order::default()).await.unwrap_err();
            assert_eq!(faulty.tries(), tries);
            assert_eq!(seen.last().resolution, Resolution::Escalated);
            assert!(world.store.get(seen.last().id).await.unwrap().is_some());
        }
        assert_eq!(world.all().await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn kf54_recorded_before_the_caller_is_told() {
    each(async |world| {
        let (classifier, seen) = classifier();
        let desk = desk(ops().record(sink(world)));
        let layer = durable(classifier, &desk);
        let calls =
            (0..20).map(|_| tokio::spawn(layer.layer(Fails(DOWN)).oneshot(Order::default())));
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap().unwrap_err(), DOWN);
        }
        let told = seen.incidents();
        assert!(told.iter().all(|incident| incident.resolution == Resolution::Escalated));
        drop((layer, desk));
        if world.restart().await {
            assert_eq!(world.all().await.len(), 20);
            for incident in told {
                assert!(world.store.get(incident.id).await.unwrap().is_some());
            }
        }
    })
    .await;
}

#[tokio::test]
async fn kf55_no_duplicate_records() {
    each(async |world| {
        // Stored, and an error reported all the same: once, and so often that the next sink is asked.
        for (lies, tries) in [(1, 2), (3, 3)] {
            let faulty = Faulty::new(&world.store, Fault::Lies(lies));
            let (classifier, seen) = classifier();
            let desk = desk(ops().record(faulty.clone()).record(sink(world)));
            let service = durable(classifier, &desk).layer(Fails(DOWN));
            service.oneshot(Order::default()).await.unwrap_err();
            assert_eq!(faulty.tries(), tries);
            let letter = world.store.get(seen.last().id).await.unwrap().unwrap();
            assert_eq!(letter.failures, 1);
        }
        assert_eq!(world.all().await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn kf55_a_request_that_fails_twice_has_one_record() {
    each(async |world| {
        let desk = desk(ops().record(sink(world)));
        for id in ["r-1", "r-1", "r-2"] {
            // Another layer, another incident, another process for all it matters.
            let service = durable(classifier().0, &desk).layer(Fails(DOWN));
            service.oneshot(Order::with_id(id)).await.unwrap_err();
            // Failures of the same millisecond are one failure told twice.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let failures = world.all().await;
        assert_eq!(failures.iter().map(|letter| letter.failures).collect::<Vec<_>>(), [2, 1]);
        let again = world.store.put(failures[0].escalation.clone()).await.unwrap();
        assert_eq!(again, Put::Known);
    })
    .await;
}

#[tokio::test]
async fn kf56_one_record_per_request_not_per_attempt() {
    each(async |world| {
        let desk = desk(ops().record(sink(world)));
        // Outside of the retry: one record, with three attempts.
        let (shared, _) = classifier();
        let service = ServiceBuilder::new()
            .layer(durable(shared.clone(), &desk))
            .layer(RetryLayer::new(shared).policy(three_attempts()).replay(replay_fn(again)))
            .service(Fails(DOWN));
        service.oneshot(Order::with_id("outside")).await.unwrap_err();
        // Inside: none for an attempt that is repeated.
        let (shared, _) = classifier();
        let service = ServiceBuilder::new()
            .layer(
                RetryLayer::new(shared.clone()).policy(three_attempts()).replay(replay_fn(again)),
            )
            .layer(durable(shared, &desk))
            .service(Fails(DOWN));
        service.oneshot(Order::with_id("inside")).await.unwrap_err();
        desk.idle().await;
        let letters = world.all().await;
        let told = letters.iter().map(|letter| {
            let escalation = &letter.escalation;
            (escalation.context.request_id.as_deref(), escalation.attempts.len(), letter.failures)
        });
        assert_eq!(told.collect::<Vec<_>>(), [(Some("outside"), 3, 1), (Some("inside"), 3, 1)]);
    })
    .await;
}

#[tokio::test]
async fn kf56_a_rescued_call_is_recorded_if_asked_for_or_if_it_met_what_escalates_at_once() {
    each(async |world| {
        let desk = desk(ops().record(sink(world)));
        for (class, record, id) in [
            (ErrorClass::Transient, false, "nobody's business"),
            (ErrorClass::Transient, true, "asked for"),
            (ErrorClass::Quota, false, "at once"),
        ] {
            let (shared, _) = classifier();
            let policy = EscalatePolicy::new().wait(60 * SECOND).record_recovered(record);
            let service = ServiceBuilder::new()
                .layer(durable(shared.clone(), &desk).policy(policy))
                .layer(FallbackLayer::new(shared).or_value(class, |_| "from the cache"))
                .service(Fails(Broken(class, "no")));
            assert_eq!(service.oneshot(Order::with_id(id)).await, Ok("from the cache"));
        }
        let letters = world.all().await;
        let told = letters.iter().map(|letter| {
            let escalation = &letter.escalation;
            (escalation.context.request_id.as_deref().unwrap(), escalation.outcome)
        });
        let recovered = Outcome::Recovered;
        assert_eq!(told.collect::<Vec<_>>(), [("asked for", recovered), ("at once", recovered)]);
    })
    .await;
}

#[tokio::test]
async fn kf57_secrets_stay_out() {
    each(async |world| {
        let order = Order {
            id: Some("r-1".into()),
            headers: vec![
                ("authorization", "Bearer hunter2"),
                ("cookie", "session=hunter2"),
                ("x-api-key", "hunter2"),
            ],
            body: r#"{"card":"hunter2"}"#,
        };
        assert!(format!("{order:?}").matches("hunter2").count() == 4);
        let broken = Broken(
            ErrorClass::Transient,
            "reset while reading https://me:hunter2@shop.example/orders?key=hunter2#hunter2",
        );
        let desk = desk(ops().record(sink(world)));
        durable(classifier().0, &desk).layer(Fails(broken)).oneshot(order).await.unwrap_err();
        _ = world.restart().await;
        for letter in world.all().await {
            assert_eq!(letter.request, None, "the request is kept only if somebody asks for it");
            let json = serde_json::to_string(&letter).unwrap();
            let debug = format!("{letter:?} {:?} {desk:?} {:?}", letter.escalation, world.store);
            assert!(!json.contains("hunter2"), "{json}");
            assert!(!debug.contains("hunter2"), "{debug}");
            assert!(!debug.contains("reset while"), "ids only: {debug}");
        }
    })
    .await;
}

#[tokio::test]
async fn kf58_a_record_one_can_act_on() {
    each(async |world| {
        let (shared, _) = classifier();
        let desk = desk(ops().record(sink(world)));
        let service = ServiceBuilder::new()
            .layer(durable(shared.clone(), &desk))
            .layer(RetryLayer::new(shared).policy(three_attempts()).replay(replay_fn(again)))
            .service(Fails(DOWN));
        service.oneshot(Order::with_id("r-1")).await.unwrap_err();
        let letter = world.all().await.remove(0);
        let record = &letter.escalation;
        assert_eq!(record.schema, Escalation::SCHEMA);
        assert_eq!((letter.id(), record.class), (record.id, ErrorClass::Transient));
        assert!(record.first_time < record.last_time, "{} {}", record.first_time, record.last_time);
        let attempts = record.attempts.iter().map(|a| (a.number, a.strategy.as_str()));
        assert_eq!(attempts.collect::<Vec<_>>(), [(1, "call"), (2, "retry"), (3, "retry")]);
        let delays = record.attempts.iter().map(|a| a.delay >= Duration::from_millis(3));
        assert_eq!(delays.collect::<Vec<_>>(), [false, true, true]);
        assert!(record.attempts.iter().all(|a| a.class == Some(ErrorClass::Transient)));
        assert!(record.detail.starts_with("connection reset"));
        assert_eq!(record.method.as_deref(), Some("POST"));
        assert_eq!(record.target.as_deref(), Some("shop.example/orders"));
        assert_eq!(record.context.traceparent.unwrap().to_string(), TRACE);
        assert_eq!(record.context.trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(record.context.request_id.as_deref(), Some("r-1"));
        assert_eq!(record.server_hint, Some(RetryAfter::AtLeast(Duration::from_millis(2))));
    })
    .await;
}

#[tokio::test]
async fn kf59_no_alert_storm() {
    const FAILURES: u64 = 10_000;
    each(async |world| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let people = {
            let told = Arc::clone(&told);
            service_fn(move |escalation: Escalation| {
                told.lock().unwrap().push(escalation.count);
                std::future::ready(Ok::<(), std::io::Error>(()))
            })
        };
        let receiver = ops().record(sink(world)).notify(people);
        let policy = DeskPolicy::new().window(600 * SECOND).resolve_after(None);
        let desk = desk_with(policy, receiver);
        let layer = durable(classifier().0, &desk);
        let callers = (0..100).map(|_| {
            let service = layer.layer(Fails(DOWN));
            tokio::spawn(async move {
                for _ in 0..FAILURES / 100 {
                    service.clone().oneshot(Order::default()).await.unwrap_err();
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        assert_eq!(world.stats().await.total, FAILURES, "all are stored");
        assert_eq!(*told.lock().unwrap(), [1], "people get the first at once");
        assert_eq!(desk.counts().suppressed, FAILURES - 1);
        // No store is at work while the time jumps.
        tokio::time::pause();
        tokio::time::advance(600 * SECOND).await;
        tokio::time::resume();
        layer.layer(Fails(DOWN)).oneshot(Order::default()).await.unwrap_err();
        // If the store takes its time they hear of the end first, and then of a new beginning.
        let told = told.lock().unwrap().clone();
        let expected = [vec![1, FAILURES], vec![1, FAILURES - 1, 1]];
        assert!(expected.contains(&told), "{told:?}: and the next after the window");
        assert_eq!(world.stats().await.total, FAILURES + 1);
    })
    .await;
}

#[tokio::test]
async fn kf60_a_slow_store_does_not_take_the_service_down() {
    each(async |world| {
        for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
            let before = world.stats().await.total;
            let delay = Arc::new(AtomicU64::new(10));
            let slow = {
                let (delay, sink) = (Arc::clone(&delay), sink(world));
                service_fn(move |escalation: Escalation| {
                    let (delay, sink) = (Arc::clone(&delay), sink.clone());
                    async move {
                        let seconds = delay.load(Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_secs(seconds)).await;
                        sink.oneshot(escalation).await
                    }
                })
            };
            let policy = DeskPolicy::new().queue(100).workers(4).overflow(overflow);
            let desk = desk_with(policy, ops().record(slow));
            let wait = Duration::from_millis(50);
            let layer = durable(classifier().0, &desk).policy(EscalatePolicy::new().wait(wait));
            // No store is at work for the first ten seconds, so the time may be stepped.
            tokio::time::pause();
            let calls = (0..1000).map(|n| {
                let service = layer.layer(Fails(DOWN));
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(n)).await;
                    let started = Instant::now();
                    service.oneshot(Order::default()).await.unwrap_err();
                    started.elapsed()
                })
            });
            for call in calls.collect::<Vec<_>>() {
                let added = call.await.unwrap();
                assert!(added <= wait + Duration::from_millis(1), "{added:?}");
                assert!(desk.queued() <= 100);
            }
            let (queued, dropped) = (desk.queued() as u64, desk.counts().dropped);
            assert_eq!(queued + 4 + dropped, 1000, "what found no room is counted");
            delay.store(0, Ordering::SeqCst);
            tokio::time::advance(10 * SECOND).await;
            tokio::time::resume();
            desk.idle().await;
            assert_eq!(desk.counts().delivered, 1000 - dropped, "and what did is stored");
            assert_eq!(world.stats().await.total - before, 1000 - dropped);
        }
    })
    .await;
}
