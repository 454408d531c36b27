//! What our layers refuse or cut off, as a response: for services whose error type cannot hold it.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use tower_triage_circuit_breaker::Reject;
use tower_triage_core::{CircuitOpen, Elapsed};

/// Turns an open circuit into `503 Service Unavailable` with `Retry-After` and an empty body, under
/// any error type, [`Infallible`](std::convert::Infallible) included.
///
/// `Retry-After` is what is left of the open time in whole seconds, rounded up, and at least one.
///
/// ```
/// use tower_triage_circuit_breaker::CircuitBreakerLayer;
/// use tower_triage_core::Classifier;
/// use tower_triage_http::{Unavailable, http};
///
/// let breaker = CircuitBreakerLayer::new(Classifier::new(http())).reject_with(Unavailable);
/// # let _ = breaker;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Unavailable;

#[diagnostic::do_not_recommend]
impl<B: Default, E> Reject<Response<B>, E> for Unavailable {
    fn reject(&self, rejection: CircuitOpen) -> Result<Response<B>, E> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let seconds = HeaderValue::from(whole_seconds(rejection.retry_after()));
        response.headers_mut().insert(RETRY_AFTER, seconds);
        Ok(response)
    }
}

/// Turns an elapsed time limit into `504 Gateway Timeout` with an empty body, under any error type,
/// [`Infallible`](std::convert::Infallible) included. The layers above take it for what it is: it
/// carries the verdict of [`Elapsed`].
///
/// 504 and not 408: whoever called has done its part, and the answer is late (RFC 9110, section 15.6.5;
/// 15.5.9).
///
/// ```
/// use std::time::Duration;
/// use tower_triage_core::Classifier;
/// use tower_triage_http::{GatewayTimeout, http};
/// use tower_triage_timeout::TimeoutLayer;
///
/// let limit = TimeoutLayer::new(Classifier::new(http()), Duration::from_secs(5))?
///     .reject_with(GatewayTimeout);
/// # let _ = limit;
/// # Ok::<_, tower_triage_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayTimeout;

#[diagnostic::do_not_recommend]
impl<B: Default, E> tower_triage_timeout::Reject<Response<B>, E> for GatewayTimeout {
    fn reject(&self, _elapsed: Elapsed) -> Result<Response<B>, E> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
        Ok(response)
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_none() {
        for (millis, expected) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (29_500, "30")] {
            let open = CircuitOpen::new("shop".into(), Duration::from_millis(millis));
            let response: Result<Response<()>, Infallible> = Unavailable.reject(open);
            let response = response.unwrap();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[RETRY_AFTER], expected);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
