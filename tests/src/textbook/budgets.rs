//! Each kind of budget beside the textbook.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tower_triage_core::{ConfigError, ErrorClass, Failure, Verdict};
use tower_triage_retry::budget::{
    BucketSettings, Budget, InFlightSettings, Spending, ThrottleSettings, TokenCostSettings,
    TokenCosts, TokenRefunds, WindowSettings,
};

use super::budget as textbook;
use super::{Outcome, Run, rng, same};

pub(super) fn runs() -> Vec<Run> {
    vec![
        Run::new("budget: bucket", |events, seed| run(events, seed, bucket)),
        Run::new("budget: window", |events, seed| run(events, seed, window)),
        Run::new("budget: token cost", |events, seed| run(events, seed, tokens)),
        Run::new("budget: failure throttle", |events, seed| run(events, seed, throttle)),
        Run::new("budget: in flight", |events, seed| run(events, seed, in_flight)),
    ]
}

/// Runs of this many events each, with settings of their own.
const CHAPTER: u64 = 5000;

/// A budget and its textbook, made alike.
type Pair<T> = Result<(Budget, T), ConfigError>;

fn run<T: textbook::Budget>(events: u64, seed: u64, pair: fn(&mut StdRng) -> Pair<T>) -> Outcome {
    let mut compared = 0;
    for chapter in 0..events.div_ceil(CHAPTER) {
        let mut rng = rng(seed, chapter);
        let (budget, textbook) = pair(&mut rng).map_err(|error| error.to_string())?;
        let settings = format!("{budget:?}");
        compare(&budget, textbook, &mut rng)
            .map_err(|difference| format!("chapter {chapter}, {settings}: {difference}"))?;
        compared += CHAPTER;
    }
    Ok(compared)
}

fn bucket(rng: &mut StdRng) -> Pair<textbook::Bucket> {
    let gain = rng.random_range(0..3000_u32);
    let capacity = rng.random_range(1..50);
    let initial = rng.random_range(0..=capacity);
    let settings = BucketSettings { gain: f64::from(gain) / 1000.0, capacity, initial };
    let capacity = u64::from(capacity) * 1000;
    let textbook =
        textbook::Bucket { gain: gain.into(), capacity, left: u64::from(initial) * 1000 };
    Ok((Budget::bucket(settings)?, textbook))
}

fn window(rng: &mut StdRng) -> Pair<textbook::Window> {
    let seconds = rng.random_range(1..5_u32);
    let per_sec = rng.random_range(0..4);
    let ratio = rng.random_range(0..2000_u32);
    let settings = WindowSettings {
        ttl: Duration::from_secs(seconds.into()),
        min_retries_per_sec: per_sec,
        ratio: f64::from(ratio) / 1000.0,
    };
    let textbook = textbook::Window {
        slot: u64::from(seconds) * 1000 / 20,
        ratio: ratio.into(),
        reserve: u64::from(seconds * per_sec) * 1000,
        requests: Vec::new(),
        retries: Vec::new(),
    };
    Ok((Budget::window(settings)?, textbook))
}

fn tokens(rng: &mut StdRng) -> Pair<textbook::Tokens> {
    let mut price = || rng.random_range(1..15);
    let (timeout, other, first_try) = (price(), price(), price() - 1);
    let capacity = rng.random_range(1..200);
    let settings = TokenCostSettings {
        capacity,
        costs: TokenCosts { transient: other, timeout, throttled: other, other },
        refunds: TokenRefunds { first_try, ..TokenRefunds::default() },
        ..TokenCostSettings::default()
    };
    let textbook = textbook::Tokens { capacity, left: capacity, timeout, other, first_try };
    Ok((Budget::token_cost(settings)?, textbook))
}

fn throttle(rng: &mut StdRng) -> Pair<textbook::Throttle> {
    let max_tokens = rng.random_range(1..60);
    let ratio = rng.random_range(1..3000_u32);
    let settings = ThrottleSettings { max_tokens, token_ratio: f64::from(ratio) / 1000.0 };
    let max = u64::from(max_tokens) * 1000;
    Ok((
        Budget::failure_throttle(settings)?,
        textbook::Throttle { max, ratio: ratio.into(), left: max },
    ))
}

fn in_flight(rng: &mut StdRng) -> Pair<textbook::InFlight> {
    let percent = rng.random_range(0..100_u32);
    let min = rng.random_range(0..5);
    let settings = InFlightSettings { max_ratio: f64::from(percent) / 100.0, min };
    let textbook =
        textbook::InFlight { percent: percent.into(), min: min.into(), first: 0, retries: 0 };
    Ok((Budget::in_flight(settings)?, textbook))
}

fn compare<T: textbook::Budget>(
    budget: &Budget,
    mut textbook: T,
    rng: &mut StdRng,
) -> Result<(), String> {
    let mut open: Vec<(Spending, T::Request)> = Vec::new();
    let mut now = 0;
    let failing = rng.random_range(0.05..0.95);
    let pause = rng.random_range(1..100);
    for number in 0..CHAPTER {
        let at = Duration::from_millis(now);
        match rng.random_range(0..100) {
            0..15 => now += rng.random_range(0..pause),
            15..45 => open.push((budget.begin(at), textbook.begin(now))),
            45..85 if !open.is_empty() => {
                let place = rng.random_range(0..open.len());
                let (spending, request) = &mut open[place];
                if rng.random_bool(failing) {
                    let class = match rng.random_bool(0.3) {
                        true => ErrorClass::Timeout,
                        false => ErrorClass::Transient,
                    };
                    let failure = Failure::new(class);
                    budget.observe(spending, &Verdict::Failure(failure), true);
                    textbook.failed(request);
                    let granted = budget.ask(spending, &failure, at).is_ok();
                    let what = format!("event {number}, granted");
                    same(&what, granted, textbook.ask(request, class, now))?;
                } else {
                    budget.observe(spending, &Verdict::Success, false);
                    textbook.succeeded(request);
                    let (spending, request) = open.swap_remove(place);
                    drop(spending);
                    textbook.end(request);
                }
            }
            45..85 => {}
            _ if open.is_empty() => {}
            // Dropped, whatever it was doing.
            _ => {
                let (spending, request) = open.swap_remove(rng.random_range(0..open.len()));
                drop(spending);
                textbook.end(request);
            }
        }
        let at = Duration::from_millis(now);
        same(&format!("event {number}, balance"), budget.balance(at), textbook.balance(now))?;
        let level = (budget.level(at) * 1000.0).round() as u64;
        same(&format!("event {number}, level"), level, textbook.level(now))?;
    }
    Ok(())
}
