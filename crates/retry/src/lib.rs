//! Repeats what time can heal: when, how often and for how long.

pub mod budget;
mod decision;
pub mod future;
mod layer;
mod nudge;
mod pause;
mod policy;
mod refresh;
mod replay;
mod service;
mod span;

pub use self::{
    budget::Budget,
    decision::{Decision, Facts, Progress},
    layer::RetryLayer,
    nudge::{NoNudge, Nudge, NudgeFn},
    policy::{ClassRule, RetryPlan, RetryPolicy},
    refresh::{NoRefresh, Refresh, RefreshFn},
    replay::{Attempt, ByClone, Never, Release, Releasing, Replay, ReplayFn, replay_fn},
    service::Retry,
};
