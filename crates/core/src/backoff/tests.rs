use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::verdict::RetryAfter;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

fn at(backoff: &Backoff, retry: u64, u: f64) -> Duration {
    backoff.next(&mut Delays::at(retry), u)
}

fn listed(backoff: &Backoff, n: usize) -> Vec<f64> {
    backoff.iter(|| 0.5).take(n).map(|delay| delay.as_secs_f64() * 1000.0).collect()
}

#[test]
fn every_curve_is_its_formula() {
    assert_eq!(listed(&Backoff::immediate(), 2), [0.0, 0.0]);
    assert_eq!(listed(&Backoff::fixed(SEC), 3), [1000.0, 1000.0, 1000.0]);
    assert_eq!(listed(&Backoff::linear(7 * MS, 10 * MS), 3), [7.0, 17.0, 27.0]);
    assert_eq!(listed(&Backoff::exponential(100 * MS, 1.5), 4), [100.0, 150.0, 225.0, 337.5]);
    assert_eq!(listed(&Backoff::range(10 * MS, 20 * MS), 2), [15.0, 15.0]);
    assert_eq!(listed(&Backoff::list([MS, 5 * MS]), 4), [1.0, 5.0, 5.0, 5.0]);
    // Half of the way from 100 to 3 * 100, then to 3 * 200, then to 3 * 350.
    assert_eq!(listed(&Backoff::decorrelated(100 * MS), 3), [200.0, 350.0, 575.0]);
}

#[test]
fn whole_millis_cut_each_step() {
    let backoff = Backoff::exponential(100 * MS, 1.5).whole_millis();
    assert_eq!(listed(&backoff, 6), [100.0, 150.0, 225.0, 337.0, 505.0, 757.0]);
    // One and a half milliseconds are one: it stands still and is not zero.
    assert_eq!(at(&Backoff::exponential(MS, 1.5).whole_millis(), u64::MAX, 0.0), MS);
}

/// A factor that creeps: however many steps there are, none is left out. The cut costs a thousandth.
#[test]
fn whole_millis_creep_as_far_as_the_factor_goes() {
    let backoff = Backoff::exponential(3600 * SEC, 1.0001).whole_millis();
    for steps in [9_999, 10_000, 10_001, 20_000, 50_000] {
        let whole = 3600.0 * 1.0001_f64.powi(steps);
        let delay = at(&backoff, steps as u64 + 1, 0.0).as_secs_f64();
        assert!((delay / whole - 1.0).abs() < 2e-3, "{steps}: {delay} s instead of {whole} s");
    }
}

#[test]
fn a_jitter_keeps_to_its_formula() {
    let bounds = |jitter: Jitter| {
        let (shortest, longest) = jitter.bounds(8 * SEC);
        (shortest.as_millis(), longest.as_millis())
    };
    assert_eq!(bounds(Jitter::None), (8000, 8000));
    assert_eq!(bounds(Jitter::Full), (0, 8000));
    assert_eq!(bounds(Jitter::Equal), (4000, 8000));
    assert_eq!(bounds(Jitter::Ratio(0.25)), (6000, 10_000));
    assert_eq!(bounds(Jitter::Span(3 * SEC)), (5000, 11_000));
    assert_eq!(bounds(Jitter::Additive(0.25)), (8000, 10_000));
    // A span that reaches below nothing is cut there, and not moved: the middle stays the middle.
    let draw = |u| at(&Backoff::fixed(SEC).jitter(Jitter::Span(3 * SEC)), 1, u);
    assert_eq!([0.0, 0.5, 1.0].map(draw), [Duration::ZERO, SEC, 4 * SEC]);
}

#[test]
fn first_immediate_goes_in_front_of_the_whole_schedule() {
    let backoff = Backoff::exponential(100 * MS, 2.0).first_immediate();
    assert_eq!(listed(&backoff, 4), [0.0, 100.0, 200.0, 400.0]);
    let backoff = Backoff::decorrelated(100 * MS).first_immediate();
    assert_eq!(listed(&backoff, 3), [0.0, 200.0, 350.0]);
}

#[test]
fn a_schedule_can_be_entered_anywhere_and_starts_over() {
    let backoff = Backoff::exponential(100 * MS, 2.0);
    let mut delays = Delays::at(4);
    assert_eq!(backoff.next(&mut delays, 0.0), 800 * MS);
    assert_eq!(backoff.next(&mut delays, 0.0), 1600 * MS);
    delays.restart();
    assert_eq!(backoff.next(&mut delays, 0.0), 100 * MS);
    assert_eq!(at(&backoff, 0, 0.0), 100 * MS);

    let backoff = Backoff::decorrelated(100 * MS);
    assert_eq!(backoff.next(&mut Delays::new().after(250 * MS), 1.0), 750 * MS);
    // Whatever came before, never below the base.
    assert_eq!(backoff.next(&mut Delays::new().after(MS), 1.0), 100 * MS);
}

#[test]
fn the_cap_holds_where_it_is_put() {
    let jittered = Backoff::exponential(SEC, 2.0).jitter(Jitter::Ratio(0.25));
    let draws = |backoff: Backoff| [0.0, 1.0].map(|u| at(&backoff, 10, u));
    assert_eq!(draws(jittered.clone().cap(4 * SEC)), [3 * SEC, 4 * SEC]);
    assert_eq!(draws(jittered.clone().cap_before_jitter(4 * SEC)), [3 * SEC, 5 * SEC]);
    assert_eq!(draws(jittered.cap_when(4 * SEC, CapWhen::AfterJitter)), [4 * SEC, 4 * SEC]);
}

#[test]
fn a_capped_full_jitter_still_spreads_far_out() {
    let backoff = Backoff::exponential(100 * MS, 2.0).cap(30 * SEC).jitter(Jitter::Full);
    assert_eq!(at(&backoff, 1_000_000, 0.5), 15 * SEC);
}

#[test]
fn kf27_large_attempt_numbers_saturate_at_the_cap() {
    let backoff = Backoff::exponential(SEC, 2.0).cap(30 * SEC);
    let mut last = Duration::ZERO;
    for retry in (1..=10_000).chain([u64::from(u32::MAX), u64::MAX - 1, u64::MAX]) {
        let delay = at(&backoff, retry, 0.0);
        assert!(delay >= last && delay >= SEC, "retry {retry}: {delay:?} after {last:?}");
        assert!(retry < 6 || delay == 30 * SEC, "retry {retry}: {delay:?}");
        last = delay;
    }
    // Stepped, the count stays at its end.
    let mut delays = Delays::at(u64::MAX);
    for _ in 0..3 {
        assert_eq!(backoff.next(&mut delays, 0.0), 30 * SEC);
    }
}

#[test]
fn kf27_huge_factors_and_bases_saturate_too() {
    for backoff in [
        Backoff::exponential(SEC, f64::MAX),
        Backoff::exponential(SEC, f64::INFINITY),
        Backoff::exponential(Duration::MAX, 2.0),
        Backoff::exponential(Duration::from_nanos(1), 2.0),
        Backoff::linear(SEC, Duration::MAX),
        Backoff::linear(Duration::MAX, SEC),
    ] {
        assert_eq!(at(&backoff, u64::MAX, 0.0), Duration::MAX, "{backoff:?}");
        assert_eq!(at(&backoff.clone().cap(30 * SEC), u64::MAX, 0.0), 30 * SEC, "{backoff:?}");
    }
    let whole = at(&Backoff::exponential(SEC, 2.0).whole_millis(), u64::MAX, 0.0);
    assert_eq!(whole, Duration::new(u64::MAX, 999_000_000));
    // A double cannot hold every duration; growing by nothing must not shrink it.
    let odd = Duration::new(1_234_567_890_123, 456_789_013);
    assert!(at(&Backoff::exponential(odd, 1.0), 2, 0.0) >= odd);
    // What `check` refuses does not grow either way.
    for factor in [-2.0, 0.5, f64::NAN] {
        assert_eq!(at(&Backoff::exponential(SEC, factor), 3, 0.0), SEC);
    }
    // No factor makes a wait out of nothing.
    assert_eq!(at(&Backoff::exponential(Duration::ZERO, f64::INFINITY), 9, 0.0), Duration::ZERO);
}

#[test]
fn kf28_jitter_stays_inside_the_bounds() {
    let random = crate::Random::seeded(28);
    let base = 100 * MS;
    let cap = 10 * SEC;
    let backoff = Backoff::exponential(base, 2.0).cap(cap).jitter(Jitter::Ratio(0.5));
    for draw in 0..100_000_u64 {
        let retry = draw % 1000 + 1;
        let delay = at(&backoff, retry, random.unit());
        assert!((base / 2..=cap).contains(&delay), "retry {retry}: {delay:?}");
    }
}

#[test]
fn an_empty_list_is_refused_and_does_not_panic() {
    let empty = Backoff::list([]);
    assert_eq!(empty.check("retry.backoff").map_err(|e| e.field()), Err("retry.backoff"));
    assert_eq!(at(&empty, 1, 0.5), Duration::ZERO);
}

#[test]
fn what_cannot_work_is_refused() {
    let fixed = || Backoff::fixed(SEC);
    for backoff in [
        Backoff::exponential(SEC, 0.5),
        Backoff::exponential(SEC, f64::NAN),
        Backoff::exponential(SEC, f64::INFINITY),
        Backoff::range(SEC, MS),
        Backoff::range(MS, SEC).jitter(Jitter::Full),
        Backoff::decorrelated(SEC).jitter(Jitter::Equal),
        fixed().jitter(Jitter::Ratio(1.5)),
        fixed().jitter(Jitter::Ratio(f64::NAN)),
        fixed().jitter(Jitter::Additive(-0.1)),
        fixed().jitter(Jitter::Additive(f64::INFINITY)),
        fixed().cap(Duration::ZERO),
    ] {
        assert!(backoff.check("open_for").is_err(), "{backoff:?}");
    }
    for backoff in [
        Backoff::immediate(),
        Backoff::exponential(Duration::ZERO, 1.0),
        Backoff::range(MS, MS),
        fixed().jitter(Jitter::Ratio(1.0)).cap(MS),
    ] {
        assert_eq!(backoff.check("open_for"), Ok(()), "{backoff:?}");
    }
}

#[test]
fn a_hint_is_a_lower_bound_and_jitter_goes_upward_only() {
    let merge = |hint, own, u| HintMode::AtLeast.merge(RetryAfter::AtLeast(hint), own, None, u);
    assert_eq!(merge(3 * SEC, 100 * MS, 0.0).delay, 3 * SEC);
    assert_eq!(merge(3 * SEC, 100 * MS, 0.5).delay, 3150 * MS);
    assert_eq!(merge(3 * SEC, 5 * SEC, 0.5).delay, 5 * SEC);
    // A past date is a hint of nothing.
    assert_eq!(merge(Duration::ZERO, 100 * MS, 0.9).delay, 100 * MS);
    assert!(!merge(3 * SEC, SEC, 0.0).restart);
}

#[test]
fn a_pushback_is_exact_and_starts_the_schedule_over() {
    let backoff = Backoff::exponential(100 * MS, 2.0).cap(SEC).jitter(Jitter::Equal);
    let mut delays = Delays::new();
    let next =
        |delays: &mut Delays, hint| backoff.next_hinted(delays, hint, HintMode::default(), 1.0);
    assert_eq!(next(&mut delays, None), 100 * MS);
    assert_eq!(next(&mut delays, None), 200 * MS);
    assert_eq!(next(&mut delays, Some(RetryAfter::Exactly(3 * SEC))), 3 * SEC);
    assert_eq!(next(&mut delays, None), 100 * MS);
}

#[test]
fn the_other_hint_modes() {
    let merge = |mode: HintMode, hint| {
        mode.merge(RetryAfter::AtLeast(hint), 2 * SEC, Some(20 * SEC), 0.5).delay
    };
    assert_eq!(merge(HintMode::Cap, 30 * SEC), 20 * SEC);
    assert_eq!(merge(HintMode::Cap, SEC), SEC);
    let clamp = HintMode::ClampToOwnPlus(5 * SEC);
    assert_eq!([SEC, 3 * SEC, 30 * SEC].map(|h| merge(clamp, h)), [2 * SEC, 3 * SEC, 7 * SEC]);
    assert_eq!(merge(HintMode::AsGiven, 30 * SEC), 30 * SEC);
    assert_eq!(merge(HintMode::AsGiven, MS), MS);
    let never = HintMode::AtLeast.merge(RetryAfter::Never, SEC, None, 0.9).delay;
    assert_eq!(never, Duration::MAX);
}

fn any_f64() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        0.0..3.0_f64,
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
    ]
}

fn any_delay() -> impl Strategy<Value = Duration> {
    prop_oneof![
        any::<Duration>(),
        (0_u64..100_000).prop_map(Duration::from_millis),
        (0_u64..100_000).prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
}

fn any_retry() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0_u64..200, Just(u64::MAX)]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        any_f64().prop_map(Jitter::Ratio),
        any_delay().prop_map(Jitter::Span),
        any_f64().prop_map(Jitter::Additive),
    ]
}

/// Any curve, with values that `check` would refuse among them.
fn any_curve() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        any_delay().prop_map(Backoff::fixed),
        (any_delay(), any_delay()).prop_map(|(base, step)| Backoff::linear(base, step)),
        (any_delay(), any_f64()).prop_map(|(base, factor)| Backoff::exponential(base, factor)),
        (any_delay(), any_f64())
            .prop_map(|(base, factor)| Backoff::exponential(base, factor).whole_millis()),
        (any_delay(), any_delay()).prop_map(|(min, max)| Backoff::range(min, max)),
        any_delay().prop_map(Backoff::decorrelated),
        proptest::collection::vec(any_delay(), 0..4).prop_map(Backoff::list),
    ]
}

/// Curves that grow, without jitter.
fn growing() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        any_delay().prop_map(Backoff::fixed),
        (any_delay(), any_delay()).prop_map(|(base, step)| Backoff::linear(base, step)),
        (any_delay(), 1.0..1000.0_f64).prop_map(|(base, f)| Backoff::exponential(base, f)),
        (any_delay(), 1.0..1000.0_f64)
            .prop_map(|(base, f)| Backoff::exponential(base, f).whole_millis()),
    ]
}

proptest! {
    #[test]
    fn nothing_panics_and_no_delay_is_longer_than_the_cap(
        curve in any_curve(),
        jitter in any_jitter(),
        cap in any_delay(),
        first_immediate: bool,
        retry in any_retry(),
        previous in any_delay(),
        u in any_f64(),
    ) {
        let backoff = curve.jitter(jitter);
        let backoff = if first_immediate { backoff.first_immediate() } else { backoff };
        let mut delays = Delays::at(retry).after(previous);
        for backoff in [
            backoff.clone().cap(cap),
            backoff.clone().cap_when(cap, CapWhen::AfterJitter),
        ] {
            let _ = backoff.check("backoff");
            for _ in 0..3 {
                prop_assert!(backoff.next(&mut delays, u) <= cap);
            }
        }
        backoff.next(&mut delays, u);
        backoff.cap_before_jitter(cap).next(&mut delays, u);
    }

    #[test]
    fn before_jitter_nothing_shrinks_or_falls_back_to_zero(
        backoff in growing(),
        retry in any_retry(),
        further in any_retry(),
    ) {
        let (early, late) = (at(&backoff, retry, 0.0), at(&backoff, retry.saturating_add(further), 0.0));
        prop_assert!(early <= late, "{:?} before {:?}", early, late);
        prop_assert!(at(&backoff, 1, 0.0) <= early);
    }

    #[test]
    fn growth_begins_with_the_base_itself(base in any_delay(), factor in 1.0..1000.0_f64, step in any_delay()) {
        prop_assert_eq!(at(&Backoff::exponential(base, factor), 1, 0.0), base);
        prop_assert_eq!(at(&Backoff::linear(base, step), 1, 0.0), base);
    }

    #[test]
    fn a_draw_lies_between_the_jitters_bounds(
        delay in any_delay(),
        jitter in any_jitter(),
        u in any_f64(),
    ) {
        let (shortest, longest) = jitter.bounds(delay);
        let drawn = at(&Backoff::fixed(delay).jitter(jitter), 1, u);
        prop_assert!((shortest..=longest).contains(&drawn));
    }

    #[test]
    fn a_decorrelated_delay_lies_between_the_base_and_three_times_the_last(
        base in any_delay(),
        previous in any_delay(),
        cap in any_delay(),
        u in 0.0..1.0_f64,
    ) {
        let backoff = Backoff::decorrelated(base);
        let delay = backoff.next(&mut Delays::new().after(previous), u);
        prop_assert!(delay >= base);
        prop_assert!(delay <= previous.saturating_mul(3).max(base));
        let capped = backoff.cap(cap).next(&mut Delays::new().after(previous), u);
        prop_assert_eq!(capped, delay.min(cap));
    }

    #[test]
    fn no_hint_mode_comes_earlier_than_it_promises(
        hint in any_delay(),
        own in any_delay(),
        more in any_delay(),
        u in any_f64(),
    ) {
        let merge = |mode: HintMode| mode.merge(RetryAfter::AtLeast(hint), own, Some(SEC), u).delay;
        prop_assert!(merge(HintMode::AtLeast) >= hint.max(own));
        prop_assert!(merge(HintMode::Cap) <= SEC);
        let clamped = merge(HintMode::ClampToOwnPlus(more));
        prop_assert!(clamped >= own && clamped <= own.saturating_add(more));
    }

    /// The numbers of a listing are those of the steps.
    #[test]
    fn a_listing_is_the_steps(curve in any_curve(), u in 0.0..1.0_f64) {
        let mut delays = Delays::new();
        for listed in curve.iter(|| u).take(5) {
            prop_assert_eq!(listed, curve.next(&mut delays, u));
        }
    }
}
