//! What a call does before its request is sent.

use tokio::time::Instant;
use tower_triage_core::Describe;

use crate::budget::Spending;
use crate::layer::Core;
use crate::replay::Replay;
use crate::request_policy::RequestPolicy;
use crate::span::AttemptSpan;

/// A call that has begun; by default none.
#[derive(Debug)]
pub struct Begun<K> {
    pub(crate) about: About,
    pub(crate) spending: Spending,
    /// What further requests are made of, or why there is nothing.
    pub(crate) kept: Result<K, &'static str>,
    pub(crate) span: AttemptSpan,
}

/// What the layer reads from a request before it gives it away.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(crate) repeatable: bool,
    pub(crate) unit_of_work: bool,
    pub(crate) deadline: Option<Instant>,
    /// The place of its own policy, if it has one.
    pub(crate) policy: Option<usize>,
}

impl<K> Default for Begun<K> {
    #[inline]
    fn default() -> Self {
        let (about, spending) = (About::default(), Spending::default());
        Self { about, spending, kept: Err("nothing is kept"), span: AttemptSpan::default() }
    }
}

impl<R, P, N, F> Core<R, P, N, F> {
    /// Reads what has to be known of `request`, prepares and keeps it, and makes the budget's
    /// deposit.
    #[inline]
    pub(crate) fn begin<Req>(&self, request: &mut Req, begun: &mut Begun<P::Kept>)
    where
        P: Replay<Req>,
        R: Describe<Req>,
    {
        let rules = self.classifier.rules();
        let policy = self.replay.policy(request);
        let own = policy.and_then(|place| self.replay.policy_at(place));
        let plan = own.map_or(&self.plan, RequestPolicy::plan);
        let repeatable = rules.repeatable(request);
        begun.about = About {
            repeatable,
            unit_of_work: rules.unit_of_work(request),
            deadline: Self::deadline(plan, rules.deadline(request)),
            policy,
        };
        begun.spending = self.budget.begin(self.budget_now());
        self.replay.first(request);
        begun.kept = match plan.keeps(repeatable) {
            true => self.replay.keep(request),
            false => Err("the policy keeps no request like this one"),
        };
        begun.span = AttemptSpan::first();
    }
}
