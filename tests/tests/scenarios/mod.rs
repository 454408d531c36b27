//! A team of agents whose work fails as it is told to.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::Service;
use tower_triage::escalate::{ChannelSink, LogSink, Receiver, Routes};
use tower_triage::http::http;
use tower_triage::{
    AnyError, Chain, Classifier, Classify, ClassifyError, ClassifyResponse, Describe, Desk,
    ErrorClass, Escalation, Failure, Halves, Label, Note, Notes, Operation, TraceParent, Verdict,
};
use tower_triage_postgres::SqlFacts;
use tower_triage_test_support::Seen;

/// What an agent, a worker, a tool or a model is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) operation: String,
    pub(crate) prompt: String,
    pub(crate) repeatable: bool,
}

pub(crate) fn task(prompt: &str) -> Task {
    let text = str::to_owned;
    Task { id: text("T-17"), operation: text("build"), prompt: text(prompt), repeatable: true }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) incomplete: bool,
    pub(crate) notes: Notes,
}

pub(crate) fn answer(text: &str) -> Answer {
    Answer { text: text.to_owned(), ..Answer::default() }
}

pub(crate) type Outcome = Result<Answer, AnyError>;

/// A failure that knows what it is.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) Failure);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trouble: {}", self.0.reason)
    }
}

impl std::error::Error for Trouble {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers;

impl ClassifyResponse<Answer> for Answers {
    fn response(&self, _: &Answer) -> Verdict {
        Verdict::Success
    }

    fn annotate(&self, answer: &mut Answer, note: &Note) -> bool {
        answer.notes.add(note);
        true
    }
}

impl Describe<Task> for Answers {
    fn operation(&self, task: &Task) -> Operation {
        Operation::new(&task.operation)
    }

    fn repeatable(&self, task: &Task) -> bool {
        task.repeatable
    }

    fn request_id(&self, task: &Task) -> Option<Label> {
        Some(Label::new(&task.id))
    }

    fn trace(&self, _: &Task) -> Option<TraceParent> {
        TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Troubles;

impl ClassifyError<AnyError> for Troubles {
    fn error(&self, error: &AnyError) -> Failure {
        error.find::<Trouble>().map_or_else(|| Chain.error(error), |trouble| trouble.0)
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        ClassifyError::<AnyError>::annotate(&Chain, error, note)
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        ClassifyError::<AnyError>::explain(&Chain, error, out);
    }
}

pub(crate) type Rules = Halves<Answers, Troubles>;

pub(crate) fn classifier() -> (Classifier<Rules>, Seen) {
    let classifier = Classifier::new(Halves { response: Answers, error: Troubles });
    let seen = Seen::default();
    classifier.observe(seen.clone());
    (classifier, seen)
}

/// What a worker does with one task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    Says(&'static str),
    Fails(Failure),
    Breaks(io::ErrorKind),
}

pub(crate) use Line::{Breaks, Fails, Says};

pub(crate) fn fails(class: ErrorClass) -> Line {
    Fails(Failure::new(class))
}

/// What the rules for HTTP say of a status.
pub(crate) fn status(code: u16) -> Line {
    status_by(http(), code)
}

pub(crate) fn status_by<R: Classify<Response<()>, Infallible>>(rules: R, code: u16) -> Line {
    let response = Response::builder().status(code).body(()).unwrap();
    Fails(rules.classify(Ok(&response)).failure().unwrap())
}

/// What the rules for PostgreSQL say of a code.
pub(crate) fn sqlstate(code: &str) -> Line {
    Fails(SqlFacts::new(code).verdict().failure().unwrap())
}

/// Does as it is told, line by line, the last one again and again. Clones are one worker.
#[derive(Clone)]
pub(crate) struct Worker(Arc<Mutex<Work>>);

struct Work {
    lines: VecDeque<Line>,
    calls: Vec<(Duration, Task)>,
    begun: Instant,
}

pub(crate) fn worker(lines: impl IntoIterator<Item = Line>) -> Worker {
    let (lines, calls, begun) = (lines.into_iter().collect(), Vec::new(), Instant::now());
    Worker(Arc::new(Mutex::new(Work { lines, calls, begun })))
}

impl Worker {
    fn with<T>(&self, f: impl FnOnce(&mut Work) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn calls(&self) -> usize {
        self.with(|work| work.calls.len())
    }

    pub(crate) fn prompts(&self) -> Vec<String> {
        self.with(|work| work.calls.iter().map(|(_, task)| task.prompt.clone()).collect())
    }

    /// When it was called, since it was made.
    pub(crate) fn times(&self) -> Vec<Duration> {
        self.with(|work| work.calls.iter().map(|(at, _)| *at).collect())
    }

    /// From now on it does this.
    pub(crate) fn now(&self, line: Line) {
        self.with(|work| work.lines = [line].into());
    }
}

impl Service<Task> for Worker {
    type Response = Answer;
    type Error = AnyError;
    type Future = Ready<Outcome>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task) -> Self::Future {
        let line = self.with(|work| {
            work.calls.push((work.begun.elapsed(), task));
            match work.lines.len() {
                1 => work.lines[0],
                _ => work.lines.pop_front().expect("a worker has at least one line"),
            }
        });
        ready(match line {
            Says(text) => Ok(answer(text)),
            Fails(failure) => Err(Trouble(failure).into()),
            Breaks(kind) => Err(io::Error::from(kind).into()),
        })
    }
}

/// A desk with these routes; what any receiver gets comes out of the channel, and is logged.
pub(crate) fn desk(routes: Routes) -> (Desk, mpsc::Receiver<Escalation>) {
    let (sender, letters) = mpsc::channel(1024);
    let receivers = ["orchestrator", "auditor", "human"]
        .map(|name| Receiver::new(name).record(ChannelSink::from(sender.clone())).notify(LogSink));
    (Desk::new(routes, receivers).unwrap(), letters)
}

/// Every letter that is there.
pub(crate) fn taken(letters: &mut mpsc::Receiver<Escalation>) -> Vec<Escalation> {
    std::iter::from_fn(|| letters.try_recv().ok()).collect()
}

/// A classifier and a desk for a preset, and what comes of it. Each file adds its preset.
pub(crate) struct World {
    pub(crate) classifier: Classifier<Rules>,
    pub(crate) seen: Seen,
    pub(crate) desk: Desk,
    pub(crate) letters: mpsc::Receiver<Escalation>,
}

impl World {
    pub(crate) fn new(routes: Routes) -> Self {
        let ((classifier, seen), (desk, letters)) = (classifier(), desk(routes));
        Self { classifier, seen, desk, letters }
    }

    pub(crate) fn letters(&mut self) -> Vec<Escalation> {
        taken(&mut self.letters)
    }
}

/// The lines of the log, from when it was made until it is dropped.
pub(crate) struct Log {
    written: Written,
    _guard: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn new() -> Self {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self { written, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Those that hold all of `parts`.
    pub(crate) fn lines(&self, parts: &[&str]) -> Vec<String> {
        let bytes = self.written.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = String::from_utf8(bytes).unwrap();
        let holds = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(holds).map(str::to_owned).collect()
    }
}
