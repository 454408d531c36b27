//! `tower::retry` with tower's own budget.

use std::future::{Ready, ready};
use std::sync::Arc;

use tower::ServiceBuilder;
use tower::retry::budget::{Budget, TpsBudget};
use tower::retry::{Policy, RetryLayer};

use crate::measure::Case;
use crate::work::{Work, WorkFailed, tower_case};

/// Repeats every error while attempts and budget last, as the documentation of tower shows it.
#[derive(Clone)]
struct WithBudget {
    budget: Arc<TpsBudget>,
    left: u8,
}

impl Policy<u64, u64, WorkFailed> for WithBudget {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _request: &mut u64,
        outcome: &mut Result<u64, WorkFailed>,
    ) -> Option<Ready<()>> {
        if outcome.is_ok() {
            self.budget.deposit();
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        self.budget.withdraw().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}

pub(super) fn case() -> Case {
    let policy = WithBudget { budget: Arc::default(), left: 2 };
    let service = ServiceBuilder::new().layer(RetryLayer::new(policy)).service(Work);
    tower_case("tower 0.5 retry", service)
}
