//! `seatbelt`: fallback, retry and breaker, through Tower and natively.

use std::hint::black_box;
use std::sync::Arc;

use layered::{Execute, Service as _, Stack};
use seatbelt::breaker::Breaker;
use seatbelt::fallback::Fallback;
use seatbelt::retry::Retry;
use seatbelt::{RecoveryInfo, ResilienceContext};
use tick::Clock;
use tower::ServiceBuilder;

use crate::measure::Case;
use crate::work::{Work, WorkFailed, answer, tower_case};

type Outcome = Result<u64, WorkFailed>;

fn recovery(outcome: &Outcome) -> RecoveryInfo {
    if outcome.is_ok() { RecoveryInfo::never() } else { RecoveryInfo::retry() }
}

/// The three layers over `$inner`, as a tuple (native) or into a builder (Tower); the layers' types
/// cannot be named, so this is no function.
macro_rules! layers {
    ($context:expr) => {{
        let context: &ResilienceContext<u64, Outcome> = $context;
        (
            Fallback::layer("fallback", context)
                .should_fallback(|outcome: &Outcome| outcome.is_err())
                .fallback(|_outcome: Outcome, _| Ok(0)),
            Retry::layer("retry", context)
                .clone_input()
                .recovery_with(|outcome: &Outcome, _| recovery(outcome)),
            Breaker::layer("breaker", context)
                .recovery_with(|outcome: &Outcome, _| recovery(outcome))
                .rejected_input_error(|_, _| WorkFailed),
        )
    }};
}

pub(super) fn cases() -> Vec<Case> {
    let context = ResilienceContext::new(Clock::new_tokio());
    let (fallback, retry, breaker) = layers!(&context);
    let tower = ServiceBuilder::new().layer(fallback).layer(retry).layer(breaker).service(Work);

    let (fallback, retry, breaker) = layers!(&context);
    let native = (fallback, retry, breaker, Execute::new(answer)).into_service();
    let native = Arc::new(native);
    vec![
        tower_case("seatbelt 0.11 three, Tower", tower),
        Case::new("seatbelt 0.11 three, native", move |calls| {
            let service = Arc::clone(&native);
            async move {
                for request in 0..calls {
                    let answer = service.execute(black_box(request)).await;
                    assert!(black_box(answer).is_ok(), "seatbelt: failed");
                }
            }
        }),
    ]
}
