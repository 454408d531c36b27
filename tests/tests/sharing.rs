//! How layers share their state: counted per thread or leaked, with tokio's clock or a coarse one. It
//! changes what a call costs, and nothing else.

mod common;

use std::future::{Future, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{classifier, opens_at, reset};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::circuit_breaker::{BreakerPolicy, Counts, State};
use tower_triage::retry::budget::{BucketSettings, Budget};
use tower_triage::{
    AnyError, AnyOk, Backoff, Chain, CircuitBreakerLayer, Classifier, Clock, Desk, ErrorClass,
    EscalateLayer, FallbackLayer, Halves, RetryLayer, RetryPolicy, Verdict, classify_fn,
};

type Answer = Result<u32, AnyError>;

/// Fails in a tenth of the calls, as the seed says.
fn flaky(seed: u64) -> impl FnMut(u32) -> std::future::Ready<Answer> + Clone {
    let calls = Arc::new(AtomicU64::new(0));
    move |n| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let fails = StdRng::seed_from_u64(seed ^ call << 20).random_ratio(1, 10);
        ready(if fails { Err(reset()) } else { Ok(n) })
    }
}

/// Drives `$stack` with so many calls; gives each answer.
async fn answers<S>(mut stack: S, calls: u32) -> Vec<Result<u32, ErrorClass>>
where
    S: Service<u32, Response = u32, Error = AnyError>,
{
    let mut answers = Vec::new();
    for n in 0..calls {
        let answer = stack.ready().await.unwrap().call(n).await;
        let class = |error: AnyError| match error.downcast_ref::<tower_triage::CircuitOpen>() {
            Some(_) => ErrorClass::Rejected,
            None => ErrorClass::Transient,
        };
        answers.push(answer.map_err(class));
    }
    answers
}

/// Both ways: the same answers, and the same books.
#[tokio::test(start_paused = true)]
async fn a_leaked_stack_does_what_a_counted_one_does() {
    for seed in 0..20 {
        let policy = || {
            let policy = BreakerPolicy::new().consecutive_failures(2);
            policy.open_for(Backoff::fixed(Duration::from_millis(40))).build().unwrap()
        };
        let budget = || {
            let settings = BucketSettings { gain: 0.1, capacity: 5, initial: 1 };
            Budget::bucket(settings).unwrap()
        };
        let layers = |classifier: &Classifier<Halves<AnyOk, Chain>>, budget: &Budget| {
            let retry = RetryPolicy::default().backoff(&Backoff::fixed(Duration::from_millis(10)));
            (
                EscalateLayer::new(classifier.clone(), Desk::log()),
                FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Rejected, |_| 77),
                RetryLayer::new(classifier.clone())
                    .policy(retry.build().unwrap())
                    .budget(budget.clone()),
                CircuitBreakerLayer::new(classifier.clone()).policy(policy()),
            )
        };
        let (books, told): (Vec<_>, Vec<_>) = {
            let ((one, seen_one), (two, seen_two)) = (classifier(), classifier());
            let (budget_one, budget_two) = (budget(), budget());
            let (escalate, fallback, retry, breaker) = layers(&one, &budget_one);
            let counted = (breaker.handle(), budget_one);
            let stack = ServiceBuilder::new()
                .layer(escalate)
                .layer(fallback)
                .layer(retry)
                .layer(breaker)
                .service(service_fn(flaky(seed)));
            let counted_answers = answers(stack, 300).await;

            let (escalate, fallback, retry, breaker) = layers(&two, &budget_two);
            let leaked = (breaker.handle(), budget_two);
            let stack = ServiceBuilder::new()
                .layer(escalate.leak())
                .layer(fallback.leak())
                .layer(retry.leak())
                .layer(breaker.leak())
                .service(service_fn(flaky(seed)));
            let leaked_answers = answers(stack, 300).await;

            let book =
                |(breaker, budget): (tower_triage::circuit_breaker::BreakerHandle, Budget)| {
                    (breaker.state(), breaker.counts(), budget.level(Duration::ZERO).to_bits())
                };
            let tell = |seen: tower_triage_test_support::Seen| {
                let line = |i: &tower_triage::Incident| (i.resolution, i.attempts, i.steps.len());
                seen.incidents().iter().map(line).collect::<Vec<_>>()
            };
            assert_eq!(counted_answers, leaked_answers, "seed {seed}");
            ([book(counted), book(leaked)].into(), [tell(seen_one), tell(seen_two)].into())
        };
        assert_eq!(books[0], books[1], "seed {seed}");
        assert_eq!(told[0], told[1], "seed {seed}");
        assert!(!told[0].is_empty() && books[0].1.failures > 0, "the seed makes nothing fail");
    }
}

/// A leaked stack may be spawned un-boxed, and goes where it is called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaked_stack_is_spawned_unboxed() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), Desk::log()).leak())
        .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Rejected, |_| 0).leak())
        .layer(RetryLayer::new(classifier.clone()).leak())
        .layer(CircuitBreakerLayer::new(classifier).leak())
        .service(service_fn(|n: u32| async move { Ok::<_, AnyError>(n + 1) }));
    let calls = (0..64).map(|n| {
        let stack = stack.clone();
        tokio::spawn(async move { stack.oneshot(n).await.unwrap() })
    });
    for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), n as u32 + 1);
    }
}

/// Rules that are counted: whoever holds the layer's state holds them.
fn counted_rules(alive: &Arc<()>) -> impl Fn(Result<&u32, &AnyError>) -> Verdict + use<> {
    let alive = Arc::clone(alive);
    move |outcome| {
        let _ = &alive;
        if outcome.is_ok() { Verdict::Success } else { ErrorClass::Transient.into() }
    }
}

/// The state of a counted layer goes with the last of its layers, services and calls, on whichever
/// threads they were.
#[test]
fn counted_state_is_given_back() {
    let alive = Arc::new(());
    let classifier = Classifier::new(classify_fn(counted_rules(&alive)));
    let layer = RetryLayer::new(classifier.clone());
    let service = layer.layer(service_fn(|n: u32| async move { Ok::<_, AnyError>(n) }));
    let calls: Vec<_> = std::thread::scope(|scope| {
        let call = || {
            let mut service = service.clone();
            // Made here, finished elsewhere.
            (service.call(1), service.call(2))
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(call)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop((layer, classifier, service));
    assert_eq!(Arc::strong_count(&alive), 2, "the calls hold it");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (finished, dropped) in calls {
        assert_eq!(runtime.block_on(finished).unwrap(), 1);
        drop(dropped);
    }
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// Polls a future that is ready at once.
fn now<F: Future>(future: F) -> F::Output {
    tokio_test::task::spawn(future).poll_now()
}

trait PollNow<T> {
    fn poll_now(&mut self) -> T;
}

impl<F: Future> PollNow<F::Output> for tokio_test::task::Spawn<F> {
    fn poll_now(&mut self) -> F::Output {
        match self.poll() {
            std::task::Poll::Ready(output) => output,
            std::task::Poll::Pending => panic!("not ready at once"),
        }
    }
}

/// More threads than have a counter of their own, all at once: each success and each request is
/// counted once.
#[test]
fn threads_beyond_the_sixty_fourth_are_counted_too() {
    const THREADS: u32 = 80;
    const CALLS: u32 = 500;
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let settings = BucketSettings { gain: 0.001, capacity: 1_000, initial: 0 };
    let budget = Budget::bucket(settings).unwrap();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(5));
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).budget(budget.clone()))
        .layer(breaker)
        .service(service_fn(|n: u32| ready(Ok::<_, AnyError>(n))));
    let all_at_once = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut stack = stack.clone();
                all_at_once.wait();
                for n in 0..CALLS {
                    now(now(stack.ready()).unwrap().call(n)).unwrap();
                }
                // Nobody ends, and gives a number back, before all are done.
                all_at_once.wait();
            });
        }
    });
    let counts = handle.counts();
    assert_eq!((counts.successes, counts.late), (u64::from(THREADS * CALLS), 0));
    assert_eq!(budget.level(Duration::ZERO).round(), f64::from(THREADS * CALLS) * 0.001);
}

/// Threads come and go under load while the circuit is forced open and reset: each call is counted
/// exactly once, in its era or as late.
#[test]
fn no_success_is_lost_between_eras_and_threads() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let breaker = CircuitBreakerLayer::new(classifier).policy(opens_at(5));
    let handle = breaker.handle();
    let service = breaker.layer(service_fn(|n: u32| ready(Ok::<_, AnyError>(n))));
    let mut answered = 0;
    for round in 0..50 {
        answered += std::thread::scope(|scope| {
            let call = || {
                let mut service = service.clone();
                (0..400).filter(|n| now(now(service.ready()).unwrap().call(*n)).is_ok()).count()
            };
            let threads = [scope.spawn(call), scope.spawn(call)];
            for _ in 0..20 {
                if round % 2 == 0 {
                    handle.force_open();
                }
                handle.reset();
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
    }
    let Counts { successes, late, rejected, .. } = handle.counts();
    assert_eq!(successes + late, answered as u64);
    assert_eq!(rejected, 50 * 2 * 400 - answered as u64);
}

/// A coarse clock: refused as long as it has to be, let in when it is time, neither before nor, by
/// more than a tick, after.
#[cfg(target_os = "linux")]
#[test]
fn a_coarse_clock_lets_nobody_in_early() {
    const OPEN: Duration = Duration::from_millis(60);
    let classifier = Classifier::new(classify_fn(|outcome: Result<&u32, &AnyError>| {
        if outcome.is_ok() { Verdict::Success } else { ErrorClass::Transient.into() }
    }));
    let policy = BreakerPolicy::new().consecutive_failures(1).open_for(Backoff::fixed(OPEN));
    let breaker =
        CircuitBreakerLayer::new(classifier).clock(Clock::coarse()).policy(policy.build().unwrap());
    let handle = breaker.handle();
    let mut service = breaker.layer(service_fn(|fails: u32| {
        ready(if fails == 1 { Err(AnyError::msg("down")) } else { Ok(fails) })
    }));
    let time = Clock::new();
    // A busy machine may be late once, and late again.
    let mut soonest = Duration::MAX;
    for _ in 0..3 {
        let before = time.now();
        now(now(service.ready()).unwrap().call(1)).unwrap_err();
        let opened = time.now();
        assert_eq!(handle.state(), State::Open);
        let admitted = loop {
            let asked = time.now();
            if now(now(service.ready()).unwrap().call(0)).is_ok() {
                break asked;
            }
        };
        assert!(time.now() - before >= OPEN, "let in {:?} after it opened", admitted - opened);
        soonest = soonest.min(admitted - opened);
        assert_eq!(handle.state(), State::Closed);
    }
    assert!(soonest < OPEN + Duration::from_secs(1), "{soonest:?}");
}
