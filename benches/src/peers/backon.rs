//! `backon`: a retry around a function; it has no budget.

use std::hint::black_box;

use backon::{ExponentialBuilder, Retryable};

use crate::measure::Case;
use crate::work::answer;

pub(super) fn case() -> Case {
    Case::new("backon 1.6 retry, no budget", async |calls| {
        for request in 0..calls {
            let call = || answer(black_box(request));
            let answer = call.retry(ExponentialBuilder::default()).await;
            assert!(black_box(answer).is_ok(), "backon: failed");
        }
    })
}
