//! The breaker's word against its lock.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tower_triage_core::{Backoff, ErrorClass, Failure, Key, Label, Random, RetryAfter, Verdict};

use super::{Model, model, race, spawn};
use crate::breaker::Breaker;
use crate::breakers::{Admission, Breakers};
use crate::handle::BreakerHandle;
use crate::keyed::Latest;
use crate::policy::BreakerPolicy;
use crate::settings::Config;
use crate::state::{Counts, Sample, State, Transition};

pub(super) const MODELS: &[Model] = &[
    model("breaker: admission and transition", admission_and_transition),
    model("breaker: successes and the lock", successes_and_the_lock),
    model("breaker: two looks and a success", two_looks_and_a_success).preempted(3),
    model("breaker: late results", || late_results(&small(comes_back()))).preempted(4),
    model("breaker: late results and own cells", || late_results(&breakers(comes_back()))),
    model("breaker: probe slots and drops", probe_slots_and_drops).preempted(2),
    model("breaker: slots of an earlier era", slots_of_an_earlier_era),
    model("breaker: the first success of a new era", the_first_success_of_a_new_era),
    model("breaker: the end of a slice", the_end_of_a_slice),
    model("breaker: own cells and a transition", own_cells_and_a_transition).preempted(2),
    model("breaker: own cells from era to era", own_cells_from_era_to_era).preempted(2),
    model("breaker: late ones stay late", late_ones_stay_late).preempted(2),
    model("breaker: a look and a transition", a_look_and_a_transition),
    model("breaker: the time of an earlier era", the_time_of_an_earlier_era).preempted(2),
    model("breaker: the end of the open time", the_end_of_the_open_time),
];

const FAILURE: Verdict = Verdict::Failure(Failure::new(ErrorClass::Transient));

fn config(policy: BreakerPolicy) -> Config {
    Config {
        policy: policy.build().unwrap(),
        name: Label::EMPTY,
        random: Arc::new(Random::seeded(1)),
        clock: tower_triage_core::Clock::new(),
        keyed: None,
        below_balancer: false,
    }
}

fn breakers(policy: BreakerPolicy) -> Arc<Breakers> {
    Arc::new(Breakers::new(config(policy)))
}

/// With a circuit that counts in its word, as those of keys do.
fn small(policy: BreakerPolicy) -> Arc<Breakers> {
    let mut breakers = Breakers::new(config(policy));
    breakers.own = Breaker::one_of_many(Label::EMPTY, &breakers.settings);
    Arc::new(breakers)
}

fn one_failure_opens() -> BreakerPolicy {
    BreakerPolicy::new().consecutive_failures(1).open_for(Backoff::immediate())
}

fn comes_back() -> BreakerPolicy {
    one_failure_opens().count_window(10).failures(5)
}

/// Lets a call in, or says what is left of the open time.
fn admit(breakers: &Breakers) -> Result<Admission, Duration> {
    match breakers.admit(|| Key::EMPTY, &mut Latest::default()) {
        (admission, None) => Ok(admission),
        (_, Some(left)) => Err(left),
    }
}

/// The call ended, as the future tells it.
fn settle(breakers: &Breakers, mut admission: Admission, verdict: &Verdict) -> Option<Transition> {
    breakers.settle(&mut admission, verdict)
}

fn abandon(breakers: &Breakers, mut admission: Admission) {
    breakers.abandon(&mut admission);
}

fn handle(breakers: &Arc<Breakers>) -> BreakerHandle {
    BreakerHandle::new(Arc::clone(breakers))
}

fn counts(breakers: &Arc<Breakers>) -> Counts {
    handle(breakers).counts()
}

fn sample(breakers: &Arc<Breakers>) -> Sample {
    handle(breakers).window()
}

/// The same breakers for each of the racing threads.
fn with<T, F: FnOnce(&Arc<Breakers>) -> T>(
    breakers: &Arc<Breakers>,
    f: F,
) -> impl FnOnce() -> T + use<T, F> {
    let breakers = Arc::clone(breakers);
    move || f(&breakers)
}

/// Once somebody knows that the circuit is open, nobody they told gets in; who came in before
/// counts once, as a success of the old era or as late.
fn admission_and_transition() {
    let breakers = breakers(one_failure_opens().open_for(Backoff::fixed(Duration::from_secs(1))));
    let told = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&told);
    let failing = admit(&breakers).unwrap();
    let opens = move |breakers: &Arc<Breakers>| {
        let transition = settle(breakers, failing, &FAILURE).unwrap();
        assert_eq!((transition.from, transition.to), (State::Closed, State::Open));
        tells.store(true, Ordering::Release);
    };
    let calls = move |breakers: &Arc<Breakers>| {
        let knew = told.load(Ordering::Acquire);
        let admitted = admit(breakers);
        let is_admitted = admitted.is_ok();
        assert!(!(knew && is_admitted), "admitted although it is known to be open");
        if let Ok(admission) = admitted {
            assert!(settle(breakers, admission, &Verdict::Success).is_none());
        }
        is_admitted
    };
    let ((), admitted) = race(with(&breakers, opens), with(&breakers, calls));

    assert_eq!(handle(&breakers).state(), State::Open);
    let counts = counts(&breakers);
    assert_eq!(counts.failures, 1);
    assert_eq!(counts.successes + counts.late, u64::from(admitted));
    assert_eq!(counts.rejected, u64::from(!admitted));
}

/// No success is lost to a failure that takes the lock meanwhile, and none counts twice.
fn successes_and_the_lock() {
    let breakers = small(BreakerPolicy::new().count_window(10).failures(5));
    let admissions = [admit(&breakers).unwrap(), admit(&breakers).unwrap()];
    let failing = admit(&breakers).unwrap();
    let succeeds = move |breakers: &Arc<Breakers>| {
        for admission in admissions {
            settle(breakers, admission, &Verdict::Success);
        }
    };
    let fails = move |breakers: &Arc<Breakers>| settle(breakers, failing, &FAILURE);
    race(with(&breakers, succeeds), with(&breakers, fails));

    let counts = counts(&breakers);
    assert_eq!((counts.successes, counts.failures, counts.late), (2, 1, 0));
    assert_eq!(sample(&breakers), Sample { recorded: 3, failures: 1, slow: 0 });
}

/// Whoever only looks takes nothing away and adds nothing, with a success and another look beside.
fn two_looks_and_a_success() {
    let breakers = small(BreakerPolicy::new().count_window(10).failures(5));
    let first = admit(&breakers).unwrap();
    let second = admit(&breakers).unwrap();
    settle(&breakers, first, &Verdict::Success);
    let succeeds = move |breakers: &Arc<Breakers>| settle(breakers, second, &Verdict::Success);
    let other_look = spawn(with(&breakers, |breakers| sample(breakers).recorded));
    let (_, seen) = race(with(&breakers, succeeds), with(&breakers, |b| sample(b).recorded));
    assert!((1..=2).contains(&seen) && (1..=2).contains(&other_look.join().unwrap()));
    assert_eq!(counts(&breakers).successes, 2);
}

/// A success of the first era never counts in the era after open and half-open.
fn late_results(breakers: &Arc<Breakers>) {
    let failing = admit(breakers).unwrap();
    let slow = admit(breakers).unwrap();
    let late = move |breakers: &Arc<Breakers>| settle(breakers, slow, &Verdict::Success);
    let comes_back = move |breakers: &Arc<Breakers>| {
        assert_eq!(settle(breakers, failing, &FAILURE).unwrap().to, State::Open);
        let probe = admit(breakers).unwrap();
        assert_eq!(settle(breakers, probe, &Verdict::Success).unwrap().to, State::Closed);
    };
    race(with(breakers, late), with(breakers, comes_back));

    assert_eq!(sample(breakers), Sample::default(), "nothing of the new era has ended yet");
    let counts = counts(breakers);
    assert_eq!((counts.successes + counts.late, counts.failures), (2, 1));
}

/// One slot: never two inside, and it is free again whether its call was dropped or ended.
fn probe_slots_and_drops() {
    let breakers = breakers(one_failure_opens().decide_by_count(u32::MAX, 1));
    let failing = admit(&breakers).unwrap();
    settle(&breakers, failing, &FAILURE);
    let inside = Arc::new(AtomicUsize::new(0));
    let prober = |drops: bool| {
        let inside = Arc::clone(&inside);
        move |breakers: &Arc<Breakers>| {
            let Ok(admission) = admit(breakers) else { return 0 };
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two probes at once");
            inside.fetch_sub(1, Ordering::Relaxed);
            if drops {
                abandon(breakers, admission);
            } else {
                settle(breakers, admission, &Verdict::Success);
            }
            1
        }
    };
    let (one, other) = race(with(&breakers, prober(true)), with(&breakers, prober(false)));

    assert!(one + other > 0, "the first of them finds the slot free");
    let counts = counts(&breakers);
    assert_eq!(
        (counts.abandoned, counts.successes, counts.rejected),
        (one, other, 2 - one - other)
    );
    let held = admit(&breakers);
    assert!(held.is_ok(), "the slot is free");
    assert!(admit(&breakers).is_err(), "and there is only one");
}

/// A probe of an earlier half-open era that is dropped late gives back no slot of the present one.
fn slots_of_an_earlier_era() {
    let breakers = breakers(one_failure_opens().probes(2).decide_by_count(u32::MAX, 1));
    let failing = admit(&breakers).unwrap();
    settle(&breakers, failing, &FAILURE);
    let (dropped, failing) = (admit(&breakers).unwrap(), admit(&breakers).unwrap());
    let drops = move |breakers: &Arc<Breakers>| abandon(breakers, dropped);
    let fails = move |breakers: &Arc<Breakers>| {
        assert_eq!(settle(breakers, failing, &FAILURE).unwrap().to, State::Open);
        [admit(breakers), admit(breakers)]
    };
    let ((), held) = race(with(&breakers, drops), with(&breakers, fails));
    assert!(held.iter().all(Result::is_ok), "two slots of the new era");
    assert!(admit(&breakers).is_err(), "both are still held");
}

/// A half-open circuit is quiet for ever, a new closed one not at all: whoever is admitted to the
/// new era must not go by the quiet of the old one, or its success would get a wrong date.
fn the_first_success_of_a_new_era() {
    let policy = one_failure_opens().time_window(Duration::from_millis(100)).failures(5);
    let breakers = breakers(policy);
    let failing = admit(&breakers).unwrap();
    settle(&breakers, failing, &FAILURE);
    let probe = admit(&breakers).unwrap();
    let closes = move |breakers: &Arc<Breakers>| settle(breakers, probe, &Verdict::Success);
    let calls = |breakers: &Arc<Breakers>| {
        let admitted = admit(breakers);
        let is_admitted = admitted.is_ok();
        if let Ok(admission) = admitted {
            settle(breakers, admission, &Verdict::Success);
        }
        is_admitted
    };
    let (_, admitted) = race(with(&breakers, closes), with(&breakers, calls));

    breakers.settings.clock.set(100);
    assert_eq!(sample(&breakers), Sample::default(), "what came at 0 ms is over at 100 ms");
    assert_eq!(counts(&breakers).successes, 1 + u64::from(admitted));
}

/// At the end of a slice a success and a failure race for the next one: both are in it.
fn the_end_of_a_slice() {
    let breakers =
        breakers(BreakerPolicy::new().time_window(Duration::from_millis(100)).failures(5));
    let first = admit(&breakers).unwrap();
    settle(&breakers, first, &Verdict::Success);
    breakers.settings.clock.set(10);
    let (good, bad) = (admit(&breakers).unwrap(), admit(&breakers).unwrap());
    let succeeds = move |breakers: &Arc<Breakers>| settle(breakers, good, &Verdict::Success);
    let fails = move |breakers: &Arc<Breakers>| settle(breakers, bad, &FAILURE);
    race(with(&breakers, succeeds), with(&breakers, fails));

    breakers.settings.clock.set(109);
    assert_eq!(sample(&breakers), Sample { recorded: 2, failures: 1, slow: 0 });
    breakers.settings.clock.set(110);
    assert_eq!(sample(&breakers), Sample::default());
}

/// Two threads count for themselves what a third sums up when it opens the circuit: what it knows
/// of is a success, and what it missed is late.
fn own_cells_and_a_transition() {
    let breakers = breakers(one_failure_opens());
    let known = Arc::new(AtomicUsize::new(0));
    let succeeds = || {
        let (admission, known) = (admit(&breakers).unwrap(), Arc::clone(&known));
        spawn(with(&breakers, move |breakers| {
            settle(breakers, admission, &Verdict::Success);
            known.fetch_add(1, Ordering::Release);
        }))
    };
    let others = [succeeds(), succeeds()];
    let (failing, tells) = (admit(&breakers).unwrap(), Arc::clone(&known));
    let opens = spawn(with(&breakers, move |breakers| {
        let knew = tells.load(Ordering::Acquire) as u64;
        assert_eq!(settle(breakers, failing, &FAILURE).unwrap().to, State::Open);
        knew
    }));
    others.into_iter().for_each(|other| other.join().unwrap());
    let knew = opens.join().unwrap();

    let counts = counts(&breakers);
    assert!(counts.successes >= knew, "knew of {knew}: {counts:?}");
    assert_eq!((counts.successes + counts.late, counts.failures), (2, 1));
}

/// A thread counts in one era and in a later one, and then has a result of the first: beside it a
/// look sees nothing of one era in the other, and takes nobody for late who is not.
fn own_cells_from_era_to_era() {
    let breakers = breakers(BreakerPolicy::new().count_window(10).failures(5));
    let [first, slow] = [admit(&breakers).unwrap(), admit(&breakers).unwrap()];
    let counts_twice = move |breakers: &Arc<Breakers>| {
        settle(breakers, first, &Verdict::Success);
        handle(breakers).reset();
        let second = admit(breakers).unwrap();
        settle(breakers, second, &Verdict::Success);
        settle(breakers, slow, &Verdict::Success);
    };
    let looks = |breakers: &Arc<Breakers>| (counts(breakers), sample(breakers).recorded);
    let ((), (seen, recorded)) = race(with(&breakers, counts_twice), with(&breakers, looks));

    assert!(recorded <= 1, "{recorded} in one era");
    assert!(seen.late == 0 || (seen.late, seen.successes) == (1, 2), "{seen:?}");
    let counts = counts(&breakers);
    assert_eq!((counts.successes, counts.late), (2, 1));
    assert_eq!(sample(&breakers).recorded, 1);
}

/// Two looks one after the other: what was late stays so, whatever ends meanwhile.
fn late_ones_stay_late() {
    let breakers = breakers(BreakerPolicy::new().count_window(10).failures(5));
    let slow = admit(&breakers).unwrap();
    let succeeds_twice = move |breakers: &Arc<Breakers>| {
        settle(breakers, slow, &Verdict::Success);
        let second = admit(breakers).unwrap();
        settle(breakers, second, &Verdict::Success);
    };
    let looks = |breakers: &Arc<Breakers>| {
        handle(breakers).reset();
        (counts(breakers), counts(breakers))
    };
    let ((), (first, then)) = race(with(&breakers, succeeds_twice), with(&breakers, looks));
    assert!(first.late <= then.late, "{first:?}, then {then:?}");
    assert!(first.successes <= then.successes, "{first:?}, then {then:?}");
    let counts = counts(&breakers);
    assert_eq!(counts.successes + counts.late, 2);
}

/// Whoever only looks does not bring back a state that is over.
fn a_look_and_a_transition() {
    let breakers = breakers(one_failure_opens());
    let failing = admit(&breakers).unwrap();
    let fails = move |breakers: &Arc<Breakers>| settle(breakers, failing, &FAILURE);
    race(with(&breakers, fails), with(&breakers, sample));
    assert_eq!(handle(&breakers).state(), State::Open);
}

/// Open for long, reset, and open again until now: nobody is refused for the time of the first
/// opening who knows that it is over.
fn the_time_of_an_earlier_era() {
    const LONG: Duration = Duration::from_secs(10);
    const ASKS_FOR_LONG: Verdict = Verdict::Failure(
        Failure::new(ErrorClass::Transient).retry_after(RetryAfter::AtLeast(LONG)),
    );
    let breakers = breakers(one_failure_opens());
    let failing = admit(&breakers).unwrap();
    assert_eq!(settle(&breakers, failing, &ASKS_FOR_LONG).unwrap().open_for, Some(LONG));

    let over = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&over);
    let opens_again = move |breakers: &Arc<Breakers>| {
        handle(breakers).reset();
        tells.store(true, Ordering::Release);
        let failing = admit(breakers).unwrap();
        assert_eq!(settle(breakers, failing, &FAILURE).unwrap().open_for, Some(Duration::ZERO));
    };
    let calls = move |breakers: &Arc<Breakers>| {
        let knew = over.load(Ordering::Acquire);
        match admit(breakers) {
            Ok(admission) => abandon(breakers, admission),
            Err(left) => assert!(!knew && left == LONG, "refused for {left:?}"),
        }
    };
    race(with(&breakers, opens_again), with(&breakers, calls));
    assert!(admit(&breakers).is_ok(), "a probe is due");
}

/// At the very end of the open time one of two callers is the probe, and the other waits for it.
fn the_end_of_the_open_time() {
    let breakers = breakers(one_failure_opens().open_for(Backoff::fixed(Duration::from_millis(5))));
    let failing = admit(&breakers).unwrap();
    settle(&breakers, failing, &FAILURE);
    breakers.settings.clock.set(5);
    let (one, other) = race(with(&breakers, |b| admit(b)), with(&breakers, |b| admit(b)));
    let (probe, refused) = match (one, other) {
        (Ok(probe), Err(left)) | (Err(left), Ok(probe)) => (probe, left),
        neither => panic!("one probe: {neither:?}"),
    };
    assert_eq!(refused, Duration::ZERO, "not by time");
    assert_eq!(settle(&breakers, probe, &Verdict::Success).unwrap().to, State::Closed);
}
