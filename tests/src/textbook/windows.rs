//! Each kind of window through the real layer, beside the textbook breaker.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tower::{Layer, Service};
use tower_triage_circuit_breaker::{BreakerHandle, BreakerPolicy, CircuitBreakerLayer, State};
use tower_triage_core::{
    Backoff, CircuitOpen, Classifier, Classify, Describe, ErrorClass, Verdict,
};

use super::breaker::{Admitted, Breaker, Counts, End, Rules, Span};
use super::{Outcome, Run, rng, same};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Consecutive,
    ConsecutiveWithin,
    Count,
    Time,
}

pub(super) fn runs() -> Vec<Run> {
    let kinds = [
        ("window: consecutive", Kind::Consecutive),
        ("window: consecutive within a time", Kind::ConsecutiveWithin),
        ("window: the last N calls", Kind::Count),
        ("window: the last T", Kind::Time),
    ];
    kinds.map(|(name, kind)| Run::new(name, move |events, seed| run(kind, events, seed))).into()
}

/// Runs of this many events each, with a policy of their own.
const CHAPTER: u64 = 2000;

fn run(kind: Kind, events: u64, seed: u64) -> Outcome {
    let mut compared = 0;
    for chapter in 0..events.div_ceil(CHAPTER) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| error.to_string())?;
        let mut rng = rng(seed, chapter);
        let rules = rules(kind, &mut rng);
        runtime
            .block_on(compare(rules.clone(), &mut rng))
            .map_err(|difference| format!("chapter {chapter}, {rules:?}: {difference}"))?;
        compared += CHAPTER;
    }
    Ok(compared)
}

fn maybe<T>(rng: &mut StdRng, value: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    rng.random_bool(0.5).then(|| value(rng))
}

/// Rules of the kind that build.
fn rules(kind: Kind, rng: &mut StdRng) -> Rules {
    loop {
        let rate = |rng: &mut StdRng| f64::from(rng.random_range(1..=20_u32)) / 20.0;
        let windowed = matches!(kind, Kind::Count | Kind::Time);
        let slow = rng.random_bool(0.3);
        let rules = Rules {
            row: match kind {
                Kind::Consecutive => Some(rng.random_range(1..8)),
                Kind::ConsecutiveWithin => Some(rng.random_range(2..6)),
                Kind::Count | Kind::Time => None,
            },
            within: matches!(kind, Kind::ConsecutiveWithin).then(|| rng.random_range(1..200)),
            span: match kind {
                Kind::Consecutive | Kind::ConsecutiveWithin => None,
                Kind::Count => Some(Span::Calls(rng.random_range(1..300))),
                Kind::Time => Some(Span::Millis(rng.random_range(1..100) * 10)),
            },
            minimum: rng.random_range(1..40),
            failure_rate: if windowed { maybe(rng, rate) } else { None },
            failures: if windowed { maybe(rng, |rng| rng.random_range(1..30)) } else { None },
            slow_over: slow.then(|| rng.random_range(1..50)),
            slow_rate: if windowed && slow { Some(rate(rng)) } else { None },
            open: (0..rng.random_range(1..4)).map(|_| rng.random_range(0..60)).collect(),
            probes: rng.random_range(1..4),
            count: maybe(rng, |rng| (rng.random_range(1..4), rng.random_range(1..3))),
        };
        if policy(&rules).build().is_ok() {
            return rules;
        }
    }
}

fn policy(rules: &Rules) -> BreakerPolicy {
    let ms = Duration::from_millis;
    let open = Backoff::list(rules.open.iter().map(|open| ms(*open)).collect::<Vec<_>>());
    let mut policy =
        BreakerPolicy::new().minimum_calls(rules.minimum).probes(rules.probes).open_for(open);
    if let Some(row) = rules.row {
        policy = policy.consecutive_failures(row);
    }
    if let Some(within) = rules.within {
        policy = policy.consecutive_within(ms(within));
    }
    policy = match rules.span {
        None => policy,
        Some(Span::Calls(calls)) => policy.count_window(calls),
        Some(Span::Millis(time)) => policy.time_window(ms(time)),
    };
    if let Some(rate) = rules.failure_rate {
        policy = policy.failure_rate(rate);
    }
    if let Some(failures) = rules.failures {
        policy = policy.failures(failures);
    }
    if let Some(limit) = rules.slow_over {
        policy = policy.slow_call(ms(limit));
    }
    if let Some(rate) = rules.slow_rate {
        policy = policy.slow_rate(rate);
    }
    match rules.count {
        Some((close, open)) => policy.decide_by_count(close, open),
        None => policy.decide_by_rate(),
    }
}

/// A call that is answered when the other end says how.
type Answer = Rc<Cell<Option<End>>>;

/// What a dependency fails with here, and what the breaker adds.
#[derive(Debug)]
enum Error {
    Failed(ErrorClass),
    Open(CircuitOpen),
}

impl From<CircuitOpen> for Error {
    fn from(open: CircuitOpen) -> Self {
        Self::Open(open)
    }
}

struct ByClass;

impl<Res> Classify<Res, Error> for ByClass {
    fn classify(&self, outcome: Result<&Res, &Error>) -> Verdict {
        match outcome {
            Ok(_) => Verdict::Success,
            Err(Error::Failed(class)) => (*class).into(),
            Err(Error::Open(_)) => ErrorClass::Rejected.into(),
        }
    }
}

impl Describe<Answer> for ByClass {}

struct Dependency;

struct Answering(Answer);

impl Future for Answering {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.get() {
            None | Some(End::Dropped) => Poll::Pending,
            Some(End::Success) => Poll::Ready(Ok(())),
            Some(End::Failure) => Poll::Ready(Err(Error::Failed(ErrorClass::Transient))),
            Some(End::Ignored) => Poll::Ready(Err(Error::Failed(ErrorClass::Throttled))),
        }
    }
}

impl Service<Answer> for Dependency {
    type Response = ();
    type Error = Error;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, answer: Answer) -> Answering {
        Answering(answer)
    }
}

/// A call in flight in both.
struct Flight<F> {
    future: Pin<Box<F>>,
    answer: Answer,
    admitted: Admitted,
}

async fn compare(rules: Rules, rng: &mut StdRng) -> Result<(), String> {
    let plan = policy(&rules).build().map_err(|error| error.to_string())?;
    let layer = CircuitBreakerLayer::new(Classifier::new(ByClass)).policy(plan);
    let handle = layer.handle();
    let mut service = layer.layer(Dependency);
    let mut textbook = Breaker::new(rules);
    let mut flights = Vec::new();
    let failing = rng.random_range(0.02..0.9);
    // Some chapters are dense, some have long pauses.
    let pause = rng.random_range(2..60);
    let mut cx = Context::from_waker(Waker::noop());
    for number in 0..CHAPTER {
        let event = rng.random_range(0..1000);
        let mut ended = None;
        match event {
            0..200 => {
                let wait = rng.random_range(0..pause);
                tokio::time::advance(Duration::from_millis(wait)).await;
                textbook.now += wait;
            }
            200..850 => {
                let answer = Answer::default();
                if service.poll_ready(&mut cx).is_pending() {
                    return Err(format!("event {number}: not ready"));
                }
                let mut future = Box::pin(service.call(Rc::clone(&answer)));
                match (future.as_mut().poll(&mut cx), textbook.admit()) {
                    (Poll::Pending, Ok(admitted)) => {
                        flights.push(Flight { future, answer, admitted });
                    }
                    (Poll::Ready(Err(Error::Open(open))), Err(left)) => {
                        let left = Duration::from_millis(left);
                        same(&format!("event {number}, time left"), open.retry_after(), left)?;
                    }
                    (real, textbook) => {
                        let admits = textbook.is_ok();
                        return Err(format!(
                            "event {number}: {real:?}, by the textbook admitted: {admits}"
                        ));
                    }
                }
                // Most calls take no time; the others stay, up to eight.
                if event < 700 || flights.len() > 8 {
                    ended = flights.pop();
                }
            }
            850..980 if !flights.is_empty() => {
                ended = Some(flights.swap_remove(rng.random_range(0..flights.len())));
            }
            850..980 => {}
            980..996 => {
                let window = handle.window();
                let sample = (window.recorded, window.failures, window.slow);
                same(&format!("event {number}, window"), sample, textbook.sample())?;
            }
            _ => command(rng.random_range(0..8), &handle, &mut textbook),
        }
        if let Some(Flight { mut future, answer, admitted }) = ended {
            let end = match rng.random_range(0..20) {
                0 => End::Dropped,
                1 => End::Ignored,
                _ if rng.random_bool(failing) => End::Failure,
                _ => End::Success,
            };
            answer.set(Some(end));
            if future.as_mut().poll(&mut cx).is_pending() != (end == End::Dropped) {
                return Err(format!("event {number}: the future does not end as told"));
            }
            drop(future);
            textbook.end(&admitted, end);
        }
        same(&format!("event {number} ({event}), state"), handle.state(), textbook.state)?;
    }
    let all = handle.counts();
    let counts = Counts {
        successes: all.successes,
        failures: all.failures,
        slow: all.slow,
        ignored: all.ignored,
        abandoned: all.abandoned,
        late: all.late,
        rejected: all.rejected,
    };
    same("counts", counts, textbook.counts)
}

/// Somebody decides over the circuit's head; mostly that it begins anew.
fn command(which: u32, handle: &BreakerHandle, textbook: &mut Breaker) {
    match which {
        0 => {
            handle.force_open();
            textbook.enter(State::ForcedOpen);
        }
        1 => {
            handle.force_closed();
            textbook.enter(State::ForcedClosed);
        }
        2 => {
            handle.disable();
            textbook.enter(State::Disabled);
        }
        _ => {
            handle.reset();
            textbook.enter(State::Closed);
        }
    }
}
