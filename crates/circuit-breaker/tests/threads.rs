//! Real threads: slots and counts are neither lost nor doubled.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Error, Response, Rules, checked, failed, poll_once};
use tower::{Layer, Service};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, State};
use tower_triage_core::{Backoff, Classifier, Describe, ErrorClass};

const THREADS: usize = 4;

/// Answers at the second poll, as the request says; knows how many are inside at once.
#[derive(Clone, Default)]
struct Dependency {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Ask {
    Success,
    Failure,
    Drop,
}

struct AskRules;

impl Describe<Ask> for AskRules {}

impl<Res> tower_triage_core::Classify<Res, Error> for AskRules {
    fn classify(&self, outcome: Result<&Res, &Error>) -> tower_triage_core::Verdict {
        Rules.classify(outcome)
    }
}

struct Inside {
    ask: Ask,
    /// Until it is over.
    inside: Option<Arc<AtomicUsize>>,
    polled: bool,
}

impl Inside {
    fn leave(&mut self) {
        if let Some(inside) = self.inside.take() {
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Future for Inside {
    type Output = Result<Response, Error>;

    fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::replace(&mut self.polled, true) {
            return Poll::Pending;
        }
        self.leave();
        Poll::Ready(match self.ask {
            Ask::Success | Ask::Drop => Ok(Response),
            Ask::Failure => failed(ErrorClass::Transient),
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Service<Ask> for Dependency {
    type Response = Response;
    type Error = Error;
    type Future = Inside;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, ask: Ask) -> Inside {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        Inside { ask, inside: Some(Arc::clone(&self.inside)), polled: false }
    }
}

/// Makes `calls` calls on each thread; gives how many were rejected.
fn hammer(
    layer: &CircuitBreakerLayer<AskRules>,
    dependency: &Dependency,
    calls: usize,
    ask: impl Fn(usize) -> Ask + Sync,
) -> usize {
    let rejected = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut service = layer.layer(dependency.clone());
            let (rejected, ask) = (&rejected, &ask);
            scope.spawn(move || {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                for number in 0..calls {
                    let ask = ask(number * THREADS + thread);
                    assert!(service.poll_ready(&mut cx).is_ready());
                    let mut future = Box::pin(service.call(ask));
                    if let Poll::Ready(answer) = poll_once(future.as_mut()) {
                        assert!(common::rejection(&answer).is_some());
                        rejected.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    // Now and then: on a busy machine each costs a time slice.
                    if number % 16 == 0 {
                        std::thread::yield_now();
                    }
                    if !matches!(ask, Ask::Drop) {
                        assert!(poll_once(future.as_mut()).is_ready());
                    }
                }
            });
        }
    });
    rejected.into_inner()
}

fn layer(policy: BreakerPolicy) -> CircuitBreakerLayer<AskRules> {
    CircuitBreakerLayer::new(Classifier::new(AskRules)).policy(checked(policy))
}

#[test]
fn never_more_probes_than_allowed_and_no_slot_is_lost() {
    let policy = BreakerPolicy::new()
        .consecutive_failures(1)
        .open_for(Backoff::immediate())
        .probes(2)
        // Never closes: each failed probe opens it again, at once due.
        .decide_by_count(u32::MAX, 1);
    let layer = layer(policy);
    let dependency = Dependency::default();
    // The first failure opens it; from then on all calls are probes, whose era may be over.
    let mut rejected = hammer(&layer, &dependency, 1, |_| Ask::Failure);
    dependency.most.store(0, Ordering::SeqCst);
    // Successes and dropped calls only: the era of the probes does not end.
    rejected += hammer(&layer, &dependency, 20_000, |number| match number % 3 {
        0 => Ask::Drop,
        _ => Ask::Success,
    });
    assert!(dependency.most.load(Ordering::SeqCst) <= 2);
    assert_eq!(layer.handle().state(), State::HalfOpen);

    // Both slots are free again, and there are no more than two.
    let mut service = layer.layer(dependency.clone());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut held = Vec::new();
    for _ in 0..3 {
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut future = Box::pin(service.call(Ask::Success));
        held.push((poll_once(future.as_mut()).is_pending(), future));
    }
    assert_eq!(held.iter().map(|(admitted, _)| *admitted).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(layer.handle().counts().rejected as usize, rejected + 1);
}

#[test]
fn every_outcome_is_counted_once() {
    let policies = [
        BreakerPolicy::new().consecutive_failures(u32::MAX),
        BreakerPolicy::new().count_window(100).failures(u32::MAX),
        BreakerPolicy::new().time_window(Duration::from_millis(10)).failures(u32::MAX),
    ];
    for policy in policies {
        let layer = layer(policy);
        let dependency = Dependency::default();
        const CALLS: usize = 10_000;
        hammer(&layer, &dependency, CALLS, |number| match number % 10 {
            0 => Ask::Failure,
            1 => Ask::Drop,
            _ => Ask::Success,
        });
        let counts = layer.handle().counts();
        let all = (THREADS * CALLS) as u64;
        assert_eq!(counts.failures, all / 10);
        assert_eq!(counts.abandoned, all / 10);
        assert_eq!(counts.successes, all / 10 * 8);
        assert_eq!(counts.late + counts.rejected, 0);
    }
}

/// Trips, probes and closes for ever: what comes in must come out again, in one way or another.
#[test]
fn nothing_is_lost_while_the_state_changes() {
    let policy = BreakerPolicy::new()
        .count_window(10)
        .failure_rate(0.3)
        .minimum_calls(5)
        .open_for(Backoff::immediate());
    let layer = layer(policy);
    let dependency = Dependency::default();
    let rejected = hammer(&layer, &dependency, 10_000, |number| match number % 5 {
        0 | 1 => Ask::Failure,
        2 => Ask::Drop,
        _ => Ask::Success,
    });
    let counts = layer.handle().counts();
    let inside = dependency.calls.load(Ordering::SeqCst) as u64;
    assert_eq!(counts.successes + counts.failures + counts.late + counts.abandoned, inside);
    assert_eq!(counts.rejected as usize, rejected);
    assert_eq!(inside as usize + rejected, THREADS * 10_000);
}
