//! The rows of the system "three levels and a breaker", one test each, over the preset
//! `escalation`: what a row asks for is configured or a small closure.

mod scenarios;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use scenarios::{
    Answer, Breaks, Fails, Line, Log, Outcome, Rules, Says, Task, Worker, World, answer,
    classifier, fails, sqlstate, status, status_by, task, worker,
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_triage::escalate::store::{Change, Filter, LetterState, MemoryStore, Store, StoreSink};
use tower_triage::escalate::{
    Asking, Choice, Decision, JsonCodec, Outcome as End, Priority, Receiver, Redrive, RedrivePolicy,
};
use tower_triage::fallback::LastGood;
use tower_triage::fallback::chain::{Depth, End as NoSteps};
use tower_triage::http::{HttpRulesExt, http};
use tower_triage::preset::escalation::{
    breaker_policy, escalate_policy, questions_are_critical, retry_policy, routes,
};
use tower_triage::preset::{self, escalation};
use tower_triage::{
    AnyError, CircuitOpen, ClassSet, Desk, ErrorClass, Failure, FallbackLayer, Random, Resolution,
    RetryAfter, StepKind,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

type Stack = BoxCloneSyncService<Task, Answer, AnyError>;

/// The preset around workers.
impl World {
    fn preset(&self) -> preset::Service<Rules> {
        let layers = escalation(self.classifier.clone(), self.desk.clone());
        layers.escalate(|escalate| escalate.from("worker-7"))
    }

    fn fallback(
        &self,
    ) -> FallbackLayer<Rules, NoSteps, tower_triage::fallback::keep::Nothing<AnyError>> {
        FallbackLayer::new(self.classifier.clone())
    }

    fn alone(&self, worker: &Worker) -> Stack {
        BoxCloneSyncService::new(self.preset().layer(worker.clone()))
    }

    fn with_backup(&self, worker: &Worker, backup: &Worker) -> Stack {
        let backup = self.fallback().or_service(ClassSet::bypassable(), backup.clone());
        BoxCloneSyncService::new(self.preset().fallback(|_| backup).layer(worker.clone()))
    }
}

/// How a worker that does `lines` is treated: its calls, and whether somebody was told.
async fn treated(lines: impl IntoIterator<Item = Line>) -> (usize, bool, Outcome) {
    let (mut world, worker) = (World::new(routes()), worker(lines));
    let outcome = world.alone(&worker).oneshot(task("p")).await;
    (worker.calls(), !world.letters().is_empty(), outcome)
}

async fn calls(line: Line) -> usize {
    let (calls, told, outcome) = treated([line]).await;
    assert!(told && outcome.is_err(), "{line:?}");
    calls
}

#[tokio::test(start_paused = true)]
async fn e01_decision() {
    let transient = fails(ErrorClass::Transient);
    let quota = fails(ErrorClass::Quota);
    let permanent = fails(ErrorClass::Permanent);
    for (primary, backup, expected) in [
        // Transient: retried.
        (vec![transient, transient, Says("at last")], None, (3, 0, Some("at last"), false)),
        // Exhausted, or not transient: bypassed.
        (vec![transient], Some(Says("otherwise")), (3, 1, Some("otherwise"), false)),
        (vec![quota], Some(Says("otherwise")), (1, 1, Some("otherwise"), false)),
        // The fallback failed, or there is nothing to bypass with: escalated.
        (vec![transient], Some(permanent), (3, 1, None, true)),
        (vec![transient], None, (3, 0, None, true)),
        (vec![quota], None, (1, 0, None, true)),
        // Neither transient nor bypassable.
        (vec![permanent], Some(Says("otherwise")), (1, 0, None, true)),
    ] {
        let about = format!("{primary:?}, {backup:?}");
        let (log, begun) = (Log::new(), Instant::now());
        let (mut world, primary) = (World::new(routes()), worker(primary));
        let other = worker(backup);
        let stack = match backup {
            Some(_) => world.with_backup(&primary, &other),
            None => world.alone(&primary),
        };
        let outcome = stack.oneshot(task("p")).await;
        let said = outcome.as_ref().ok().map(|answer| answer.text.as_str());
        let told = !world.letters().is_empty();
        assert_eq!((primary.calls(), other.calls(), said, told), expected, "{about}");
        if primary.calls() == 1 {
            assert_eq!(begun.elapsed(), Duration::ZERO, "at once: {about}");
        }
        if said == Some("otherwise") {
            assert_eq!(log.lines(&["WARN", "fallback", "answered"]).len(), 1, "{about}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn e02_per_cause_attempts() {
    assert_eq!(calls(status(429)).await, 3, "rate limit");
    assert_eq!(calls(status(503)).await, 3, "service unavailable");
    assert_eq!(calls(Breaks(ErrorKind::TimedOut)).await, 2, "network timeout");
    assert_eq!(calls(Breaks(ErrorKind::ConnectionRefused)).await, 3, "connection refused");
    assert_eq!(calls(sqlstate("55P03")).await, 2, "database lock timeout");

    // A rate limit says when: not earlier, and a tenth later at most.
    let hint = Failure::new(ErrorClass::Throttled).retry_after(RetryAfter::AtLeast(20 * SECOND));
    let (world, worker) = (World::new(routes()), worker([Fails(hint), Says("ok")]));
    world.alone(&worker).oneshot(task("p")).await.unwrap();
    assert!((20 * SECOND..=22 * SECOND).contains(&worker.times()[1]), "{:?}", worker.times());
}

#[tokio::test(start_paused = true)]
async fn e03_never_retried() {
    for line in [
        status(400),
        status(401),
        status(403),
        status(404),
        status(422),
        sqlstate("23505"), // validation: a unique constraint
        sqlstate("42P07"), // migration: the table is there already
        sqlstate("42701"), // migration: the column is there already
    ] {
        assert_eq!(calls(line).await, 1, "{line:?}");
    }
    // New credentials and one more try, if there is a refresh; here 403 as 401.
    let forbidden = status_by(http().status(403, ErrorClass::Auth), 403);
    for line in [status(401), forbidden] {
        for (refreshed, then, expected) in [
            (true, Says("ok"), (1, 2, true, false)),
            (true, line, (1, 2, false, true)),
            (false, Says("ok"), (1, 1, false, true)),
        ] {
            let (mut world, worker) = (World::new(routes()), worker([line, then]));
            let refreshes = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&refreshes);
            let refresh = move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
                std::future::ready(refreshed)
            };
            let stack = world.preset().retry(|retry| retry.refresh(refresh)).layer(worker.clone());
            let outcome = stack.oneshot(task("p")).await;
            let told = !world.letters().is_empty();
            let found = (refreshes.load(Ordering::SeqCst), worker.calls(), outcome.is_ok(), told);
            assert_eq!(found, expected, "{line:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn e04_schedule() {
    let policy = retry_policy();
    let waits = policy.rule(ErrorClass::Transient).unwrap().backoff();
    let waits: Vec<_> = waits.iter(|| 0.5).take(2).collect();
    assert_eq!(waits, [2 * SECOND, 8 * SECOND]);

    let (mut shortest, mut longest) = ([Duration::MAX; 2], [Duration::ZERO; 2]);
    for seed in 0..200 {
        // Whatever the causes are, the n-th attempt comes after the n-th wait.
        let lines = [fails(ErrorClass::Throttled), fails(ErrorClass::Transient), Says("ok")];
        let (world, worker) = (World::new(routes()), worker(lines));
        let stack = world.preset().retry(|retry| retry.random(Random::seeded(seed)));
        stack.layer(worker.clone()).oneshot(task("p")).await.unwrap();
        let [first, second, third] = worker.times()[..] else { panic!("{:?}", worker.times()) };
        assert_eq!(first, Duration::ZERO);
        for (n, wait) in [second, third - second].into_iter().enumerate() {
            (shortest[n], longest[n]) = (shortest[n].min(wait), longest[n].max(wait));
        }
    }
    // Timers have milliseconds.
    let ms = Duration::from_millis;
    assert!(shortest[0] >= ms(1500) && longest[0] <= ms(2501), "{shortest:?} {longest:?}");
    assert!(shortest[1] >= ms(6000) && longest[1] <= ms(10_001), "{shortest:?} {longest:?}");
    assert!(shortest[0] < ms(1600) && longest[0] > ms(2400), "{shortest:?} {longest:?}");
    assert!(shortest[1] < ms(6400) && longest[1] > ms(9600), "{shortest:?} {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn e05_retry_log() {
    let log = Log::new();
    let (world, worker) = (World::new(routes()), worker([status(503), status(503), Says("ok")]));
    let stack = world.alone(&worker);
    stack.oneshot(task("p")).await.unwrap();
    let lines = log.lines(&["WARN", r#"action="retry""#]);
    assert_eq!(lines.len(), 2, "one per retry: {lines:#?}");
    let waits = worker.times();
    for (n, line) in lines.iter().enumerate() {
        let (attempt, wait) = (n + 2, waits[n + 1] - waits[n]);
        for part in [
            r#"operation="build""#.to_owned(),
            format!("attempt={attempt} max_attempts=3"),
            r#"error.type="Transient""#.to_owned(),
            format!("Transient (http_503): attempt {attempt} follows in"),
        ] {
            assert!(line.contains(&part), "no {part}: {line}");
        }
        let told = line.split("wait_ms=").nth(1).unwrap().split(' ').next().unwrap();
        let told = Duration::from_millis(told.parse().unwrap());
        assert!(wait - told <= Duration::from_millis(2), "{told:?} for {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn e06_fallbacks() {
    let down = || worker([status(503)]);
    // Another transport to the same data.
    let (world, by_mail) = (World::new(routes()), worker([Says("by mail")]));
    let stack = world.with_backup(&down(), &by_mail);
    assert_eq!(stack.oneshot(task("p")).await.unwrap().text, "by mail");
    assert_eq!(by_mail.prompts(), ["p"]);

    // Hand over to another worker, with what is known.
    let (world, colleague) = (World::new(routes()), worker([Says("taken over")]));
    let hand_over = world.fallback().or_service_with(
        ClassSet::bypassable(),
        colleague.clone(),
        |task: Task, failed| {
            let _: Result<&Answer, &AnyError> = failed.outcome;
            Task { prompt: format!("{}; {} failed so", task.prompt, failed.failure.reason), ..task }
        },
    );
    let stack = world.preset().fallback(|_| hand_over).layer(down());
    assert_eq!(stack.oneshot(task("p")).await.unwrap().text, "taken over");
    assert_eq!(colleague.prompts(), ["p; http_503 failed so"]);

    // The last good report, if it is younger than 24 hours.
    let (world, reporter) = (World::new(routes()), worker([Says("the report")]));
    let policy = LastGood::new(SECOND, 24 * HOUR).unwrap();
    let last_good = world.fallback().or_last_good(ClassSet::bypassable(), policy);
    let stack = world.preset().fallback(|_| last_good).layer(reporter.clone());
    stack.clone().oneshot(task("p")).await.unwrap();
    reporter.now(status(503));
    advance(23 * HOUR).await;
    assert_eq!(stack.clone().oneshot(task("p")).await.unwrap().text, "the report");
    advance(HOUR).await;
    assert!(stack.oneshot(task("p")).await.is_err());

    // A placeholder marked incomplete.
    let world = World::new(routes());
    let placeholder = world.fallback().or_value(ClassSet::bypassable(), |failed| {
        let _: Result<&Answer, &AnyError> = failed.outcome;
        Answer { incomplete: true, ..answer("to be done") }
    });
    let stack = world.preset().fallback(|_| placeholder).layer(down());
    let placeholder = stack.oneshot(task("p")).await.unwrap();
    assert!(placeholder.incomplete && placeholder.notes.fallback == Some(ErrorClass::Transient));
}

/// E6: written to a queue for later delivery, and delivered later.
#[tokio::test(start_paused = true)]
async fn e06_queue_for_later_delivery() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let receivers = ["orchestrator", "auditor", "human"]
        .map(|name| Receiver::new(name).record(StoreSink::new(store.clone())));
    let desk = Desk::new(routes(), receivers).unwrap();
    let (classifier, seen) = classifier();
    let mailbox = worker([status(503)]);
    let stack = escalation(classifier.clone(), desk)
        .escalate(|escalate| {
            escalate.from("worker-7").capture(JsonCodec::<Task>::new()).finish_with(|failed| {
                let _: Result<&Answer, &AnyError> = failed.outcome;
                Some(Answer { incomplete: true, ..answer("accepted") })
            })
        })
        .layer(mailbox.clone());
    let accepted = stack.oneshot(task("hello")).await.unwrap();
    assert_eq!((accepted.text.as_str(), accepted.incomplete), ("accepted", true));
    assert_eq!(accepted.notes.forced_finish, Some(ErrorClass::Transient));
    assert_eq!(seen.last().resolution, Resolution::ForcedFinish);

    mailbox.now(Says("delivered"));
    let mut worker =
        Redrive::new(Arc::clone(&store), JsonCodec::<Task>::new(), classifier, mailbox.clone())
            .policy(RedrivePolicy::new())
            .unwrap();
    let progress = worker.drain().await.unwrap();
    assert_eq!((progress.redriven, progress.failed), (1, 0));
    assert_eq!(mailbox.prompts(), ["hello"; 4], "three attempts, and the delivery");
    assert_eq!(store.stats().await.unwrap().of(LetterState::Redriven), 1);
}

#[tokio::test(start_paused = true)]
async fn e07_fallback_rules() {
    let log = Log::new();
    let (mut world, primary) = (World::new(routes()), worker([Breaks(ErrorKind::ConnectionReset)]));
    let degraded = world.with_backup(&primary, &worker([Says("otherwise")]));
    let degraded = degraded.oneshot(task("p")).await.unwrap();
    assert_eq!(degraded.notes.fallback, Some(ErrorClass::Transient), "explicitly marked");
    let lines = log.lines(&["WARN", r#"layer="fallback""#, "answered"]);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("connection reset"), "the original error: {lines:?}");
    assert!(world.letters().is_empty());

    // At most two levels deep (a third does not compile), then escalate.
    assert_eq!(<NoSteps as Depth>::MAX, 2);
    let (first, second) = (worker([status(500)]), worker([status(502)]));
    let steps = world
        .fallback()
        .or_service(ClassSet::bypassable(), first.clone())
        .or_service(ClassSet::bypassable(), second.clone());
    let stack = world.preset().fallback(|_| steps).layer(primary);
    stack.oneshot(task("p")).await.unwrap_err();
    assert_eq!((first.calls(), second.calls()), (1, 1));
    let letters = world.letters();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].class, ErrorClass::Transient, "the original failure");
}

#[test]
fn e08_escalation_matrix() {
    let routes = routes();
    for (from, to, task_type) in [
        ("client", &["orchestrator"][..], "client_issue"),
        ("client-agent", &["orchestrator"], "client_issue"),
        ("worker-1", &["orchestrator"], "task_blocked"),
        ("worker-backend", &["orchestrator"], "task_blocked"),
        ("orchestrator", &["human"], "human_required"),
        ("validator", &["auditor"], "security_finding"),
        ("auditor", &["orchestrator", "human"], "critical_vulnerability"),
        ("infrastructure", &["orchestrator", "human"], "infra_failure"),
        ("anybody else", &["human"], "human_required"),
    ] {
        let route = routes.find(from, ErrorClass::Transient, "build", Priority::Medium);
        assert_eq!(route.to, to);
        assert_eq!(route.task_type, task_type);
    }
}

/// E8, as it is lived: several receivers, each told once.
#[tokio::test(start_paused = true)]
async fn e08_escalation_matrix_of_the_preset() {
    for (from, receivers) in [("worker-7", 1), ("infrastructure", 2)] {
        let mut world = World::new(routes());
        let layers = escalation(world.classifier.clone(), world.desk.clone());
        let stack = layers.escalate(|e| e.from(from)).layer(worker([status(404)]));
        stack.oneshot(task("p")).await.unwrap_err();
        assert_eq!(world.letters().len(), receivers, "{from}");
    }
}

#[tokio::test(start_paused = true)]
async fn e09_payload() {
    let mut world = World::new(routes());
    let backup = world.fallback().or_service(ClassSet::bypassable(), worker([status(500)]));
    let stack = world
        .preset()
        .escalate(|escalate| {
            escalate.enrich(|escalation| {
                escalation.suggestion = "reschedule the task".to_owned();
                escalation.context.fields.insert("project".to_owned(), "apollo".to_owned());
            })
        })
        .fallback(|_| backup)
        .layer(worker([Breaks(ErrorKind::ConnectionReset)]));
    stack.oneshot(task("p")).await.unwrap_err();
    let letter = world.letters().remove(0);

    assert_eq!(letter.task_type, "task_blocked");
    assert_eq!(letter.priority, Priority::Medium);
    assert_eq!(
        (letter.from.as_str(), &letter.to[..]),
        ("worker-7", &["orchestrator".to_owned()][..])
    );
    assert_eq!(letter.context.request_id.as_deref(), Some("T-17"), "the original task");
    assert_eq!(letter.operation, "build");
    assert!(
        letter.summary.starts_with("build failed after 3 attempts: Transient"),
        "{}",
        letter.summary
    );
    assert!(letter.detail.contains("connection reset"), "{}", letter.detail);
    let attempts: Vec<_> =
        letter.attempts.iter().map(|a| (a.strategy.as_str(), a.number, a.class)).collect();
    let transient = Some(ErrorClass::Transient);
    assert_eq!(
        attempts[..3],
        [("call", 1, transient), ("retry", 2, transient), ("retry", 3, transient)]
    );
    assert_eq!((attempts[3].0, attempts[3].1), ("fallback_service", 1));
    assert!(letter.attempts.iter().all(|attempt| !attempt.result.is_empty()));
    assert!(letter.impact.contains("the caller got the failure"), "{}", letter.impact);
    assert_eq!(letter.suggestion, "reschedule the task");
    assert_eq!(letter.context.fields["project"], "apollo");
    assert_eq!(letter.context.trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));

    // The same as data.
    let data = serde_json::to_value(&letter).unwrap();
    for field in [
        "task_type",
        "priority",
        "from",
        "to",
        "summary",
        "detail",
        "attempts",
        "impact",
        "suggestion",
        "context",
    ] {
        assert!(!data[field].is_null(), "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn e10_human() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let receivers = ["orchestrator", "auditor", "human"]
        .map(|name| Receiver::new(name).record(StoreSink::new(store.clone())));
    let desk = Desk::new(routes(), receivers).unwrap();
    let (classifier, _) = classifier();
    let asking = Asking::new(Arc::clone(&store)).deadline(15 * MINUTE);
    let stack = escalation(classifier, desk)
        .escalate(|escalate| {
            escalate
                .from("orchestrator")
                .enrich(|escalation| {
                    questions_are_critical(escalation);
                    let Some(question) = &mut escalation.question else { return };
                    question.text = format!("{}: how shall we go on?", escalation.summary);
                    let choice =
                        |label: &str, decision| Choice { label: label.to_owned(), decision };
                    question.options = vec![
                        choice("use what there is", Decision::Respond(json!("what there is"))),
                        choice("give up", Decision::Abort),
                    ];
                })
                .respond_with(|value: &Value, failed| {
                    let _: Result<&Answer, &AnyError> = failed.outcome;
                    value.as_str().map(answer)
                })
                .ask(asking)
                .unwrap()
        })
        .layer(worker([fails(ErrorClass::Quota)]));
    let waiting = tokio::spawn(stack.oneshot(task("p")));

    let asked = loop {
        let page = store.list(Filter::any().asking(), None, 9).await.unwrap();
        match page.letters.into_iter().next() {
            Some(letter) => break letter,
            None => tokio::task::yield_now().await,
        }
    };
    let escalation = &asked.escalation;
    assert_eq!(
        (&escalation.to[..], escalation.task_type.as_str()),
        (&["human".to_owned()][..], "human_required")
    );
    assert_eq!(escalation.priority, Priority::Critical);
    let question = asked.question().unwrap();
    assert!(question.text.contains("Quota"), "the reason: {}", question.text);
    assert_eq!(question.options.len(), 2);
    assert!(question.deadline > asked.stored);

    // Whoever decides chooses among the options; the choice comes back to the waiting call.
    let decision = question.options[0].decision.clone();
    let (by, why) = ("ada".to_owned(), "it is enough".to_owned());
    store.change(asked.id(), Change::Answered { decision, by, why }).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().text, "what there is");
}

#[tokio::test(start_paused = true)]
async fn e11_breaker() {
    let log = Log::new();
    let (mut world, worker) = (World::new(routes()), worker([fails(ErrorClass::Internal)]));
    let stack = world.alone(&worker);
    let other = || Task { operation: "test".to_owned(), ..task("p") };
    let is_open = |outcome: Outcome| outcome.unwrap_err().downcast_ref::<CircuitOpen>().is_some();

    // Five in a row within ten minutes.
    for n in 1..=5 {
        assert_eq!(worker.calls(), n - 1);
        assert!(!is_open(stack.clone().oneshot(task("p")).await));
        advance(2 * MINUTE - SECOND).await;
    }
    let letters = world.letters();
    assert_eq!(letters.len(), 5);
    assert!(letters[4].impact.contains("refuses further calls for 300s"), "{}", letters[4].impact);
    let errors = log.lines(&["ERROR", r#"operation="build""#, r#"request_id="T-17""#]);
    assert!(!errors.is_empty(), "an error with the context");

    // Open: no call is made, and somebody is told at once. Other operations go on.
    assert!(is_open(stack.clone().oneshot(task("p")).await));
    let refused = world.letters();
    assert_eq!((worker.calls(), refused.len(), refused[0].class), (5, 1, ErrorClass::Rejected));
    assert!(!is_open(stack.clone().oneshot(other()).await));
    assert_eq!(worker.calls(), 6);

    // After five minutes one trial; its failure keeps it open for another five.
    advance(3 * MINUTE + SECOND).await;
    assert!(!is_open(stack.clone().oneshot(task("p")).await));
    advance(5 * MINUTE - SECOND).await;
    assert!(is_open(stack.clone().oneshot(task("p")).await));
    assert_eq!(worker.calls(), 7);
    // Success closes.
    advance(SECOND).await;
    worker.now(Says("ok"));
    for _ in 0..2 {
        stack.clone().oneshot(task("p")).await.unwrap();
    }
}

/// E11: five that are further apart than ten minutes open nothing, nor do five with a success
/// between them.
#[tokio::test(start_paused = true)]
async fn e11_breaker_stays_closed() {
    let (world, slow) = (World::new(routes()), worker([fails(ErrorClass::Internal)]));
    let stack = world.alone(&slow);
    for _ in 0..8 {
        stack.clone().oneshot(task("p")).await.unwrap_err();
        advance(2 * MINUTE + 31 * SECOND).await;
    }
    assert_eq!(slow.calls(), 8);

    let (world, mixed) = (World::new(routes()), worker([Says("ok")]));
    let stack = world.alone(&mixed);
    for n in 1..=12 {
        mixed.now(if n % 5 == 0 { Says("ok") } else { fails(ErrorClass::Internal) });
        let outcome = stack.clone().oneshot(task("p")).await;
        assert_eq!(outcome.is_ok(), n % 5 == 0);
    }
    assert_eq!(mixed.calls(), 12);
}

#[tokio::test(start_paused = true)]
async fn e12_never() {
    // Endless retry: whatever it fails with, at most three attempts.
    for class in ErrorClass::ALL {
        let log = Log::new();
        let (mut world, worker) = (World::new(routes()), worker([fails(class)]));
        world.alone(&worker).oneshot(task("p")).await.unwrap_err();
        assert!(worker.calls() <= 3, "{class}");
        // A swallowed error: even an uncritical one is logged.
        let warnings = log.lines(&["WARN", &format!(r#"error.type="{class}""#)]);
        assert!(!warnings.is_empty(), "{class}");
        // Escalation without context.
        let letters = world.letters();
        assert_eq!(letters.is_empty(), class == ErrorClass::Cancelled, "{class}");
        for letter in letters {
            assert!(letter.context.trace_id.is_some() && letter.context.request_id.is_some());
            assert!(!letter.attempts.is_empty() && !letter.summary.is_empty());
            assert!(!letter.impact.is_empty() && !letter.suggestion.is_empty());
            assert_eq!(letter.outcome, End::Failed);
        }
    }
    // A timeout that a retry heals is not escalated; it is logged.
    let log = Log::new();
    let (mut world, worker) =
        (World::new(routes()), worker([fails(ErrorClass::Timeout), Says("just in time")]));
    world.alone(&worker).oneshot(task("p")).await.unwrap();
    assert!(world.letters().is_empty());
    assert_eq!(world.seen.last().resolution, Resolution::RecoveredByRetry);
    assert!(!log.lines(&["WARN", "Timeout"]).is_empty());
}

/// Every slot can be replaced, and every policy taken and changed.
#[tokio::test(start_paused = true)]
async fn the_preset_can_be_adjusted() {
    let (mut world, worker) = (World::new(routes()), worker([status(503)]));
    let stack = world
        .preset()
        .retry(|retry| retry.policy(retry_policy().attempts(2).build().unwrap()))
        .breaker(|breaker| {
            breaker.policy(breaker_policy().consecutive_failures(2).build().unwrap())
        })
        .escalate(|escalate| escalate.policy(escalate_policy().circuit_opened(false)))
        .fallback(|_| {
            world.fallback().or_value(ClassSet::bypassable(), |failed| {
                let _: Result<&Answer, &AnyError> = failed.outcome;
                answer("a value")
            })
        })
        .layer(worker.clone());
    assert_eq!(stack.oneshot(task("p")).await.unwrap().text, "a value");
    assert_eq!(worker.calls(), 2);
    let opened = world.seen.last().steps;
    assert!(opened.iter().any(|step| matches!(step.kind, StepKind::CircuitOpened { .. })));
    assert!(world.letters().is_empty());
}
