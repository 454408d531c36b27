//! Rows of `circuit_breaker.json`, run against the layer itself under paused time.

mod policy;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{Layer, Service};
use tower_triage_circuit_breaker::{
    BreakerHandle, BreakerPlan, CircuitBreakerLayer, State, Transition,
};
use tower_triage_core::{CircuitOpen, Classifier, ErrorClass, Verdict, classify_fn};

use self::policy::{choices, millis, policy};
use super::Outcome;

/// Runs one row.
pub(super) fn run(row: &Value) -> Outcome {
    let reprobe = match choices(&row["requires"]) {
        Ok(reprobe) => reprobe,
        Err(reason) => return Outcome::skip(reason),
    };
    let policy = match policy(&row["policy"], reprobe) {
        Ok(policy) => policy,
        Err(problem) => return Outcome::fail("a policy that builds", problem),
    };
    let Some(events) = row["events"].as_array() else {
        return Outcome::fail("a list of events", &row["events"]);
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(scenario(policy, events, &row["transitions"])),
        Err(error) => Outcome::fail("a runtime", error),
    }
}

/// A rejection, or a failure with its class.
#[derive(Debug)]
enum CallError {
    Open(CircuitOpen),
    Failed(ErrorClass),
}

impl From<CircuitOpen> for CallError {
    fn from(open: CircuitOpen) -> Self {
        Self::Open(open)
    }
}

type Answer = Result<(), CallError>;

/// The dependency: each request carries the channel on which its answer will come.
struct Dependency;

impl Service<oneshot::Receiver<Answer>> for Dependency {
    type Response = ();
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Answer>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, answer: oneshot::Receiver<Answer>) -> Self::Future {
        // The row drops futures, never the other end first.
        Box::pin(async { answer.await.unwrap_or(Err(CallError::Failed(ErrorClass::Cancelled))) })
    }
}

/// A call in flight.
struct Flight {
    future: Pin<Box<dyn Future<Output = Answer>>>,
    answer: oneshot::Sender<Answer>,
}

async fn scenario(policy: BreakerPlan, events: &[Value], transitions: &Value) -> Outcome {
    let classifier =
        Classifier::new(classify_fn(|outcome: Result<&(), &CallError>| match outcome {
            Ok(()) => Verdict::Success,
            Err(CallError::Open(_)) => ErrorClass::Rejected.into(),
            Err(CallError::Failed(class)) => (*class).into(),
        }));
    let layer = CircuitBreakerLayer::new(classifier).name("vector").policy(policy);
    let handle = layer.handle();
    let signals = Arc::new(Mutex::new(Vec::<Transition>::new()));
    let heard = Arc::clone(&signals);
    handle.subscribe(move |transition| lock(&heard).push(*transition));

    let mut run = Run {
        service: layer.layer(Dependency),
        handle,
        begun: Instant::now(),
        flights: HashMap::new(),
        differences: Vec::new(),
        place: String::new(),
    };
    for (number, event) in events.iter().enumerate() {
        run.place = format!("event {number} ({} at {} ms)", event["do"], event["at_ms"]);
        if let Err(problem) = run.event(event).await {
            run.differ("an event that can be run", problem);
            break;
        }
    }
    let heard = lock(&signals).clone();
    run.place = "transitions".to_owned();
    for (name, expected) in transitions.as_object().into_iter().flatten() {
        let count = match name.as_str() {
            "opened" => count(&heard, |state| shown(state) == "open"),
            "half_opened" => count(&heard, |state| shown(state) == "half_open"),
            "closed" => count(&heard, |state| shown(state) == "closed"),
            _ => {
                run.differ("a known transition", name);
                continue;
            }
        };
        if expected.as_u64() != Some(count) {
            run.differ(format!("{expected} times {name}"), count);
        }
    }
    Outcome::from_differences(run.differences)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How often the shown state became one of those.
fn count(heard: &[Transition], is: impl Fn(State) -> bool) -> u64 {
    heard.iter().filter(|change| is(change.to) && !is(change.from)).count() as u64
}

/// Forced states show as `open` or `closed`.
fn shown(state: State) -> &'static str {
    match state {
        State::Closed | State::ForcedClosed | State::Disabled => "closed",
        State::Open | State::ForcedOpen => "open",
        State::HalfOpen => "half_open",
    }
}

struct Run<S> {
    service: S,
    handle: BreakerHandle,
    begun: Instant,
    flights: HashMap<String, Flight>,
    differences: Vec<String>,
    place: String,
}

impl<S> Run<S>
where
    S: Service<oneshot::Receiver<Answer>, Response = (), Error = CallError>,
    S::Future: 'static,
{
    fn differ(&mut self, expected: impl std::fmt::Display, actual: impl std::fmt::Display) {
        self.differences.push(format!("{}: expected {expected}, got {actual}", self.place));
    }

    async fn event(&mut self, event: &Value) -> Result<(), String> {
        self.until(millis(&event["at_ms"])?).await;
        let id = || event["id"].as_str().map(str::to_owned).ok_or("no `id`");
        match event["do"].as_str() {
            Some("call") => {
                if let Some(flight) = self.start(event)? {
                    let takes = event.get("duration_ms").map(millis).transpose()?;
                    let end = self.begun.elapsed() + takes.unwrap_or_default();
                    self.until(end).await;
                    self.finish(flight, event)?;
                }
            }
            Some("start") => {
                if let Some(flight) = self.start(event)? {
                    self.flights.insert(id()?, flight);
                }
            }
            Some("finish") => {
                let flight = self.flights.remove(&id()?).ok_or("no such call in flight")?;
                self.finish(flight, event)?;
            }
            Some("force_open") => self.handle.force_open(),
            Some("force_closed") => self.handle.force_closed(),
            Some("reset") => self.handle.reset(),
            _ => return Err(format!("unknown `do`: {}", event["do"])),
        }
        let state = shown(self.handle.state());
        match event.get("state_after") {
            Some(expected) if expected != state => {
                self.differ(format!("state {expected}"), format!("\"{state}\""));
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets time pass until `at` after the begin of the row.
    async fn until(&self, at: Duration) {
        let left = at.saturating_sub(self.begun.elapsed());
        if !left.is_zero() {
            tokio::time::advance(left).await;
        }
    }

    /// Makes a call; gives it back if it is in flight, and checks what was expected.
    fn start(&mut self, event: &Value) -> Result<Option<Flight>, String> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.service.poll_ready(&mut cx) {
            Poll::Ready(Ok(())) => {}
            other => return Err(format!("readiness: {other:?}")),
        }
        let (answer, request) = oneshot::channel();
        let mut future = Box::pin(self.service.call(request));
        let (rejection, flight) = match future.as_mut().poll(&mut cx) {
            Poll::Pending => (None, Some(Flight { future, answer })),
            Poll::Ready(Err(CallError::Open(open))) => (Some(open), None),
            Poll::Ready(other) => return Err(format!("an answer without a question: {other:?}")),
        };
        let actual = if rejection.is_some() { "rejected" } else { "permitted" };
        match event["expect"].as_str() {
            Some(expected @ ("permitted" | "rejected")) if expected == actual => {}
            Some(expected @ ("permitted" | "rejected")) => self.differ(expected, actual),
            _ => return Err(format!("unknown `expect`: {}", event["expect"])),
        }
        if let (Some(open), Some(expected)) = (rejection, event.get("retry_after_ms"))
            && open.retry_after() != millis(expected)?
        {
            self.differ(format!("{expected} ms left"), format!("{:?}", open.retry_after()));
        }
        Ok(flight)
    }

    /// Ends a call as the event says.
    fn finish(&mut self, flight: Flight, event: &Value) -> Result<(), String> {
        let Flight { mut future, answer } = flight;
        let outcome = match event["outcome"].as_str() {
            Some("success") => Ok(()),
            Some("failure") => Err(CallError::Failed(ErrorClass::Transient)),
            Some("ignored") => Err(CallError::Failed(ErrorClass::Throttled)),
            Some("cancelled") => {
                drop(future);
                return Ok(());
            }
            _ => return Err(format!("unknown `outcome`: {}", event["outcome"])),
        };
        answer.send(outcome).map_err(|_| "nobody waits for the answer")?;
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(_) => Ok(()),
            Poll::Pending => Err("the call does not end".to_owned()),
        }
    }
}
