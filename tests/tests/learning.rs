//! Learning measured, not claimed: the goals, in seeded worlds. The figures:
//! `cargo run --release -p tower-triage-tests --bin learning`.

use tower_triage_learn::Mode;
use tower_triage_tests::learning::{Figures, Frequencies, compare, unlearn};

/// O10. After 500 calls the stack is as good as one that knows every remedy, in every world. And in
/// the 500, in which each trial in vain costs its call, it is not far from it in all of them together.
#[tokio::test(start_paused = true)]
async fn o10_the_learned_stack_comes_close_to_one_that_knows_every_remedy() {
    for frequencies in [Frequencies::Even, Frequencies::Zipf] {
        let mut all = [Figures::default(); 2];
        for seed in 1..=20 {
            let found = compare(seed, 500, frequencies, Mode::Balanced).await;
            let ([first, later], [first_best, best]) = (found.learned, found.oracle);
            let about =
                format!("{frequencies:?}, seed {seed}: {first}; then {later}; oracle {best}");
            assert!(later.solved_of(&best) >= 0.9, "{about}");
            assert!(later.wasted_beyond(&best) < 0.1, "{about}");
            // The first 500, with every trial that was made in them.
            assert!(first.solved_of(&first_best) >= 0.85, "{about}");
            assert!(first.wasted_of_all(&first_best) < 0.1, "{about}");
            for (sum, one) in all.iter_mut().zip([first, first_best]) {
                *sum += one;
            }
        }
        let [first, first_best] = all;
        let about = format!("{frequencies:?}, all seeds: {first}; oracle {first_best}");
        assert!(first.solved_of(&first_best) >= 0.9, "{about}");
        assert!(first.wasted_beyond(&first_best) < 0.1, "{about}");
    }
}

/// O10: forgotten when it stops working, within 50 calls.
#[tokio::test(start_paused = true)]
async fn o10_a_remedy_that_stops_working_is_unlearned_within_50_calls() {
    for mode in [Mode::Cautious, Mode::Balanced, Mode::Aggressive] {
        let (mut remedies, mut found_anew) = (0, 0);
        for seed in 1..=10 {
            for found in unlearn(seed, 100, mode).await {
                let about = format!("{mode}, seed {seed}: {found:?}");
                assert!(found.forgotten.is_some() || mode == Mode::Cautious, "{about}");
                assert!(found.forgotten.is_none_or(|calls| calls <= 15), "{about}");
                remedies += 1;
                found_anew += u32::from(found.solved.is_some_and(|calls| calls <= 50));
            }
        }
        // Two trials in vain happen to a remedy that works in 19 of 20 cases, too.
        assert!(f64::from(found_anew) >= 0.97 * f64::from(remedies), "{found_anew} of {remedies}");
    }
}
