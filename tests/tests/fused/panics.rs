//! What reads the request panics, when the fused stack has something to tell of it.

use std::future::Future as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tower::util::BoxCloneSyncService;
use tower::{Layer as _, Service as _, ServiceBuilder, ServiceExt as _, service_fn};
use tower_triage::fallback::LastGood;
use tower_triage::{AnyError, AnyOk, Chain, CircuitBreakerLayer, EscalateLayer, FuseLayer, Halves};
use tower_triage::{ErrorClass, FallbackLayer, RequestFacts, RetryLayer, RulesExt as _};

use crate::common::{attempts, desk, opens_at, reset, watched};

type Stack = BoxCloneSyncService<u32, u32, AnyError>;

/// Fails for odd requests, never answers 8; whoever asks what a request is about meets a panic once
/// the flag is up. A circuit opens at the first failure. If the stack `learns`, it needs the operation
/// of each call: what the escalation tells is all that is left to be read.
fn stack(learns: bool) -> (Stack, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&flag);
    let rules = Halves { response: AnyOk, error: Chain }.describe(move |_: &u32| {
        if panics.load(Ordering::Relaxed) {
            // Without a word to the panic hook.
            resume_unwind(Box::new("nobody knows"));
        }
        RequestFacts::new("count")
    });
    let (classifier, _) = watched(rules);
    let escalate = EscalateLayer::new(classifier.clone(), desk().0);
    let fallback = FallbackLayer::new(classifier.clone());
    let fallback = fallback.or_last_good::<u32>(ErrorClass::Throttled, LastGood::default());
    let below = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(2)))
        .layer(CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(1)))
        .into_inner();
    let leaf = service_fn(async |n: u32| match n {
        8 => std::future::pending().await,
        _ if n % 2 == 1 => Err(reset()),
        _ => Ok(n),
    });
    let above = ServiceBuilder::new().layer(escalate);
    let stack = match learns {
        true => {
            let layers = above.layer(fallback).layer(below).into_inner();
            Stack::new(FuseLayer::new(classifier, layers).layer(leaf))
        }
        false => {
            let layers = above.layer(below).into_inner();
            Stack::new(FuseLayer::new(classifier, layers).layer(leaf))
        }
    };
    (stack, flag)
}

/// Opens the circuit and waits until it lets a probe through.
async fn half_open(stack: &mut Stack) {
    _ = stack.ready().await.unwrap().call(1).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_at_the_hand_over_gives_the_probe_slot_back() {
    for learns in [true, false] {
        let (mut stack, flag) = stack(learns);
        half_open(&mut stack).await;
        let mut call = Box::pin(stack.ready().await.unwrap().call(3));
        flag.store(true, Ordering::Relaxed);
        let mut cx = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut cx).is_ready()));
        assert!(polled.is_err());
        flag.store(false, Ordering::Relaxed);
        drop(call);
        assert_eq!(stack.ready().await.unwrap().call(2).await.unwrap(), 2, "the next probe");
    }
}

/// A second panic would end the process.
#[tokio::test(start_paused = true)]
async fn a_call_that_met_nothing_does_not_read_the_request_when_it_is_dropped() {
    for learns in [true, false] {
        let (mut stack, flag) = stack(learns);
        half_open(&mut stack).await;
        let ready = stack.ready().await.unwrap();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut call = pin!(ready.call(8));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(call.as_mut().poll(&mut cx).is_pending());
            flag.store(true, Ordering::Relaxed);
            resume_unwind(Box::new("the caller has trouble of its own"));
        }));
        assert!(unwound.is_err());
        flag.store(false, Ordering::Relaxed);
        assert_eq!(stack.ready().await.unwrap().call(2).await.unwrap(), 2, "the next probe");
    }
}
