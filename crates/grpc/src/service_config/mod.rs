//! gRPC's service config, as far as it is about retries.

mod json;

use std::collections::HashMap;

use tower_triage_core::ConfigError;
use tower_triage_retry::budget::{Budget, ThrottleSettings};

use crate::method_policy::{AttemptLimit, MethodPolicy};
use crate::request::Method;

/// The retry policies of a server's methods, and its retry throttling (gRPC A6).
///
/// Read from the JSON that gRPC clients are given, or put together in code:
///
/// ```
/// use std::time::Duration;
/// use tower_triage_grpc::{A6Policy, AttemptLimit, ServiceConfig};
///
/// let config = ServiceConfig::parse(r#"{
///     "methodConfig": [{
///         "name": [{"service": "shop.Orders", "method": "Get"}, {"service": "shop.Catalogue"}],
///         "timeout": "5s",
///         "retryPolicy": {
///             "maxAttempts": 4,
///             "initialBackoff": "0.1s",
///             "maxBackoff": "1s",
///             "backoffMultiplier": 2,
///             "retryableStatusCodes": ["UNAVAILABLE"]
///         }
///     }],
///     "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
/// }"#)?;
///
/// let quick = A6Policy { initial_backoff: Duration::from_millis(10), ..A6Policy::default() };
/// let config = config.method("shop.Carts/Add", quick.build(AttemptLimit::default())?);
///
/// let error = ServiceConfig::parse(r#"{"retryThrottling": {"maxTokens": 0, "tokenRatio": 1}}"#);
/// assert_eq!(error.unwrap_err().field(), "retryThrottling.maxTokens");
/// # let _ = config;
/// # Ok::<_, tower_triage_core::ConfigError>(())
/// ```
///
/// Read are `methodConfig` with `name`, `timeout`, `retryPolicy` and `hedgingPolicy`, and
/// `retryThrottling`; whatever else is there is passed over. A hedging policy is checked, and its
/// methods are then called once: nothing here hedges.
#[derive(Clone, Debug, Default)]
pub struct ServiceConfig {
    policies: Vec<MethodPolicy>,
    services: HashMap<Box<str>, Places>,
    /// For methods that nothing else names.
    rest: Option<usize>,
    throttle: Option<(ThrottleSettings, Budget)>,
}

/// Where a service's policies are.
#[derive(Clone, Debug, Default)]
struct Places {
    methods: HashMap<Box<str>, Option<usize>>,
    rest: Option<usize>,
}

impl ServiceConfig {
    /// Without a policy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a service config, with the client's usual limit of attempts.
    ///
    /// # Errors
    /// Names the field, as the config calls it: what is no JSON, a value that is missing or out of
    /// its range, a method with two policies.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        Self::parse_within(json, AttemptLimit::default())
    }

    /// Reads a service config; no method gets more attempts than `limit`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_within(json: &str, limit: AttemptLimit) -> Result<Self, ConfigError> {
        json::read(json, limit)
    }

    /// Calls of `name` are repeated by `policy`. A name is `package.Service/Method`,
    /// `package.Service` for its other methods, or empty for all that is not named. The last policy
    /// for a name counts.
    #[must_use]
    pub fn method(mut self, name: &str, policy: MethodPolicy) -> Self {
        self.policies.push(policy);
        *self.place(name) = Some(self.policies.len() - 1);
        self
    }

    /// Retry throttling for all methods together.
    ///
    /// # Errors
    /// If a value is out of its range.
    pub fn throttling(mut self, settings: ThrottleSettings) -> Result<Self, ConfigError> {
        let budget = Budget::failure_throttle(settings.clone())?;
        self.throttle = Some((settings, budget));
        Ok(self)
    }

    /// The policy for a method, if one is named.
    #[must_use]
    pub fn policy_of(&self, method: Method<'_>) -> Option<&MethodPolicy> {
        self.find(method).and_then(|place| self.policies.get(place))
    }

    /// The settings of the retry throttling, if there is one.
    #[must_use]
    pub fn throttle(&self) -> Option<&ThrottleSettings> {
        self.throttle.as_ref().map(|(settings, _)| settings)
    }

    /// The budget of the retry throttling, for `RetryLayer::budget`: one state, however often it is
    /// asked for, as gRPC has one per server name. Without throttling there is no limit.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.throttle.as_ref().map_or_else(Budget::unlimited, |(_, budget)| budget.clone())
    }

    pub(crate) fn find(&self, method: Method<'_>) -> Option<usize> {
        let service = self.services.get(method.service);
        let exact = service.and_then(|places| *places.methods.get(method.name)?);
        exact.or_else(|| service?.rest).or(self.rest)
    }

    pub(crate) fn at(&self, place: usize) -> Option<&MethodPolicy> {
        self.policies.get(place)
    }

    /// The place that a name has.
    fn place(&mut self, name: &str) -> &mut Option<usize> {
        let (service, method) = name.split_once('/').unwrap_or((name, ""));
        if service.is_empty() {
            return &mut self.rest;
        }
        let places = self.services.entry(service.into()).or_default();
        if method.is_empty() {
            return &mut places.rest;
        }
        places.methods.entry(method.into()).or_default()
    }
}
