//! Who does the work: reads pages, asks a model, and looks up what the model wants to see.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tower::Service;
use tower_triage::{AnyError, BoxError, Classifier, ErrorClass, Failure, Fingerprint, Operation};

use crate::crew::model::{Answer, Model};
use crate::crew::rules::{Rules, Trouble};
use crate::crew::task::{Report, Task};
use crate::world::Archive;

/// Who fails so often in one way goes in circles.
pub(crate) const CIRCLES: usize = 3;

/// A planner and three workers, each for its kind of task. Clones are one crew.
#[derive(Clone)]
pub(crate) struct Crew([Worker; 4]);

/// One of them, and its book.
#[derive(Clone)]
struct Worker {
    name: &'static str,
    model: Model,
    archive: Archive,
    classifier: Classifier<Rules>,
    begun: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

/// Work that came to an end too early, with what was read until then.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) read: Vec<String>,
    source: BoxError,
}

impl Crew {
    /// All of them ask this model.
    pub(crate) fn new(model: &Model, archive: &Archive, classifier: &Classifier<Rules>) -> Self {
        Self(["planner", "gatherer", "writer", "checker"].map(|name| Worker {
            name,
            model: model.clone(),
            archive: archive.clone(),
            classifier: classifier.clone(),
            begun: Arc::default(),
            done: Arc::default(),
        }))
    }

    /// How many attempts were begun, and how many of them came to something.
    pub(crate) fn attempts(&self) -> (u64, u64) {
        let sum = |count: fn(&Worker) -> &AtomicU64| {
            self.0.iter().map(|worker| count(worker).load(Ordering::Relaxed)).sum()
        };
        (sum(|worker| &worker.begun), sum(|worker| &worker.done))
    }
}

impl Service<Task> for Crew {
    type Response = Report;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<Report, AnyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task) -> Self::Future {
        let worker = self.0.iter().find(|worker| worker.name == task.worker()).cloned();
        let nobody = || AnyError::msg("nobody does such tasks");
        Box::pin(async move { worker.ok_or_else(nobody)?.work(task).await })
    }
}

impl Worker {
    async fn work(self, task: Task) -> Result<Report, AnyError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let report = self.try_to(&task).await.map_err(|error| match task.progress.last() {
            Some(read) => Unfinished { read, source: error.into_inner() }.into(),
            None => error,
        })?;
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(report)
    }

    async fn try_to(&self, task: &Task) -> Result<Report, AnyError> {
        let mut read = task.read.clone();
        for page in task.unread() {
            read.push(self.archive.read(task, page).await?);
            task.progress.save(read.clone());
        }
        let mut prompt = task.prompt(&read);
        let mut failures = Vec::new();
        loop {
            let page = match self.model.ask(task, &prompt).await? {
                Answer::Text(text) => return Ok(Report { text, ..Report::default() }),
                Answer::LookUp(page) => page,
            };
            match self.archive.read(task, &page).await {
                Ok(text) => prompt = format!("{prompt} {text}"),
                // The model may think of something else. If it does not, repeating it is no use.
                Err(error) => {
                    let kind = self.kind(task, &error);
                    failures.push(kind);
                    if failures.iter().filter(|other| **other == kind).count() == CIRCLES {
                        let failure = Failure::new(ErrorClass::Permanent).reason("circles");
                        let text = format!("went in circles: {error}");
                        return Err(Trouble::new(failure, text).into());
                    }
                    prompt = format!("{prompt} There is no page `{page}`.");
                }
            }
        }
    }

    /// Alike for failures that differ only in numbers, ids and quoted parts.
    fn kind(&self, task: &Task, error: &AnyError) -> Fingerprint {
        let operation = Operation::new(task.verb());
        let outcome = Err::<&Report, _>(error);
        let verdict = self.classifier.judge(&operation, outcome);
        let failure = verdict.failure().unwrap_or(ErrorClass::Unknown.into());
        Fingerprint::of(&operation, &failure, self.classifier.explain(outcome).as_str())
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.read.len())
    }
}

impl std::error::Error for Unfinished {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
