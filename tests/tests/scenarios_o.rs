//! The rows of the orchestrator, one test each, over the preset `orchestrator`: what a row asks for is
//! configured or a small closure.

mod scenarios;

use std::future::{Future, pending};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scenarios::{
    Answer, Fails, Line, Outcome, Rules, Says, Task, Trouble, Worker, World, answer, fails, task,
    worker,
};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::escalate::store::{Change, Filter, Letter, MemoryStore, Store};
use tower_triage::escalate::{Decision, Route, Routes};
use tower_triage::fallback::decompose;
use tower_triage::learn::{LearnPolicy, Learner, Remedy};
use tower_triage::preset::orchestrator::{
    Mode, Recovery, SELF_RECOVERY, backoff, breaker_policy, budget_settings, hierarchy,
    retry_policy, timeout_policy,
};
use tower_triage::preset::{Orchestrator, orchestrator};
use tower_triage::retry::Attempt;
use tower_triage::{
    AnyError, BreakerHandle, CircuitOpen, ClassSet, Elapsed, ErrorClass, Failure, FallbackLayer,
    Resolution, RetryAfter, StepKind, soft_limit,
};
use tower_triage_report::{
    BreakerTable, CallState, Choice, Difficulty, ErrorReport, Risk, Severity, Wave, WaveChart,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

type Stack = BoxCloneSyncService<Task, Answer, AnyError>;

/// Everything goes to the orchestrator first.
fn routes() -> Routes {
    Routes::new(Route::new(["orchestrator"], "task_blocked"))
}

/// The preset around workers.
impl World {
    fn preset(&self) -> Orchestrator<Rules> {
        orchestrator(self.classifier.clone(), self.desk.clone())
    }

    /// With a fallback for whatever can be bypassed.
    fn with_backup(&self, worker: &Worker, backup: &Worker) -> (Stack, BreakerHandle) {
        let fallback = FallbackLayer::new(self.classifier.clone())
            .or_service(ClassSet::bypassable(), backup.clone());
        let layers = self.preset().fallback(|_| fallback);
        (Stack::new(layers.layer(worker.clone())), layers.breaker.handle())
    }
}

/// A call in a task of its own, un-boxed.
async fn treated(worker: &Worker, task: Task) -> Outcome {
    let stack = World::new(routes()).preset().layer(worker.clone());
    tokio::spawn(async move { stack.oneshot(task).await }).await.unwrap()
}

fn seconds(worker: &Worker) -> Vec<u64> {
    worker.times().iter().map(Duration::as_secs).collect()
}

#[tokio::test(start_paused = true)]
async fn o01_schedule() {
    // Before five attempts waits of 0, 2, 4, 8, 16 s: exactly, and 30 s together.
    let down = worker([fails(ErrorClass::Transient)]);
    treated(&down, task("p")).await.unwrap_err();
    let at = [0, 2, 6, 14, 30].map(|at| at * SECOND);
    assert!(down.times().iter().zip(at).all(|(time, at)| *time >= at && *time <= at + 5 * MS));
    assert_eq!(down.calls(), 5, "{:?}", down.times());
    assert_eq!(backoff().iter(|| 0.5).take(9).max(), Some(16 * SECOND), "the maximum");

    // The n-th attempt has the n-th wait, whatever went wrong before.
    let mixed = worker(
        [
            ErrorClass::Throttled,
            ErrorClass::Transient,
            ErrorClass::Contention,
            ErrorClass::Transient,
        ]
        .map(fails)
        .into_iter()
        .chain([Says("at last")]),
    );
    assert_eq!(treated(&mixed, task("p")).await.unwrap().text, "at last");
    assert_eq!(seconds(&mixed), [0, 2, 6, 14, 30]);

    // A server that asks for more than the maximum is not waited for.
    for (hint, calls) in [(10, 2), (17, 1)] {
        let failure = Failure::new(ErrorClass::Throttled);
        let failure = failure.retry_after(RetryAfter::AtLeast(hint * SECOND));
        let busy = worker([Fails(failure), Says("ok")]);
        assert_eq!(treated(&busy, task("p")).await.is_ok(), calls == 2);
        assert_eq!(busy.calls(), calls);
        assert!(busy.times().iter().all(|at| *at <= 16 * SECOND));
    }

    // A retry may use another endpoint.
    let world = World::new(routes());
    let [one, two] = [worker([fails(ErrorClass::Transient)]), worker([Says("from two")])];
    let endpoints = [one.clone(), two.clone()];
    let by_endpoint = service_fn(move |task: Task| match task.prompt.ends_with("@2") {
        true => endpoints[1].clone().oneshot(task),
        false => endpoints[0].clone().oneshot(task),
    });
    let elsewhere = |task: &mut Task, _: &_, _: Result<&Answer, &AnyError>| {
        task.prompt.push_str("@2");
        true
    };
    let stack = world.preset().retry(|retry| retry.nudge(elsewhere)).layer(by_endpoint);
    assert_eq!(stack.oneshot(task("p")).await.unwrap().text, "from two");
    assert_eq!((one.calls(), two.prompts()), (1, vec!["p@2".to_owned()]));
    assert_eq!(world.seen.last().resolution, Resolution::RecoveredByRetry);
}

/// O1: every call of a long series has its five attempts, as long as the breaker lets it.
#[tokio::test(start_paused = true)]
async fn o01_schedule_of_every_call() {
    let world = World::new(routes());
    let down = worker([fails(ErrorClass::Transient)]);
    let stack = world.preset().layer(down.clone());
    // Each its own kind of operation, so that no breaker opens; one in five fails.
    for n in 0..100 {
        let before = down.calls();
        down.now(if n % 5 == 0 { fails(ErrorClass::Transient) } else { Says("ok") });
        let task = Task { operation: format!("build {n}"), ..task("p") };
        let outcome = stack.clone().oneshot(task).await;
        assert_eq!(down.calls() - before, if outcome.is_ok() { 1 } else { 5 }, "call {n}");
    }
    assert_eq!((budget_settings().initial, budget_settings().gain), (100, 1.0));
}

/// What happened to work that goes on for ever, how long after its begin, and its prompt.
type Noted = (&'static str, Duration, String);

/// Work that goes on for ever, and notes when it is told to come to an end, and when it is dropped.
#[derive(Clone, Default)]
struct Endless(Arc<Mutex<Vec<Noted>>>);

impl Endless {
    fn note(&self, what: &'static str, begun: Instant, prompt: &str) {
        self.0.lock().unwrap().push((what, begun.elapsed(), prompt.to_owned()));
    }

    async fn work(self, task: Task) -> Outcome {
        struct End(Endless, Instant, String);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.note("dropped", self.1, &self.2);
            }
        }
        let begun = Instant::now();
        let _end = End(self.clone(), begun, task.prompt.clone());
        soft_limit().expect("there is one").due().await;
        self.note("told", begun, &task.prompt);
        if task.prompt == "obedient" {
            sleep(2 * SECOND).await;
            return Ok(answer("what there is"));
        }
        pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn o02_time_out() {
    let limits = timeout_policy();
    assert_eq!((limits.soft(), limits.grace_time()), (30 * SECOND, 3 * SECOND));

    let world = World::new(routes());
    let (endless, begun) = (Endless::default(), Instant::now());
    let smaller = worker([Says("a part of it")]);
    let fallback = FallbackLayer::new(world.classifier.clone()).or_service_with(
        ErrorClass::Timeout,
        smaller.clone(),
        |task: Task, failed| {
            let _: Result<&Answer, &AnyError> = failed.outcome;
            Task { prompt: format!("only a part of {}", task.prompt), ..task }
        },
    );
    let work = endless.clone();
    let stack = world
        .preset()
        .fallback(|_| fallback)
        .layer(service_fn(move |task| work.clone().work(task)));

    // A signal at 100 %, the end at 110 %, then the fallback with reduced scope.
    let result = stack.clone().oneshot(task("everything")).await.unwrap();
    assert_eq!((result.text.as_str(), begun.elapsed()), ("a part of it", 33 * SECOND));
    assert_eq!(smaller.prompts(), ["only a part of everything"]);
    let noted = std::mem::take(&mut *endless.0.lock().unwrap());
    let prompt = || "everything".to_owned();
    assert_eq!(noted, [("told", 30 * SECOND, prompt()), ("dropped", 33 * SECOND, prompt())]);
    let incident = world.seen.last();
    let limits = |soft| {
        let timed_out = |kind: &StepKind| match *kind {
            StepKind::TimedOut { soft: is, after } if is == soft => Some(after),
            _ => None,
        };
        incident.steps.iter().find_map(|step| timed_out(&step.kind))
    };
    assert_eq!((limits(true), limits(false)), (Some(30 * SECOND), Some(33 * SECOND)));
    assert!(incident.classes.contains(ErrorClass::Timeout));

    // Work that heeds the signal has its say in the grace.
    let begun = Instant::now();
    let result = stack.oneshot(task("obedient")).await.unwrap();
    assert_eq!((result.text.as_str(), begun.elapsed()), ("what there is", 32 * SECOND));
    assert_eq!(smaller.calls(), 1);
}

/// O2: with a nudge the scope is reduced for further attempts, each with its own limit.
#[tokio::test(start_paused = true)]
async fn o02_time_out_with_a_nudge() {
    let world = World::new(routes());
    let (endless, begun) = (Endless::default(), Instant::now());
    let work = endless.clone();
    let reduce = |task: &mut Task, attempt: &Attempt, _: Result<&Answer, &AnyError>| {
        task.prompt.truncate(task.prompt.len() >> (attempt.number - 1));
        true
    };
    let stack = world
        .preset()
        .retry(|retry| retry.nudge(reduce))
        .layer(service_fn(move |task| work.clone().work(task)));
    let error = stack.oneshot(task("12345678")).await.unwrap_err();
    assert_eq!(error.downcast_ref::<Elapsed>().unwrap().after(), 33 * SECOND);
    assert_eq!(begun.elapsed().as_secs(), 5 * 33 + 30);
    let noted = endless.0.lock().unwrap().clone();
    let dropped: Vec<_> = noted.iter().filter(|(what, ..)| *what == "dropped").collect();
    let prompts: Vec<_> = dropped.iter().map(|(_, _, prompt)| prompt.as_str()).collect();
    assert_eq!(prompts, ["12345678", "1234", "12", "1", ""]);
    assert!(dropped.iter().all(|(_, after, _)| *after == 33 * SECOND));
}

/// What a model says of a prompt of more than two words.
const TOO_LONG: Failure = Failure::new(ErrorClass::Declined).reason("context_budget_exceeded");

fn words(prompt: &str) -> Vec<&str> {
    prompt.split_whitespace().collect()
}

/// A model with room for two words; its clones are one model, and remember what they were asked.
#[derive(Clone, Default)]
struct Model(Arc<Mutex<Vec<String>>>);

impl Model {
    fn service(&self) -> Stack {
        let asked = Arc::clone(&self.0);
        Stack::new(service_fn(move |task: Task| {
            let fits = words(&task.prompt).len() <= 2;
            let outcome = match fits {
                true => Ok(answer(&task.prompt.to_uppercase())),
                false => Err(AnyError::from(Trouble(TOO_LONG))),
            };
            asked.lock().unwrap().push(task.prompt);
            std::future::ready(outcome)
        }))
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Splits a prompt into pairs of words, has `parts` do them, and joins what they answer.
fn in_pairs(parts: Stack) -> Stack {
    let split = |task: Task| {
        let words = words(&task.prompt);
        let part = |(n, pair): (usize, &[&str])| Task {
            id: format!("{}.{n}", task.id),
            prompt: pair.join(" "),
            ..task.clone()
        };
        words.chunks(2).enumerate().map(part).collect::<Vec<_>>()
    };
    let merge = |answers: Vec<Outcome>| {
        let texts: Result<Vec<_>, _> = answers.into_iter().map(|a| a.map(|a| a.text)).collect();
        texts.map(|texts| answer(&texts.join(" ")))
    };
    Stack::new(decompose(parts, split, merge))
}

/// Leaves out the last word of six.
fn shorter(task: &mut Task, attempt: &Attempt, _: Result<&Answer, &AnyError>) -> bool {
    let kept = 7 - attempt.number as usize;
    task.prompt = words(&task.prompt)[..kept].join(" ");
    attempt.previous.is_some_and(|failure| failure.class == ErrorClass::Declined)
}

const SIX: &str = "one two three four five six";

#[tokio::test(start_paused = true)]
async fn o03_fallback_choice() {
    let world = World::new(routes());
    let model = Model::default();
    // The parts are routed: each pair to a worker, one of whom has a bad start.
    let workers = [worker([Says("first")]), worker([fails(ErrorClass::Transient), Says("then")])];
    let team = workers.clone();
    let parts = service_fn(move |task: Task| {
        let worker = team[usize::from(task.prompt.contains("three"))].clone();
        worker.oneshot(task)
    });
    let parts = Stack::new(world.preset().layer(parts));
    let fallback = FallbackLayer::new(world.classifier.clone())
        .or_service(ErrorClass::Declined, in_pairs(parts))
        .after_failures(3);
    let layers = world.preset().fallback(|_| fallback);
    let stack = layers.clone().retry(|retry| retry.nudge(shorter)).layer(model.service());
    let done = stack.oneshot(task(SIX)).await.unwrap();

    // Three failures of one kind, each of another prompt; then the whole task in parts.
    let prompts: Vec<_> = model.asked().iter().map(|prompt| words(prompt).len()).collect();
    assert_eq!(prompts, [6, 5, 4]);
    assert_eq!(done.text, "first then first");
    assert_eq!(done.notes.fallback, Some(ErrorClass::Declined));
    assert_eq!(workers[0].prompts(), ["one two", "five six"]);
    assert_eq!(workers[1].prompts(), ["three four", "three four"], "by itself through the stack");
    assert_eq!(world.seen.last().resolution, Resolution::AnsweredByFallback);

    // What an identical repeat does not heal is not repeated so; and once is not three times.
    let model = Model::default();
    layers.clone().layer(model.service()).oneshot(task(SIX)).await.unwrap_err();
    assert_eq!(model.asked().len(), 1);

    // Three failures, not of one kind.
    let mixed = worker(
        ["context_budget_exceeded", "content_refused", "context_budget_exceeded"]
            .map(|reason| Fails(Failure::new(ErrorClass::Declined).reason(reason))),
    );
    let stack = layers.clone().retry(|retry| retry.nudge(shorter)).layer(mixed.clone());
    stack.oneshot(task(SIX)).await.unwrap_err();
    assert_eq!(mixed.calls(), 3);
    assert_eq!(world.seen.last().resolution, Resolution::Escalated);

    // What time can heal has its five attempts.
    let down = worker([fails(ErrorClass::Transient)]);
    let stack = layers.retry(|retry| retry.nudge(shorter)).layer(down.clone());
    stack.oneshot(task(SIX)).await.unwrap_err();
    assert_eq!(down.calls(), 5);
}

/// The letter of a call that waits for an answer: somebody is asked within a minute.
async fn asked(store: &Arc<dyn Store>) -> Letter {
    for _ in 0..600 {
        let page = store.list(Filter::any().asking(), None, 9).await.unwrap();
        if let Some(letter) = page.letters.into_iter().next() {
            return letter;
        }
        sleep(100 * MS).await;
    }
    panic!("nobody is asked");
}

async fn decide(store: &Arc<dyn Store>, decision: Decision) {
    let id = asked(store).await.id();
    let (by, why) = ("the orchestrator".to_owned(), "it is the way".to_owned());
    store.change(id, Change::Answered { decision, by, why }).await.unwrap();
}

/// A request as somebody decides: with another prompt.
fn replanned(task: Task, prompt: &serde_json::Value) -> Option<Task> {
    Some(Task { prompt: prompt.as_str()?.to_owned(), ..task })
}

/// O3: else it is escalated for a new plan.
#[tokio::test(start_paused = true)]
async fn o03_fallback_choice_or_a_new_plan() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut world = World::new(routes());
    let model = Model::default();
    let parts = Stack::new(worker([fails(ErrorClass::Internal)]));
    let fallback = FallbackLayer::new(world.classifier.clone())
        .or_service(ErrorClass::Declined, in_pairs(parts))
        .after_failures(3);
    let stack = world
        .preset()
        .retry(|retry| retry.nudge(shorter))
        .fallback(|_| fallback)
        .escalate(|layer| {
            let asking = hierarchy(Arc::clone(&store), 3600 * SECOND);
            layer.retry_with(replanned).ask(asking).unwrap()
        })
        .layer(model.service());
    let call = tokio::spawn(stack.oneshot(task(SIX)));
    decide(&store, Decision::RetryWith("in short".into())).await;
    assert_eq!(call.await.unwrap().unwrap().text, "IN SHORT");
    assert_eq!(model.asked().last().unwrap(), "in short");
    let letter = &world.letters()[0];
    assert_eq!(
        (letter.class, &letter.to[..]),
        (ErrorClass::Declined, &["orchestrator".to_owned()][..])
    );
    let strategies: Vec<_> = letter.attempts.iter().map(|a| a.strategy.as_str()).collect();
    assert_eq!(strategies, ["call", "changed_retry", "changed_retry", "fallback_service"]);
}

#[tokio::test(start_paused = true)]
async fn o04_breaker() {
    let world = World::new(routes());
    let (gate, backup) = (Arc::new(Semaphore::new(0)), worker([Says("bypassed")]));
    let (down, made) = (worker([fails(ErrorClass::Transient)]), Arc::new(AtomicUsize::new(0)));
    let (primary, calls, open) = (down.clone(), Arc::clone(&made), Arc::clone(&gate));
    // Once the gate has been asked for, calls wait there and succeed.
    let slow = service_fn(move |task: Task| {
        let (primary, open) = (primary.clone(), Arc::clone(&open));
        calls.fetch_add(1, Ordering::SeqCst);
        async move {
            if task.prompt == "wait" {
                open.acquire().await.unwrap().forget();
                return Ok(answer("it works"));
            }
            primary.oneshot(task).await
        }
    });
    let fallback = FallbackLayer::new(world.classifier.clone())
        .or_service(ClassSet::bypassable(), backup.clone());
    let layers = world.preset().fallback(|_| fallback);
    let breaker = layers.breaker.handle();
    let stack = layers.layer(slow);
    let state = || breaker.key(&"build".into()).unwrap().state().as_str();
    let made = || made.load(Ordering::SeqCst);
    // Asks, and says whether it took no time.
    let bypassed = async || {
        let (before, begun) = (made(), Instant::now());
        let text = stack.clone().oneshot(task("p")).await.unwrap().text;
        text == "bypassed" && made() == before && begun.elapsed() == Duration::ZERO
    };

    // It counts calls, of which each has its five attempts.
    for n in 1..=3 {
        assert!(!bypassed().await);
        assert_eq!((made(), state()), (5 * n, if n == 3 { "open" } else { "closed" }));
    }
    // Open: bypassed at once, for 60 seconds without jitter; other operations go on.
    assert!(bypassed().await);
    advance(60 * SECOND - 2 * MS).await;
    assert!(bypassed().await);
    let other = Task { operation: "test".to_owned(), ..task("p") };
    gate.add_permits(1);
    let other = stack.clone().oneshot(Task { prompt: "wait".to_owned(), ..other });
    assert_eq!(other.await.unwrap().text, "it works");
    advance(2 * MS).await;

    // Half-open: two at a time, the next one is bypassed.
    let probe = || tokio::spawn(stack.clone().oneshot(task("wait")));
    let (before, probes) = (made(), [probe(), probe()]);
    while made() < before + 2 {
        assert!(!probes.iter().any(tokio::task::JoinHandle::is_finished), "two are let in");
        yield_now().await;
    }
    assert_eq!(state(), "half_open");
    assert!(bypassed().await);
    // Two successes close.
    for (probe, then) in probes.into_iter().zip(["half_open", "closed"]) {
        gate.add_permits(1);
        assert_eq!(probe.await.unwrap().unwrap().text, "it works");
        assert_eq!(state(), then);
    }

    // A probe that fails opens it again, for as long as before.
    for _ in 0..3 {
        assert!(!bypassed().await);
    }
    advance(60 * SECOND).await;
    assert!(!bypassed().await, "a probe, with all its attempts");
    assert_eq!(state(), "open");
    advance(60 * SECOND - 2 * MS).await;
    assert!(bypassed().await);
    advance(2 * MS).await;
    assert!(!bypassed().await);
}

/// O4: without a fallback the caller hears at once that it is open; a success in between begins the
/// row anew.
#[tokio::test(start_paused = true)]
async fn o04_breaker_without_a_fallback() {
    let world = World::new(routes());
    let worker = worker([fails(ErrorClass::Internal)]);
    let stack = world.preset().layer(worker.clone());
    for n in 1..=9 {
        worker.now(if n % 3 == 0 { Says("ok") } else { fails(ErrorClass::Internal) });
        assert_eq!(stack.clone().oneshot(task("p")).await.is_ok(), n % 3 == 0);
    }
    worker.now(fails(ErrorClass::Internal));
    for _ in 0..3 {
        stack.clone().oneshot(task("p")).await.unwrap_err();
    }
    let error = stack.oneshot(task("p")).await.unwrap_err();
    assert_eq!(error.downcast_ref::<CircuitOpen>().unwrap().retry_after(), 60 * SECOND);
    assert_eq!(worker.calls(), 12);
}

#[tokio::test(start_paused = true)]
async fn o05_status() {
    let world = World::new(routes());
    let (worker, backup) = (worker([Says("ok")]), worker([Says("bypassed")]));
    let (stack, breaker) = world.with_backup(&worker, &backup);
    let call = async |operation: &str, line: Line| {
        worker.now(line);
        let task = Task { operation: operation.to_owned(), ..task("p") };
        stack.clone().oneshot(task).await.unwrap()
    };
    call("build", fails(ErrorClass::Transient)).await;
    for _ in 0..19 {
        call("build", Says("ok")).await;
    }
    for _ in 0..4 {
        call("deploy", fails(ErrorClass::Transient)).await;
    }
    call("test", Says("ok")).await;

    // Calls are counted, not attempts.
    let table = BreakerTable::of([&breaker]);
    let rows: Vec<_> = table
        .breakers
        .iter()
        .map(|row| {
            (row.name.as_str(), (row.succeeded, row.judged), row.state.as_str(), row.doing())
        })
        .collect();
    let passes = || "lets calls pass".to_owned();
    let rejects = "rejects calls, probe in 1m00s".to_owned();
    assert_eq!(
        rows,
        [
            ("build", (19, 20), "closed", passes()),
            ("deploy", (0, 3), "open", rejects),
            ("test", (1, 1), "closed", passes()),
        ]
    );
    let text = table.to_string();
    assert!(text.contains("19/20") && text.contains("deploy"), "{text}");
}

fn choice(action: &str, confidence: f64, expected: u32, risk: Risk) -> Choice {
    Choice { action: action.to_owned(), confidence, expected: expected * SECOND, risk }
}

/// Whatever it is: the replica may help, and so may the cache.
fn options(report: ErrorReport) -> ErrorReport {
    report.option(choice("answer from the cache", 0.6, 1, Risk::Medium)).option(choice(
        "ask the replica",
        0.82,
        2,
        Risk::Low,
    ))
}

#[tokio::test(start_paused = true)]
async fn o06_error_report() {
    // Sure enough: the recommended one is applied.
    let world = World::new(routes());
    let recovery = Recovery::new(Mode::Balanced, options);
    let apply = recovery.step(|task: Task, choice: Choice| {
        std::future::ready(Ok::<_, AnyError>(answer(&format!(
            "{}: {}",
            choice.action, task.prompt
        ))))
    });
    let fallback = FallbackLayer::new(world.classifier.clone()).or_step(ClassSet::ALL, apply);
    let layers = world.preset().fallback(|_| fallback.within(SELF_RECOVERY));
    let stack = layers.layer(worker([fails(ErrorClass::Quota)]));
    let outcome = tokio::spawn(async move { stack.oneshot(task("p")).await }).await.unwrap();
    assert_eq!(outcome.unwrap().text, "ask the replica: p");
    assert_eq!(world.seen.last().resolution, Resolution::AnsweredByFallback);
    let report = recovery.report(&world.seen.last()).unwrap();
    assert_eq!((report.class, report.error.as_str()), (ErrorClass::Quota, "trouble: Quota"));
    assert_eq!(report.diagnosis, "a hard limit is used up; time alone does not help");
    assert_eq!((report.severity, report.difficulty), (Severity::High, Difficulty::Moderate));
    let best = report.recommended().unwrap();
    assert_eq!((best.confidence, best.expected, best.risk), (0.82, 2 * SECOND, Risk::Low));
}

/// O6: of a breaker that opens somebody hears, and of no way out that nobody needs.
#[tokio::test(start_paused = true)]
async fn o06_error_report_of_a_failure_only() {
    let mut world = World::new(routes());
    let recovery = Recovery::new(Mode::Balanced, options);
    let apply =
        recovery.step(|_: Task, _| std::future::ready(Ok::<_, AnyError>(answer("applied"))));
    let fallback = FallbackLayer::new(world.classifier.clone()).or_step(ClassSet::ALL, apply);
    let layers = world.preset().fallback(|_| fallback);
    let layers = layers.escalate(|layer| layer.enrich(move |told| recovery.explain(told)));
    let stack = layers.layer(worker([fails(ErrorClass::Internal)]));
    for _ in 0..4 {
        assert_eq!(stack.clone().oneshot(task("p")).await.unwrap().text, "applied");
    }
    let letters = world.letters();
    assert_eq!(letters.len(), 1, "it opened once");
    assert!(letters[0].impact.contains("refuses further calls for 60s"), "{}", letters[0].impact);
    assert!(letters[0].context.fields.is_empty() && letters[0].suggestion != "ask the replica");
}

/// O6: else it is escalated, with the report; whoever is asked chooses among its options.
#[tokio::test(start_paused = true)]
async fn o06_error_report_that_is_escalated() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut world = World::new(routes());
    let recovery = Recovery::new(Mode::Cautious, options);
    let applied = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&applied);
    let apply = recovery.step(move |_: Task, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok::<_, AnyError>(answer("applied")))
    });
    let fallback = FallbackLayer::new(world.classifier.clone()).or_step(ClassSet::ALL, apply);
    let worker = worker([fails(ErrorClass::Quota), Says("done")]);
    let stack = world
        .preset()
        .fallback(|_| fallback)
        .escalate(|layer| {
            layer
                .enrich(move |escalation| recovery.explain(escalation))
                .retry_with(replanned)
                .ask(hierarchy(Arc::clone(&store), 3600 * SECOND))
                .unwrap()
        })
        .layer(worker.clone());
    let call = tokio::spawn(stack.oneshot(task("p")));
    let question = asked(&store).await.escalation.question.unwrap();
    let labels: Vec<_> = question.options.iter().map(|option| option.label.as_str()).collect();
    assert_eq!(labels[1], "ask the replica (confidence 0.82, about 2.0s, low risk)");
    decide(&store, question.options[1].decision.clone()).await;
    assert_eq!(call.await.unwrap().unwrap().text, "done");
    assert_eq!(worker.prompts(), ["p", "ask the replica"]);
    assert_eq!(applied.load(Ordering::SeqCst), 0);

    let letter = world.letters().remove(0);
    assert_eq!(letter.suggestion, "ask the replica");
    let report = &letter.context.fields["error_report"];
    for part in ["Quota in build", "severity high", "answer from the cache", "0.82 is below 0.90"] {
        assert!(report.contains(part), "no {part}: {report}");
    }
}

#[tokio::test(start_paused = true)]
async fn o07_modes() {
    for (mode, threshold) in [(Mode::Cautious, 0.9), (Mode::Balanced, 0.7), (Mode::Aggressive, 0.5)]
    {
        assert_eq!(mode.threshold(), threshold);
        for (confidence, acts) in [(threshold, true), (threshold - 0.01, false)] {
            let mut world = World::new(routes());
            let recovery = Recovery::new(mode, move |report: ErrorReport| {
                report.option(choice("restart", confidence, 1, Risk::Low))
            });
            let apply = recovery
                .step(|_: Task, _| std::future::ready(Ok::<_, AnyError>(answer("restarted"))));
            let fallback =
                FallbackLayer::new(world.classifier.clone()).or_step(ClassSet::ALL, apply);
            let layers = world.preset().fallback(|_| fallback);
            let stack = layers.layer(worker([fails(ErrorClass::Internal)]));
            let outcome = stack.oneshot(task("p")).await;
            // Without asking: or somebody hears of it.
            assert_eq!(outcome.is_ok(), acts, "{mode}, {confidence}");
            assert_eq!(world.letters().is_empty(), acts, "{mode}, {confidence}");
        }
    }
}

/// A call that fails for good: how it ended and when, and who was asked when, all since the end of its
/// attempts. The stack recovers by itself in `recovers`, the orchestrator answers after `thinks`, the
/// user after `ponders`.
async fn climbs(
    recovers: Option<Duration>,
    thinks: Option<Duration>,
    ponders: Option<Duration>,
) -> (Option<String>, Duration, Vec<(String, Duration)>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let world = World::new(routes());
    let recovery = Recovery::new(Mode::Balanced, options);
    let apply = recovery.step(move |_: Task, _| async move {
        match recovers {
            Some(time) => sleep(time).await,
            None => pending().await,
        }
        Ok::<_, AnyError>(answer("recovered"))
    });
    let fallback = FallbackLayer::new(world.classifier.clone())
        .or_step(ClassSet::ALL, apply)
        .within(SELF_RECOVERY);
    let stack = world
        .preset()
        .fallback(|_| fallback)
        .escalate(|layer| {
            layer
                .respond_with(|text: &serde_json::Value, failed| {
                    let _: Result<&Answer, &AnyError> = failed.outcome;
                    text.as_str().map(answer)
                })
                .ask(hierarchy(Arc::clone(&store), 3600 * SECOND))
                .unwrap()
        })
        .layer(worker([fails(ErrorClass::Transient)]));
    let begun = Instant::now();
    // The attempts come before, and take 30 s.
    let since = move || begun.elapsed().saturating_sub(30 * SECOND);
    let asked: Arc<Mutex<Vec<(String, Duration)>>> = Arc::default();
    let (heard, mut letters) = (Arc::clone(&asked), world.letters);
    tokio::spawn(async move {
        while let Some(letter) = letters.recv().await {
            let by = letter.to.join(" and ");
            heard.lock().unwrap().push((by.clone(), since()));
            let (says, after) = match by.as_str() {
                "orchestrator" => ("the orchestrator knows", thinks),
                _ => ("the user knows", ponders),
            };
            let (store, id) = (Arc::clone(&store), letter.id);
            tokio::spawn(async move {
                let Some(after) = after else { return };
                sleep(after).await;
                let (decision, why) = (Decision::Respond(says.into()), String::new());
                // Refused if it is too late.
                _ = store.change(id, Change::Answered { decision, by, why }).await;
            });
        }
    });
    let outcome = stack.oneshot(task("p")).await.ok().map(|answer| answer.text);
    let asked = asked.lock().unwrap().clone();
    (outcome, since(), asked)
}

#[tokio::test(start_paused = true)]
async fn o08_hierarchy() {
    const HOUR: Duration = Duration::from_secs(3600);
    let secs = |secs| Some(secs * SECOND);
    for (recovers, thinks, ponders, expected, after, asked_after) in [
        // Level 0, within 5 s.
        (secs(4), None, None, Some("recovered"), 4 * SECOND, &[][..]),
        // Level 1, within 30 s of being asked.
        (secs(6), secs(29), None, Some("the orchestrator knows"), 34 * SECOND, &[5]),
        // Level 2, as long as it takes; also if the orchestrator is late.
        (
            None,
            None,
            secs(3590),
            Some("the user knows"),
            35 * SECOND + secs(3590).unwrap(),
            &[5, 35],
        ),
        (None, secs(31), secs(99), Some("the orchestrator knows"), 36 * SECOND, &[5, 35]),
        // Level 3: an end all the same.
        (None, None, None, None, 35 * SECOND + HOUR, &[5, 35]),
    ] {
        let (outcome, took, asked) = climbs(recovers, thinks, ponders).await;
        let about = |time: Duration, expected: Duration| {
            (expected..=expected + SECOND / 10).contains(&time)
        };
        assert_eq!(outcome.as_deref(), expected);
        assert!(about(took, after), "{expected:?} after {took:?}");
        let who: Vec<_> = asked.iter().map(|(who, _)| who.as_str()).collect();
        assert_eq!(who, ["orchestrator", "human"][..asked_after.len()]);
        for ((who, at), expected) in asked.iter().zip(asked_after) {
            assert!(about(*at, *expected * SECOND), "{who} at {at:?}");
        }
    }
}

/// What a worker of a wave does: works for some seconds, a number of times in vain.
fn wave_worker(task: Task) -> impl Future<Output = Outcome> {
    static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let before = {
        let mut calls = CALLS.lock().unwrap();
        calls.push(task.id.clone());
        calls.iter().filter(|id| **id == task.id).count() - 1
    };
    async move {
        let plan: Vec<u32> = words(&task.prompt).iter().filter_map(|n| n.parse().ok()).collect();
        sleep(plan[before.min(plan.len() - 1)] * SECOND).await;
        let failed = |class| Err(AnyError::from(Trouble(Failure::new(class))));
        match words(&task.prompt)[0] {
            "denied" => failed(ErrorClass::Permanent),
            "down" => failed(ErrorClass::Transient),
            "flaky" if before == 0 => failed(ErrorClass::Transient),
            _ => Ok(answer("done")),
        }
    }
}

fn job(name: &str, operation: &str, prompt: &str) -> Task {
    let (id, operation) = (format!("T-{name}"), operation.to_owned());
    Task { id, operation, ..task(prompt) }
}

#[tokio::test(start_paused = true)]
async fn o09_aggregation() {
    let world = World::new(routes());
    let wave = Wave::new().expecting(7);
    world.classifier.observe(wave.clone());
    let stack = world.preset().layer(service_fn(wave_worker));
    let run = |name: &str, operation: &str, prompt: &str| {
        wave.watch(name, stack.clone().oneshot(job(&format!("o9-{name}"), operation, prompt)))
    };
    _ = tokio::join!(
        run("plan", "plan", "works 4"),
        run("prices", "prices", "flaky 1 2"),
        run("write", "write", "denied 1"),
    );
    // The third that fails opens the breaker of the stock.
    for name in ["stock 1", "stock 2", "stock 3", "stock 4"] {
        _ = run(name, "stock", "down 0").await;
    }
    wave.block("report", "stock 3");

    let summary = wave.summary();
    assert_eq!((summary.failed, summary.blocked, summary.succeeded), (4, 2, 2));
    let row = |call: &str| summary.problems.iter().find(|row| row.call == call).unwrap();
    assert_eq!((row("prices").state, row("prices").retries), (CallState::Done, 1));
    assert_eq!(row("prices").resolution, Some(Resolution::RecoveredByRetry));
    assert_eq!(row("write").class, Some(ErrorClass::Permanent));
    assert_eq!(row("write").resolution, Some(Resolution::Escalated));
    let stock = row("stock 3");
    assert_eq!((stock.error.as_str(), stock.retries), ("trouble: Transient", 4));
    assert_eq!(row("stock 4").class, Some(ErrorClass::Rejected));
    let cause = summary.cause.as_ref().unwrap();
    assert_eq!(
        (cause.call.as_str(), &cause.cascaded[..]),
        ("stock 3", &["stock 4".to_owned(), "report".to_owned()][..])
    );
    assert_eq!(summary.plan[0], "stock 3: wait until the dependency serves again, then repeat");
    assert_eq!(summary.plan.last().unwrap(), "then run what was blocked: stock 4, report");
    let text = summary.to_string();
    for part in ["4 failed, 2 blocked, 2 succeeded", "root cause: stock 3", "recovery plan"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

/// O10: the classifier of the preset has room for a learner: what helped is done first next time.
#[tokio::test(start_paused = true)]
async fn o10_room_for_the_learner() {
    let world = World::new(routes());
    let remedies = [
        Remedy::new("retry", ErrorClass::Transient),
        Remedy::new("fallback/service", ErrorClass::Declined),
    ];
    let plan = LearnPolicy::default().mode(Mode::Aggressive).remedies(remedies).build().unwrap();
    let learner = Learner::new(plan);
    learner.attach(&world.classifier);
    let (puzzled, backup) = (worker([Says("ok")]), worker([Says("the other knows")]));
    let fallback = FallbackLayer::new(world.classifier.clone())
        .or_service([ErrorClass::Declined, ErrorClass::Unknown], backup.clone());
    let stack = world.preset().fallback(|_| fallback).layer(puzzled.clone());
    let mut attempts = Vec::new();
    for _ in 0..6 {
        for line in [fails(ErrorClass::Unknown), Says("ok")] {
            puzzled.now(line);
            let before = puzzled.calls();
            stack.clone().oneshot(task("p")).await.unwrap();
            attempts.push(puzzled.calls() - before);
        }
    }
    // With caution at first; once it is known what helps, that comes first.
    let unknown: Vec<_> = attempts.into_iter().step_by(2).collect();
    assert_eq!(unknown, [3, 3, 3, 1, 1, 1]);
    assert_eq!(backup.calls(), 6);
}

#[tokio::test(start_paused = true)]
async fn o11_timeline() {
    let world = World::new(routes());
    let wave = Wave::new().expecting(4);
    world.classifier.observe(wave.clone());
    let stack = world.preset().layer(service_fn(wave_worker));
    let run = |name: &str, prompt: &str| {
        wave.watch(name, stack.clone().oneshot(job(&format!("o11-{name}"), name, prompt)))
    };
    let at = async |milliseconds: u32| {
        sleep(milliseconds * MS).await;
        wave.chart()
    };
    let (_, _, _, _, waiting, retrying) = tokio::join!(
        run("plan", "works 10"),
        run("fetch", "flaky 1 4"),
        run("write", "denied 2"),
        run("check", "works 1"),
        at(2_500),
        at(3_500),
    );
    let states = |chart: &WaveChart| {
        chart.rows.iter().map(|row| row.state.as_str()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(states(&waiting), "running waiting failed done");
    assert_eq!(states(&retrying), "running retrying failed done");
    // Two of four ended in 2.5 s.
    assert_eq!(waiting.left.unwrap().as_millis(), 2_500);

    let about = |time: Duration, seconds: u32| {
        (seconds * SECOND..=seconds * SECOND + 20 * MS).contains(&time)
    };
    let chart = wave.chart();
    assert_eq!(states(&chart), "done done failed done");
    let durations: Vec<_> = chart.rows.iter().map(|row| row.duration.as_secs()).collect();
    assert_eq!(durations, [10, 7, 2, 1]);
    // 10 s of plan; 5 of fetch, which waited for 2; 2 of write, 1 of check: in 10 s.
    assert!(about(chart.work, 18) && about(chart.wall, 10), "{chart}");
    assert!((chart.efficiency - 1.8).abs() < 0.01, "{chart}");
    assert_eq!(chart.left, Some(Duration::ZERO));
    let text = chart.to_string();
    assert!(text.contains("parallel efficiency 1.8") && text.contains('.'), "{text}");
}

/// Every slot can be replaced, and every policy taken and changed; what has fixed numbers builds.
#[tokio::test(start_paused = true)]
async fn the_preset_can_be_adjusted() {
    let world = World::new(routes());
    let down = worker([fails(ErrorClass::Transient)]);
    let layers = world
        .preset()
        .retry(|retry| retry.policy(retry_policy().attempts(2).build().unwrap()))
        .breaker(|breaker| {
            let plan = breaker_policy().consecutive_failures(1).build().unwrap();
            breaker.policy(plan).name("all")
        })
        .timeout(|limit| limit.policy(timeout_policy().limit(SECOND).build().unwrap()))
        .escalate(|escalate| escalate.from("worker-7"));
    let stack = layers.layer(down.clone());
    stack.clone().oneshot(task("p")).await.unwrap_err();
    let error = stack.oneshot(task("p")).await.unwrap_err();
    assert_eq!((down.calls(), error.downcast_ref::<CircuitOpen>().is_some()), (2, true));
}
