//! `seatbelt`: fallback, retry and breaker, through Tower and natively.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use layered::{Execute, Service as _, Stack};
use seatbelt::breaker::Breaker;
use seatbelt::fallback::Fallback;
use seatbelt::retry::{Backoff, Retry};
use seatbelt::{RecoveryInfo, ResilienceContext};
use tick::Clock;
use tower::ServiceBuilder;

use crate::case::{Case, Expect, Loop, tripped};
use crate::http::{self, ReadyHttp};
use crate::sizes::Size;
use crate::work::{
    FALLBACK, FIRST_FAILS, NOTHING_FAILS, OPEN, SHARES, Script, Work, WorkFailed, answer,
};

type Outcome = Result<u64, WorkFailed>;

const TOWER: &str = "seatbelt 0.11, three, Tower";
const NATIVE: &str = "seatbelt 0.11, three, native";

fn recovery(outcome: &Outcome) -> RecoveryInfo {
    match outcome {
        Err(WorkFailed::Transient) => RecoveryInfo::retry(),
        Ok(_) | Err(WorkFailed::Refused | WorkFailed::Rejected) => RecoveryInfo::never(),
    }
}

/// The layers' types cannot be named, so that what makes them are macros.
macro_rules! fallback {
    ($context:expr) => {
        Fallback::layer("fallback", $context)
            .should_fallback(|outcome: &Outcome| outcome.is_err())
            .fallback(|_outcome: Outcome, _| Ok(0))
    };
}

macro_rules! retry {
    ($context:expr) => {
        Retry::layer("retry", $context)
            .clone_input()
            .recovery_with(|outcome: &Outcome, _| recovery(outcome))
    };
}

/// Retries at once, as far as it can.
macro_rules! eager_retry {
    ($context:expr) => {
        retry!($context)
            .max_retry_attempts(2)
            .backoff(Backoff::Constant)
            .base_delay(Duration::ZERO)
            .use_jitter(false)
    };
}

macro_rules! breaker {
    ($context:expr) => {
        Breaker::layer("breaker", $context)
            .recovery_with(|outcome: &Outcome, _| recovery(outcome))
            .rejected_input_error(|_, _| WorkFailed::Rejected)
    };
}

/// Three layers over `$inner`, as `$form` puts them together.
macro_rules! happy {
    ($form:ident, $inner:expr) => {{
        let context = &context();
        $form!(fallback!(context), retry!(context), breaker!(context), $inner)
    }};
}

/// The same over work that fails: only failures alone trip.
macro_rules! failing {
    ($form:ident, $inner:expr) => {{
        let context = &context();
        let breaker = breaker!(context).failure_threshold(0.99);
        $form!(fallback!(context), eager_retry!(context), breaker, $inner)
    }};
}

macro_rules! through_tower {
    ($fallback:expr, $retry:expr, $breaker:expr, $inner:expr) => {
        ServiceBuilder::new().layer($fallback).layer($retry).layer($breaker).service($inner)
    };
}

macro_rules! natively {
    ($fallback:expr, $retry:expr, $breaker:expr, $inner:expr) => {
        ($fallback, $retry, $breaker, Execute::new($inner)).into_service()
    };
}

fn context() -> ResilienceContext<u64, Outcome> {
    ResilienceContext::new(Clock::new_tokio())
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::tower(NOTHING_FAILS, TOWER, Expect::Answer, || {
            happy!(through_tower, Work(Script::Succeeds))
        }),
        Case::new(NOTHING_FAILS, NATIVE, || {
            native_loop(happy!(natively, |request| answer(Script::Succeeds, request)))
        }),
    ];
    for (group, script) in [(FIRST_FAILS, Script::EverySecondFails), (FALLBACK, Script::Refuses)] {
        cases.push(failing_tower(group, script).one_thread());
        cases.push(failing_native(group, script).one_thread());
    }
    let open = || {
        let context = &context();
        let layer = breaker!(context)
            .failure_threshold(0.01)
            .min_throughput(1)
            .break_duration(Duration::from_secs(3600));
        let service = ServiceBuilder::new().layer(layer).service(Work(Script::Down));
        tripped(service)
    };
    cases
        .push(Case::tower(OPEN, "seatbelt 0.11, breaker, Tower", Expect::Error, open).one_thread());
    for (group, share) in SHARES {
        cases.push(failing_tower(group, Script::ShareFails(share)));
        cases.push(failing_native(group, Script::ShareFails(share)));
    }
    cases
}

fn failing_tower(group: &'static str, script: Script) -> Case {
    Case::tower(group, TOWER, Expect::Answer, move || failing!(through_tower, Work(script)))
}

fn failing_native(group: &'static str, script: Script) -> Case {
    Case::new(group, NATIVE, move || {
        native_loop(failing!(natively, move |request| answer(script, request)))
    })
}

fn native_loop<S>(service: S) -> Loop
where
    S: layered::Service<u64, Out = Outcome> + Send + Sync + 'static,
{
    let service = Arc::new(service);
    Box::new(move |calls| {
        let service = Arc::clone(&service);
        Box::pin(async move {
            for request in 0..calls {
                let outcome = service.execute(black_box(request)).await;
                Expect::Answer.check(NATIVE, &black_box(outcome));
            }
        })
    })
}

pub(super) fn http_size() -> Size {
    type Outcome = Result<http::Response, http::Failed>;
    let context = &ResilienceContext::<http::Request, Outcome>::new(Clock::new_tokio());
    let mut service = ServiceBuilder::new()
        .layer(
            Fallback::layer("fallback", context)
                .should_fallback(|outcome: &Outcome| outcome.is_err())
                .fallback(|_: Outcome, _| Ok(http::response())),
        )
        .layer(
            Retry::layer("retry", context)
                .clone_input()
                .recovery_with(|_: &Outcome, _| RecoveryInfo::never()),
        )
        .layer(
            Breaker::layer("breaker", context)
                .recovery_with(|_: &Outcome, _| RecoveryInfo::never())
                .rejected_input_error(|_, _| http::Failed::Rejected),
        )
        .service(ReadyHttp);
    Size::of_call(TOWER, &mut service, http::request())
}
