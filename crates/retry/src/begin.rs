//! What a call does before its request is sent.

use tokio::time::Instant;
use tower_triage_core::Describe;

use crate::budget::Spending;
use crate::layer::Core;
use crate::policy::RetryPlan;
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
    /// Reads what has to be known of `request`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn read<Req>(&self, request: &Req) -> About
    where
        P: Replay<Req>,
        R: Describe<Req>,
    {
        let rules = self.classifier.rules();
        let policy = self.replay.policy(request);
        About {
            repeatable: rules.repeatable(request),
            unit_of_work: rules.unit_of_work(request),
            deadline: Self::deadline(self.plan_at::<Req>(policy), rules.deadline(request)),
            policy,
        }
    }

    /// Prepares `request` for the first attempt, and keeps it for further ones if there may be any.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn keep<Req>(
        &self,
        about: &About,
        request: &mut Req,
    ) -> Result<P::Kept, &'static str>
    where
        P: Replay<Req>,
    {
        self.replay.first(request);
        match self.plan_at::<Req>(about.policy).keeps(about.repeatable) {
            true => self.replay.keep(request),
            false => Err("the policy keeps no request like this one"),
        }
    }

    /// The request's deposit.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn deposit(&self) -> Spending {
        self.budget.begin(self.budget_now())
    }

    /// The policy at `place`, if there is one, or the layer's.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn plan_at<Req>(&self, place: Option<usize>) -> &RetryPlan
    where
        P: Replay<Req>,
    {
        let own = place.and_then(|place| self.replay.policy_at(place));
        own.map_or(&self.plan, RequestPolicy::plan)
    }
}
