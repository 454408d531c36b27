//! `tower::retry` with tower's own budget.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use tower::ServiceBuilder;
use tower::retry::budget::{Budget, TpsBudget};
use tower::retry::{Policy, Retry, RetryLayer};

use crate::case::{Case, Expect};
use crate::http::{ReadyHttp, request};
use crate::sizes::Size;
use crate::work::{FIRST_FAILS, NOTHING_FAILS, SHARES, Script, Work};

const WHO: &str = "tower 0.5, retry";

/// Repeats every error while attempts and budget last, as the documentation of tower shows it.
#[derive(Clone)]
struct WithBudget {
    budget: Arc<TpsBudget>,
    left: u8,
}

impl WithBudget {
    fn new(budget: TpsBudget) -> Self {
        Self { budget: Arc::new(budget), left: 2 }
    }

    /// A budget that never says no.
    fn ample() -> Self {
        Self::new(TpsBudget::new(Duration::from_secs(10), 1_000_000, 1000.0))
    }
}

impl<Req: Clone, Res, E> Policy<Req, Res, E> for WithBudget {
    type Future = Ready<()>;

    fn retry(&mut self, _request: &mut Req, outcome: &mut Result<Res, E>) -> Option<Ready<()>> {
        if outcome.is_ok() {
            self.budget.deposit();
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        self.budget.withdraw().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

fn retry(policy: WithBudget, script: Script) -> Retry<WithBudget, Work> {
    ServiceBuilder::new().layer(RetryLayer::new(policy)).service(Work(script))
}

pub(super) fn cases() -> Vec<Case> {
    let default = || retry(WithBudget::new(TpsBudget::default()), Script::Succeeds);
    let ample = |script| move || retry(WithBudget::ample(), script);
    let first_fails = ample(Script::EverySecondFails);
    let mut cases = vec![
        Case::tower(NOTHING_FAILS, WHO, Expect::Answer, default),
        Case::tower(FIRST_FAILS, WHO, Expect::Answer, first_fails).one_thread(),
    ];
    for (group, share) in SHARES {
        cases.push(Case::tower(group, WHO, Expect::Either, ample(Script::ShareFails(share))));
    }
    cases
}

pub(super) fn http_size() -> Size {
    let policy = WithBudget::new(TpsBudget::default());
    let mut service = ServiceBuilder::new().layer(RetryLayer::new(policy)).service(ReadyHttp);
    Size::of_call(WHO, &mut service, request())
}
