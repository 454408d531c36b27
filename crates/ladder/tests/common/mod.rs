//! What the tests of the ladder share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower_triage_core::{
    AnyError, AnyOk, Classifier, ClassifyError, ErrorClass, Failure, Halves,
};
use tower_triage_escalate::{ChannelSink, Desk, Escalation, Receiver, Route, Routes};

pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An error that says its class.
#[derive(Debug)]
pub struct Oops(pub ErrorClass);

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it was {}", self.0)
    }
}

impl std::error::Error for Oops {}

pub fn oops<T>(class: ErrorClass) -> Result<T, AnyError> {
    Err(Oops(class).into())
}

/// Believes what an [`Oops`] says; time limits of ours are timeouts.
#[derive(Clone, Copy, Debug)]
pub struct Said;

impl ClassifyError<AnyError> for Said {
    fn error(&self, error: &AnyError) -> Failure {
        match error.find::<Oops>() {
            Some(Oops(class)) => Failure::new(*class),
            None => ClassifyError::error(&tower_triage_core::Chain, error),
        }
    }

    fn annotate(&self, error: &mut AnyError, note: &tower_triage_core::Note) -> bool {
        ClassifyError::annotate(&tower_triage_core::Chain, error, note)
    }

    fn explain(&self, error: &AnyError, out: &mut dyn std::fmt::Write) {
        ClassifyError::explain(&tower_triage_core::Chain, error, out);
    }
}

pub type Rules = Halves<AnyOk, Said>;

pub fn classifier() -> Classifier<Rules> {
    Classifier::new(Halves { response: AnyOk, error: Said })
}

/// A desk, and what comes to it.
pub fn desk() -> (Desk, tokio::sync::mpsc::Receiver<Escalation>) {
    let (sink, inbox) = ChannelSink::new(1024).unwrap();
    let routes = Routes::new(Route::new(["operator"], "human_required"));
    (Desk::new(routes, [Receiver::new("operator").record(sink)]).unwrap(), inbox)
}

/// What was called, and when, in milliseconds.
#[derive(Clone)]
pub struct Log {
    begun: Instant,
    lines: Arc<Mutex<Vec<(u128, String)>>>,
}

impl Log {
    pub fn new() -> Self {
        Self { begun: Instant::now(), lines: Arc::default() }
    }

    pub fn put(&self, what: impl Into<String>) {
        self.lines.lock().unwrap().push((self.begun.elapsed().as_millis(), what.into()));
    }

    pub fn lines(&self) -> Vec<(u128, String)> {
        self.lines.lock().unwrap().clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.lines().into_iter().map(|(_, name)| name).collect()
    }

    pub fn times(&self) -> Vec<u128> {
        self.lines().into_iter().map(|(at, _)| at).collect()
    }
}

