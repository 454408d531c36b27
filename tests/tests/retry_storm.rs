//! The bounds that `docs/retry-storms.md` states, on a smaller crowd and for several seeds. The
//! pictures there are of a thousand clients: `cargo run --release -p tower-triage-tests --bin
//! retry_storm -- --check`.

use std::time::Duration;

use tower_triage_tests::retry_storm::{Figures, Model, Setup, contend, run, strategies};

const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// With so few clients, all of them have to be back before 95 % of them are.
fn model() -> Model {
    let (tick, length) = (Duration::from_millis(5), Duration::from_secs(100));
    Model { clients: 15, tick, length, ..Model::default() }
}

fn figures(setup: &Setup) -> Vec<Figures> {
    let model = model();
    let one = |seed| Figures::new(&model, &run(model, setup, seed).expect("a setup that builds"));
    SEEDS.into_iter().map(one).collect()
}

/// Half of the capacity is not enough for what is asked; all of it is.
#[test]
fn without_retries_the_service_goes_down_and_comes_back_by_itself() {
    for figures in figures(&Setup::single_attempt()) {
        assert!(figures.load < 1.01, "{figures:?}");
        assert!(figures.during < 0.1, "{figures:?}");
        assert!(figures.back.is_some_and(|back| back < 6.0), "{figures:?}");
    }
}

/// The metastable failure: the cause is gone, and its effect keeps itself up.
#[test]
fn retries_alone_keep_the_service_down() {
    for figures in figures(&Setup::retries_alone()) {
        assert!(figures.load > 2.9, "{figures:?}");
        assert_eq!(figures.back, None, "{figures:?}");
        assert!(figures.at_the_end < 0.01, "{figures:?}");
    }
}

/// Each of the two is enough to end it.
#[test]
fn a_budget_or_a_breaker_ends_it() {
    for setup in [Setup::budget_alone(), Setup::breaker_alone()] {
        for figures in figures(&setup) {
            assert!(figures.back.is_some_and(|back| back < 14.0), "{}: {figures:?}", setup.name);
            assert!(figures.at_the_end > 0.99, "{}: {figures:?}", setup.name);
        }
    }
}

/// The goal: at most 1.3 times what is offered over any ten seconds, and back within ten.
fn holds(figures: &Figures) -> bool {
    figures.load <= 1.3 && figures.back.is_some_and(|back| back <= 10.0)
}

#[test]
fn the_defaults_hold_the_load_at_1_3_and_are_back_within_ten_seconds() {
    for figures in figures(&Setup::defaults()) {
        assert!(holds(&figures), "{figures:?}");
        assert!(figures.during > 0.2, "{figures:?}");
        assert!(figures.at_the_end > 0.99, "{figures:?}");
    }
}

/// One run, with an outage of so many seconds.
fn after_an_outage_of(seconds: u64, setup: &Setup) -> Figures {
    let model = Model { end: model().begin + Duration::from_secs(seconds), ..model() };
    Figures::new(&model, &run(model, setup, 1).expect("a setup that builds"))
}

/// The short open time is why: how long a circuit goes on being open depends on when it opened last.
#[test]
fn the_defaults_hold_however_long_the_outage_was() {
    for outage in [18, 24, 36, 42] {
        let figures = after_an_outage_of(outage, &Setup::defaults());
        assert!(holds(&figures), "{outage} s: {figures:?}");
    }
}

/// A large bucket and a long open time end it too, but each misses its half of the goal.
#[test]
fn patient_settings_miss_the_goal() {
    for figures in figures(&Setup::patient()) {
        assert!(figures.load > 1.3, "{figures:?}");
        assert!(figures.at_the_end > 0.99, "{figures:?}");
    }
    let figures = after_an_outage_of(18, &Setup::patient());
    assert!(figures.back.is_some_and(|back| back > 10.0), "{figures:?}");
}

#[test]
fn a_seed_repeats_a_storm_to_the_last_request() {
    let model = Model { clients: 5, ..model() };
    let storm = |seed| run(model, &Setup::retries_alone(), seed).expect("a setup that builds");
    let first = storm(7);
    assert_eq!(first, storm(7));
    assert_ne!(first, storm(8));
}

/// What the AWS comparison found: any jitter saves most of the work and of the time; full jitter needs
/// no more work than the others, and decorrelated jitter is about as fast.
#[test]
fn jitter_saves_work_and_time() {
    for seed in SEEDS {
        let [none, equal, full, decorrelated] =
            strategies().map(|(_, backoff)| contend(&backoff, 100, 20, seed));
        for jittered in [equal, full, decorrelated] {
            assert!(jittered.tries < 0.6 * none.tries, "{jittered:?} {none:?}");
            assert!(jittered.millis < 0.15 * none.millis, "{jittered:?} {none:?}");
        }
        assert!(full.tries < 1.05 * equal.tries.min(decorrelated.tries), "{full:?}");
        assert!(full.millis < equal.millis, "{full:?} {equal:?}");
        assert!(decorrelated.millis < 1.1 * full.millis, "{decorrelated:?} {full:?}");
    }
}

/// A crowd of one does not contend: one try, four ways over the network.
#[test]
fn nobody_contends_alone() {
    for (name, backoff) in strategies() {
        let needed = contend(&backoff, 1, 50, 1);
        assert_eq!(needed.tries, 1.0, "{name}");
        assert!((35.0..45.0).contains(&needed.millis), "{name}: {needed:?}");
    }
}
