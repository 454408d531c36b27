//! A service that fails, its rules, and the stacks around it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tower::Service;
use tower_triage_core::{
    BoxError, Classifier, ClassifyResponse, Describe, ErrorClass, Failure, Halves, Label,
    Operation, OwnError, RetryAfter, Target, ToFailure, TraceParent, Verdict,
};
use tower_triage_escalate::store::{Store, StoreSink};
use tower_triage_escalate::{
    Desk, DeskPolicy, EscalateLayer, EscalatePolicy, Escalation, KeepFailure, Receiver, Route,
    Routes,
};
use tower_triage_test_support::Seen;

pub(crate) const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Clone, Debug, Default)]
#[expect(dead_code, reason = "what must not be read")]
pub(crate) struct Order {
    pub(crate) id: Option<String>,
    /// What must never show up anywhere.
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: &'static str,
}

impl Order {
    pub(crate) fn with_id(id: impl fmt::Display) -> Self {
        Self { id: Some(id.to_string()), ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Broken(pub(crate) ErrorClass, pub(crate) &'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl std::error::Error for Broken {}

impl ToFailure for Broken {
    fn to_failure(&self) -> Failure {
        Failure::new(self.0).retry_after(RetryAfter::AtLeast(Duration::from_millis(2)))
    }
}

pub(crate) const DOWN: Broken = Broken(ErrorClass::Transient, "connection reset");

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shop;

impl ClassifyResponse<&'static str> for Shop {
    fn response(&self, _: &&'static str) -> Verdict {
        Verdict::Success
    }
}

impl Describe<Order> for Shop {
    fn operation(&self, _: &Order) -> Operation {
        Operation::new("orders.create")
    }

    fn request_id(&self, order: &Order) -> Option<Label> {
        order.id.as_deref().map(Label::new)
    }

    fn trace(&self, _: &Order) -> Option<TraceParent> {
        TraceParent::parse(TRACE)
    }

    fn target(&self, _: &Order) -> Target {
        Target::new("POST shop.example/orders")
    }
}

pub(crate) type Rules = Halves<Shop, OwnError>;

pub(crate) fn classifier() -> (Classifier<Rules>, Seen) {
    let classifier = Classifier::new(Halves { response: Shop, error: OwnError });
    let seen = Seen::default();
    classifier.observe(seen.clone());
    (classifier, seen)
}

/// Fails always, with the same error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fails(pub(crate) Broken);

impl Service<Order> for Fails {
    type Response = &'static str;
    type Error = Broken;
    type Future = std::future::Ready<Result<&'static str, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Order) -> Self::Future {
        std::future::ready(Err(self.0))
    }
}

/// The layer in durable mode: it waits for the store as long as the store may take.
pub(crate) fn durable(
    classifier: Classifier<Rules>,
    desk: &Desk,
) -> EscalateLayer<Rules, KeepFailure, Broken> {
    EscalateLayer::new(classifier, desk.clone())
        .from("shop")
        .policy(EscalatePolicy::new().wait(Duration::from_secs(3600)))
}

/// A desk with one receiver.
pub(crate) fn desk(receiver: Receiver) -> Desk {
    desk_with(DeskPolicy::new().backoff(short()), receiver)
}

pub(crate) fn desk_with(policy: DeskPolicy, receiver: Receiver) -> Desk {
    let routes = Routes::new(Route::new(["ops"], "human_required"));
    Desk::with_policy(policy, routes, [receiver]).unwrap()
}

pub(crate) fn ops() -> Receiver {
    Receiver::new("ops")
}

fn short() -> tower_triage_core::Backoff {
    tower_triage_core::Backoff::fixed(Duration::from_millis(1))
}

/// What is wrong with the sink of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Fails so often before it works.
    FailsFirst(usize),
    /// Fails for the request with this id.
    FailsFor(&'static str),
    /// Stores, and reports an error so often all the same.
    Lies(usize),
}

/// The sink of a store, with a fault.
#[derive(Clone)]
pub(crate) struct Faulty {
    sink: StoreSink,
    fault: Fault,
    tries: Arc<AtomicUsize>,
}

impl Faulty {
    pub(crate) fn new(store: &Arc<dyn Store>, fault: Fault) -> Self {
        Self { sink: StoreSink::new(Arc::clone(store)), fault, tries: Arc::default() }
    }

    pub(crate) fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }
}

impl Service<Escalation> for Faulty {
    type Response = ();
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let tries = self.tries.fetch_add(1, Ordering::SeqCst);
        let (stores, fails) = match self.fault {
            Fault::FailsFirst(times) => (tries >= times, tries < times),
            Fault::Lies(times) => (true, tries < times),
            Fault::FailsFor(id) => {
                let hit = escalation.context.request_id.as_deref() == Some(id);
                (!hit, hit)
            }
        };
        let storing = stores.then(|| self.sink.call(escalation));
        Box::pin(async move {
            if let Some(storing) = storing {
                storing.await?;
            }
            if fails { Err("disk full".into()) } else { Ok(()) }
        })
    }
}
