//! A call that failed asks somebody, and does what they say.

mod common;

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Broken, Memory, Moody, Receipt, Shop, receipt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::incident::{StepKind, scope};
use tower_triage_core::{
    Classifier, Describe, ErrorClass, Halves, Incident, Label, Operation, OwnError, Resolution,
};
use tower_triage_escalate::store::{
    Change, Filter, LeaseRequest, Letter, LetterState, MemoryStore, Refused, Store, StoreError,
    StoreSink,
};
use tower_triage_escalate::{
    Asking, CaptureError, Captured, Choice, Codec, Decision, Desk, EscalateLayer, Receiver, Route,
    Routes,
};
use tower_triage_retry::RetryLayer;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The shop's orders, as text.
#[derive(Clone, Copy, Debug)]
struct Desks;

impl Describe<String> for Desks {
    fn operation(&self, _: &String) -> Operation {
        Operation::new("orders.create")
    }

    /// Some have an id of their own.
    fn request_id(&self, order: &String) -> Option<Label> {
        order.strip_prefix('#').map(Label::new)
    }
}

impl tower_triage_core::ClassifyResponse<Receipt> for Desks {
    fn response(&self, receipt: &Receipt) -> tower_triage_core::Verdict {
        Shop.response(receipt)
    }

    fn annotate(&self, receipt: &mut Receipt, note: &tower_triage_core::Note) -> bool {
        Shop.annotate(receipt, note)
    }
}

type Rules = Halves<Desks, OwnError>;
type Stack = BoxCloneService<String, Receipt, Broken>;

struct Plain;

impl Codec<String> for Plain {
    fn encode(&self, request: &String) -> Result<Captured, CaptureError> {
        Ok(Captured::new("plain", json!(request)))
    }

    fn decode(&self, captured: &Captured) -> Result<String, CaptureError> {
        Ok(captured.data.as_str().unwrap_or_default().to_owned())
    }
}

/// A shop that fails the first `failures` times, and what it was sent.
#[derive(Clone, Default)]
struct Backend {
    failures: u32,
    calls: Arc<AtomicU32>,
    sent: Arc<Mutex<Vec<String>>>,
}

impl Backend {
    fn failing(failures: u32) -> Self {
        Self { failures, ..Self::default() }
    }

    fn service(
        &self,
    ) -> impl Service<String, Response = Receipt, Error = Broken, Future: Send> + Clone + Send + use<>
    {
        let this = self.clone();
        service_fn(move |order: String| {
            let this = this.clone();
            async move {
                this.sent.lock().unwrap().push(order);
                match this.calls.fetch_add(1, Ordering::SeqCst) < this.failures {
                    true => Err(Broken(ErrorClass::Quota, "out of credit")),
                    false => Ok(receipt("done")),
                }
            }
        })
    }

    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

struct World {
    store: Arc<dyn Store>,
    first: Memory,
    second: Memory,
    desk: Desk,
}

impl World {
    fn over(store: Arc<dyn Store>) -> Self {
        let (first, second) = (Memory::default(), Memory::default());
        let receivers = [
            Receiver::new("store").record(StoreSink::new(store.clone())),
            Receiver::new("operator").notify(first.clone()),
            Receiver::new("boss").notify(second.clone()),
        ];
        let desk = Desk::new(Routes::new(Route::new(["store", "operator"], "decide")), receivers);
        Self { store, first, second, desk: desk.unwrap() }
    }

    fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new()))
    }

    fn layer(&self) -> EscalateLayer<Rules, tower_triage_escalate::KeepFailure, Broken> {
        let classifier = Classifier::new(Halves { response: Desks, error: OwnError });
        EscalateLayer::new(classifier, self.desk.clone()).from("shop")
    }

    fn asking(&self) -> Asking {
        Asking::new(self.store.clone()).deadline(10 * MINUTE)
    }

    /// Everything an answer can do.
    fn stack(&self, asking: Asking, backend: &Backend) -> Stack {
        let layer = self
            .layer()
            .ask(asking)
            .unwrap()
            .respond_with(|value: &Value, _| value.as_str().map(|_| receipt("by hand")))
            .retry_with(|order: String, change: &Value| {
                change.as_str().map(|change| format!("{order}, {change}"))
            })
            .capture(Plain);
        BoxCloneService::new(layer.layer(backend.service()))
    }

    async fn answer(&self, letter: &Letter, decision: Decision) -> Result<Letter, StoreError> {
        let (by, why) = ("ada".to_owned(), "because".to_owned());
        self.store.change(letter.id(), Change::Answered { decision, by, why }).await
    }

    /// The letters with an open question, once there are `n`.
    async fn questions(&self, n: usize) -> Vec<Letter> {
        loop {
            let page = self.store.list(Filter::any().asking(), None, 100).await.unwrap();
            if page.letters.len() == n {
                return page.letters;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn letter(&self) -> Letter {
        let page = self.store.list(Filter::any(), None, 100).await.unwrap();
        assert_eq!(page.letters.len(), 1);
        page.letters.into_iter().next().unwrap()
    }
}

type Ended = (Result<Receipt, Broken>, Option<Incident>);

fn call(stack: &Stack, order: &str) -> JoinHandle<Ended> {
    tokio::spawn(scope(stack.clone().oneshot(order.to_owned())))
}

async fn ended(
    call: impl Future<Output = Result<Ended, tokio::task::JoinError>>,
) -> (Result<&'static str, Broken>, Incident) {
    let (outcome, incident) = call.await.unwrap();
    (outcome.map(|receipt| receipt.text), incident.unwrap())
}

fn decided(incident: &Incident) -> Option<(&'static str, String)> {
    incident.steps.iter().find_map(|step| match &step.kind {
        StepKind::Decided { decision, by } => Some((*decision, by.clone())),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn to_respond_gives_the_caller_an_answer_and_the_letter_says_who_why_and_when() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let waiting = call(&world.stack(world.asking(), &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    let question = asked.escalation.question.as_ref().unwrap();
    assert!(question.accepts.retry && question.accepts.respond);
    assert_eq!(asked.escalation.to, ["store", "operator"]);
    assert_eq!(asked.escalation.task_type, "decide");
    assert_eq!(world.first.one().id, asked.id(), "the operator is told, with the question");
    assert!(world.first.one().question.is_some());
    world.answer(&asked, Decision::Respond(json!("by hand"))).await.unwrap();
    let (outcome, incident) = ended(waiting).await;
    assert_eq!(outcome, Ok("by hand"));
    assert_eq!(incident.resolution, Resolution::ForcedFinish, "it is marked");
    assert_eq!(decided(&incident), Some(("respond", "ada".to_owned())));
    let letter = world.letter().await;
    assert_eq!(letter.state, LetterState::Decided);
    let answer = letter.answer.unwrap();
    assert_eq!((answer.by.as_str(), answer.why.as_str()), ("ada", "because"));
    assert!(answer.at >= letter.stored);
    assert_eq!(backend.sent(), ["tea"], "nothing was sent again");
}

#[tokio::test(start_paused = true)]
async fn to_retry_sends_the_request_again_and_settles_the_letter() {
    for (decision, again) in
        [(Decision::Retry, "tea"), (Decision::RetryWith(json!("with milk")), "tea, with milk")]
    {
        let (world, backend) = (World::new(), Backend::failing(1));
        let waiting = call(&world.stack(world.asking(), &backend), "tea");
        let asked = world.questions(1).await.remove(0);
        let impact = &asked.escalation.impact;
        assert!(impact.starts_with("the caller waits for an answer"), "{impact}");
        world.answer(&asked, decision).await.unwrap();
        let (outcome, incident) = ended(waiting).await;
        assert_eq!(outcome, Ok("done"));
        assert_eq!(backend.sent(), ["tea", again]);
        assert_eq!(incident.resolution, Resolution::RecoveredByRetry);
        let letter = world.letter().await;
        assert_eq!((letter.state, letter.lease), (LetterState::Decided, None));
        assert_eq!(world.first.taken().len(), 1, "told once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_fails_leaves_the_letter_open_and_asks_no_second_time() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let waiting = call(&world.stack(world.asking(), &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    world.answer(&asked, Decision::Retry).await.unwrap();
    let (outcome, incident) = ended(waiting).await;
    assert_eq!(outcome, Err(Broken(ErrorClass::Quota, "out of credit")));
    assert_eq!((incident.resolution, incident.attempts), (Resolution::Escalated, 2));
    assert_eq!(backend.sent().len(), 2);
    let letter = world.letter().await;
    assert_eq!((letter.state, letter.lease.as_ref()), (LetterState::Open, None));
    // It is there for whoever drives letters again.
    let leased = world.store.lease(LeaseRequest::new("worker", 9).ids([letter.id()])).await;
    assert_eq!(leased.unwrap().len(), 0, "but not while the call may be at it");
    assert_eq!(letter.request.unwrap().data, json!("tea"));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_made_gives_the_failure_and_the_letter_back() {
    let (world, backend) = (World::new(), Backend::failing(1));
    let waiting = call(&world.stack(world.asking(), &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    world.answer(&asked, Decision::RetryWith(json!(17))).await.unwrap();
    let (outcome, _) = ended(waiting).await;
    assert_eq!(outcome, Err(Broken(ErrorClass::Quota, "out of credit")));
    let letter = world.letter().await;
    assert_eq!((letter.state, letter.lease, letter.tries), (LetterState::Open, None, 0));
}

#[tokio::test(start_paused = true)]
async fn to_abort_gives_the_failure_at_once_and_so_does_a_letter_that_is_discarded() {
    for discard in [false, true] {
        let (world, backend) = (World::new(), Backend::failing(9));
        let waiting = call(&world.stack(world.asking(), &backend), "tea");
        let asked = world.questions(1).await.remove(0);
        if discard {
            let change = Change::Discarded { by: "ada".into(), why: "enough".into() };
            world.store.change(asked.id(), change).await.unwrap();
        } else {
            world.answer(&asked, Decision::Abort).await.unwrap();
        }
        let before = Instant::now();
        let (outcome, incident) = ended(waiting).await;
        assert!(before.elapsed() < SECOND);
        assert!(outcome.is_err());
        assert_eq!(decided(&incident).unwrap().0, "abort");
        assert!(world.letter().await.state.is_settled());
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_deadline_decides_and_later_answers_are_refused() {
    for (on_timeout, expected) in [
        (Decision::Abort, None),
        (Decision::Respond(json!("x")), Some("by hand")),
        (Decision::Retry, Some("done")),
    ] {
        let (world, backend) = (World::new(), Backend::failing(1));
        let asking = world.asking().on_timeout(on_timeout.clone());
        let before = Instant::now();
        let (outcome, incident) = ended(call(&world.stack(asking, &backend), "tea")).await;
        assert!(before.elapsed() >= 10 * MINUTE && before.elapsed() < 11 * MINUTE);
        assert_eq!(outcome.ok(), expected);
        assert_eq!(decided(&incident), Some((on_timeout.as_str(), "the deadline".to_owned())));
        let letter = world.letter().await;
        let late = world.answer(&letter, Decision::Abort).await.unwrap_err();
        assert!(
            matches!(late, StoreError::Refused(_, Refused::Expired(_) | Refused::Settled(_))),
            "{late}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn levels_are_asked_one_after_the_other_and_the_last_until_the_deadline() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let asking = world.asking().level(["operator"], MINUTE).level(["boss"], MINUTE);
    let waiting = call(&world.stack(asking, &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    tokio::time::sleep(MINUTE - SECOND).await;
    assert!(world.second.taken().is_empty());
    assert_eq!(world.letter().await.level, 0);
    tokio::time::sleep(2 * SECOND).await;
    let told = world.second.one();
    assert_eq!((told.id, told.to.clone()), (asked.id(), vec!["boss".to_owned()]));
    let letter = world.letter().await;
    assert_eq!((letter.level, letter.escalation.to), (1, vec!["boss".to_owned()]));
    // The first level can answer as long as nobody has.
    tokio::time::sleep(5 * MINUTE).await;
    world.answer(&asked, Decision::Abort).await.unwrap();
    assert!(ended(waiting).await.0.is_err());
    let asked = world.first.taken().into_iter().filter(|told| told.resolved.is_none());
    assert_eq!(asked.count(), 1, "a receiver of both route and level is told once");
}

#[tokio::test(start_paused = true)]
async fn one_answer_wins_and_the_others_learn_which() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let waiting = call(&world.stack(world.asking(), &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    let respond = |n: u32| {
        let (store, id) = (world.store.clone(), asked.id());
        let (by, why) = (format!("person {n}"), String::new());
        let decision = Decision::Respond(json!("x"));
        tokio::spawn(async move { store.change(id, Change::Answered { decision, by, why }).await })
    };
    let (mut won, mut lost) = (Vec::new(), Vec::new());
    for answer in [respond(1), respond(2), respond(3)] {
        match answer.await.unwrap() {
            Ok(letter) => won.push(letter.answer.unwrap().by),
            Err(StoreError::Refused(_, Refused::Answered(answer))) => lost.push(answer.by),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((won.len(), lost.len()), (1, 2));
    assert!(lost.iter().all(|by| *by == won[0]), "{lost:?}");
    assert_eq!(decided(&ended(waiting).await.1).unwrap().1, won[0]);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_calls_wait_and_a_place_that_is_left_is_free() {
    let (world, backend) = (World::new(), Backend::failing(99));
    let stack = world.stack(world.asking().most(2), &backend);
    let (one, two) = (call(&stack, "1"), call(&stack, "2"));
    world.questions(2).await;
    let before = Instant::now();
    let (outcome, incident) = ended(call(&stack, "3")).await;
    assert!(
        outcome.is_err() && before.elapsed() < SECOND,
        "the third is told of, and does not wait"
    );
    assert_eq!((incident.resolution, decided(&incident)), (Resolution::Escalated, None));
    // A caller that gives up leaves its question with the record.
    one.abort();
    assert!(one.await.unwrap_err().is_cancelled());
    let four = call(&stack, "4");
    let asked = world.questions(3).await;
    let left = asked.iter().find(|letter| letter.request.as_ref().unwrap().data == json!("1"));
    let answered = world.answer(left.unwrap(), Decision::Retry).await.unwrap();
    assert_eq!(answered.answer.unwrap().decision, Decision::Retry);
    assert_eq!(answered.state, LetterState::Open, "for whoever drives letters again");
    two.abort();
    four.abort();
}

#[tokio::test(start_paused = true)]
async fn what_the_call_cannot_do_is_refused_to_whoever_answers() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let layer = world.layer().ask(world.asking()).unwrap();
    let stack = BoxCloneService::new(layer.layer(backend.service()));
    let waiting = call(&stack, "tea");
    let asked = world.questions(1).await.remove(0);
    for decision in [Decision::Retry, Decision::RetryWith(json!(1)), Decision::Respond(json!(1))] {
        let refused = world.answer(&asked, decision.clone()).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::Refused(_, Refused::NotAccepted(d)) if d == decision)
        );
    }
    world.answer(&asked, Decision::Abort).await.unwrap();
    assert!(ended(waiting).await.0.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_the_service_knows_can_be_put_to_the_question() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let layer = world.layer().ask(world.asking()).unwrap().enrich(|escalation| {
        if let Some(question) = &mut escalation.question {
            question.text = "Top up?".to_owned();
            let (label, decision) = ("no".to_owned(), Decision::Abort);
            question.options = vec![Choice { label, decision }];
        }
    });
    let stack = BoxCloneService::new(layer.layer(backend.service()));
    let waiting = call(&stack, "tea");
    let question = world.questions(1).await.remove(0).escalation.question.unwrap();
    assert_eq!((question.text.as_str(), question.options.len()), ("Top up?", 1));
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_asks_nobody_and_keeps_nobody_waiting() {
    let moody = Arc::new(Moody::default());
    moody.down.store(true, Ordering::SeqCst);
    for hangs in [false, true] {
        moody.hangs.store(hangs, Ordering::SeqCst);
        a_call_asks_nobody(World::over(moody.clone())).await;
    }
}

async fn a_call_asks_nobody(world: World) {
    let backend = Backend::failing(9);
    let before = Instant::now();
    let (outcome, incident) = ended(call(&world.stack(world.asking(), &backend), "tea")).await;
    assert!(outcome.is_err());
    assert!(before.elapsed() < 10 * SECOND, "{:?}", before.elapsed());
    assert_eq!(incident.resolution, Resolution::Escalated, "the operator was told");
    assert_eq!(world.first.one().question, None, "of a failure, not of a question");
    assert_eq!(decided(&incident), None);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_while_its_question_is_stored_is_told_of_all_the_same() {
    let moody = Arc::new(Moody::default());
    moody.hangs.store(true, Ordering::SeqCst);
    let (world, backend) = (World::over(moody), Backend::failing(9));
    let waiting = call(&world.stack(world.asking(), &backend), "tea");
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.first.taken().len(), 0);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.first.one().question, None, "the operator hears of it, and nobody waits");
}

#[tokio::test(start_paused = true)]
async fn some_classes_are_not_asked_about_and_neither_is_anything_below_another_layer() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let stack = world.stack(world.asking().classes(ErrorClass::Internal), &backend);
    let (_, incident) = ended(call(&stack, "tea")).await;
    assert_eq!((incident.resolution, decided(&incident)), (Resolution::Escalated, None));

    let below = world.layer().ask(world.asking()).unwrap();
    let classifier = Classifier::new(Halves { response: Desks, error: OwnError });
    let stack = RetryLayer::new(classifier).layer(below.layer(backend.service()));
    let before = Instant::now();
    let (outcome, incident) = scope(stack.oneshot("tea".to_owned())).await;
    assert!(outcome.is_err() && before.elapsed() < SECOND);
    assert_eq!(decided(&incident.unwrap()), None);
    world.desk.idle().await;
    assert_eq!(world.store.stats().await.unwrap().total, 2, "told of all the same");
}

#[tokio::test]
async fn what_cannot_work_does_not_build() {
    let world = World::new();
    let zero = Duration::ZERO;
    for (asking, field) in [
        (world.asking().deadline(zero), "deadline"),
        (world.asking().lease(zero), "lease"),
        (world.asking().most(0), "most"),
        (world.asking().level(["nobody"], SECOND), "level"),
        (world.asking().level([""; 0], SECOND), "level"),
        (world.asking().level(["boss"], zero), "level"),
    ] {
        assert_eq!(world.layer().ask(asking).unwrap_err().field(), field);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_asked_about_is_not_asked_about_twice() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let stack = world.stack(world.asking(), &backend);
    let first = call(&stack, "#7");
    let asked = world.questions(1).await.remove(0);
    let before = Instant::now();
    let (outcome, incident) = ended(call(&stack, "#7")).await;
    assert!(outcome.is_err() && before.elapsed() < SECOND);
    assert_eq!(decided(&incident), None);
    assert_eq!(world.letter().await.id(), asked.id(), "one letter");
    world.answer(&asked, Decision::Respond(json!("x"))).await.unwrap();
    assert_eq!(ended(first).await.0, Ok("by hand"));
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_sent_again() {
    let moody = Arc::new(Moody::default());
    let (world, backend) = (World::over(moody.clone()), Backend::failing(1));
    let waiting = call(&world.stack(world.asking(), &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    moody.down.store(true, Ordering::SeqCst);
    world.answer(&asked, Decision::Retry).await.unwrap();
    assert!(ended(waiting).await.0.is_err(), "a worker may be driving it again");
    assert_eq!(backend.sent(), ["tea"]);
    assert_eq!(world.letter().await.state, LetterState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_keeps_no_answer_from_its_caller() {
    let moody = Arc::new(Moody::default());
    let (world, backend) = (World::over(moody.clone()), Backend::failing(1));
    let waiting = call(&world.stack(world.asking(), &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    world.answer(&asked, Decision::Retry).await.unwrap();
    moody.hangs.store(true, Ordering::SeqCst);
    let before = Instant::now();
    assert_eq!(ended(waiting).await.0, Ok("done"));
    assert!(before.elapsed() < 5 * SECOND, "{:?}", before.elapsed());
    let letter = world.letter().await;
    assert_eq!(letter.state, LetterState::Open);
    assert!(letter.lease.is_some(), "its lease ends by itself: a second try, and no loss");

    // Nor beyond its deadline.
    let waiting = call(&world.stack(world.asking(), &Backend::failing(9)), "cake");
    moody.hangs.store(false, Ordering::SeqCst);
    world.questions(1).await;
    moody.hangs.store(true, Ordering::SeqCst);
    let before = Instant::now();
    assert!(ended(waiting).await.0.is_err());
    assert!(before.elapsed() < 10 * MINUTE + 10 * SECOND, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn spans_without_end_do_not_panic() {
    let (world, backend) = (World::new(), Backend::failing(9));
    let asking = world
        .asking()
        .deadline(Duration::MAX)
        .lease(Duration::MAX)
        .level(["operator"], Duration::MAX)
        .level(["boss"], Duration::MAX);
    let waiting = call(&world.stack(asking, &backend), "tea");
    let asked = world.questions(1).await.remove(0);
    world.answer(&asked, Decision::Retry).await.unwrap();
    assert!(ended(waiting).await.0.is_err(), "the request was sent again, and failed again");
    assert_eq!(backend.sent().len(), 2);
}
