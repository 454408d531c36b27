//! A crew of agents writes a guide to lighthouses, in a world that fails in every way.
//!
//! A planner asks a large model for a plan: some twenty tasks, in waves. Three workers carry them out
//! with the model, an archive of pages, and a small model in reserve. The models limit their rate,
//! hang, refuse, are down, go in circles, answer with prose where JSON was asked for, or fail in a way
//! that nobody has heard of; pages are corrupt, cost money, or are too long. The preset
//! [`orchestrator`](tower_triage::preset::orchestrator) around the workers, at a tenth of its times,
//! sees every task through: by retry, nudge, replan, another model, decomposition, a person's
//! decision, or a forced finish.
//!
//! What solved each task is read from its incident, and must agree with what the world saw; and so
//! must the sums, or the exit code says so.

mod books;
mod crew;
mod world;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use tower::ServiceExt;
use tower_triage::escalate::store::{Filter, MemoryStore, Store, StoreSink};
use tower_triage::escalate::{Receiver, Route, Routes};
use tower_triage::learn::{LearnPolicy, Learner, Mode, Remedy};
use tower_triage::report::{BreakerTable, FailureLog, Wave};
use tower_triage::{AnyError, Classifier, Desk, ErrorClass, Incident, Observer, StepKind};

use crate::books::Way;
use crate::crew::{Crew, Human, Model, PACE, Report, Stack, Task, rules};
use crate::world::{Archive, Book, Fate, Servers};

type Story<T> = Result<T, Box<dyn Error>>;

/// So many tasks are under way at a time.
const AT_ONCE: usize = 4;

#[tokio::main]
async fn main() -> Story<ExitCode> {
    let book = Book::default();
    let servers = Servers::start(&book).await?;
    let archive = Archive::new(book.clone());
    let (large, small) = (Model::new(servers.large), Model::new(servers.small));
    let classifier = Classifier::new(rules());
    let crew = Crew::new(&large, &archive, &classifier);
    let spare = Crew::new(&small, &archive, &classifier);
    let learner = Learner::new(
        LearnPolicy::default()
            .mode(Mode::Aggressive)
            .remedies([
                Remedy::new("nudge", ErrorClass::Transient),
                Remedy::new("fallback/service", ErrorClass::Declined),
            ])
            .build()?,
    );
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let desk = desk(&store)?;
    let (wave, log) = (Wave::new(), FailureLog::new());
    classifier.observe(learner.clone());
    classifier.observe(wave.clone());
    classifier.observe(log.clone());
    let stack = Stack::new(&classifier, &learner, desk, store.clone(), (crew, spare))?;
    let human = Human::default();
    tokio::spawn(human.clone().answer(store.clone()));

    let mut reports = Vec::new();
    let run = async |task: Task| {
        let name = task.name.clone();
        let report = wave.watch(&name, stack.service.clone().oneshot(task)).await;
        (name, report)
    };
    let (name, plan) = run(Task::new("plan")).await;
    let plan = plan?;
    let waves: Vec<Vec<String>> = serde_json::from_str(&plan.text)?;
    reports.push((name, Ok(plan)));
    for tasks in waves {
        let tasks = stream::iter(tasks.iter().map(|name| run(Task::new(name))));
        let done = tasks.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
        reports.extend(done);
    }
    println!("{}", wave.chart());
    println!("{}", BreakerTable::of(&stack.breakers));
    println!("{}", wave.summary());
    println!("{}", log.report());
    let entries = book.entries();
    for (name, report) in &reports {
        let incident = match report {
            Ok(report) => report.notes.incident.as_deref(),
            Err(error) => error.incident().map(|i| &**i),
        };
        let of_task: Vec<_> = entries.iter().filter(|entry| entry.task == *name).collect();
        let decided = human.decided().contains(name);
        println!("{:<20} {:<20} {:<15} {:<15} {}", name, Fate::of(name).name(), Way::of_incident(incident), Way::of_world(&of_task, decided), of_task.len());
        if let (Some(incident), true) = (incident, std::env::var("V").is_ok()) { println!("{}", incident.timeline(30)); }
    }
    for class in ErrorClass::ALL { println!("{class} {}", classifier.count(class)); }
    for letter in store.list(Filter::any(), None, 100).await?.letters { println!("{} {:?} {:?}", letter.escalation.summary, letter.state, letter.escalation.to) }
    println!("{:?}", store.stats().await?);
    Ok(ExitCode::SUCCESS)
}

fn desk(store: &Arc<dyn Store>) -> Story<Desk> {
    let receivers = ["orchestrator", "human"]
        .map(|name| Receiver::new(name).record(StoreSink::new(store.clone())));
    let routes = Routes::new(Route::new(["orchestrator"], "task_blocked"));
    Ok(Desk::new(routes, receivers)?)
}
