//! `failsafe` and `recloser`: breakers around a future.

use std::hint::black_box;
use std::time::Duration;

use failsafe::futures::CircuitBreaker;
use failsafe::{Config, backoff, failure_policy};
use futures_util::FutureExt;
use recloser::{AsyncRecloser, Recloser};

use crate::case::{Case, Expect, Loop};
use crate::work::{NOTHING_FAILS, OPEN, SHARES, Script, answer};

const FAILSAFE: &str = "failsafe 1.3, breaker";
const RECLOSER: &str = "recloser 1.4, breaker";

pub(super) fn cases() -> Vec<Case> {
    let hour = Duration::from_secs(3600);
    let mut cases = vec![
        Case::new(NOTHING_FAILS, FAILSAFE, || {
            failsafe_loop(Config::new().build(), Script::Succeeds, Expect::Answer)
        }),
        Case::new(NOTHING_FAILS, RECLOSER, || {
            recloser_loop(Recloser::default(), Script::Succeeds, Expect::Answer)
        }),
        Case::new(OPEN, FAILSAFE, move || {
            let policy = failure_policy::consecutive_failures(1, backoff::constant(hour));
            let breaker = Config::new().failure_policy(policy).build();
            let first = breaker.call(answer(Script::Down, 0)).now_or_never();
            assert!(first.is_some(), "the work answers at once");
            failsafe_loop(breaker, Script::Down, Expect::Error)
        })
        .one_thread(),
        Case::new(OPEN, RECLOSER, move || {
            let breaker = Recloser::custom().error_rate(0.5).closed_len(1).open_wait(hour).build();
            recloser_loop(breaker, Script::Down, Expect::Error)
        })
        .one_thread(),
    ];
    for (group, share) in SHARES {
        let script = Script::ShareFails(share);
        cases.push(Case::new(group, FAILSAFE, move || {
            let policy = failure_policy::success_rate_over_time_window(
                0.01,
                100,
                Duration::from_secs(10),
                backoff::constant(hour),
            );
            failsafe_loop(Config::new().failure_policy(policy).build(), script, Expect::Either)
        }));
        cases.push(Case::new(group, RECLOSER, move || {
            let breaker = Recloser::custom().error_rate(1.0).open_wait(hour).build();
            recloser_loop(breaker, script, Expect::Either)
        }));
    }
    cases
}

fn failsafe_loop<B>(breaker: B, script: Script, expect: Expect) -> Loop
where
    B: CircuitBreaker + Clone + Send + Sync + 'static,
{
    Box::new(move |calls| {
        let breaker = breaker.clone();
        Box::pin(async move {
            for request in 0..calls {
                let outcome = breaker.call(answer(script, black_box(request))).await;
                expect.check(FAILSAFE, &black_box(outcome));
            }
        })
    })
}

fn recloser_loop(breaker: Recloser, script: Script, expect: Expect) -> Loop {
    let breaker = AsyncRecloser::from(breaker);
    if expect == Expect::Error {
        // It opens when a window of one call is full of failures, and rejects from then on.
        for _ in 0..4 {
            let outcome = breaker.call(answer(script, 0)).now_or_never();
            assert!(outcome.is_some(), "the work answers at once");
        }
    }
    Box::new(move |calls| {
        let breaker = breaker.clone();
        Box::pin(async move {
            for request in 0..calls {
                let outcome = breaker.call(answer(script, black_box(request))).await;
                expect.check(RECLOSER, &black_box(outcome));
            }
        })
    })
}
