//! Which layers belong to one call, and where their steps go.

mod common;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Seen, Watch, classifier, failing, until};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::incident::{self, Deferred, Handover, Incident, Scope};
use tower_triage_core::{
    AnyError, CircuitOpen, ErrorClass, Label, LayerKind, Operation, Resolution, StepKind,
};

#[tokio::test]
async fn layers_of_one_call_share_one_incident_and_count_an_outcome_once() {
    let (classifier, seen) = classifier();
    let mut stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier))
        .map_request(|request: u32| request + 1)
        .layer(Watch::new(&classifier))
        .layer(Watch::new(&classifier))
        .service(failing());
    let error = stack.ready().await.unwrap().call(1).await.unwrap_err();

    assert_eq!(classifier.count(ErrorClass::Transient), 1, "three layers saw one outcome");
    let incidents = seen.incidents();
    assert_eq!(incidents.len(), 1);
    assert_eq!(incidents[0].attempts, 1);
    assert_eq!(incidents[0].resolution, Resolution::Failed);
    assert_eq!(incidents[0].steps.len(), 1);
    // What the error can carry, it carries.
    assert_eq!(error.incident().unwrap().id, incidents[0].id);
}

#[tokio::test]
async fn a_call_without_a_failure_leaves_no_incident() {
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier))
        .layer(Watch::new(&classifier))
        .service(service_fn(|n: u32| async move { Ok::<_, AnyError>(n) }));
    let (answer, incident) = incident::scope(stack.oneshot(7)).await;
    assert_eq!(answer.unwrap(), 7);
    assert!(incident.is_none());
    assert!(seen.incidents().is_empty());
}

/// A handler that tolerates a failed client call is itself a success, and would be retried if it
/// failed: the client's marks stay with the client's call, its steps do not get lost.
#[tokio::test]
async fn a_clients_call_inside_a_handler_is_a_call_of_its_own() {
    let (server, server_seen) = classifier();
    let (client, client_seen) = classifier();
    let handler = {
        let client = client.clone();
        service_fn(move |n: u32| {
            let call = ServiceBuilder::new().layer(Watch::new(&client)).service(failing());
            async move {
                let tolerated = call.oneshot(n).await.is_err();
                assert!(tolerated);
                assert!(!incident::exhausted_below(), "marks do not go up");
                Ok::<_, AnyError>(n)
            }
        })
    };
    let stack = ServiceBuilder::new().layer(Watch::new(&server)).service(handler);
    stack.oneshot(1).await.unwrap();

    assert_eq!(client_seen.incidents().len(), 1, "the nested call's own, and only that");
    assert_eq!(client_seen.incidents()[0].resolution, Resolution::Failed);
    let above = server_seen.incidents();
    assert_eq!(above.len(), 1);
    assert_eq!(above[0].resolution, Resolution::Succeeded);
    assert!(above[0].steps.iter().all(|step| step.nested));
    assert_eq!(server.count(ErrorClass::Transient), 0);
}

/// `Buffer` calls in its worker: a call of its own there, and nothing is recorded in `call`.
#[tokio::test]
async fn behind_a_buffer_is_a_call_of_its_own() {
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier))
        .map_err(AnyError::from_boxed)
        .buffer(4)
        .layer(Watch::new(&classifier))
        .service(failing());
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(seen.incidents().len(), 2);
}

/// A layer in between may run the call elsewhere; its steps must not vanish.
#[tokio::test]
async fn a_member_that_is_polled_in_another_task_becomes_a_call_of_its_own() {
    let (classifier, seen) = classifier();
    let inner = ServiceBuilder::new().layer(Watch::new(&classifier)).service(failing());
    let spawning = service_fn(move |n: u32| {
        let task = tokio::spawn(inner.clone().call(n));
        async move { task.await.unwrap() }
    });
    let stack = ServiceBuilder::new().layer(Watch::new(&classifier)).service(spawning);
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(seen.incidents().len(), 2);
}

#[tokio::test]
async fn a_dropped_call_ends_as_abandoned() {
    let (classifier, seen) = classifier();
    let fail_then_hang = service_fn(|_: u32| std::future::pending::<Result<u32, AnyError>>());
    let mut stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier).step_on_pending())
        .service(fail_then_hang);
    let mut call = Box::pin(stack.call(1));
    assert!(pending_once(&mut call).await);
    drop(call);
    assert_eq!(seen.incidents()[0].resolution, Resolution::Abandoned);
}

/// Polls once; was it pending?
async fn pending_once<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
    })
    .await
}

#[tokio::test]
async fn an_observer_that_panics_harms_nobody() {
    let (classifier, _) = classifier();
    classifier.observe(common::Panics);
    let (later, seen) = (classifier.clone(), Seen::default());
    later.observe(seen.clone());
    let stack = ServiceBuilder::new().layer(Watch::new(&classifier)).service(failing());
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(seen.incidents().len(), 1, "the observers after it are told too");
}

#[tokio::test]
async fn a_panic_below_leaves_no_scope_behind() {
    let (classifier, seen) = classifier();
    let panics = service_fn(|n: u32| async move {
        assert!(n > 1, "on purpose");
        Ok::<_, AnyError>(n)
    });
    let mut stack = ServiceBuilder::new().layer(Watch::new(&classifier)).service(panics);
    let call = stack.call(1);
    let caught = tokio::spawn(AssertUnwindSafe(call)).await;
    assert!(caught.unwrap_err().is_panic());
    // On the same thread the next call is a call of its own, without steps of the last.
    assert!(incident::snapshot().is_none());
    stack.call(2).await.unwrap();
    assert!(seen.incidents().is_empty());
}

#[tokio::test]
async fn what_runs_detached_writes_nothing_into_the_incident() {
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new().layer(Watch::new(&classifier)).service(failing());
    let sink = stack.clone();
    let mut outer =
        ServiceBuilder::new().layer(Watch::new(&classifier)).service(service_fn(move |n: u32| {
            let sink = sink.clone();
            async move {
                incident::detached(sink.oneshot(n)).await.unwrap_err();
                Err::<u32, AnyError>(AnyError::msg("own failure"))
            }
        }));
    outer.call(1).await.unwrap_err();
    let incidents = seen.incidents();
    assert_eq!(incidents.len(), 2);
    assert_eq!(incidents[1].steps.len(), 1, "only its own failure: {:?}", incidents[1].steps);
}

#[tokio::test]
async fn a_callers_scope_gives_the_calls_own_incident() {
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new().layer(Watch::new(&classifier)).service(failing());
    let (answer, incident) = incident::scope(stack.clone().oneshot(1)).await;
    answer.unwrap_err();
    let incident = incident.unwrap();
    assert_eq!(incident.id, seen.incidents()[0].id);
    assert_eq!(incident.resolution, Resolution::Failed);
    assert!(incident.steps.iter().all(|step| !step.nested));
    assert_eq!(seen.incidents().len(), 1, "the caller's scope is nobody's call");

    let both = async {
        stack.clone().oneshot(1).await.unwrap_err();
        stack.clone().oneshot(2).await.unwrap_err();
    };
    let (_, merged) = incident::scope(both).await;
    assert_eq!(merged.unwrap().attempts, 2);
}

/// What was written into a caller's scope by itself is no call's: dropped or not, nobody is told.
#[tokio::test]
async fn a_callers_scope_that_is_dropped_reports_nothing() {
    let (classifier, seen) = classifier();
    let step = || {
        let kind = StepKind::Nudged { attempt: 1 };
        classifier.step(&Operation::EMPTY, LayerKind::Retry, kind);
    };
    let mut scope = Box::pin(incident::scope(async {
        step();
        std::future::pending::<()>().await;
    }));
    assert!(pending_once(&mut scope).await);
    drop(scope);
    let (_, incident) = incident::scope(async { step() }).await;
    assert_eq!(incident.unwrap().steps.len(), 1);
    assert_eq!((seen.labels().len(), seen.incidents().len()), (2, 0));
}

/// What a breaker says of an outcome is told to the layers above, and goes where the outcome goes.
#[tokio::test]
async fn what_a_breaker_says_goes_with_the_outcome() {
    let (classifier, seen) = classifier();
    let (second, op) = (std::time::Duration::from_secs(1), Operation::EMPTY);
    let breaker = Label::new("orders");
    incident::scope(async {
        assert!(!incident::has_begun() && !incident::rejected_below());
        let open = CircuitOpen::new(breaker, second);
        classifier.note_rejection(&op, LayerKind::CircuitBreaker, &open);
        assert!(incident::has_begun() && incident::rejected_below());
        let aside = incident::next_attempt();
        assert!(!incident::rejected_below());
        aside.restore();
        assert!(incident::rejected_below() && !incident::circuit_opened());

        let kind = StepKind::CircuitOpened { breaker, open_for: second };
        classifier.step(&op, LayerKind::CircuitBreaker, kind);
        incident::mark_blocked(second);
        assert!(incident::circuit_opened());
        assert_eq!(incident::blocked_below(), Some(second));
        drop(incident::next_attempt());
        assert_eq!(incident::blocked_below(), None);
        assert!(incident::circuit_opened(), "that stays true of the call");
    })
    .await;
    assert!(seen.labels().iter().all(|labels| labels.name == breaker));
    assert_eq!(classifier.count(ErrorClass::Rejected), 1);
}

/// The first layer that asks owns the call, and those inside are its members.
#[test]
fn the_outermost_layer_owns_the_call() {
    let mut outer = Scope::join();
    let mut inner = incident::calling(Scope::join);
    assert!(outer.is_owner() && !inner.is_owner());
    let entered = outer.enter();
    assert!(entered.is_owner() && !inner.enter().is_owner());
}

#[tokio::test]
async fn an_incident_stays_bounded() {
    let (classifier, seen) = classifier();
    let mut stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier))
        .layer(Watch::new(&classifier).failures(10_000))
        .service(failing());
    stack.call(1).await.unwrap_err();
    let incident = &seen.incidents()[0];
    assert!(incident.steps.len() <= Incident::MAX_STEPS);
    assert_eq!(incident.attempts, 10_000);
    assert_eq!(incident.collapsed as usize + incident.steps.len(), 10_000);
    let StepKind::Failed { attempt, .. } = incident.steps.last().unwrap().kind else { panic!() };
    assert_eq!(attempt, 10_000, "the newest are kept");
}

struct Letter(bool, &'static AtomicBool);

impl Deferred for Letter {
    fn urgent(&self) -> bool {
        self.0
    }
    fn run(self: Box<Self>, _: &Incident) -> Handover {
        self.1.store(true, Ordering::Relaxed);
        Handover::Told(1)
    }
}

#[tokio::test]
async fn deferred_work_runs_if_the_call_fails_and_is_withdrawn_if_it_goes_on() {
    static SENT: AtomicBool = AtomicBool::new(false);
    let run = |urgent: bool, withdraw: bool, fail: bool| async move {
        SENT.store(false, Ordering::Relaxed);
        let (classifier, _) = classifier();
        let mut stack = ServiceBuilder::new()
            .layer(Watch::new(&classifier).after(move || {
                incident::defer(Box::new(Letter(urgent, &SENT))).ok().unwrap();
                assert_eq!(incident::urgent_left(), urgent);
                if withdraw {
                    drop(incident::next_attempt());
                }
            }))
            .map_result(move |r: Result<u32, AnyError>| if fail { r } else { Ok(r.unwrap_or(0)) })
            .service(failing());
        let _ = stack.call(1).await;
        SENT.load(Ordering::Relaxed)
    };
    assert!(run(false, false, true).await);
    assert!(!run(false, true, true).await, "withdrawn by the next attempt");
    assert!(run(true, true, true).await, "urgent work stays");
    // Without any failure there is nothing to attach it to.
    assert!(incident::defer(Box::new(Letter(true, &SENT))).is_err());
}

/// A caller learns that an escalation got lost, also if another call follows that lost none.
#[tokio::test]
async fn a_lost_escalation_is_known_to_the_callers_scope() {
    struct Lost;
    impl Deferred for Lost {
        fn urgent(&self) -> bool {
            false
        }
        fn run(self: Box<Self>, _: &Incident) -> Handover {
            Handover::Lost
        }
    }
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new().layer(Watch::new(&classifier)).service(failing());
    let losing = ServiceBuilder::new()
        .layer(Watch::new(&classifier).after(|| incident::defer(Box::new(Lost)).ok().unwrap()))
        .service(failing());
    let calls = async {
        losing.oneshot(1).await.unwrap_err();
        stack.oneshot(2).await.unwrap_err();
    };
    let (_, incident) = incident::scope(calls).await;
    assert!(incident.unwrap().not_recorded);
    let each: Vec<_> = seen.incidents().iter().map(|incident| incident.not_recorded).collect();
    assert_eq!(each, [true, false]);
}

/// Two threads at once: a scope belongs to the call, not to the thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_two_threads_do_not_mix() {
    let (classifier, seen) = classifier();
    let stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier))
        .layer(Watch::new(&classifier))
        .service(service_fn(|n: u32| async move {
            for _ in 0..n % 5 {
                tokio::task::yield_now().await;
            }
            if n % 3 == 0 { Ok(n) } else { Err(AnyError::msg("no")) }
        }));
    let calls: Vec<_> = (0..300).map(|n| tokio::spawn(stack.clone().oneshot(n))).collect();
    for call in calls {
        let _ = call.await.unwrap();
    }
    until(|| seen.incidents().len() == 200).await;
    assert!(seen.incidents().iter().all(|i| i.steps.len() == 1 && i.attempts == 1));
    assert_eq!(classifier.count(ErrorClass::Unknown), 200);
}
