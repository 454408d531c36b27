//! A shop whose requests are not `Clone`, its rules, and sinks that do as they are told.
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tower::Service;
use tower_triage_core::incident::IncidentId;
use tower_triage_core::{
    Classifier, ClassifyResponse, Describe, ErrorClass, Failure, Halves, Label, Note, Notes,
    Operation, OwnError, RetryAfter, Target, ToFailure, TraceParent, Verdict,
};
use tower_triage_escalate::store::{
    Change, Dropped, Filter, LeaseRequest, Letter, MemoryStore, Page, Pending, Put, Retention,
    Stats, Store, StoreError,
};
use tower_triage_escalate::{Desk, DeskPolicy, Escalation, Receiver, Route, Routes};
use tower_triage_test_support::{Scripted, scripted};

/// Not `Clone`.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub id: Option<&'static str>,
    /// What must never show up anywhere.
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: &'static str,
}

impl Order {
    pub(crate) fn with_id(id: &'static str) -> Self {
        Self { id: Some(id), ..Self::default() }
    }
}

/// Not `Clone`.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    pub text: &'static str,
    pub notes: Notes,
}

pub(crate) fn receipt(text: &'static str) -> Receipt {
    Receipt { text, notes: Notes::default() }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Broken(pub ErrorClass, pub &'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl std::error::Error for Broken {}

impl ToFailure for Broken {
    fn to_failure(&self) -> Failure {
        let failure = Failure::new(self.0);
        match self.0 {
            ErrorClass::Transient => {
                failure.retry_after(RetryAfter::AtLeast(Duration::from_secs(2)))
            }
            _ => failure,
        }
    }
}

pub(crate) const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shop;

impl ClassifyResponse<Receipt> for Shop {
    fn response(&self, _: &Receipt) -> Verdict {
        Verdict::Success
    }

    fn annotate(&self, receipt: &mut Receipt, note: &Note) -> bool {
        receipt.notes.add(note);
        true
    }
}

impl Describe<Order> for Shop {
    fn operation(&self, _: &Order) -> Operation {
        Operation::new("orders.create")
    }

    fn request_id(&self, order: &Order) -> Option<Label> {
        order.id.map(Label::new)
    }

    fn trace(&self, _: &Order) -> Option<TraceParent> {
        TraceParent::parse(TRACE)
    }

    fn target(&self, _: &Order) -> Target {
        Target::new("POST shop.example/orders")
    }
}

pub(crate) type Rules = Halves<Shop, OwnError>;

pub(crate) fn classifier() -> Classifier<Rules> {
    Classifier::new(Halves { response: Shop, error: OwnError })
}

pub(crate) type Script = fn() -> Result<Receipt, Broken>;

/// A service that answers with `lines`, the last of them for ever.
pub(crate) fn shop<const N: usize>(lines: [Script; N]) -> Scripted<Order, Receipt, Broken> {
    scripted(lines)
}

/// A service that always answers so.
pub(crate) fn always(line: Script) -> Scripted<Order, Receipt, Broken> {
    shop([line])
}

/// Remembers what it took; fails or takes its time if told so.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    taken: Arc<Mutex<Vec<Escalation>>>,
    tries: Arc<AtomicUsize>,
    failures: usize,
    stores_before_failing: bool,
    pub delay: Duration,
}

impl Memory {
    pub(crate) fn failing(times: usize) -> Self {
        Self { failures: times, ..Self::default() }
    }

    /// Stores the first one, and reports an error for it all the same.
    pub(crate) fn lying_once() -> Self {
        Self { failures: 1, stores_before_failing: true, ..Self::default() }
    }

    pub(crate) fn slow(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    pub(crate) fn taken(&self) -> Vec<Escalation> {
        self.taken.lock().unwrap().clone()
    }

    pub(crate) fn one(&self) -> Escalation {
        let taken = self.taken();
        assert_eq!(taken.len(), 1, "{taken:?}");
        taken.into_iter().next().unwrap()
    }

    pub(crate) fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }
}

impl Service<Escalation> for Memory {
    type Response = ();
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<(), std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let fails = this.tries.fetch_add(1, Ordering::SeqCst) < this.failures;
            if !this.delay.is_zero() {
                tokio::time::sleep(this.delay).await;
            }
            if !fails || this.stores_before_failing {
                this.taken.lock().unwrap().push(escalation);
            }
            if fails { Err(std::io::Error::other("disk full")) } else { Ok(()) }
        })
    }
}

pub(crate) fn to_human() -> Routes {
    Routes::new(Route::new(["human"], "human_required"))
}

/// A desk with one receiver, whose records go to `sink`.
pub(crate) fn desk(sink: &Memory) -> Desk {
    Desk::new(to_human(), [Receiver::new("human").record(sink.clone())]).unwrap()
}

pub(crate) fn desk_with(policy: DeskPolicy, receiver: Receiver) -> Desk {
    Desk::with_policy(policy, to_human(), [receiver]).unwrap()
}

/// A store that takes and leases nothing when it is down, and takes and changes nothing when it hangs.
#[derive(Debug, Default)]
pub(crate) struct Moody {
    pub store: MemoryStore,
    pub down: AtomicBool,
    pub hangs: AtomicBool,
}

impl Store for Moody {
    fn put(&self, escalation: Escalation) -> Pending<'_, Put> {
        match self.down.load(Ordering::SeqCst) {
            _ if self.hangs.load(Ordering::SeqCst) => Box::pin(std::future::pending()),
            true => Box::pin(async { Err(StoreError::unavailable("down")) }),
            false => self.store.put(escalation),
        }
    }
    fn get(&self, id: IncidentId) -> Pending<'_, Option<Letter>> {
        self.store.get(id)
    }
    fn list(&self, filter: Filter, after: Option<u64>, limit: u32) -> Pending<'_, Page> {
        self.store.list(filter, after, limit)
    }
    fn lease(&self, request: LeaseRequest) -> Pending<'_, Vec<Letter>> {
        match self.down.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(StoreError::unavailable("down")) }),
            false => self.store.lease(request),
        }
    }
    fn change(&self, id: IncidentId, change: Change) -> Pending<'_, Letter> {
        match self.hangs.load(Ordering::SeqCst) {
            true => Box::pin(std::future::pending()),
            false => self.store.change(id, change),
        }
    }
    fn stats(&self) -> Pending<'_, Stats> {
        self.store.stats()
    }
    fn retain(&self, retention: Retention) -> Pending<'_, Dropped> {
        self.store.retain(retention)
    }
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.store.changed()
    }
}
