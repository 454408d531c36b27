//! `backon`: a retry around a function; it has no budget.

use std::hint::black_box;
use std::time::Duration;

use backon::{ConstantBuilder, ExponentialBuilder, Retryable};

use crate::case::{Case, Expect};
use crate::work::{FIRST_FAILS, NOTHING_FAILS, Script, answer};

const WHO: &str = "backon 1.6, retry, no budget";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(NOTHING_FAILS, WHO, || {
            Box::new(|calls| {
                Box::pin(async move {
                    for request in 0..calls {
                        let call = || answer(Script::Succeeds, black_box(request));
                        let outcome = call.retry(ExponentialBuilder::default()).await;
                        Expect::Answer.check(WHO, &black_box(outcome));
                    }
                })
            })
        }),
        Case::new(FIRST_FAILS, WHO, || {
            Box::new(|calls| {
                Box::pin(async move {
                    for request in 0..calls {
                        let call = || answer(Script::EverySecondFails, black_box(request));
                        let at_once = ConstantBuilder::default().with_delay(Duration::ZERO);
                        let outcome = call.retry(at_once).await;
                        Expect::Answer.check(WHO, &black_box(outcome));
                    }
                })
            })
        })
        .one_thread(),
    ]
}
