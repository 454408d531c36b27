//! The rows of the retry strategist, one test each, over the preset `strategist`: what a row asks
//! for is configured or a small closure.

mod scenarios;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scenarios::{
    Answer, Answers, Fails, Line, Outcome, Rules, Says, Task, Trouble, Worker, answer, classifier,
    desk, fails, sqlstate, status, taken, task, worker,
};
use tokio::time::{Instant, advance, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::escalate::store::{Filter, LetterState, MemoryStore, Store, StoreSink};
use tower_triage::escalate::{JsonCodec, LogSink, Receiver, Redrive, Route, Routes};
use tower_triage::fallback::decompose;
use tower_triage::preset::strategist::{backoff, breaker_policy, retry_policy};
use tower_triage::preset::{Strategist, strategist};
use tower_triage::retry::Checkpoint;
use tower_triage::{
    AnyError, Backoff, CircuitBreakerLayer, CircuitOpen, ClassSet, Classifier, Describe, Desk,
    ErrorClass, Failure, FallbackLayer, Label, Operation, Random, Resolution, RetryAfter, StepKind,
};
use tower_triage_report::FailureLog;

const SECOND: Duration = Duration::from_secs(1);

type Stack = BoxCloneSyncService<Task, Answer, AnyError>;

fn routes() -> Routes {
    Routes::new(Route::new(["human"], "look_into_it"))
}

/// The preset, with a desk that logs.
fn layers(classifier: &Classifier<Rules>) -> Strategist<Rules> {
    let desk = Desk::new(routes(), [Receiver::new("human").record(LogSink)]).unwrap();
    strategist(classifier.clone(), desk)
}

async fn treated(worker: &Worker, task: Task) -> Outcome {
    layers(&classifier().0).layer(worker.clone()).oneshot(task).await
}

/// The waits before further attempts, to the millisecond of a timer.
fn waits(worker: &Worker) -> Vec<Duration> {
    let times = worker.times();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn about(wait: Duration, expected: Duration) -> bool {
    (expected..=expected + Duration::from_millis(2)).contains(&wait)
}

#[tokio::test(start_paused = true)]
async fn r01_classes() {
    let once = Task { repeatable: false, ..task("p") };
    for (line, task, calls) in [
        (fails(ErrorClass::Transient), task("p"), 3),
        (fails(ErrorClass::Permanent), task("p"), 1),
        // With caution: once, if the caller allows that the task is done twice.
        (fails(ErrorClass::Unknown), task("p"), 2),
        (fails(ErrorClass::Unknown), once, 1),
    ] {
        let (classifier, seen) = classifier();
        let worker = worker([line]);
        layers(&classifier).layer(worker.clone()).oneshot(task).await.unwrap_err();
        assert_eq!(worker.calls(), calls, "{line:?}");
        // Whatever is decided, a verdict comes before it.
        let mut judged = 0;
        for step in seen.last().steps {
            match step.kind {
                StepKind::Failed { .. } => judged += 1,
                StepKind::Waiting { .. } | StepKind::NotRetried { .. } => {
                    assert_eq!(judged, 1, "{line:?}");
                    judged = 0;
                }
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r02_policies() {
    // The default: 1, 2, 4, 8 s, ±50 %, never more than 60 s.
    let middle: Vec<_> = backoff().iter(|| 0.5).take(8).map(|wait| wait.as_secs()).collect();
    assert_eq!(middle, [1, 2, 4, 8, 16, 32, 60, 60]);
    let shortest: Vec<_> = backoff().iter(|| 0.0).take(3).map(|wait| wait.as_millis()).collect();
    assert_eq!(shortest, [500, 1000, 2000]);
    let longest: Vec<_> = backoff().iter(|| 0.999_999).take(9).collect();
    assert!(longest[0] > 1499 * SECOND / 1000 && longest[0] <= 1500 * SECOND / 1000);
    assert!(longest.iter().all(|wait| *wait <= 60 * SECOND), "{longest:?}");

    let run = async |waits_by: Backoff, line: Line| {
        let worker = worker([line, line, line, line, Says("ok")]);
        let plan = retry_policy().attempts(5).backoff(&waits_by).build().unwrap();
        let stack = layers(&classifier().0).retry(|(retry, rate)| (retry.policy(plan), rate));
        stack.layer(worker.clone()).oneshot(task("p")).await.unwrap();
        waits(&worker)
    };
    let transient = fails(ErrorClass::Transient);
    let exponential = run(Backoff::exponential(SECOND, 2.0), transient).await;
    for (wait, seconds) in exponential.iter().zip([1, 2, 4, 8]) {
        assert!(about(*wait, seconds * SECOND), "{exponential:?}");
    }
    let fixed = run(Backoff::fixed(5 * SECOND), transient).await;
    assert!(fixed.iter().all(|wait| about(*wait, 5 * SECOND)), "{fixed:?}");
    // Immediate: as soon as the server says, where that is soon.
    let soon = Duration::from_millis(200);
    let hint = Failure::new(ErrorClass::Transient).retry_after(RetryAfter::AtLeast(soon));
    let immediate = run(Backoff::immediate(), Fails(hint)).await;
    assert!(immediate.iter().all(|wait| (soon..=soon * 12 / 10).contains(wait)), "{immediate:?}");
    assert_eq!(run(Backoff::immediate(), transient).await, [Duration::ZERO; 4]);
}

#[tokio::test(start_paused = true)]
async fn r03_limits() {
    let down = worker([fails(ErrorClass::Transient)]);
    treated(&down, task("p")).await.unwrap_err();
    assert_eq!(down.calls(), 3);

    // Five in a row open it; half a minute later there is one probe.
    let (classifier, _) = classifier();
    let layers = layers(&classifier);
    let breaker = layers.breaker.handle();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (open, calls) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let made = Arc::clone(&calls);
    let stack = layers.layer(service_fn(move |_: Task| {
        let (gate, n) = (Arc::clone(&gate), made.fetch_add(1, Ordering::SeqCst));
        async move {
            if n < 5 {
                return Err(AnyError::from(Trouble(Failure::new(ErrorClass::Internal))));
            }
            _ = gate.acquire().await;
            Ok(answer("ok"))
        }
    }));
    let refused = async || {
        let call = stack.clone().oneshot(task("p"));
        let outcome = tokio::time::timeout(Duration::from_millis(1), call).await;
        let error = outcome.expect("it is refused at once").unwrap_err();
        error.downcast_ref::<CircuitOpen>().is_some()
    };
    for _ in 0..5 {
        assert!(!refused().await);
    }
    assert!(refused().await);
    advance(30 * SECOND - Duration::from_millis(2)).await;
    assert!(refused().await);
    advance(Duration::from_millis(2)).await;
    let probe = tokio::spawn(stack.clone().oneshot(task("p")));
    while calls.load(Ordering::SeqCst) < 6 {
        tokio::task::yield_now().await;
    }
    assert!(refused().await, "one probe at a time");
    open.add_permits(9);
    assert!(probe.await.unwrap().is_ok());
    assert_eq!(breaker.state().as_str(), "closed");
}

#[tokio::test(start_paused = true)]
async fn r04_modification() {
    let shorter = |task: &mut Task| task.prompt.truncate(task.prompt.len() / 2);
    // From the second failure on the next attempt is changed.
    let model = worker([status(503), status(503), Says("ok")]);
    let (classifier, seen) = classifier();
    let stack = layers(&classifier)
        .retry(|(retry, rate)| {
            let retry = retry.nudge(move |task: &mut Task, attempt, failed| {
                let _: Result<&Answer, &AnyError> = failed;
                let change = attempt.number >= 3;
                if change {
                    shorter(task);
                }
                change
            });
            (retry, rate)
        })
        .layer(model.clone());
    stack.oneshot(task("a long prompt.")).await.unwrap();
    assert_eq!(model.prompts(), ["a long prompt.", "a long prompt.", "a long "]);
    let nudged = |step: &&tower_triage::Step| matches!(step.kind, StepKind::Nudged { attempt: 3 });
    assert_eq!(seen.last().steps.iter().filter(nudged).count(), 1, "recorded");

    // A structural failure is never repeated as it was: changed at once.
    let model = worker([fails(ErrorClass::Declined), Says("ok")]);
    let begun = Instant::now();
    let nudge = FallbackLayer::new(classifier.clone()).or_nudge(
        ErrorClass::Declined,
        move |mut task: Task, failed| {
            let _: Result<&Answer, &AnyError> = failed.outcome;
            shorter(&mut task);
            task
        },
    );
    let stack = layers(&classifier).fallback(|_| nudge).layer(model.clone());
    stack.oneshot(task("a long prompt.")).await.unwrap();
    assert_eq!(model.prompts(), ["a long prompt.", "a long "]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// One of a list from a configuration: what it is called, and for which failures the next one is
/// asked.
struct Entry {
    name: &'static str,
    passes_on: ClassSet,
    service: Stack,
}

fn entry(name: &'static str, passes_on: impl Into<ClassSet>, worker: &Worker) -> Entry {
    Entry { name, passes_on: passes_on.into(), service: Stack::new(worker.clone()) }
}

/// The entries one after the other, each with its classes and a breaker of its own.
fn chain(classifier: &Classifier<Rules>, entries: Vec<Entry>) -> Stack {
    let guard = |name: &str, service: Stack| {
        let plan = breaker_policy().build().unwrap();
        CircuitBreakerLayer::new(classifier.clone()).policy(plan).name(name).layer(service)
    };
    let mut entries = entries.into_iter().rev();
    let last = entries.next().expect("at least one entry");
    let last = Stack::new(guard(last.name, last.service));
    entries.fold(last, |next, entry| {
        let next = FallbackLayer::new(classifier.clone()).or_service(entry.passes_on, next);
        Stack::new(next.layer(guard(entry.name, entry.service)))
    })
}

#[tokio::test(start_paused = true)]
async fn r05_model_chain() {
    use ErrorClass::{Quota, Rejected, Transient};
    let (classifier, seen) = classifier();
    let [large, medium, small] =
        [worker([Says("large")]), worker([Says("medium")]), worker([Says("small")])];
    let simplified = small
        .clone()
        .map_request(|task: Task| Task { prompt: format!("in short: {}", task.prompt), ..task });
    let next = [Quota, Transient, Rejected];
    let models = vec![
        entry("large", next, &large),
        entry("medium", next, &medium),
        Entry { name: "small", passes_on: ClassSet::NONE, service: Stack::new(simplified) },
    ];
    let plan = retry_policy().attempts(1).build().unwrap();
    let stack = layers(&classifier)
        .retry(|(retry, rate)| (retry.policy(plan), rate))
        .breaker(|_| tower::layer::util::Identity::new()) // each model has its own
        .layer(chain(&classifier, models));
    let ask = async || stack.clone().oneshot(task("why?")).await;
    let made = || [large.calls(), medium.calls(), small.calls()];

    assert_eq!(ask().await.unwrap().text, "large");
    large.now(fails(Quota));
    assert_eq!(ask().await.unwrap().text, "medium");
    assert_eq!(seen.last().resolution, Resolution::AnsweredByFallback);
    medium.now(status(503));
    let last = ask().await.unwrap();
    assert_eq!((last.text.as_str(), made()), ("small", [3, 2, 1]));
    assert_eq!(small.prompts(), ["in short: why?"]);
    assert_eq!(last.notes.fallback, Some(Quota), "marked with the first failure");

    // The breaker of one opens, and it is passed over; a quota says nothing about the others.
    for _ in 0..4 {
        ask().await.unwrap();
    }
    assert_eq!(made(), [7, 6, 5]);
    ask().await.unwrap();
    assert_eq!(made(), [8, 6, 6]);
    // What is not for the next model ends the chain.
    large.now(fails(ErrorClass::Permanent));
    ask().await.unwrap_err();
    assert_eq!(made(), [9, 6, 6]);
    // Half a minute later the second is tried again.
    advance(30 * SECOND).await;
    large.now(fails(Quota));
    medium.now(Says("medium"));
    assert_eq!(ask().await.unwrap().text, "medium");
}

#[tokio::test(start_paused = true)]
async fn r06_tool_chain() {
    use ErrorClass::{Rejected, Transient};
    for (primary, line, other) in
        [("search", status(502), "equivalent tool"), ("primary", sqlstate("57P03"), "replica")]
    {
        let (classifier, _) = classifier();
        let (first, second) = (worker([line]), worker([Says(other)]));
        let tools = vec![
            entry(primary, [Transient, Rejected], &first),
            entry(other, ClassSet::NONE, &second),
        ];
        let stack = layers(&classifier).layer(chain(&classifier, tools));
        for n in 1..=7 {
            assert_eq!(stack.clone().oneshot(task("q")).await.unwrap().text, other);
            assert_eq!((first.calls(), second.calls()), (n.min(5), n), "its own breaker");
        }
    }
}

/// Parts that are under way, and how many there were at most.
#[derive(Clone, Default)]
struct Busy(Arc<[AtomicUsize; 2]>);

#[tokio::test(start_paused = true)]
async fn r07_decomposition() {
    let ((classifier, seen), (desk, mut letters)) = (classifier(), desk(routes()));
    // A model that takes four words; one word fails once, one always.
    let (busy, first) = (Busy::default(), Arc::new(AtomicUsize::new(0)));
    let counts = busy.clone();
    let model = service_fn(move |task: Task| {
        let (counts, first) = (counts.clone(), Arc::clone(&first));
        async move {
            let now = counts.0[0].fetch_add(1, Ordering::SeqCst) + 1;
            counts.0[1].fetch_max(now, Ordering::SeqCst);
            sleep(SECOND / 10).await;
            counts.0[0].fetch_sub(1, Ordering::SeqCst);
            let fails = |class| Err(AnyError::from(Trouble(Failure::new(class))));
            match task.prompt.as_str() {
                prompt if prompt.split(' ').count() > 4 => fails(ErrorClass::Declined),
                "flaky" if first.fetch_add(1, Ordering::SeqCst) == 0 => {
                    fails(ErrorClass::Transient)
                }
                "broken" => fails(ErrorClass::Internal),
                prompt => Ok(answer(&prompt.to_uppercase())),
            }
        }
    });
    let parts = strategist::<_, AnyError>(classifier.clone(), desk.clone())
        .escalate(|escalate| escalate.from("part"))
        .layer(model.clone());
    let split = |whole: Task| {
        let words: Vec<_> = whole.prompt.split(' ').map(str::to_owned).collect();
        words.into_iter().enumerate().map(move |(n, prompt)| {
            let id = format!("{}.{n}", whole.id);
            Task { id, prompt, ..whole.clone() }
        })
    };
    let merge = |parts: Vec<Outcome>| {
        let incomplete = parts.iter().any(Result::is_err);
        let words = parts.into_iter().map(|part| part.map_or("..".to_owned(), |part| part.text));
        Ok::<_, AnyError>(Answer { incomplete, ..answer(&words.collect::<Vec<_>>().join(" ")) })
    };
    let fallback = FallbackLayer::new(classifier.clone())
        .or_service(ErrorClass::Declined, decompose(parts, split, merge));
    let stack = strategist(classifier, desk).fallback(|_| fallback).layer(model);

    let whole = stack.oneshot(task("one two flaky three broken four five six")).await.unwrap();
    assert_eq!(whole.text, "ONE TWO FLAKY THREE .. FOUR FIVE SIX");
    assert!(whole.incomplete && whole.notes.fallback == Some(ErrorClass::Declined));
    assert_eq!(busy.0[1].load(Ordering::SeqCst), 4, "bounded");
    // Each part that failed went through the stack by itself: one was healed, one was escalated.
    let ended: Vec<_> = seen.incidents().iter().map(|incident| incident.resolution).collect();
    assert_eq!(ended.len(), 3, "{ended:?}");
    assert!(ended.contains(&Resolution::RecoveredByRetry));
    assert!(ended.contains(&Resolution::Escalated));
    assert_eq!(ended[2], Resolution::AnsweredByFallback);
    let told = taken(&mut letters);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].context.request_id.as_deref(), Some("T-17.4"));
}

/// Work in five steps, which saves how far it came.
#[derive(Clone, Default)]
struct Job {
    from: usize,
    progress: Checkpoint<usize>,
}

impl Describe<Job> for Answers {
    fn operation(&self, _: &Job) -> Operation {
        Operation::new("job")
    }

    fn request_id(&self, _: &Job) -> Option<Label> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn r08_checkpoints() {
    // What is done, and which steps fail how often.
    let run = async |mut failures: Vec<(usize, u32)>, corrupt: Option<usize>| {
        let (classifier, _) = classifier();
        let done = Arc::new(Mutex::new(Vec::new()));
        let steps = Arc::clone(&done);
        let failures = Arc::new(Mutex::new(std::mem::take(&mut failures)));
        let work = service_fn(move |job: Job| {
            let (steps, failures) = (Arc::clone(&steps), Arc::clone(&failures));
            async move {
                for step in job.from..5 {
                    for (at, left) in failures.lock().unwrap().iter_mut() {
                        if *at == step && *left > 0 {
                            *left -= 1;
                            return Err(Trouble(Failure::new(ErrorClass::Transient)).into());
                        }
                    }
                    steps.lock().unwrap().push(step);
                    job.progress.save(step + 1);
                }
                Ok::<_, AnyError>(answer("all five"))
            }
        });
        let job = Job::default();
        let known = job.progress.clone();
        let stack = layers(&classifier)
            .retry(|(retry, rate)| {
                let resume = move |job: &mut Job, _: &_, _: Result<&Answer, &AnyError>| {
                    let valid = job.progress.last_valid(|step| Some(*step) != corrupt);
                    job.from = valid.unwrap_or(0);
                    valid.is_some()
                };
                (retry.nudge(resume), rate)
            })
            .escalate(|escalate| {
                escalate.finish_with(move |failed| {
                    let _: Result<&Answer, &AnyError> = failed.outcome;
                    let text = format!("{} of five", known.last()?);
                    Some(Answer { incomplete: true, ..answer(&text) })
                })
            })
            .layer(work);
        let outcome = stack.oneshot(job).await;
        let done = done.lock().unwrap().clone();
        (outcome.map(|answer| (answer.text, answer.incomplete)).ok(), done)
    };

    // Each step is done once, though two attempts failed on the way.
    let (outcome, done) = run(vec![(3, 1), (4, 1)], None).await;
    assert_eq!((outcome.unwrap().0.as_str(), done), ("all five", vec![0, 1, 2, 3, 4]));
    // From the last valid one, if the very last is not.
    let (outcome, done) = run(vec![(3, 1)], Some(3)).await;
    assert_eq!((outcome.unwrap().0.as_str(), done), ("all five", vec![0, 1, 2, 2, 3, 4]));
    // Used up: what there is.
    let (outcome, done) = run(vec![(2, 9)], None).await;
    assert_eq!((outcome.unwrap(), done), (("2 of five".to_owned(), true), vec![0, 1]));
    assert_eq!(run(vec![(0, 9)], None).await.0, None);
}

#[tokio::test(start_paused = true)]
async fn r09_dead_letters() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let receiver = Receiver::new("human").record(StoreSink::new(store.clone()));
    let desk = Desk::new(routes(), [receiver]).unwrap();
    let (classifier, _) = classifier();
    let (model, backup) = (worker([status(503)]), worker([status(500)]));
    let fallback =
        FallbackLayer::new(classifier.clone()).or_service(ClassSet::bypassable(), backup.clone());
    let stack = strategist(classifier.clone(), desk)
        .escalate(|escalate| escalate.from("planner").capture(JsonCodec::<Task>::new()))
        .fallback(|_| fallback)
        .layer(model.clone());
    for n in 0..20 {
        let task = Task { id: format!("T-{n}"), ..task(&format!("prompt {n}")) };
        stack.clone().oneshot(task).await.unwrap_err();
    }
    assert_eq!(backup.calls(), 20);

    // None is dropped; for analysis there is what was tried, for audit what became of it.
    let page = store.list(Filter::any(), None, 100).await.unwrap();
    assert_eq!(page.letters.len(), 20);
    let first = &page.letters[0];
    let strategies: Vec<_> =
        first.escalation.attempts.iter().map(|attempt| attempt.strategy.as_str()).collect();
    assert_eq!(strategies, ["call", "retry", "retry", "fallback_service"]);
    assert_eq!(first.state, LetterState::Open);

    // Driven again by hand: the first, and what it asks is asked again as it was.
    model.now(Says("ok"));
    let asked = model.calls();
    let mut redrive =
        Redrive::new(Arc::clone(&store), JsonCodec::<Task>::new(), classifier, model.clone())
            .ids([first.id()]);
    assert_eq!(redrive.drain().await.unwrap().redriven, 1);
    assert_eq!(model.prompts()[asked..], ["prompt 0".to_owned()]);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.of(LetterState::Redriven), stats.of(LetterState::Open)), (1, 19));
    let letter = store.get(first.id()).await.unwrap().unwrap();
    assert!(letter.history.len() >= 2, "the history: {:?}", letter.history);
}

#[tokio::test(start_paused = true)]
async fn r10_learning() {
    let (classifier, _) = classifier();
    let log = FailureLog::new();
    classifier.observe(log.clone());
    for (operation, line) in [
        ("plan", status(503)),
        ("plan", fails(ErrorClass::Permanent)),
        ("summarise", fails(ErrorClass::Quota)),
    ] {
        let task = Task { operation: operation.to_owned(), ..task("p") };
        layers(&classifier).layer(worker([line])).oneshot(task).await.unwrap_err();
    }
    let report = log.report();
    assert_eq!((report.failures, report.calls), (5, 3));
    let by_class = [(ErrorClass::Transient, 3), (ErrorClass::Permanent, 1), (ErrorClass::Quota, 1)];
    assert_eq!(report.by_class, by_class);
    assert_eq!(report.by_operation, [("plan".to_owned(), 4), ("summarise".to_owned(), 1)]);
    let by_hour: u64 = report.by_hour.iter().map(|(_, count)| count).sum();
    assert_eq!((report.by_hour.len().min(1), by_hour), (1, 5));
    let text = report.to_string();
    assert!(text.contains("5 failures in 3 calls") && text.contains("summarise"), "{text}");
}

/// R10: frequent rate limits lengthen the waits by themselves, and shorten them when they cease.
#[tokio::test(start_paused = true)]
async fn r10_learning_adapts_the_waits() {
    for seed in 0..20 {
        let [free, throttled, recovered] = rates(seed).await;
        let about = format!("seed {seed}: {free:?}, {throttled:?}, {recovered:?}");
        assert!(free.0.is_none() && free.1 >= 300, "nothing waits before it is throttled: {about}");
        assert!(throttled.0.unwrap() < 6.0 && throttled.1 < 60, "{about}");
        assert!(recovered.0.unwrap() > 20.0 && recovered.1 >= 200, "{about}");
    }
}

/// What the rate is, and how many requests are sent in ten seconds, at the end of two minutes each:
/// everything is served; three a second are; everything is again. Four clients call, one call after
/// the other and ten a second if they can.
async fn rates(seed: u64) -> [(Option<f64>, usize); 3] {
    let (classifier, _) = classifier();
    let layers =
        layers(&classifier).retry(|(retry, rate)| (retry.random(Random::seeded(seed)), rate));
    let rate = layers.retry.1.clone();
    let sent: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (calls, limit) = (Arc::clone(&sent), Arc::new(AtomicUsize::new(usize::MAX)));
    let (most, begun) = (Arc::clone(&limit), Instant::now());
    let stack = layers.layer(service_fn(move |_: Task| {
        let at = begun.elapsed();
        let mut calls = calls.lock().unwrap();
        calls.push(at);
        let lately = calls.iter().rev().take_while(|call| **call + SECOND > at).count();
        let outcome = match lately > most.load(Ordering::SeqCst) {
            true => Err(AnyError::from(Trouble(Failure::new(ErrorClass::Throttled)))),
            false => Ok(answer("ok")),
        };
        std::future::ready(outcome)
    }));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let stack = stack.clone();
        clients.spawn(async move {
            loop {
                _ = stack.clone().oneshot(task("p")).await;
                sleep(SECOND / 10).await;
            }
        });
    }
    let mut found = [(None, 0); 3];
    for (found, most) in found.iter_mut().zip([usize::MAX, 3, usize::MAX]) {
        limit.store(most, Ordering::SeqCst);
        sleep(120 * SECOND).await;
        let from = begun.elapsed() - 10 * SECOND;
        let lately = sent.lock().unwrap().iter().filter(|at| **at >= from).count();
        *found = (rate.per_second(), lately);
    }
    found
}
