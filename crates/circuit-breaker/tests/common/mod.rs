//! A dependency that answers as each request says, and rules that judge it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tower::{Service, ServiceExt};
use tower_triage_circuit_breaker::{BreakerPlan, BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{
    Backoff, CircuitOpen, Classifier, Classify, Describe, ErrorClass, Failure, Key, Verdict,
};

#[derive(Debug)]
pub(crate) enum Error {
    Open(CircuitOpen),
    Failed(Failure),
}

impl From<CircuitOpen> for Error {
    fn from(open: CircuitOpen) -> Self {
        Self::Open(open)
    }
}

/// Not `Clone`, like many a response.
#[derive(Debug, PartialEq)]
pub(crate) struct Response;

pub(crate) type Answer = Result<Response, Error>;

/// A request that knows its answer, or will get it. Not `Clone`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: Key,
    pub(crate) answer: oneshot::Receiver<Answer>,
}

/// A request that is answered at once.
pub(crate) fn call(answer: Answer) -> Call {
    let (send, call) = pending();
    send.send(answer).unwrap();
    call
}

/// A request that is answered later.
pub(crate) fn pending() -> (oneshot::Sender<Answer>, Call) {
    let (send, answer) = oneshot::channel();
    (send, Call { key: Key::EMPTY, answer })
}

pub(crate) fn ok() -> Answer {
    Ok(Response)
}

pub(crate) fn failed(class: ErrorClass) -> Answer {
    Err(Error::Failed(class.into()))
}

pub(crate) fn down() -> Answer {
    failed(ErrorClass::Transient)
}

/// Always ready; counts its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependency {
    pub(crate) calls: Arc<AtomicUsize>,
}

impl Dependency {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Service<Call> for Dependency {
    type Response = Response;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { call.answer.await.expect("the test answers or drops the call") })
    }
}

pub(crate) struct Rules;

impl<Res> Classify<Res, Error> for Rules {
    fn classify(&self, outcome: Result<&Res, &Error>) -> Verdict {
        match outcome {
            Ok(_) => Verdict::Success,
            Err(Error::Open(_)) => ErrorClass::Rejected.into(),
            Err(Error::Failed(failure)) => Verdict::Failure(*failure),
        }
    }
}

impl Describe<Call> for Rules {
    fn key(&self, call: &Call) -> Key {
        call.key
    }
}

pub(crate) fn layer(policy: BreakerPolicy) -> CircuitBreakerLayer<Rules> {
    CircuitBreakerLayer::new(Classifier::new(Rules)).name("test").policy(policy.build().unwrap())
}

/// Trips at `failures` in a row, for ten seconds.
pub(crate) fn row(failures: u32) -> BreakerPolicy {
    BreakerPolicy::new().consecutive_failures(failures).open_for(Backoff::fixed(secs(10)))
}

pub(crate) fn checked(policy: BreakerPolicy) -> BreakerPlan {
    policy.build().unwrap()
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) async fn advance(time: Duration) {
    tokio::time::advance(time).await;
}

/// Makes one whole call.
pub(crate) async fn run<S: Service<Call, Response = Response, Error = Error>>(
    service: &mut S,
    answer: Answer,
) -> Answer {
    service.ready().await?.call(call(answer)).await
}

/// The rejection, if it is one.
pub(crate) fn rejection(answer: &Answer) -> Option<CircuitOpen> {
    match answer {
        Err(Error::Open(open)) => Some(*open),
        _ => None,
    }
}

pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
