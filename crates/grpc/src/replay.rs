//! How gRPC calls are sent again.

use std::future::{Ready, ready};
use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;
use tower_triage_core::RetryAfter;
use tower_triage_http::{Attempt, Deadline, Replayable};
use tower_triage_retry::{Release, Replay, RequestPolicy};

use crate::request::Method;
use crate::rules::facts;
use crate::service_config::ServiceConfig;
use crate::timeout::{set_timeout, timeout_of};

/// The header that tells a server how many attempts were made before (gRPC A6).
const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";

/// Replay policy of a retry layer over gRPC, for bodies that are [`Replayable`]: under a
/// [`ReplayBodyLayer`](crate::ReplayBodyLayer) all are.
///
/// Each attempt starts from the request that came in. Each further one has its number before it in
/// `grpc-previous-rpc-attempts`, the time that is left in `grpc-timeout` (which tonic would send
/// unchanged), and an [`Attempt`] as request extension. A failed answer is dropped, which costs an
/// HTTP/2 stream and no connection.
///
/// With a [`ServiceConfig`] each method that it names is repeated by its own policy; the others by
/// the layer's.
///
/// ```
/// use tower_triage_core::Classifier;
/// use tower_triage_grpc::{GrpcReplay, ServiceConfig, grpc};
/// use tower_triage_retry::RetryLayer;
///
/// let config = ServiceConfig::parse(r#"{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}"#)?;
/// let retry = RetryLayer::new(Classifier::new(grpc()))
///     .budget(config.budget())
///     .replay(GrpcReplay::new().service_config(config));
/// # let _ = retry;
/// # Ok::<_, tower_triage_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GrpcReplay {
    config: Option<Arc<ServiceConfig>>,
}

impl GrpcReplay {
    /// Every method is repeated by the layer's policy.
    #[must_use]
    pub const fn new() -> Self {
        Self { config: None }
    }

    /// Methods are repeated by the policies of `config`, if they have one. Its throttling belongs
    /// into the layer: `RetryLayer::budget(config.budget())`.
    #[must_use]
    pub fn service_config(self, config: impl Into<Arc<ServiceConfig>>) -> Self {
        Self { config: Some(config.into()) }
    }

    /// The time limit of the method's policy, told to the peer; a shorter one of the caller stays.
    fn tell_timeout<B>(&self, request: &mut http::Request<B>) {
        let config = self.config.as_deref();
        let limit = config
            .and_then(|config| config.policy_of(Method::of(request)?))
            .and_then(|policy| policy.max_elapsed());
        if let Some(limit) = limit {
            let told = timeout_of(request.headers());
            if told.is_none_or(|told| limit < told) {
                set_timeout(request.headers_mut(), limit);
            }
        }
    }
}

impl<B: Replayable> Replay<http::Request<B>> for GrpcReplay {
    type Kept = http::Request<B>;

    fn policy(&self, request: &http::Request<B>) -> Option<usize> {
        self.config.as_ref()?.find(Method::of(request)?)
    }

    fn policy_at(&self, place: usize) -> Option<&dyn RequestPolicy> {
        self.config.as_ref()?.at(place).map(|policy| policy as &dyn RequestPolicy)
    }

    fn first(&self, request: &mut http::Request<B>) {
        self.tell_timeout(request);
    }

    fn keep(&self, request: &mut http::Request<B>) -> Result<Self::Kept, &'static str> {
        request.body().replayable()?;
        Ok(request.clone())
    }

    #[inline]
    fn request<'a>(&self, kept: &'a Self::Kept) -> Option<&'a http::Request<B>> {
        Some(kept)
    }

    fn ready(&self, kept: &Self::Kept) -> Result<(), &'static str> {
        kept.body().replayable()
    }

    fn again(
        &self,
        kept: &mut Self::Kept,
        attempt: &Attempt,
    ) -> Result<http::Request<B>, &'static str> {
        let mut request = kept.clone();
        request.extensions_mut().insert(*attempt);
        if let Some(deadline) = attempt.deadline {
            // The wait before the attempt comes out of it.
            let begin = Instant::now() + attempt.wait;
            set_timeout(request.headers_mut(), deadline.saturating_duration_since(begin));
            request.extensions_mut().insert(Deadline(deadline));
        }
        if attempt.number > 1 {
            let before = HeaderValue::from(attempt.number - 1);
            request.headers_mut().insert(PREVIOUS_ATTEMPTS, before);
        }
        Ok(request)
    }
}

impl<B> Release<http::Response<B>> for GrpcReplay {
    type Future = Ready<()>;

    fn hint(&self, response: &http::Response<B>) -> Option<RetryAfter> {
        facts(response)?.said().wait()
    }

    fn release(&self, response: http::Response<B>) -> Ready<()> {
        drop(response);
        ready(())
    }
}
