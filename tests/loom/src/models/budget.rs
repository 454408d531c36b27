//! The retry budgets: never more than there is, and nothing lost.

use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;
use tower_triage_core::{ErrorClass, Failure, Verdict};

use super::{Model, model, race};
use crate::budget::{
    BucketSettings, Budget, InFlightSettings, ThrottleSettings, TokenCostSettings, WindowSettings,
};

pub(super) const MODELS: &[Model] = &[
    model("bucket: deposits and withdrawals", bucket),
    model("window: deposits and withdrawals", window),
    model("window: a cell changes its slot", window_cell),
    model("in flight: retries and drops", in_flight),
    model("token cost: payments and refunds", token_cost),
    model("token cost: time brings what it brings once", token_refill),
    model("failure throttle: failures and successes", throttle),
];

const NOW: Duration = Duration::ZERO;
const FAILURE: Failure = Failure::new(ErrorClass::Transient);

/// A request that fails, and asks whether it may try again.
fn asks(budget: &Budget, now: Duration) -> bool {
    let mut spending = budget.begin(now);
    budget.observe(&mut spending, &Verdict::Failure(FAILURE), true);
    budget.ask(&mut spending, &FAILURE, now).is_ok()
}

/// Two threads, two requests each and half a retry for each: two retries in all, of which some may
/// be left.
fn bucket() {
    let settings = BucketSettings { gain: 0.5, capacity: 3, initial: 0 };
    let budget = Budget::bucket(settings).unwrap();
    let request =
        |budget: Budget| move || u64::from(asks(&budget, NOW)) + u64::from(asks(&budget, NOW));
    let other = thread::spawn(request(budget.clone()));
    let granted = request(budget.clone())() + other.join().unwrap();
    assert_eq!(granted + budget.balance(NOW), 2);
}

/// Half a retry for each request, two requests.
fn window() {
    let settings =
        WindowSettings { ttl: Duration::from_millis(100), min_retries_per_sec: 0, ratio: 0.5 };
    let budget = Budget::window(settings).unwrap();
    let request = |budget: Budget| move || u64::from(asks(&budget, NOW));
    let (one, other) = race(request(budget.clone()), request(budget.clone()));
    assert_eq!(one + other + budget.balance(NOW), 1);
}

/// A request of a slot that is over does not take away what came in the slot that has its cell now.
fn window_cell() {
    let ttl = Duration::from_millis(100);
    let budget =
        Budget::window(WindowSettings { ttl, min_retries_per_sec: 0, ratio: 1.0 }).unwrap();
    let request = |budget: Budget, now: Duration| move || drop(budget.begin(now));
    race(request(budget.clone(), NOW), request(budget.clone(), ttl));
    assert_eq!(budget.balance(ttl), 1);
}

/// One retry at a time, whose place comes back.
fn in_flight() {
    let settings = InFlightSettings { max_ratio: 0.0, min: 1 };
    let budget = Budget::in_flight(settings).unwrap();
    let running = Arc::new(AtomicUsize::new(0));
    let request = |budget: Budget, running: Arc<AtomicUsize>| {
        move || {
            let mut spending = budget.begin(NOW);
            budget.observe(&mut spending, &Verdict::Failure(FAILURE), true);
            let granted = budget.ask(&mut spending, &FAILURE, NOW).is_ok();
            if granted {
                assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0, "two retries at once");
                running.fetch_sub(1, Ordering::Relaxed);
            }
            granted
        }
    };
    let one = request(budget.clone(), Arc::clone(&running));
    let (one, other) = race(one, request(budget.clone(), running));
    assert!(one || other, "the first of them finds the place free");
    assert_eq!(budget.balance(NOW), 1);
}

/// Tokens for one retry, which two requests want, while the success of a third gives back what its
/// retry cost.
fn token_cost() {
    let settings = TokenCostSettings { capacity: 11, ..Default::default() };
    let budget = Budget::token_cost(settings).unwrap();
    let mut paid = budget.begin(NOW);
    assert!(budget.ask(&mut paid, &FAILURE, NOW).is_ok());
    let others = [(), ()].map(|()| {
        let budget = budget.clone();
        thread::spawn(move || asks(&budget, NOW))
    });
    budget.observe(&mut paid, &Verdict::Success, true);
    let granted = others.map(|other| u32::from(other.join().unwrap())).iter().sum::<u32>();
    assert!(granted >= 1);
    assert_eq!(budget.level(NOW), f64::from(11 - 5 * granted));
}

/// Time has brought the tokens for one retry, which two requests want.
fn token_refill() {
    let settings = TokenCostSettings {
        capacity: 100,
        initial: Some(0),
        refill_per_second: 1.0,
        ..Default::default()
    };
    let budget = Budget::token_cost(settings).unwrap();
    let now = Duration::from_secs(6);
    let (one, other) = (budget.clone(), budget.clone());
    let (one, other) = race(move || asks(&one, now), move || asks(&other, now));
    assert!(one != other, "tokens for one");
    assert_eq!(budget.level(now), 1.0);
}

/// Failures and successes of two threads add up.
fn throttle() {
    let settings = ThrottleSettings { max_tokens: 10, token_ratio: 0.5 };
    let budget = Budget::failure_throttle(settings).unwrap();
    asks(&budget, NOW);
    let (failing, succeeding) = (budget.clone(), budget.clone());
    race(
        move || asks(&failing, NOW),
        move || {
            let mut spending = succeeding.begin(NOW);
            succeeding.observe(&mut spending, &Verdict::Success, false);
        },
    );
    assert_eq!(budget.level(NOW), 8.5);
}
