//! When the layer acts, and what the caller and the incident get.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::{Broken, Memory, Order, Receipt, Script, classifier, desk, receipt, shop, to_human};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::{ErrorClass, EscalateWhen, Resolution, incident};
use tower_triage_escalate::{Desk, EscalateLayer, EscalatePolicy, Outcome, Priority, Receiver};
use tower_triage_test_support::Seen;

const DOWN: Script = || Err(Broken(ErrorClass::Transient, "connection reset"));
const DENIED: Script = || Err(Broken(ErrorClass::Permanent, "no such order"));
const DEFECT: Script = || Err(Broken(ErrorClass::Internal, "index out of bounds"));
const FINE: Script = || Ok(receipt("fine"));

#[tokio::test]
async fn a_failure_that_escalates_is_told_and_returned_as_it_was() {
    let (sink, classifier, seen) = (Memory::default(), classifier(), Seen::default());
    classifier.observe(seen.clone());
    let layer = EscalateLayer::new(classifier, desk(&sink)).from("shop");
    let error = layer.layer(shop([DOWN])).oneshot(Order::with_id("r-1")).await.unwrap_err();
    assert_eq!(error, Broken(ErrorClass::Transient, "connection reset"));
    let told = sink.one();
    assert_eq!((told.from.as_str(), told.to), ("shop", vec!["human".to_owned()]));
    assert_eq!((told.outcome, told.class), (Outcome::Failed, ErrorClass::Transient));
    let incident = seen.last();
    assert_eq!(incident.resolution, Resolution::Escalated);
    assert_eq!(told.id, incident.id);
    assert_eq!(seen.outcomes(), ["failed", "escalated"]);
}

#[tokio::test]
async fn success_and_definite_answers_are_nobodys_business() {
    let sink = Memory::default();
    let mut service = EscalateLayer::new(classifier(), desk(&sink)).layer(shop([FINE, DENIED]));
    assert!(service.ready().await.unwrap().call(Order::default()).await.is_ok());
    assert!(service.ready().await.unwrap().call(Order::default()).await.is_err());
    assert_eq!(sink.tries(), 0);
}

#[tokio::test]
async fn the_policy_has_the_last_word_on_classes() {
    let sink = Memory::default();
    let policy = EscalatePolicy::new()
        .when(ErrorClass::Permanent, EscalateWhen::OnExhaustion)
        .when(ErrorClass::Transient, EscalateWhen::Never);
    let layer = EscalateLayer::new(classifier(), desk(&sink)).policy(policy);
    let mut service = layer.layer(shop([DOWN, DENIED]));
    for _ in 0..2 {
        let _ = service.ready().await.unwrap().call(Order::default()).await;
    }
    assert_eq!(sink.one().class, ErrorClass::Permanent);
}

#[tokio::test(start_paused = true)]
async fn kf53_a_failed_write_is_not_swallowed() {
    let (sink, classifier, seen) = (Memory::failing(usize::MAX), classifier(), Seen::default());
    classifier.observe(seen.clone());
    let desk = desk(&sink);
    let patient = EscalatePolicy::new().wait(Duration::from_secs(3600));
    let layer = EscalateLayer::new(classifier, desk.clone()).policy(patient);
    let error = layer.layer(shop([DOWN])).oneshot(Order::default()).await.unwrap_err();
    assert_eq!(error.1, "connection reset");
    assert_eq!(sink.tries(), 3, "bounded");
    let incident = seen.last();
    assert!(incident.not_recorded);
    assert_eq!(incident.resolution, Resolution::Failed, "never reported as escalated");
    assert_eq!((desk.counts().not_recorded, desk.counts().delivered), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn kf53_the_next_sink_takes_over() {
    let (broken, spare, seen) = (Memory::failing(usize::MAX), Memory::default(), Seen::default());
    let receiver = Receiver::new("human").record(broken.clone()).record(spare.clone());
    let classifier = classifier();
    classifier.observe(seen.clone());
    let layer = EscalateLayer::new(classifier, Desk::new(to_human(), [receiver]).unwrap())
        .policy(EscalatePolicy::new().wait(Duration::from_secs(3600)));
    layer.layer(shop([DOWN])).oneshot(Order::default()).await.unwrap_err();
    assert_eq!(broken.tries(), 3);
    assert_eq!(spare.one().class, ErrorClass::Transient);
    assert_eq!(seen.last().resolution, Resolution::Escalated);
}

#[tokio::test]
async fn a_forced_finish_is_an_answer_that_says_so() {
    let (sink, classifier, seen) = (Memory::default(), classifier(), Seen::default());
    classifier.observe(seen.clone());
    let layer = EscalateLayer::new(classifier, desk(&sink)).finish_with(
        |failed: tower_triage_escalate::Failed<'_, Receipt, Broken>| {
            assert_eq!(failed.incident.attempts, 1);
            assert!(failed.outcome.is_err_and(|error| error.1 != "no such order"));
            (failed.failure.class == ErrorClass::Transient).then(|| receipt("partial"))
        },
    );
    let mut service = layer.layer(shop([DOWN, DEFECT, DENIED]));
    let answer = service.ready().await.unwrap().call(Order::default()).await.unwrap();
    assert_eq!((answer.text, answer.notes.forced_finish), ("partial", Some(ErrorClass::Transient)));
    assert_eq!(answer.notes.incident.unwrap().resolution, Resolution::ForcedFinish);
    assert_eq!(sink.one().outcome, Outcome::Forced);
    assert_eq!(seen.outcomes(), ["failed", "escalated", "forced_finish"]);
    assert_eq!(seen.last().resolution, Resolution::ForcedFinish);
    // `None` leaves the failure, and what does not escalate is not finished.
    for text in ["index out of bounds", "no such order"] {
        let error = service.ready().await.unwrap().call(Order::default()).await.unwrap_err();
        assert_eq!(error.1, text);
    }
}

#[tokio::test]
async fn what_the_user_knows_is_added_before_it_is_addressed() {
    let sink = Memory::default();
    let routes = to_human().rule(
        tower_triage_escalate::When::any().priority(Priority::Critical),
        tower_triage_escalate::Route::new(["human"], "wake_up"),
    );
    let desk = Desk::new(routes, [Receiver::new("human").record(sink.clone())]).unwrap();
    let layer = EscalateLayer::new(classifier(), desk).enrich(|escalation| {
        escalation.context.fields.insert("region".into(), "eu".into());
        escalation.priority = Priority::Critical;
    });
    layer.layer(shop([DOWN])).oneshot(Order::default()).await.unwrap_err();
    let told = sink.one();
    assert_eq!(told.context.fields["region"], "eu");
    assert_eq!(told.task_type, "wake_up");
}

/// The matrix of a team of agents: who failed decides who hears of it, and as what.
#[tokio::test]
async fn the_matrix_sends_each_failure_to_whom_it_concerns() {
    use tower_triage_escalate::{Route, Routes, When};
    let both = ["orchestrator", "human"];
    let routes = Routes::new(Route::new(["human"], "human_required"))
        .rule(When::from("client"), Route::new(["orchestrator"], "client_issue"))
        .rule(When::from("worker-*"), Route::new(["orchestrator"], "task_blocked"))
        .rule(When::from("validator"), Route::new(["auditor"], "security_finding"))
        .rule(When::from("auditor"), Route::new(both, "critical_vulnerability"))
        .rule(When::from("infrastructure"), Route::new(both, "infra_failure"));
    let (orchestrator, human, auditor) = (Memory::default(), Memory::default(), Memory::default());
    let desk = Desk::new(
        routes,
        [
            Receiver::new("orchestrator").record(orchestrator.clone()),
            Receiver::new("human").record(human.clone()),
            Receiver::new("auditor").record(auditor.clone()),
        ],
    )
    .unwrap();
    for who in ["client", "worker-3", "orchestrator", "validator", "auditor", "infrastructure"] {
        let layer = EscalateLayer::new(classifier(), desk.clone()).from(who);
        layer.layer(shop([DOWN])).oneshot(Order::default()).await.unwrap_err();
    }
    let tasks =
        |sink: &Memory| sink.taken().into_iter().map(|told| told.task_type).collect::<Vec<_>>();
    assert_eq!(
        tasks(&orchestrator),
        ["client_issue", "task_blocked", "critical_vulnerability", "infra_failure"]
    );
    assert_eq!(tasks(&human), ["human_required", "critical_vulnerability", "infra_failure"]);
    assert_eq!(tasks(&auditor), ["security_finding"]);
    assert_eq!(human.taken()[2].to, both);
}

#[tokio::test]
async fn a_call_that_is_dropped_while_somebody_is_told_loses_nothing() {
    let sink = Memory::slow(Duration::from_millis(1));
    let desk = desk(&sink);
    let mut service = EscalateLayer::new(classifier(), desk.clone()).layer(shop([DOWN]));
    let mut call = tokio_test::task::spawn(service.call(Order::default()));
    assert!(call.poll().is_pending());
    assert_eq!(sink.tries(), 1, "the delivery is under way");
    drop(call);
    desk.idle().await;
    assert_eq!(sink.one().class, ErrorClass::Transient);
    assert_eq!(sink.tries(), 1, "it went on; it did not begin again");
}

#[tokio::test]
async fn an_abandoned_call_is_neutral_unless_it_met_what_must_be_told_at_once() {
    for (class, told) in [(ErrorClass::Transient, 0), (ErrorClass::Internal, 1)] {
        let sink = Memory::default();
        let (desk, classifier) = (desk(&sink), classifier());
        let inner = Stuck { classifier: classifier.clone(), class };
        let mut service = EscalateLayer::new(classifier, desk.clone()).layer(inner);
        let mut call = tokio_test::task::spawn(service.call(Order::default()));
        assert!(call.poll().is_pending());
        drop(call);
        desk.idle().await;
        let outcomes = sink.taken().into_iter().map(|told| told.outcome).collect::<Vec<_>>();
        assert_eq!(outcomes, vec![Outcome::Abandoned; told]);
    }
}

/// `enrich` runs from the drop of the call, here even while a panic of the inner service unwinds:
/// a second panic that got out would abort the process.
#[tokio::test]
async fn a_panic_in_enrich_stays_in_the_escalation() {
    for inner_panics in [false, true] {
        let sink = Memory::default();
        let (desk, classifier) = (desk(&sink), classifier());
        let mut service = EscalateLayer::new(classifier.clone(), desk.clone())
            .enrich(|escalation| {
                escalation.summary = "half done".into();
                panic!("enrich");
            })
            .layer(Stuck { classifier, class: ErrorClass::Internal });
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            let mut call = tokio_test::task::spawn(service.call(Order::default()));
            assert!(call.poll().is_pending());
            assert!(!inner_panics, "the inner service");
        }));
        assert_eq!(dropped.is_err(), inner_panics);
        desk.idle().await;
        assert_eq!(sink.one().outcome, Outcome::Abandoned);
        assert_eq!(sink.one().summary, "half done", "it goes on as it is");
    }
}

/// Notes a failure, as a layer of ours does, and then never answers.
struct Stuck {
    classifier: tower_triage_core::Classifier<common::Rules>,
    class: ErrorClass,
}

impl Service<Order> for Stuck {
    type Response = Receipt;
    type Error = Broken;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Receipt, Broken>>>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Broken>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Order) -> Self::Future {
        let (classifier, class) = (self.classifier.clone(), self.class);
        Box::pin(async move {
            classifier.note_failure::<Receipt, Broken>(
                &tower_triage_core::Operation::new("orders.create"),
                tower_triage_core::LayerKind::Retry,
                class.into(),
                Err(&Broken(class, "broken")),
            );
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_readiness_error_is_the_outcome_of_the_next_call() {
    let sink = Memory::default();
    let mut service = EscalateLayer::new(classifier(), desk(&sink)).layer(Unready(1));
    service.ready().await.unwrap();
    // Asked again, it is still what it was: the inner service is left alone.
    let error = service.ready().await.unwrap().call(Order::with_id("r-1")).await.unwrap_err();
    assert_eq!(error.1, "not ready");
    assert_eq!(sink.one().context.request_id.as_deref(), Some("r-1"));
    assert_eq!(service.ready().await.unwrap().call(Order::default()).await.unwrap().text, "ok");
    // What was held belongs to the instance that was polled.
    let mut held = EscalateLayer::new(classifier(), desk(&sink)).layer(Unready(1));
    held.ready().await.unwrap();
    let mut clone = held.clone();
    assert!(clone.ready().await.unwrap().call(Order::default()).await.is_ok());
    assert!(held.call(Order::default()).await.is_err());
}

#[derive(Clone)]
struct Unready(u32);

impl Service<Order> for Unready {
    type Response = Receipt;
    type Error = Broken;
    type Future = std::future::Ready<Result<Receipt, Broken>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Broken>> {
        std::task::Poll::Ready(match std::mem::take(&mut self.0) {
            0 => Ok(()),
            _ => Err(Broken(ErrorClass::Transient, "not ready")),
        })
    }

    fn call(&mut self, _: Order) -> Self::Future {
        assert_eq!(self.0, 0, "called although its readiness failed");
        std::future::ready(Ok(receipt("ok")))
    }
}

#[tokio::test]
async fn a_breaker_that_opens_is_told_of_whatever_becomes_of_the_call() {
    let (sink, classifier) = (Memory::default(), classifier());
    let opening = {
        let classifier = classifier.clone();
        service_fn(move |_: Order| {
            let classifier = classifier.clone();
            async move {
                let operation = tower_triage_core::Operation::new("orders.create");
                let failed = Broken(ErrorClass::Permanent, "gone");
                let layer = tower_triage_core::LayerKind::CircuitBreaker;
                let verdict = ErrorClass::Permanent.into();
                classifier.note_failure::<Receipt, _>(&operation, layer, verdict, Err(&failed));
                let breaker = tower_triage_core::Label::new("db");
                let open_for = Duration::from_secs(30);
                let opened = tower_triage_core::StepKind::CircuitOpened { breaker, open_for };
                classifier.step(&operation, layer, opened);
                Err::<Receipt, _>(failed)
            }
        })
    };
    let layer = EscalateLayer::new(classifier, desk(&sink)).finish_with(
        |_: tower_triage_escalate::Failed<'_, Receipt, Broken>| Some(receipt("made up")),
    );
    let answer = layer.layer(opening).oneshot(Order::default()).await;
    assert!(answer.is_err(), "a definite answer stays what it is");
    let told = sink.one();
    assert_eq!(told.priority, Priority::High);
    assert!(told.impact.contains("breaker `db`"), "{}", told.impact);
}

/// Two of these layers around one call: one logical request, one escalation.
#[tokio::test]
async fn two_layers_tell_once() {
    for line in [DOWN, DEFECT] {
        let (sink, classifier) = (Memory::default(), classifier());
        let desk = desk(&sink);
        let inner = EscalateLayer::new(classifier.clone(), desk.clone()).from("inner");
        let outer = EscalateLayer::new(classifier, desk.clone()).from("outer");
        outer.layer(inner.layer(shop([line]))).oneshot(Order::default()).await.unwrap_err();
        desk.idle().await;
        assert_eq!(sink.one().from, "outer");
    }
}

/// A handler that calls a client of its own: two calls, two stories.
#[tokio::test]
async fn a_call_made_inside_is_a_call_of_its_own() {
    let (sink, classifier) = (Memory::default(), classifier());
    let desk = desk(&sink);
    let client =
        EscalateLayer::new(classifier.clone(), desk.clone()).from("client").layer(shop([DEFECT]));
    let handler = service_fn(move |_: Order| {
        let client = client.clone();
        async move {
            let _ = client.oneshot(Order::default()).await;
            Ok::<_, Broken>(receipt("made do"))
        }
    });
    let server = EscalateLayer::new(classifier, desk.clone()).from("server").layer(handler);
    let (answer, story) = incident::scope(server.oneshot(Order::default())).await;
    assert_eq!(answer.unwrap().text, "made do");
    assert_eq!(sink.one().from, "client", "the server met nothing that it has to tell");
    assert_eq!(story.unwrap().resolution, Resolution::Succeeded);
}

/// Nothing in these types is boxed, nothing mentions a `dyn Error`: it can be spawned.
#[tokio::test]
async fn the_stack_is_spawnable() {
    let sink = Memory::default();
    let layer = EscalateLayer::new(
        tower_triage_core::Classifier::new(tower_triage_core::Halves {
            response: tower_triage_core::AnyOk,
            error: tower_triage_core::Chain,
        }),
        desk(&sink),
    );
    let service = layer
        .enrich(|_| {})
        .finish_with(|_: tower_triage_escalate::Failed<'_, u32, tower_triage_core::AnyError>| None)
        .layer(service_fn(|n: u32| async move {
            Err::<u32, _>(tower_triage_core::AnyError::msg(n.to_string()))
        }));
    let error = tokio::spawn(async move { service.oneshot(1).await }).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "1");
    assert_eq!(error.incident().unwrap().resolution, Resolution::Escalated);
}
