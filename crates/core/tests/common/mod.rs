//! A layer that does nothing but take part in the scope, and an observer that remembers.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tower::{Layer, Service};
use tower_triage_core::incident::{self, Labels, Scope};
use tower_triage_core::{
    AnyError, AnyOk, Chain, Classifier, Halves, Incident, LayerKind, Observer, Operation, Step,
    StepKind,
};

pub(crate) type Rules = Halves<AnyOk, Chain>;

pub(crate) const fn rules() -> Rules {
    Halves { response: AnyOk, error: Chain }
}

/// A classifier and what its observer saw.
pub(crate) fn classifier() -> (Classifier<Rules>, Seen) {
    let classifier = Classifier::new(rules());
    let seen = Seen::default();
    classifier.observe(seen.clone());
    (classifier, seen)
}

#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<(Vec<Incident>, Vec<Labels>)>>);

impl Seen {
    pub(crate) fn incidents(&self) -> Vec<Incident> {
        self.0.lock().unwrap().0.clone()
    }
    pub(crate) fn labels(&self) -> Vec<Labels> {
        self.0.lock().unwrap().1.clone()
    }
}

impl Observer for Seen {
    fn step(&self, labels: &Labels, _: &Step) {
        self.0.lock().unwrap().1.push(*labels);
    }
    fn incident(&self, incident: &Incident) {
        self.0.lock().unwrap().0.push(incident.clone());
    }
}

pub(crate) struct Panics;

impl Observer for Panics {
    fn step(&self, _: &Labels, _: &Step) {
        panic!("on purpose");
    }
    fn incident(&self, _: &Incident) {
        panic!("on purpose");
    }
}

/// Fails at once with a reset connection.
#[derive(Clone, Copy)]
pub(crate) struct Failing;

pub(crate) const fn failing() -> Failing {
    Failing
}

impl Service<u32> for Failing {
    type Response = u32;
    type Error = AnyError;
    type Future = std::future::Ready<Result<u32, AnyError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, _: u32) -> Self::Future {
        std::future::ready(Err(reset()))
    }
}

pub(crate) fn reset() -> AnyError {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

/// Yields until `done`.
pub(crate) async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::task::yield_now().await;
    }
}

/// Joins the scope, notes failures, ends the call if it owns it.
#[derive(Clone)]
pub(crate) struct Watch {
    classifier: Classifier<Rules>,
    failures: u32,
    step_on_pending: bool,
    after: Arc<dyn Fn() + Send + Sync>,
}

impl Watch {
    pub(crate) fn new(classifier: &Classifier<Rules>) -> Self {
        let after = Arc::new(|| ());
        Self { classifier: classifier.clone(), failures: 1, step_on_pending: false, after }
    }
    /// Notes the failure so many times, as if it were retried.
    pub(crate) fn failures(self, failures: u32) -> Self {
        Self { failures, ..self }
    }
    pub(crate) fn step_on_pending(self) -> Self {
        Self { step_on_pending: true, ..self }
    }
    /// Runs after the outcome was noted.
    pub(crate) fn after(self, f: impl Fn() + Send + Sync + 'static) -> Self {
        Self { after: Arc::new(f), ..self }
    }
}

impl<S> Layer<S> for Watch {
    type Service = Watched<S>;
    fn layer(&self, inner: S) -> Watched<S> {
        Watched { inner, watch: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct Watched<S> {
    inner: S,
    watch: Watch,
}

impl<S: Service<u32, Response = u32, Error = AnyError>> Service<u32> for Watched<S> {
    type Response = u32;
    type Error = AnyError;
    type Future = WatchedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        self.inner.poll_ready(cx)
    }
    fn call(&mut self, request: u32) -> Self::Future {
        let scope = Scope::join();
        let future = incident::call(&mut self.inner, request);
        WatchedFuture { scope, future: Box::pin(future), watch: self.watch.clone() }
    }
}

pub(crate) struct WatchedFuture<F> {
    scope: Scope,
    future: Pin<Box<F>>,
    watch: Watch,
}

impl<F: Future<Output = Result<u32, AnyError>>> Future for WatchedFuture<F> {
    type Output = Result<u32, AnyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let entered = this.scope.enter();
        let (classifier, op) = (&this.watch.classifier, Operation::EMPTY);
        let Poll::Ready(mut outcome) = this.future.as_mut().poll(cx) else {
            if this.watch.step_on_pending {
                let kind = StepKind::Nudged { attempt: 1 };
                classifier.step(&op, LayerKind::Retry, kind);
            }
            return Poll::Pending;
        };
        let verdict = classifier.judge(&op, outcome.as_ref());
        if let Some(failure) = verdict.failure() {
            for n in 0..this.watch.failures {
                if n > 0 {
                    drop(incident::next_attempt());
                }
                classifier.note_failure(&op, LayerKind::Retry, failure, outcome.as_ref());
            }
            (this.watch.after)();
        } else {
            classifier.note_success(&op, LayerKind::Retry);
        }
        classifier.finish(entered, verdict.is_success(), &mut outcome);
        Poll::Ready(outcome)
    }
}
