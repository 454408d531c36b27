//! The handle, over every kind of budget.

use std::time::Duration;

use proptest::prelude::*;
use tower_triage_core::{ErrorClass, Failure, ServerWord, Verdict};

use super::*;

const NOW: Duration = Duration::ZERO;
const FAILURE: Failure = Failure::new(ErrorClass::Transient);

/// A request that fails `failures` times and asks each time: how many retries it got, and why it
/// stopped asking.
fn request(budget: &Budget, failures: usize) -> (usize, Option<Denied>) {
    let mut spending = budget.begin(NOW);
    for retries in 0..failures {
        budget.observe(&mut spending, &Verdict::Failure(FAILURE), true);
        if let Err(denied) = budget.ask(&mut spending, &FAILURE, NOW) {
            return (retries, Some(denied));
        }
    }
    budget.observe(&mut spending, &Verdict::Success, false);
    (failures, None)
}

fn sound(settings: BudgetSettings) -> Budget {
    settings.build().expect("sound settings")
}

fn every_kind() -> Vec<Budget> {
    vec![
        Budget::unlimited(),
        Budget::default(),
        sound(BudgetSettings::Window(WindowSettings::default())),
        sound(BudgetSettings::TokenCost(TokenCostSettings::default())),
        sound(BudgetSettings::FailureThrottle(ThrottleSettings::default())),
        sound(BudgetSettings::InFlight(InFlightSettings::default())),
    ]
}

#[test]
fn the_default_starts_with_ten_and_gains_a_tenth() {
    let budget = Budget::default();
    assert_eq!(budget.balance(NOW), 10);
    assert_eq!(request(&budget, 100), (10, Some(Denied::UsedUp)));
    assert!((budget.level(NOW) - 0.1).abs() < 1e-9);
    assert_eq!((0..99).map(|_| request(&budget, 1).0).sum::<usize>(), 10);
}

/// What a gauge shows and how many retries that is, at the start and by default.
#[test]
fn every_kind_tells_its_level_and_its_balance() {
    let (levels, balances): (Vec<_>, Vec<_>) =
        every_kind().iter().map(|budget| (budget.level(NOW), budget.balance(NOW))).unzip();
    assert_eq!(levels, [f64::INFINITY, 10.0, 100.0, 500.0, 10.0, 3.0]);
    assert_eq!(balances, [u64::MAX, 10, 100, 100, 5, 3]);
    let half = WindowSettings { min_retries_per_sec: 0, ratio: 0.5, ..WindowSettings::default() };
    let window = sound(BudgetSettings::Window(half));
    let _request = window.begin(NOW);
    assert_eq!((window.level(NOW), window.balance(NOW)), (0.5, 0));
}

#[test]
fn clones_share_one_state() {
    for budget in every_kind().into_iter().skip(1) {
        let shared = budget.clone();
        let before = shared.balance(NOW);
        let mut spending = budget.begin(NOW);
        budget.observe(&mut spending, &Verdict::Failure(FAILURE), true);
        assert_eq!(budget.ask(&mut spending, &FAILURE, NOW), Ok(()));
        assert!(shared.balance(NOW) < before, "{budget:?}");
    }
}

#[test]
fn only_the_window_needs_the_clock() {
    let needs: Vec<bool> = every_kind().iter().map(Budget::needs_clock).collect();
    assert_eq!(needs, [false, false, true, false, false, false]);
}

#[test]
fn a_request_takes_at_most_its_share_rounded_up() {
    let budget = Budget::bucket(BucketSettings { gain: 0.0, capacity: 10, initial: 9 })
        .and_then(|budget| budget.per_request_fraction(0.5))
        .expect("sound settings");
    assert_eq!(request(&budget, 100), (5, Some(Denied::RequestLimit)));
    assert_eq!(request(&budget, 100), (2, Some(Denied::RequestLimit)));
    assert_eq!(request(&budget, 1), (1, None));
    assert_eq!(budget.balance(NOW), 1);
}

#[test]
fn the_share_belongs_to_the_handle_and_not_to_the_state() {
    let whole = Budget::default();
    let careful = whole.clone().per_request_fraction(0.1).expect("a share");
    assert_eq!(request(&careful, 100).0, 1);
    assert_eq!(request(&whole, 100).0, 9);
}

#[test]
fn a_wrong_share_names_its_field() {
    for fraction in [0.0, -1.0, 1.1, f64::NAN] {
        let error = Budget::default().per_request_fraction(fraction).map(|_| ());
        assert_eq!(error.map_err(|error| error.field()), Err("per_request_fraction"));
    }
}

#[test]
fn a_success_gives_back_the_last_cost_and_a_first_try_a_token() {
    let budget = sound(BudgetSettings::TokenCost(TokenCostSettings {
        capacity: 20,
        ..TokenCostSettings::default()
    }));
    assert_eq!(request(&budget, 2), (2, None));
    assert_eq!(budget.level(NOW), 15.0);
    assert_eq!(request(&budget, 0), (0, None));
    assert_eq!(budget.level(NOW), 16.0);
}

#[test]
fn a_throttle_counts_what_could_be_repeated_and_what_the_server_forbade() {
    let budget = sound(BudgetSettings::FailureThrottle(ThrottleSettings::default()));
    let mut spending = budget.begin(NOW);
    budget.observe(&mut spending, &Verdict::Failure(FAILURE), false);
    assert_eq!(budget.level(NOW), 10.0);
    let forbidden = FAILURE.server(ServerWord::Forbidden);
    budget.observe(&mut spending, &Verdict::Failure(forbidden), false);
    assert_eq!(budget.level(NOW), 9.0);
    budget.observe(&mut spending, &Verdict::Success, false);
    assert_eq!(budget.level(NOW), 9.1);
}

#[test]
fn a_dropped_request_gives_back_its_place_whatever_it_was_doing() {
    let budget = sound(BudgetSettings::InFlight(InFlightSettings { max_ratio: 0.0, min: 1 }));
    let mut waiting = budget.begin(NOW);
    budget.observe(&mut waiting, &Verdict::Failure(FAILURE), true);
    assert_eq!(budget.ask(&mut waiting, &FAILURE, NOW), Ok(()));

    let mut other = budget.begin(NOW);
    budget.observe(&mut other, &Verdict::Failure(FAILURE), true);
    assert_eq!(budget.ask(&mut other, &FAILURE, NOW), Err(Denied::UsedUp));

    drop(waiting);
    assert_eq!(budget.ask(&mut other, &FAILURE, NOW), Ok(()));
    // Its end frees the place too, and the drop afterwards not a second time.
    assert_eq!(budget.balance(NOW), 0);
    budget.observe(&mut other, &Verdict::Success, false);
    assert_eq!(budget.balance(NOW), 1);
    drop(other);
    assert_eq!(request(&budget, 3), (3, None));
    assert_eq!(budget.balance(NOW), 1);
}

#[test]
fn what_a_request_carries_is_small() {
    assert!(size_of::<Spending>() <= 24, "{}", size_of::<Spending>());
}

#[test]
fn threads_never_get_more_than_there_is() {
    const REQUESTS: usize = 2000;
    let bucket = BucketSettings { gain: 0.5, capacity: 100_000, initial: 10 };
    let window = WindowSettings { min_retries_per_sec: 1, ratio: 0.5, ..WindowSettings::default() };
    for (budget, start) in
        [(sound(BudgetSettings::Bucket(bucket)), 10), (sound(BudgetSettings::Window(window)), 10)]
    {
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| (0..REQUESTS).map(|_| request(&budget, 5).0).sum::<usize>())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        // Every request but the last asks until it is refused, so nothing is left either.
        assert_eq!(granted as u64 + budget.balance(NOW), (start + REQUESTS) as u64, "{budget:?}");
    }
}

#[test]
fn threads_share_the_places_in_flight() {
    let budget = sound(BudgetSettings::InFlight(InFlightSettings { max_ratio: 0.0, min: 1 }));
    let running = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let mut spending = budget.begin(NOW);
                    budget.observe(&mut spending, &Verdict::Failure(FAILURE), true);
                    if budget.ask(&mut spending, &FAILURE, NOW).is_ok() {
                        let before = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(before, 0, "one retry at a time");
                        running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(budget.balance(NOW), 1);
}

#[cfg(feature = "serde")]
#[test]
fn every_kind_is_read_from_text_with_its_defaults_and_without_typos() {
    let read = |json: &str| serde_json::from_str::<BudgetSettings>(json);
    for (json, settings) in [
        (r#"{ "kind": "unlimited" }"#, BudgetSettings::Unlimited),
        (r#"{ "kind": "bucket" }"#, BudgetSettings::default()),
        (
            r#"{ "kind": "window", "ttl": "10s", "ratio": 0.5 }"#,
            BudgetSettings::Window(WindowSettings { ratio: 0.5, ..WindowSettings::default() }),
        ),
        (
            r#"{ "kind": "token_cost", "costs": { "timeout": 10 } }"#,
            BudgetSettings::TokenCost(TokenCostSettings::default()),
        ),
        (
            r#"{ "kind": "failure_throttle", "max_tokens": 10 }"#,
            BudgetSettings::FailureThrottle(ThrottleSettings::default()),
        ),
        (
            r#"{ "kind": "in_flight", "min": 3 }"#,
            BudgetSettings::InFlight(InFlightSettings::default()),
        ),
    ] {
        assert_eq!(read(json).expect(json), settings);
        let written = serde_json::to_string(&settings).expect("writes");
        assert_eq!(read(&written).expect("reads"), settings, "{written}");
    }
    assert!(read(r#"{ "kind": "bucket", "gian": 0.2 }"#).is_err());
    assert!(read(r#"{ "kind": "wallet" }"#).is_err());
}

proptest! {
    /// A spending begun by one budget and used with another is refused or granted, never a panic,
    /// and gives back its place to the budget that it came from.
    #[test]
    fn a_foreign_spending_does_no_harm(from in 0_usize..6, to in 0_usize..6) {
        let budgets = every_kind();
        let balance = budgets[from].balance(NOW);
        let mut spending = budgets[from].begin(NOW);
        budgets[to].observe(&mut spending, &Verdict::Failure(FAILURE), true);
        let _ = budgets[to].ask(&mut spending, &FAILURE, NOW);
        budgets[to].observe(&mut spending, &Verdict::Success, false);
        drop(spending);
        if from == 5 {
            prop_assert_eq!(budgets[from].balance(NOW), balance);
        }
    }
}
