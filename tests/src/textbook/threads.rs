//! Two threads on one state: what must hold however they are scheduled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tower::{Layer, Service};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, State};
use tower_triage_core::{
    AnyError, AnyOk, Backoff, Chain, Classifier, ErrorClass, Failure, Halves, Verdict,
};
use tower_triage_retry::budget::{
    BucketSettings, Budget, InFlightSettings, Spending, ThrottleSettings, TokenCostSettings,
    WindowSettings,
};

use super::{Outcome, Run, rng, same};

const THREADS: u64 = 2;

pub(super) fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for (name, policy) in windows() {
        let name = format!("two threads: {name}, nothing lost or doubled");
        runs.push(Run::new(name, move |events, seed| conserved(policy.clone(), events, seed)));
    }
    for probes in [1, 3] {
        let name = format!("two threads: at most {probes} probes");
        runs.push(Run::new(name, move |events, seed| probed(probes, events, seed)));
    }
    runs.push(Run::new("two threads: bucket", bucket));
    runs.push(Run::new("two threads: window budget", window));
    runs.push(Run::new("two threads: token cost", tokens));
    runs.push(Run::new("two threads: failure throttle", throttle));
    runs.push(Run::new("two threads: in flight", in_flight));
    runs
}

/// Each kind of window, with rules that trip often.
fn windows() -> [(&'static str, BreakerPolicy); 4] {
    let row = BreakerPolicy::new().consecutive_failures(2);
    let rate = BreakerPolicy::new().minimum_calls(10).failure_rate(0.4);
    [
        ("consecutive", row.clone()),
        ("consecutive within a time", row.consecutive_within(Duration::from_millis(1))),
        ("the last N calls", rate.clone().count_window(20)),
        ("the last T", rate.time_window(Duration::from_millis(5))),
    ]
}

/// Each thread makes its share of the events; `step` gets the thread's dice.
fn race<T: Send>(
    events: u64,
    seed: u64,
    begin: impl Fn() -> T + Sync,
    step: impl Fn(&mut T, &mut StdRng) -> Result<(), String> + Sync,
) -> Outcome {
    let (begin, step) = (&begin, &step);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut rng = rng(seed, u64::MAX - thread);
                    let mut own = begin();
                    for _ in 0..events / THREADS {
                        step(&mut own, &mut rng)?;
                        // Random scheduling: give way now and then, at any point of a pattern.
                        match rng.random_range(0..64) {
                            0 => std::thread::yield_now(),
                            n if n < 8 => (0..n * 8).for_each(|_| std::hint::spin_loop()),
                            _ => {}
                        }
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked".to_owned())??;
        }
        Ok(events / THREADS * THREADS)
    })
}

// === Breakers ===

#[derive(Clone, Copy)]
enum Ask {
    Success,
    Failure,
}

/// Answers at the second poll; knows how many are inside and how many came.
#[derive(Clone, Default)]
struct Dependency(Arc<Inside>);

#[derive(Default)]
struct Inside {
    now: AtomicU64,
    most: AtomicU64,
    calls: AtomicU64,
}

struct Visit {
    inside: Arc<Inside>,
    ask: Ask,
    polled: bool,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.inside.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Visit {
    fn begin(inside: Arc<Inside>, ask: Ask) -> Self {
        inside.calls.fetch_add(1, Ordering::SeqCst);
        let now = inside.now.fetch_add(1, Ordering::SeqCst) + 1;
        inside.most.fetch_max(now, Ordering::SeqCst);
        Self { inside, ask, polled: false }
    }
}

/// Leaves before its outcome is seen by anybody.
struct Visiting(Option<Visit>);

impl Future for Visiting {
    type Output = Result<(), AnyError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(visit) = &mut self.0
            && !std::mem::replace(&mut visit.polled, true)
        {
            return Poll::Pending;
        }
        match self.0.take().map(|visit| visit.ask) {
            Some(Ask::Failure) => {
                let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                Poll::Ready(Err(reset.into()))
            }
            Some(Ask::Success) | None => Poll::Ready(Ok(())),
        }
    }
}

impl Service<Ask> for Dependency {
    type Response = ();
    type Error = AnyError;
    type Future = Visiting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, ask: Ask) -> Visiting {
        Visiting(Some(Visit::begin(Arc::clone(&self.0), ask)))
    }
}

type Rules = Halves<AnyOk, Chain>;

fn layer(policy: BreakerPolicy) -> Result<CircuitBreakerLayer<Rules>, String> {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let plan = policy.build().map_err(|error| error.to_string())?;
    Ok(CircuitBreakerLayer::new(classifier).policy(plan))
}

/// Makes a call; dropped halfway if `drops`. Was it let in?
fn call<S>(service: &mut S, ask: Ask, drops: bool) -> Result<bool, String>
where
    S: Service<Ask, Response = (), Error = AnyError>,
{
    let mut cx = Context::from_waker(Waker::noop());
    if service.poll_ready(&mut cx).is_pending() {
        return Err("not ready".into());
    }
    let mut future = Box::pin(service.call(ask));
    if future.as_mut().poll(&mut cx).is_ready() {
        return Ok(false);
    }
    if !drops && future.as_mut().poll(&mut cx).is_pending() {
        return Err("not answered".into());
    }
    Ok(true)
}

/// Trips, probes, closes, is forced and reset for ever: every call that came in comes out once, in
/// one way or another, and every other call is a rejection.
fn conserved(policy: BreakerPolicy, events: u64, seed: u64) -> Outcome {
    let layer = layer(policy.open_for(Backoff::immediate()).probes(2))?;
    let handle = layer.handle();
    let dependency = Dependency::default();
    let rejected = AtomicU64::new(0);
    let begin = || layer.layer(dependency.clone());
    let done = race(events, seed, begin, |service, rng| {
        match rng.random_range(0..2000) {
            0 => handle.force_open(),
            1 => handle.disable(),
            2..7 => handle.reset(),
            _ => {}
        }
        let ask = if rng.random_bool(0.3) { Ask::Failure } else { Ask::Success };
        if !call(service, ask, rng.random_bool(0.1))? {
            rejected.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let (counts, inside) = (handle.counts(), dependency.0.calls.load(Ordering::SeqCst));
    let ended = counts.successes + counts.failures + counts.late + counts.abandoned;
    same("calls that came out", ended, inside)?;
    same("rejections", counts.rejected, rejected.load(Ordering::Relaxed))?;
    same("calls in all", inside + counts.rejected, done)?;
    Ok(done)
}

/// A circuit that stays half-open: never more inside than there are slots, whether calls end well or
/// are dropped, and at the end every slot is free.
fn probed(probes: u32, events: u64, seed: u64) -> Outcome {
    let policy = BreakerPolicy::new().consecutive_failures(1).open_for(Backoff::immediate());
    let layer = layer(policy.probes(probes).decide_by_count(u32::MAX, 1))?;
    let dependency = Dependency::default();
    call(&mut layer.layer(dependency.clone()), Ask::Failure, false)?;
    same("state", layer.handle().state(), State::Open)?;
    dependency.0.most.store(0, Ordering::SeqCst);
    // Calls are held over several steps, so that slots are really taken.
    type Held = Vec<Pin<Box<dyn Future<Output = Result<(), AnyError>> + Send>>>;
    let begin = || (layer.layer(dependency.clone()), Held::new());
    let done = race(events, seed, begin, |(service, held), rng| {
        let mut cx = Context::from_waker(Waker::noop());
        if held.len() < 3 && rng.random_bool(0.6) {
            if service.poll_ready(&mut cx).is_pending() {
                return Err("not ready".into());
            }
            let mut future = Box::pin(service.call(Ask::Success));
            if future.as_mut().poll(&mut cx).is_pending() {
                held.push(future);
            }
        } else if !held.is_empty() {
            let mut future = held.swap_remove(rng.random_range(0..held.len()));
            if rng.random_bool(0.5) && future.as_mut().poll(&mut cx).is_pending() {
                return Err("not answered".into());
            }
        }
        Ok(())
    })?;
    let most = dependency.0.most.load(Ordering::SeqCst);
    same("most probes at once", most, probes.into())?;
    same("state", layer.handle().state(), State::HalfOpen)?;
    let mut cx = Context::from_waker(Waker::noop());
    let mut service = layer.layer(dependency);
    let mut held = Vec::new();
    for _ in 0..=probes {
        if service.poll_ready(&mut cx).is_pending() {
            return Err("not ready".into());
        }
        let mut future = Box::pin(service.call(Ask::Success));
        held.push((future.as_mut().poll(&mut cx).is_pending(), future));
    }
    let admitted = held.iter().filter(|(admitted, _)| *admitted).count();
    same("free slots", admitted as u64, probes.into())?;
    Ok(done)
}

// === Budgets ===

const FAILURE: Failure = Failure::new(ErrorClass::Transient);

fn sound(budget: Result<Budget, tower_triage_core::ConfigError>) -> Result<Budget, String> {
    budget.map_err(|error| error.to_string())
}

/// Requests that fail and ask once or twice, at `now`; never more grants than `allowed` gives for so
/// many requests. A request is counted before it begins and a grant after it was given, so a count
/// read in between errs on the safe side.
fn granted(
    budget: &Budget,
    events: u64,
    seed: u64,
    now: impl Fn(&mut StdRng) -> Duration + Sync,
    allowed: impl Fn(u64) -> u64 + Sync,
) -> Result<(u64, u64), String> {
    let (requests, grants) = (AtomicU64::new(0), AtomicU64::new(0));
    race(
        events,
        seed,
        || (),
        |(), rng| {
            let at = now(rng);
            requests.fetch_add(1, Ordering::SeqCst);
            let mut spending = budget.begin(at);
            for _ in 0..rng.random_range(0..3) {
                budget.observe(&mut spending, &Verdict::Failure(FAILURE), true);
                if budget.ask(&mut spending, &FAILURE, at).is_ok() {
                    let grants = grants.fetch_add(1, Ordering::SeqCst) + 1;
                    let requests = requests.load(Ordering::SeqCst);
                    if grants > allowed(requests) {
                        return Err(format!("{grants} retries for {requests} requests"));
                    }
                }
            }
            Ok(())
        },
    )?;
    Ok((requests.into_inner(), grants.into_inner()))
}

fn bucket(events: u64, seed: u64) -> Outcome {
    let settings = BucketSettings { gain: 0.25, capacity: u32::MAX, initial: 10 };
    let budget = sound(Budget::bucket(settings))?;
    let allowed = |requests| 10 + requests / 4;
    let now = |_: &mut StdRng| Duration::ZERO;
    let (requests, grants) = granted(&budget, events, seed, now, allowed)?;
    same("granted and left", grants + budget.balance(Duration::ZERO), allowed(requests))?;
    // A small one, which is often full: never more than it would give if it had no capacity.
    let settings = BucketSettings { gain: 0.25, capacity: 3, initial: 3 };
    let (_, _) = granted(&sound(Budget::bucket(settings))?, events, seed, now, |n| 3 + n / 4)?;
    Ok(2 * requests)
}

fn window(events: u64, seed: u64) -> Outcome {
    let settings =
        WindowSettings { ttl: Duration::from_millis(100), min_retries_per_sec: 0, ratio: 0.25 };
    let budget = sound(Budget::window(settings.clone()))?;
    let still = |_: &mut StdRng| Duration::ZERO;
    let (requests, grants) = granted(&budget, events, seed, still, |n| n / 4)?;
    same("granted and left", grants + budget.balance(Duration::ZERO), requests / 4)?;
    // A clock that moves, which a thread may read long before it acts: what a request brings is
    // granted at most once, if at all.
    let clock = AtomicU64::new(0);
    let moving = |rng: &mut StdRng| {
        Duration::from_micros(clock.fetch_add(rng.random_range(0..200), Ordering::SeqCst))
    };
    let (more, _) = granted(&sound(Budget::window(settings))?, events, seed, moving, |n| n / 4)?;
    Ok(requests + more)
}

fn tokens(events: u64, seed: u64) -> Outcome {
    const CAPACITY: u64 = 50;
    const COST: u64 = 5;
    let budget = sound(Budget::token_cost(TokenCostSettings {
        capacity: CAPACITY as u32,
        ..TokenCostSettings::default()
    }))?;
    // Tokens that were given back, counted before; tokens that were paid, counted afterwards.
    let (back, paid) = (AtomicU64::new(0), AtomicU64::new(0));
    race(
        events,
        seed,
        || (),
        |(), rng| {
            let mut spending = budget.begin(Duration::ZERO);
            let granted = budget.ask(&mut spending, &FAILURE, Duration::ZERO).is_ok();
            if granted {
                let paid = paid.fetch_add(COST, Ordering::SeqCst) + COST;
                let back = back.load(Ordering::SeqCst);
                if paid > CAPACITY + back {
                    return Err(format!("{paid} tokens paid, {back} given back"));
                }
            }
            if rng.random_bool(0.3) {
                back.fetch_add(if granted { COST } else { 1 }, Ordering::SeqCst);
                budget.observe(&mut spending, &Verdict::Success, false);
            }
            if budget.level(Duration::ZERO) > CAPACITY as f64 {
                return Err("more tokens than the capacity".into());
            }
            Ok(())
        },
    )
}

fn throttle(events: u64, seed: u64) -> Outcome {
    let settings = ThrottleSettings { max_tokens: 1000, token_ratio: 1.0 };
    let budget = sound(Budget::failure_throttle(settings))?;
    let observe = |verdict: &Verdict| {
        budget.observe(&mut budget.begin(Duration::ZERO), verdict, true);
    };
    (0..500).for_each(|_| observe(&Verdict::Failure(FAILURE)));
    // Each thread strays at most 200 tokens from where it began, so no end of the scale is met.
    let sum = std::sync::atomic::AtomicI64::new(0);
    let done = race(
        events,
        seed,
        || 0_i64,
        |own, rng| {
            let success = if own.abs() == 200 { *own < 0 } else { rng.random_bool(0.5) };
            let step = if success { 1 } else { -1 };
            *own += step;
            sum.fetch_add(step, Ordering::SeqCst);
            observe(if success { &Verdict::Success } else { &Verdict::Failure(FAILURE) });
            Ok(())
        },
    )?;
    same("tokens", budget.level(Duration::ZERO), (500 + sum.into_inner()) as f64)?;
    Ok(done)
}

fn in_flight(events: u64, seed: u64) -> Outcome {
    const MIN: u64 = 3;
    let settings = InFlightSettings { max_ratio: 0.0, min: MIN as u32 };
    let budget = sound(Budget::in_flight(settings))?;
    let running = AtomicU64::new(0);
    let done = race(events, seed, Vec::new, |held: &mut Vec<Running<'_>>, rng| {
        if held.len() < 4 && rng.random_bool(0.6) {
            let mut spending = budget.begin(Duration::ZERO);
            budget.observe(&mut spending, &Verdict::Failure(FAILURE), true);
            if budget.ask(&mut spending, &FAILURE, Duration::ZERO).is_ok() {
                if running.fetch_add(1, Ordering::SeqCst) >= MIN {
                    return Err("too many retries at once".into());
                }
                held.push(Running { running: &running, _spending: spending });
            }
        } else if !held.is_empty() {
            drop(held.swap_remove(rng.random_range(0..held.len())));
        }
        Ok(())
    })?;
    same("places", budget.balance(Duration::ZERO), MIN)?;
    Ok(done)
}

/// A retry's place: counted after it was taken and until before it is given back, so never too many.
struct Running<'a> {
    running: &'a AtomicU64,
    _spending: Spending,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}
