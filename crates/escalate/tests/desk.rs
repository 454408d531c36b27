//! Sinks, storms and the queue.

mod common;

use std::time::Duration;

use common::{Broken, Memory, Order, Receipt, always, classifier, desk_with, to_human};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::{ErrorClass, Resolution};
use tower_triage_escalate::{
    Desk, DeskPolicy, Escalate, EscalateLayer, EscalatePolicy, Escalation, KeepFailure, LogSink,
    Overflow, Receiver, Recording, Route, Routes, When,
};
use tower_triage_test_support::{Scripted, Seen};

const SECOND: Duration = Duration::from_secs(1);

type Down = Escalate<Scripted<Order, Receipt, Broken>, common::Rules, KeepFailure, Broken>;

fn down(desk: &Desk, wait: Duration) -> Down {
    EscalateLayer::new(classifier(), desk.clone())
        .policy(EscalatePolicy::new().wait(wait))
        .layer(always(|| Err(Broken(ErrorClass::Transient, "connection reset"))))
}

async fn fail(service: &mut Down, order: Order) {
    service.ready().await.unwrap().call(order).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn kf55_a_record_keeps_its_id_on_every_write() {
    let sink = Memory::lying_once();
    let desk = desk_with(DeskPolicy::new(), Receiver::new("human").record(sink.clone()));
    fail(&mut down(&desk, 60 * SECOND), Order::default()).await;
    let ids = sink.taken().into_iter().map(|told| told.id).collect::<Vec<_>>();
    assert_eq!(ids.len(), 2, "stored, then an error, then stored again");
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn kf55_a_request_with_an_id_has_one_record_id_however_often_it_fails() {
    let sink = Memory::default();
    let desk = desk_with(DeskPolicy::new(), Receiver::new("human").record(sink.clone()));
    for id in ["r-1", "r-1", "r-2"] {
        // Another layer, another incident, another process for all it matters.
        fail(&mut down(&desk, SECOND), Order::with_id(id)).await;
    }
    let ids = sink.taken().into_iter().map(|told| told.id).collect::<Vec<_>>();
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
    fail(&mut down(&desk, SECOND), Order::default()).await;
    fail(&mut down(&desk, SECOND), Order::default()).await;
    let ids = sink.taken().into_iter().map(|told| told.id).collect::<Vec<_>>();
    assert_ne!(ids[3], ids[4], "without an id of its own each request is another");
}

#[tokio::test(start_paused = true)]
async fn kf59_no_alert_storm() {
    let (records, people) = (Memory::default(), Memory::default());
    let receiver = Receiver::new("human").record(records.clone()).notify(people.clone());
    let desk = desk_with(DeskPolicy::new().window(60 * SECOND), receiver);
    let mut service = down(&desk, SECOND);
    for _ in 0..10_000 {
        fail(&mut service, Order::default()).await;
        tokio::time::advance(Duration::from_millis(5)).await;
    }
    assert_eq!(records.taken().len(), 10_000, "all are stored");
    assert_eq!(people.one().count, 1, "people get the first at once");
    assert_eq!(desk.counts().suppressed, 9_999);
    tokio::time::advance(10 * SECOND).await;
    fail(&mut service, Order::default()).await;
    let next = people.taken().pop().unwrap();
    assert_eq!(next.count, 10_000, "and the next after the window, with the count since");
    assert!(records.taken().iter().all(|record| record.count == 1));
}

#[tokio::test(start_paused = true)]
async fn kf60_a_slow_sink_does_not_take_the_service_down() {
    let sink = Memory::slow(10 * SECOND);
    let policy = DeskPolicy::new().queue(100).workers(4);
    let desk = desk_with(policy, Receiver::new("human").record(sink.clone()));
    let wait = Duration::from_millis(50);
    let started = Instant::now();
    let calls = (0..1000).map(|n| {
        let mut service = down(&desk, wait);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(n)).await;
            let before = Instant::now();
            fail(&mut service, Order::default()).await;
            before.elapsed()
        })
    });
    for call in calls.collect::<Vec<_>>() {
        let latency = call.await.unwrap();
        assert!(latency <= wait + Duration::from_millis(1), "{latency:?}");
        assert!(desk.queued() <= 100);
    }
    assert!(started.elapsed() < 2 * SECOND);
    let (dropped, queued) = (desk.counts().dropped, desk.queued() as u64);
    assert_eq!(dropped + queued + 4, 1000, "what found no room is counted");
    desk.idle().await;
    assert_eq!(desk.counts().delivered, 1000 - dropped, "and what did is delivered");
}

#[tokio::test(start_paused = true)]
async fn kf60_who_loses_is_a_choice() {
    for (overflow, kept) in [(Overflow::DropNewest, ["a", "b"]), (Overflow::DropOldest, ["a", "d"])]
    {
        let sink = Memory::slow(SECOND);
        let policy = DeskPolicy::new().queue(1).workers(1).overflow(overflow);
        let desk = desk_with(policy, Receiver::new("human").record(sink.clone()));
        // The first is at work, one may wait.
        for id in ["a", "b", "c", "d"] {
            fail(&mut down(&desk, Duration::ZERO), Order::with_id(id)).await;
            tokio::task::yield_now().await;
        }
        desk.idle().await;
        let ids = sink.taken().into_iter().filter_map(|told| told.context.request_id);
        assert_eq!(ids.collect::<Vec<_>>(), kept);
        assert_eq!(desk.counts().dropped, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_not_claimed_and_what_found_no_room_is_not_recorded() {
    let sink = Memory::slow(SECOND);
    let policy = DeskPolicy::new().queue(1).workers(1);
    let desk = desk_with(policy, Receiver::new("human").record(sink));
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let mut service = EscalateLayer::new(classifier, desk)
        .policy(EscalatePolicy::new().wait(Duration::ZERO))
        .layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
    for _ in 0..3 {
        service.ready().await.unwrap().call(Order::default()).await.unwrap_err();
    }
    let ends = seen.incidents().into_iter().map(|i| (i.resolution, i.not_recorded));
    let failed = Resolution::Failed;
    assert_eq!(ends.collect::<Vec<_>>(), [(failed, false), (failed, false), (failed, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_or_panics_has_failed() {
    let hangs = service_fn(|_: Escalation| std::future::pending::<Result<(), std::io::Error>>());
    let panics = service_fn(|_: Escalation| async {
        if true {
            panic!("a sink's own defect");
        }
        Ok::<(), std::io::Error>(())
    });
    let spare = Memory::default();
    let receiver = Receiver::new("human").record(hangs).record(panics).record(spare.clone());
    let desk = desk_with(DeskPolicy::new().tries(1), receiver);
    fail(&mut down(&desk, Duration::ZERO), Order::default()).await;
    desk.idle().await;
    assert_eq!(spare.one().class, ErrorClass::Transient);
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_fails_is_not_held_against_the_next() {
    let people = Memory::failing(3);
    let desk = desk_with(DeskPolicy::new(), Receiver::new("human").notify(people.clone()));
    let mut service = down(&desk, 60 * SECOND);
    fail(&mut service, Order::default()).await;
    assert_eq!(desk.counts().not_recorded, 1);
    fail(&mut service, Order::default()).await;
    assert_eq!(people.one().count, 2);
}

/// That a person was told of the like does not make up for a record that is lost.
#[tokio::test(start_paused = true)]
async fn a_lost_record_is_not_excused_by_a_notification_held_back() {
    let (records, people) = (Memory::failing(usize::MAX), Memory::default());
    let receiver = Receiver::new("human").record(records).notify(people.clone());
    let desk = desk_with(DeskPolicy::new(), receiver);
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let mut service = EscalateLayer::new(classifier, desk)
        .policy(EscalatePolicy::new().wait(60 * SECOND))
        .layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
    for _ in 0..2 {
        service.ready().await.unwrap().call(Order::default()).await.unwrap_err();
    }
    assert_eq!(people.one().count, 1);
    let told = seen.incidents().into_iter().map(|incident| incident.not_recorded);
    assert_eq!(told.collect::<Vec<_>>(), [false, true]);
}

/// A sink behind layers of ours: what they meet is their own story.
#[tokio::test]
async fn a_sink_in_layers_of_ours_writes_nothing_into_this_incident() {
    let sink = Memory::failing(1);
    let rules = tower_triage_core::Halves {
        response: tower_triage_core::AnyOk,
        error: tower_triage_core::Chain,
    };
    let log = Desk::new(to_human(), [Receiver::new("human").record(LogSink)]).unwrap();
    let wrapped =
        EscalateLayer::new(tower_triage_core::Classifier::new(rules), log).layer(sink.clone());
    let desk = desk_with(DeskPolicy::new(), Receiver::new("human").record(wrapped));
    let (classifier, seen) = (classifier(), Seen::default());
    classifier.observe(seen.clone());
    let mut service = EscalateLayer::new(classifier, desk)
        .policy(EscalatePolicy::new().wait(60 * SECOND))
        .layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
    let call = service.ready().await.unwrap().call(Order::default());
    let (_, story) = tower_triage_core::incident::scope(call).await;
    assert_eq!(sink.tries(), 2);
    assert_eq!(story.unwrap().steps.len(), 2, "nor into one around it");
    assert_eq!(seen.outcomes(), ["failed", "escalated"]);
    assert_eq!(seen.last().steps.len(), 2);
}

#[tokio::test]
async fn a_channel_hands_them_to_a_task_of_yours() {
    let (sink, mut inbox) = tower_triage_escalate::ChannelSink::new(1).unwrap();
    let desk = desk_with(DeskPolicy::new().tries(1), Receiver::new("human").record(sink));
    fail(&mut down(&desk, SECOND), Order::with_id("r-1")).await;
    assert_eq!(inbox.recv().await.unwrap().context.request_id.as_deref(), Some("r-1"));
    drop(inbox);
    fail(&mut down(&desk, SECOND), Order::default()).await;
    assert_eq!(desk.counts().not_recorded, 1, "nobody receives any more");
    assert_eq!(tower_triage_escalate::ChannelSink::new(0).unwrap_err().field(), "capacity");
}

#[test]
fn handed_over_outside_of_a_runtime_it_waits_for_one() {
    let (sink, aside) = (Memory::default(), Memory::default());
    let desk = desk_with(DeskPolicy::new(), Receiver::new("human").record(sink.clone()));
    let other = desk_with(DeskPolicy::new(), Receiver::new("human").record(aside));
    let run = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let call = down(&other, SECOND).oneshot(Order::default());
    let (_, incident) = run.block_on(tower_triage_core::incident::scope(call));
    let queued = desk.enqueue(desk.write("batch", &incident.unwrap()).unwrap());
    assert_eq!(queued, 1);
    assert_eq!((desk.queued(), sink.tries()), (1, 0));
    run.block_on(desk.idle());
    assert_eq!(sink.one().from, "batch");
}

#[test]
fn what_cannot_work_does_not_build() {
    let human = || Receiver::new("human").record(LogSink);
    let field =
        |policy: DeskPolicy| Desk::with_policy(policy, to_human(), [human()]).unwrap_err().field();
    assert_eq!(field(DeskPolicy::new().tries(0)), "tries");
    assert_eq!(field(DeskPolicy::new().window(Duration::ZERO)), "window");
    assert_eq!(field(DeskPolicy::new().queue(0)), "queue");
    assert_eq!(field(DeskPolicy::new().workers(0)), "workers");
    assert_eq!(field(DeskPolicy::new().fingerprints(0)), "fingerprints");
    assert_eq!(field(DeskPolicy::new().sink_timeout(Duration::ZERO)), "sink_timeout");

    let field =
        |routes, receivers: Vec<Receiver>| Desk::new(routes, receivers).unwrap_err().field();
    let nobody: [&str; 0] = [];
    assert_eq!(field(Routes::new(Route::new(nobody, "task")), vec![human()]), "to");
    assert_eq!(field(Routes::new(Route::new(["human"], "")), vec![human()]), "task_type");
    assert_eq!(field(to_human(), vec![]), "to");
    assert_eq!(field(to_human(), vec![human(), human()]), "receivers");
    assert_eq!(field(to_human(), vec![Receiver::new("").record(Memory::default())]), "receivers");
    assert_eq!(field(to_human(), vec![Receiver::new("human")]), "sinks");
    let gap = to_human().rule(When::any(), Route::new(["nobody"], "task"));
    assert_eq!(field(gap, vec![human()]), "to");
    let never = to_human()
        .rule(When::any().classes(tower_triage_core::ClassSet::NONE), Route::new(["human"], "t"));
    assert_eq!(field(never, vec![human()]), "classes");
}

#[tokio::test(start_paused = true)]
async fn kf60_to_wait_for_a_place_is_a_choice_with_an_end() {
    let sink = Memory::slow(SECOND);
    let policy = DeskPolicy::new().queue(1).workers(1).overflow(Overflow::Wait);
    let desk = desk_with(policy, Receiver::new("human").record(sink.clone()));
    let call = |id, wait| {
        let policy = EscalatePolicy::new().recording(Recording::Background).wait(wait);
        let mut service = EscalateLayer::new(classifier(), desk.clone())
            .policy(policy)
            .layer(always(|| Err(Broken(ErrorClass::Transient, "connection reset"))));
        async move {
            let before = Instant::now();
            fail(&mut service, Order::with_id(id)).await;
            before.elapsed()
        }
    };
    // The first is at work, the second has the only place, the third waits until it is free.
    assert_eq!(call("a", 2 * SECOND).await, Duration::ZERO, "nobody waits for the sink");
    tokio::task::yield_now().await;
    assert_eq!(call("b", 2 * SECOND).await, Duration::ZERO);
    assert_eq!(call("c", 2 * SECOND).await, SECOND);
    assert_eq!(call("d", SECOND / 2).await, SECOND / 2, "the wait is bounded");
    assert_eq!(desk.counts().dropped, 1, "and what is lost then is counted");
    desk.idle().await;
    let ids = sink.taken().into_iter().filter_map(|told| told.context.request_id);
    assert_eq!(ids.collect::<Vec<_>>(), ["a", "b", "c"]);
}
