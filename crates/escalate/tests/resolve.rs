//! When the trouble is over, people hear of it: once, with what they were not told yet.

mod common;

use std::time::Duration;

use common::{Broken, Memory, Order, always, classifier, desk_with, to_human};
use tower::{Layer, ServiceExt};
use tower_triage_core::{Backoff, ErrorClass, Fingerprint, Operation};
use tower_triage_escalate::{
    CloudEvent, Desk, DeskPolicy, EscalateLayer, EscalatePolicy, Escalation, Receiver,
};

const SECOND: Duration = Duration::from_secs(1);

fn policy() -> DeskPolicy {
    DeskPolicy::new().window(60 * SECOND).resolve_after(Some(300 * SECOND))
}

/// A desk whose person is `people`.
fn desk(people: &Memory) -> Desk {
    desk_with(policy(), Receiver::new("human").notify(people.clone()))
}

async fn fail(desk: &Desk) {
    let layer = EscalateLayer::new(classifier(), desk.clone())
        .policy(EscalatePolicy::new().wait(600 * SECOND));
    let service = layer.layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
    service.oneshot(Order::default()).await.unwrap_err();
}

/// Lets time pass, second by second, so that every task gets its turn.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn told(people: &Memory) -> Vec<(u64, bool)> {
    people.taken().iter().map(|it| (it.count, it.resolved.is_some())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_storm_that_ends_within_its_window_is_told_when_it_is_over() {
    let people = Memory::default();
    let desk = desk(&people);
    for _ in 0..1_000 {
        fail(&desk).await;
        pass(Duration::from_millis(10)).await;
    }
    pass(299 * SECOND).await;
    assert_eq!(told(&people), [(1, false)], "it may come back");
    pass(2 * SECOND).await;
    assert_eq!(told(&people), [(1, false), (999, true)]);
    assert_eq!((desk.counts().resolved, desk.counts().suppressed), (1, 999));
    pass(3600 * SECOND).await;
    assert_eq!(told(&people).len(), 2, "once");

    let [first, over] = &people.taken()[..] else { panic!("two") };
    assert_eq!((over.id, over.fingerprint), (first.id, first.fingerprint));
    let since = over.last_time.since(first.last_time);
    assert!(since >= 9 * SECOND && since <= 11 * SECOND, "the last failure was then: {since:?}");
    let quiet = over.resolved.unwrap().since(over.last_time);
    assert!(quiet >= 300 * SECOND && quiet < 301 * SECOND, "{quiet:?}");
    fail(&desk).await;
    assert_eq!(told(&people).last(), Some(&(1, false)), "a new trouble, told at once");
}

#[tokio::test(start_paused = true)]
async fn while_it_goes_on_it_is_not_over() {
    let people = Memory::default();
    let desk = desk(&people);
    for _ in 0..10 {
        fail(&desk).await;
        pass(200 * SECOND).await;
    }
    assert_eq!(told(&people), [(1, false); 10]);
    pass(101 * SECOND).await;
    assert_eq!(told(&people).last(), Some(&(0, true)), "everything was told already");
}

#[tokio::test(start_paused = true)]
async fn records_get_no_resolves_and_none_is_told_if_nobody_wants_to_know() {
    let (records, people) = (Memory::default(), Memory::default());
    let receiver = Receiver::new("human").record(records.clone()).notify(people.clone());
    let desk = desk_with(policy(), receiver);
    fail(&desk).await;
    pass(600 * SECOND).await;
    assert_eq!((records.taken().len(), told(&people)), (1, vec![(1, false), (0, true)]));

    let people = Memory::default();
    let receiver = Receiver::new("human").notify(people.clone());
    let desk = desk_with(policy().resolve_after(None), receiver);
    fail(&desk).await;
    pass(6000 * SECOND).await;
    assert_eq!(told(&people), [(1, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_resolve_that_fails_is_tried_again_and_then_given_up() {
    for (failures, resolved, lost) in [(2, 1, 0), (3, 0, 1)] {
        let people = Memory::default();
        let flaky = Flaky { people: people.clone(), resolves_fail: failures };
        let receiver = Receiver::new("human").notify(flaky.into_service());
        let desk = desk_with(policy().backoff(Backoff::immediate()), receiver);
        fail(&desk).await;
        pass(3600 * SECOND).await;
        let counts = desk.counts();
        assert_eq!((counts.resolved, counts.not_recorded), (resolved, lost));
        assert_eq!(told(&people).len() as u64, 1 + resolved);
        fail(&desk).await;
        assert_eq!(told(&people).last(), Some(&(1, false)), "and life goes on");
    }
}

/// People who do not answer the first few resolves.
struct Flaky {
    people: Memory,
    resolves_fail: usize,
}

impl Flaky {
    fn into_service(
        self,
    ) -> impl tower::Service<Escalation, Response = (), Error = std::io::Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(self.resolves_fail));
        let people = self.people;
        tower::service_fn(move |escalation: Escalation| {
            let (left, people) = (left.clone(), people.clone());
            async move {
                use std::sync::atomic::Ordering::SeqCst;
                let less = |n: usize| n.checked_sub(1);
                if escalation.resolved.is_some() && left.fetch_update(SeqCst, SeqCst, less).is_ok()
                {
                    return Err(std::io::Error::other("busy"));
                }
                people.oneshot(escalation).await
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn people_who_were_never_reached_are_not_told_that_it_is_over() {
    let people = Memory::failing(3);
    let desk = desk(&people);
    fail(&desk).await;
    pass(3600 * SECOND).await;
    assert_eq!((told(&people).len(), people.tries()), (0, 3));
}

/// The task that watches belongs to the desk, and ends with it or with the last trouble.
#[tokio::test(start_paused = true)]
async fn the_watch_ends_with_the_trouble_and_with_the_desk() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let people = Memory::default();
    let watched = desk(&people);
    assert_eq!(tasks(), 0, "nobody was told of anything");
    fail(&watched).await;
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 1);
    pass(301 * SECOND).await;
    assert_eq!(tasks(), 0);

    fail(&watched).await;
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 1);
    drop(watched);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 0, "at once, not when the time has passed");
    pass(3600 * SECOND).await;
    assert_eq!(told(&people).iter().filter(|(_, resolved)| *resolved).count(), 1);
}

#[test]
fn a_runtime_that_ends_leaves_the_watch_to_the_next() {
    let people = Memory::default();
    let desk = desk(&people);
    let run = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    run().block_on(fail(&desk));
    run().block_on(async {
        fail(&desk).await;
        pass(3600 * SECOND).await;
    });
    assert_eq!(told(&people).iter().filter(|(_, resolved)| *resolved).count(), 1);
}

/// Each receiver has troubles of its own, many at a time.
#[tokio::test(start_paused = true)]
async fn fifty_troubles_end_once_each() {
    let people = Memory::default();
    let desk = desk(&people);
    fail(&desk).await;
    let like = people.one();
    for _ in 0..10 {
        for n in 0..50 {
            let operation = Operation::new(&format!("op{n}"));
            let mut failure = like.clone();
            failure.fingerprint = Fingerprint::of(&operation, &like.class.into(), "");
            assert_eq!(desk.deliver(failure, SECOND).await.taken, 1);
        }
        pass(SECOND).await;
    }
    pass(600 * SECOND).await;
    let taken = people.taken();
    let ended = taken.iter().filter(|it| it.resolved.is_some());
    let mut ended: Vec<_> = ended.filter(|it| it.fingerprint != like.fingerprint).collect();
    assert!(ended.iter().all(|it| it.count == 9));
    ended.sort_by_key(|it| it.fingerprint);
    ended.dedup_by_key(|it| it.fingerprint);
    assert_eq!((ended.len(), taken.len()), (50, 102));
}

#[tokio::test(start_paused = true)]
async fn a_question_is_not_held_back_and_a_captured_request_reaches_no_people() {
    let people = Memory::default();
    let desk = desk(&people);
    fail(&desk).await;
    let mut again = people.one();
    let question = serde_json::json!({
        "text": "again?", "deadline": "2030-01-01T00:00:00.000Z", "on_timeout": "abort",
    });
    again.question = Some(serde_json::from_value(question).unwrap());
    let captured = tower_triage_escalate::Captured::new("json", "card 4111".into());
    again.request = Some(std::sync::Arc::new(captured));
    let delivered = desk.deliver(again.clone(), SECOND).await;
    assert_eq!((delivered.taken, told(&people).len()), (1, 2));
    assert!(people.taken().iter().all(|it| it.request.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_resolve_is_an_event_of_its_own_type_and_id() {
    let people = Memory::default();
    let desk = desk(&people);
    fail(&desk).await;
    pass(301 * SECOND).await;
    let [first, over] = &people.taken()[..] else { panic!("two") };
    let json = |it: &Escalation| serde_json::to_value(CloudEvent::new(it)).unwrap();
    let (first, over) = (json(first), json(over));
    assert_eq!(first["type"], CloudEvent::TYPE);
    assert_eq!(over["type"], "io.github.tower-triage.escalation.resolved.v1");
    assert_eq!(over["id"], format!("{}.resolved", first["id"].as_str().unwrap()));
    assert_eq!(over["time"], over["data"]["resolved"]);
    assert!(first["data"].get("resolved").is_none());
}

#[test]
fn what_cannot_work_does_not_build() {
    let none = policy().resolve_after(Some(Duration::ZERO));
    let receiver = Receiver::new("human").notify(Memory::default());
    let error = Desk::with_policy(none, to_human(), [receiver]).unwrap_err();
    assert_eq!(error.field(), "resolve_after");
}
