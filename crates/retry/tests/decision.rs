//! The pure decision: order, classes, hints, deadlines, and that nothing panics.

mod common;

use std::time::Duration;

use common::{at_once, every, ms};
use proptest::prelude::*;
use tower_triage_core::{
    Backoff, Disposition, Elapsed, ErrorClass, Failure, HintMode, Jitter, Refusal, RetryAfter,
    ServerWord, Vote,
};
use tower_triage_retry::{ClassRule, Decision, Facts, Progress, RetryPolicy};

fn decide(policy: &RetryPolicy, facts: &Facts, failure: &Failure) -> Decision {
    policy.decide(facts, &mut Progress::default(), failure, 0.5)
}

fn stop(policy: &RetryPolicy, facts: &Facts, failure: &Failure) -> Refusal {
    match decide(policy, facts, failure) {
        Decision::Stop(why) => why,
        again => panic!("{again:?} after {failure:?}"),
    }
}

fn again(policy: &RetryPolicy, facts: &Facts, failure: &Failure) -> (Duration, bool) {
    match decide(policy, facts, failure) {
        Decision::Again { wait, hinted, .. } => (wait, hinted),
        other => panic!("{other:?} after {failure:?}"),
    }
}

#[test]
fn by_default_four_classes_are_repeated() {
    let policy = RetryPolicy::default();
    for class in ErrorClass::ALL {
        let repeated = matches!(
            class,
            ErrorClass::Transient
                | ErrorClass::Timeout
                | ErrorClass::Throttled
                | ErrorClass::Contention
        );
        assert_eq!(policy.would_retry(&class.into(), &Facts::default()), repeated, "{class}");
    }
}

#[test]
fn what_needs_a_change_is_not_repeated_as_it_is() {
    let changed = ClassRule::default().if_changed();
    let policy = RetryPolicy::default().retry(ErrorClass::Declined, changed);
    let declined = Failure::new(ErrorClass::Declined);
    assert!(policy.needs_change(&declined) && policy.repeats(&declined));
    assert!(!policy.would_retry(&declined, &Facts::default()));
    // The server knows better.
    let demanded = declined.server(ServerWord::Demanded);
    assert!(policy.would_retry(&demanded, &Facts::default()));
}

#[test]
fn how_often_by_default() {
    let policy = RetryPolicy::default();
    let attempts = |class: ErrorClass| {
        let mut progress = Progress::default();
        let failure = Failure::new(class);
        while let Decision::Again { .. } =
            policy.decide(&Facts::default(), &mut progress, &failure, 0.5)
        {}
        progress.attempts()
    };
    assert_eq!(attempts(ErrorClass::Transient), 3);
    assert_eq!(attempts(ErrorClass::Throttled), 3);
    assert_eq!(attempts(ErrorClass::Timeout), 2);
    assert_eq!(attempts(ErrorClass::Contention), 2);
    assert_eq!(attempts(ErrorClass::Permanent), 1);
}

/// Attempts of one class do not use up another's, but all of them the total.
#[test]
fn classes_count_by_themselves_and_together() {
    let policy = RetryPolicy::default().attempts(4);
    let mut progress = Progress::default();
    let mut next = |class: ErrorClass| {
        policy.decide(&Facts::default(), &mut progress, &Failure::new(class), 0.5)
    };
    assert!(matches!(next(ErrorClass::Timeout), Decision::Again { .. }));
    assert!(matches!(next(ErrorClass::Transient), Decision::Again { .. }));
    assert_eq!(next(ErrorClass::Timeout), Decision::Stop(Refusal::AttemptsUsedUp));
    assert_eq!(next(ErrorClass::Transient), Decision::Stop(Refusal::AttemptsUsedUp));
}

/// KF-18: what may have been done is not repeated without a mark; what was surely not done is.
#[test]
fn kf18_unsafe_requests_are_repeated_only_if_nothing_was_done() {
    let policy = RetryPolicy::default();
    let post = Facts { repeatable: false, ..Facts::default() };
    let failure = Failure::new(ErrorClass::Transient);
    for disposition in [Disposition::MaybeProcessed, Disposition::Processed] {
        let failure = failure.disposition(disposition);
        assert_eq!(stop(&policy, &post, &failure), Refusal::NotIdempotent);
        assert!(policy.would_retry(&failure, &Facts::default()));
    }
    for disposition in [Disposition::NotSent, Disposition::NotProcessed] {
        assert!(policy.would_retry(&failure.disposition(disposition), &post));
    }
    assert!(policy.would_retry(&ErrorClass::Throttled.into(), &post));
}

#[test]
fn contention_is_repeated_only_as_a_whole_unit() {
    let policy = RetryPolicy::default();
    let statement = Facts { unit_of_work: false, ..Facts::default() };
    let failure = Failure::new(ErrorClass::Contention);
    assert_eq!(stop(&policy, &statement, &failure), Refusal::NotUnitOfWork);
    let keyed_post = Facts { repeatable: false, ..Facts::default() };
    assert!(policy.would_retry(&failure, &keyed_post));
}

#[test]
fn the_servers_word_outranks_the_class() {
    let policy = RetryPolicy::default();
    let post = Facts { repeatable: false, ..Facts::default() };
    let forbidden = Failure::new(ErrorClass::Transient).server(ServerWord::Forbidden);
    assert_eq!(stop(&policy, &Facts::default(), &forbidden), Refusal::ServerForbade);
    // Of our own deadline it is said as it is, whether the retry knows the deadline or not.
    let late = Elapsed::deadline(ms(1)).failure();
    assert_eq!(stop(&policy, &Facts::default(), &late), Refusal::DeadlinePassed);
    let demanded = Failure::new(ErrorClass::Permanent).server(ServerWord::Demanded);
    assert!(policy.would_retry(&demanded, &post));
    // It does not lift attempts, cap or deadline.
    assert_eq!(stop(&RetryPolicy::single_attempt(), &post, &demanded), Refusal::AttemptsUsedUp);
    let far = demanded.retry_after(RetryAfter::Never);
    assert_eq!(stop(&policy, &post, &far), Refusal::HintOverCap);
    let late = Facts { time_left: Some(Duration::ZERO), ..post };
    assert_eq!(stop(&policy, &late, &demanded), Refusal::DeadlinePassed);
}

/// By default the decision is the class's rule as core states it, where nothing else stands in the way.
#[test]
fn without_limits_the_decision_is_the_classs_rule() {
    let policy = RetryPolicy::default();
    let dispositions = [
        Disposition::NotSent,
        Disposition::NotProcessed,
        Disposition::MaybeProcessed,
        Disposition::Processed,
    ];
    for class in ErrorClass::ALL {
        for disposition in dispositions {
            for server in [ServerWord::Silent, ServerWord::Forbidden, ServerWord::Demanded] {
                for (repeatable, unit_of_work) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let failure = Failure::new(class).disposition(disposition).server(server);
                    let facts = Facts { repeatable, unit_of_work, ..Facts::default() };
                    assert_eq!(
                        policy.would_retry(&failure, &facts),
                        failure.repeatable(repeatable, unit_of_work),
                        "{failure:?} {facts:?}"
                    );
                }
            }
        }
    }
}

/// With everything against it, taking away the first obstacle shows the next one.
#[test]
fn the_order_of_the_questions() {
    let policy = RetryPolicy::default().attempts(1);
    let mut failure = Failure::new(ErrorClass::Permanent)
        .server(ServerWord::Forbidden)
        .disposition(Disposition::Processed)
        .retry_after(RetryAfter::Never);
    let mut facts = Facts {
        repeatable: false,
        unit_of_work: false,
        time_left: Some(Duration::ZERO),
        replayable: Err("a stream"),
        committed: true,
        exhausted_below: true,
        blocked_below: Some(Duration::MAX),
        can_refresh: false,
    };
    assert_eq!(stop(&policy, &facts, &failure), Refusal::ClassNotRetried);
    failure.class = ErrorClass::Transient;
    assert_eq!(stop(&policy, &facts, &failure), Refusal::ServerForbade);
    failure.server = ServerWord::Silent;
    assert_eq!(stop(&policy, &facts, &failure), Refusal::Committed);
    facts.committed = false;
    assert_eq!(stop(&policy, &facts, &failure), Refusal::NotReplayable("a stream"));
    facts.replayable = Ok(());
    assert_eq!(stop(&policy, &facts, &failure), Refusal::NotIdempotent);
    facts.repeatable = true;
    assert_eq!(stop(&policy, &facts, &failure), Refusal::ExhaustedBelow);
    facts.exhausted_below = false;
    assert_eq!(stop(&policy, &facts, &failure), Refusal::AttemptsUsedUp);
    let policy = every(ms(100));
    assert_eq!(stop(&policy, &facts, &failure), Refusal::HintOverCap);
    failure.retry_after = Some(RetryAfter::AtLeast(ms(90)));
    assert_eq!(stop(&policy, &facts, &failure), Refusal::DeadlinePassed);
    facts.time_left = Some(ms(50));
    assert_eq!(stop(&policy, &facts, &failure), Refusal::WaitOverDeadline);
    facts.time_left = Some(ms(95));
    assert_eq!(stop(&policy, &facts, &failure), Refusal::WaitOverDeadline);
    facts.time_left = Some(ms(500));
    let ask = policy.decide(&facts, &mut Progress::default(), &failure, 0.0);
    assert_eq!(ask, Decision::Ask, "no wait for a refusal that is certain");
    facts.blocked_below = Some(ms(100));
    assert_eq!(again(&policy, &facts, &failure), (ms(100), false));
}

#[test]
fn a_hint_is_a_lower_bound_and_a_pushback_is_exact() {
    let facts = Facts::default();
    let policy = every(ms(100));
    let failure = |hint| Failure::new(ErrorClass::Throttled).retry_after(hint);
    let (wait, hinted) = again(&policy, &facts, &failure(RetryAfter::AtLeast(ms(3000))));
    assert!(hinted && (ms(3000)..=ms(3300)).contains(&wait), "{wait:?}");
    let shorter = failure(RetryAfter::AtLeast(ms(30)));
    assert_eq!(again(&policy, &facts, &shorter), (ms(100), false));
    // A hint of zero asks for no wait of its own.
    let zero = failure(RetryAfter::AtLeast(Duration::ZERO));
    assert_eq!(again(&policy, &facts, &zero), (ms(100), false));
    assert_eq!(again(&policy, &facts, &failure(RetryAfter::Exactly(ms(7)))), (ms(7), true));
}

/// gRPC A6: retries are counted from the last pushback on.
#[test]
fn a_pushback_starts_the_schedule_over() {
    let policy = RetryPolicy::default()
        .attempts(9)
        .backoff(&Backoff::exponential(ms(100), 2.0).cap(ms(30_000)));
    let mut progress = Progress::default();
    let mut wait = |hint: Option<RetryAfter>| {
        let mut failure = Failure::new(ErrorClass::Transient);
        failure.retry_after = hint;
        match policy.decide(&Facts::default(), &mut progress, &failure, 0.5) {
            Decision::Again { wait, .. } => wait,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(wait(None), ms(100));
    assert_eq!(wait(None), ms(200));
    assert_eq!(wait(Some(RetryAfter::Exactly(ms(5)))), ms(5));
    assert_eq!(wait(None), ms(100));
}

/// KF-33, the decision: at the cap it is waited, above it not, or at the cap if asked for.
#[test]
fn kf33_hints_over_the_cap() {
    let facts = Facts::default();
    let policy = every(ms(100));
    let failure = |s| {
        Failure::new(ErrorClass::Throttled).retry_after(RetryAfter::AtLeast(Duration::from_secs(s)))
    };
    assert_eq!(again(&policy, &facts, &failure(60)).0, Duration::from_secs(60));
    assert_eq!(stop(&policy, &facts, &failure(61)), Refusal::HintOverCap);
    assert_eq!(stop(&policy, &facts, &failure(86_400)), Refusal::HintOverCap);
    assert_eq!(stop(&policy, &facts, &failure(u64::MAX)), Refusal::HintOverCap);
    let never = Failure::new(ErrorClass::Throttled).retry_after(RetryAfter::Never);
    assert_eq!(stop(&policy, &facts, &never), Refusal::HintOverCap);
    assert_eq!(stop(&policy.clone().hint_cap(Duration::MAX), &facts, &never), Refusal::HintOverCap);
    let patient = policy.retry_at_hint_cap(true);
    for failure in [failure(61), failure(86_400), never] {
        assert_eq!(again(&patient, &facts, &failure), (Duration::from_secs(60), true));
    }
}

/// Modes that cut a hint down refuse none; the others wait for all of it or not at all.
#[test]
fn a_hint_that_is_cut_down_is_not_refused() {
    let facts = Facts::default();
    let secs = Duration::from_secs;
    let policy = RetryPolicy::default().backoff(&Backoff::fixed(secs(1)).cap(secs(20)));
    let mode = |mode| policy.clone().hint_mode(mode);
    let (cap, clamp) = (mode(HintMode::Cap), mode(HintMode::ClampToOwnPlus(secs(5))));
    for hint in [RetryAfter::AtLeast(secs(86_400)), RetryAfter::Never] {
        let failure = Failure::new(ErrorClass::Throttled).retry_after(hint);
        assert_eq!(again(&cap, &facts, &failure), (secs(20), true));
        assert_eq!(again(&clamp, &facts, &failure), (secs(6), true));
        for whole in [HintMode::AtLeast, HintMode::AsGiven, HintMode::ExactThenRestart] {
            assert_eq!(stop(&mode(whole), &facts, &failure), Refusal::HintOverCap, "{whole:?}");
        }
        // It is the wait that must end before the deadline, not the hint.
        let (short, long) = (Some(secs(6) - ms(1)), Some(secs(6)));
        let facts = |time_left| Facts { time_left, ..Facts::default() };
        assert_eq!(stop(&clamp, &facts(short), &failure), Refusal::WaitOverDeadline);
        assert_eq!(again(&clamp, &facts(long), &failure), (secs(6), true));
    }
}

#[test]
fn a_wait_may_end_with_the_deadline_and_no_later() {
    let policy = every(ms(100));
    let left = |left| Facts { time_left: Some(left), ..Facts::default() };
    let failure = ErrorClass::Transient.into();
    assert_eq!(again(&policy, &left(ms(100)), &failure), (ms(100), false));
    let less = ms(100) - Duration::from_nanos(1);
    assert_eq!(stop(&policy, &left(less), &failure), Refusal::WaitOverDeadline);
}

#[test]
fn a_refresh_comes_once_and_before_any_rule() {
    let policy = at_once();
    let facts = Facts { can_refresh: true, ..Facts::default() };
    let auth = Failure::new(ErrorClass::Auth);
    let mut progress = Progress::default();
    assert_eq!(
        policy.decide(&facts, &mut progress, &auth, 0.5),
        Decision::Again { wait: Duration::ZERO, hinted: false, refresh: true }
    );
    assert_eq!(
        policy.decide(&facts, &mut progress, &auth, 0.5),
        Decision::Stop(Refusal::ClassNotRetried)
    );
    // "This very request again" it is not.
    assert!(!policy.would_retry(&auth, &facts));
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        any::<u64>().prop_map(Duration::from_nanos),
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n)),
    ]
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    let base = prop_oneof![
        durations().prop_map(Backoff::fixed),
        (durations(), durations()).prop_map(|(base, step)| Backoff::linear(base, step)),
        (durations(), 1.0..1e300_f64).prop_map(|(base, f)| Backoff::exponential(base, f)),
        durations().prop_map(Backoff::decorrelated),
    ];
    (base, proptest::option::of(durations()), any::<bool>()).prop_map(|(backoff, cap, full)| {
        let backoff = if full { backoff.jitter(Jitter::Full) } else { backoff };
        match cap {
            Some(cap) => backoff.cap(cap),
            None => backoff,
        }
    })
}

/// What never left us, and what a peer refused unseen.
fn unseen() -> [Failure; 2] {
    let failure = Failure::new(ErrorClass::Transient).vote(Vote::Ignore);
    [Disposition::NotSent, Disposition::NotProcessed].map(|it| failure.disposition(it))
}

#[test]
fn what_nothing_has_seen_is_resent_if_asked_for() {
    let resending = RetryPolicy::single_attempt().resend_unseen(true);
    for failure in unseen() {
        let decision = decide(&resending, &Facts::default(), &failure);
        assert_eq!(decision, Decision::Resend { wait: Duration::ZERO });
        assert!(resending.would_retry(&failure, &Facts::default()));
        let usual = decide(&RetryPolicy::default(), &Facts::default(), &failure);
        assert!(matches!(usual, Decision::Again { .. }));
    }
    assert!(resending.keeps(true), "there may be a second attempt");

    let [never_sent, _] = unseen();
    let says_something = Failure::new(ErrorClass::Transient).disposition(Disposition::NotSent);
    assert_eq!(stop(&resending, &Facts::default(), &says_something), Refusal::AttemptsUsedUp);
    let forbidden = never_sent.server(ServerWord::Forbidden);
    assert_eq!(stop(&resending, &Facts::default(), &forbidden), Refusal::ServerForbade);
    let committed = Facts { committed: true, ..Facts::default() };
    assert_eq!(stop(&resending, &committed, &never_sent), Refusal::Committed);
    let lost = Facts { replayable: Err("gone"), ..Facts::default() };
    assert_eq!(stop(&resending, &lost, &never_sent), Refusal::NotReplayable("gone"));
    let late = Facts { time_left: Some(Duration::ZERO), ..Facts::default() };
    assert!(matches!(decide(&resending, &late, &never_sent), Decision::Stop(_)));
}

#[test]
fn a_refused_request_is_resent_once_and_before_any_other_failure() {
    let policy = RetryPolicy::single_attempt().resend_unseen(true);
    let [never_sent, refused] = unseen();
    let mut progress = Progress::default();
    let mut next =
        |failure: &Failure| policy.decide(&Facts::default(), &mut progress, failure, 0.5);
    assert!(matches!(next(&never_sent), Decision::Resend { .. }));
    assert!(matches!(next(&refused), Decision::Resend { .. }));
    assert!(matches!(next(&refused), Decision::Stop(_)));

    let mut progress = Progress::default();
    let policy = RetryPolicy::default().resend_unseen(true);
    let reset = Failure::new(ErrorClass::Transient);
    let mut next =
        |failure: &Failure| policy.decide(&Facts::default(), &mut progress, failure, 0.5);
    assert!(matches!(next(&reset), Decision::Again { .. }));
    assert!(matches!(next(&refused), Decision::Again { .. }), "counted like any other");
    assert!(matches!(next(&never_sent), Decision::Resend { .. }));
    assert!(matches!(next(&reset), Decision::Stop(Refusal::AttemptsUsedUp)));
}

/// A peer that drops each connection at once is neither stormed nor called for ever.
#[test]
fn resends_grow_apart_and_come_to_an_end() {
    let policy = RetryPolicy::single_attempt().resend_unseen(true);
    let [never_sent, _] = unseen();
    let mut progress = Progress::default();
    let mut waits = Vec::new();
    while let Decision::Resend { wait } =
        policy.decide(&Facts::default(), &mut progress, &never_sent, 0.5)
    {
        waits.push(wait);
    }
    assert_eq!(waits.len(), 100);
    assert_eq!(waits[..3], [Duration::ZERO, Duration::from_micros(7500), ms(15)]);
    assert!(waits.is_sorted());
    assert_eq!(waits[99], ms(750));
    assert_eq!(progress.attempts(), 1, "only the last one counts");
}

fn failures() -> impl Strategy<Value = Failure> {
    let hints = prop_oneof![
        Just(None),
        Just(Some(RetryAfter::Never)),
        durations().prop_map(|d| Some(RetryAfter::AtLeast(d))),
        durations().prop_map(|d| Some(RetryAfter::Exactly(d))),
    ];
    let dispositions = prop_oneof![
        Just(Disposition::NotSent),
        Just(Disposition::NotProcessed),
        Just(Disposition::MaybeProcessed),
        Just(Disposition::Processed),
    ];
    let words = prop_oneof![
        Just(ServerWord::Silent),
        Just(ServerWord::Forbidden),
        Just(ServerWord::Demanded),
    ];
    (0..12_usize, hints, dispositions, words).prop_map(|(class, hint, disposition, word)| {
        let mut failure =
            Failure::new(ErrorClass::ALL[class]).disposition(disposition).server(word);
        failure.retry_after = hint;
        failure
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the numbers: no panic, no more attempts than allowed, no wait beyond deadline or
    /// hint cap, none shorter than a hint, and nothing unsafe repeated.
    #[test]
    fn every_decision_keeps_its_bounds(
        policy in (proptest::option::of(1_u32..), proptest::option::of(1_u32..), backoffs(), durations(), any::<bool>()),
        sequence in proptest::collection::vec(failures(), 1..20),
        left in proptest::option::of(durations()),
        (repeatable, unit, refresh) in any::<(bool, bool, bool)>(),
        u in 0.0..1.0_f64,
    ) {
        let (total, of_class, backoff, cap, at_cap) = policy;
        let mut rule = ClassRule::new(backoff);
        if let Some(attempts) = of_class {
            rule = rule.attempts(attempts);
        }
        let mut policy = match total {
            Some(attempts) => RetryPolicy::default().attempts(attempts),
            None => RetryPolicy::default().unlimited_attempts(),
        };
        for class in ErrorClass::ALL {
            policy = policy.retry(class, rule.clone());
        }
        let policy = policy.hint_cap(cap).retry_at_hint_cap(at_cap);
        let facts = Facts {
            repeatable, unit_of_work: unit, time_left: left, can_refresh: refresh, ..Facts::default()
        };
        let mut progress = Progress::default();
        for failure in sequence {
            let Decision::Again { wait, .. } = policy.decide(&facts, &mut progress, &failure, u) else {
                continue;
            };
            prop_assert!(total.is_none_or(|max| progress.attempts() < max));
            prop_assert!(of_class.is_none_or(|max| progress.attempts_of(failure.class) < max));
            prop_assert!(left.is_none_or(|left| wait <= left));
            prop_assert!(failure.server != ServerWord::Forbidden);
            if let Some(hint) = failure.retry_after {
                prop_assert!(wait >= hint.duration().min(cap));
                prop_assert!(at_cap || hint.duration() <= cap);
            }
            if failure.server == ServerWord::Silent && failure.class != ErrorClass::Contention {
                prop_assert!(repeatable || !failure.disposition.may_be_processed());
            }
        }
    }

    /// The next attempt's number never wraps: after any number of failures the count only grows.
    #[test]
    fn huge_policies_build_and_decide(attempts in 1_u32.., deadline in durations(), backoff in backoffs()) {
        let policy = RetryPolicy::default().attempts(attempts).deadline(deadline).backoff(&backoff);
        if let Ok(plan) = policy.build() {
            let _ = plan.would_retry(&ErrorClass::Transient.into(), &Facts::default());
        }
    }
}
