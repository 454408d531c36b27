//! Requests that are repeated by a policy of their own.

use tower_triage_core::Failure;

use crate::policy::RetryPlan;

/// How one kind of request is repeated, where that is not by the layer's own policy: a gRPC service
/// config has a policy per method. Given per request by
/// [`Replay::policy`](crate::Replay::policy).
///
/// Budget, replay and everything else stay the layer's.
pub trait RequestPolicy: Send + Sync {
    /// The plan for such a request.
    fn plan(&self) -> &RetryPlan;

    /// The failure as this policy sees it, for the decision alone: what is recorded and handed to
    /// others is the failure as it was. A policy by status codes says so that its codes are repeated
    /// and no others. Default: as it is.
    fn regard(&self, failure: Failure) -> Failure {
        failure
    }
}
