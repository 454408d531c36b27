//! `failsafe` and `recloser`: breakers around a future.

use std::hint::black_box;

use failsafe::futures::CircuitBreaker;
use recloser::{AsyncRecloser, Recloser};

use crate::measure::Case;
use crate::work::answer;

pub(super) fn cases() -> Vec<Case> {
    let failsafe = failsafe::Config::new().build();
    let recloser = AsyncRecloser::from(Recloser::default());
    vec![
        Case::new("failsafe 1.3 breaker", move |calls| {
            let breaker = failsafe.clone();
            async move {
                for request in 0..calls {
                    let answer = breaker.call(answer(black_box(request))).await;
                    assert!(black_box(answer).is_ok(), "failsafe: failed");
                }
            }
        }),
        Case::new("recloser 1.4 breaker", move |calls| {
            let breaker = recloser.clone();
            async move {
                for request in 0..calls {
                    let answer = breaker.call(answer(black_box(request))).await;
                    assert!(black_box(answer).is_ok(), "recloser: failed");
                }
            }
        }),
    ]
}
