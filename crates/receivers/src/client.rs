//! What carries the messages, and what protects it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
#[cfg(feature = "tls")]
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_service::Service;
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, KeyedSettings};
use tower_triage_core::{AnyError, Backoff, BoxError, Classifier, ConfigError, ErrorClass, Jitter};
use tower_triage_http::{HttpReplay, HttpRules, http};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPolicy, budget::Budget};
use tower_triage_timeout::TimeoutLayer;

/// Attempts of one message.
const ATTEMPTS: u32 = 5;
/// One attempt.
const ATTEMPT: Duration = Duration::from_secs(8);
/// All of them, and the waits between: less than the desk's limit for a sink (30 s).
const DEADLINE: Duration = Duration::from_secs(25);
/// Failures in a row that open the breaker.
const IN_A_ROW: u32 = 5;
/// How long it is open at first.
const OPEN_FOR: Duration = Duration::from_secs(30);

#[cfg(feature = "tls")]
const SCHEMES: &str = "without a client of yours only `http` and `https` work";
#[cfg(not(feature = "tls"))]
const SCHEMES: &str = "only `http` works without the feature `tls` or a client of yours";

type Erased = BoxCloneSyncService<Request<Full<Bytes>>, Response<Empty<Bytes>>, AnyError>;

/// An HTTP client, its type erased: any `Service` from `http::Request<Full<Bytes>>` to an
/// `http::Response`. Sinks may share one.
#[derive(Clone)]
pub struct Client {
    service: Erased,
    /// What it fails with was tried again, where that is of use.
    pub(crate) tries: bool,
}

impl Client {
    /// `service` within our retry, circuit breaker (per host) and time limit; see the
    /// [crate docs](crate#protection).
    pub fn new<C, B>(service: C) -> Self
    where
        C: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        C::Future: Send,
        C::Error: Into<BoxError>,
        B: 'static,
    {
        let guarded = guarded(erase(service)).expect("the policies are sound: a test builds them");
        Self { service: guarded, tries: true }
    }

    /// `service` as it is: a stack of yours. A failure that time can heal goes to the desk, which
    /// tries again.
    pub fn bare<C, B>(service: C) -> Self
    where
        C: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        C::Future: Send,
        C::Error: Into<BoxError>,
        B: 'static,
    {
        Self { service: erase(service), tries: false }
    }

    /// The client of our own that can reach an address of this scheme: hyper, protected.
    pub(crate) fn reaching(scheme: &str) -> Result<Self, ConfigError> {
        let builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        match scheme {
            "http" => Ok(Self::new(builder.build_http::<Full<Bytes>>())),
            #[cfg(feature = "tls")]
            "https" => Ok(Self::new(builder.build::<_, Full<Bytes>>(tls()?))),
            _ => Err(ConfigError::new("uri", scheme, SCHEMES)),
        }
    }

    pub(crate) async fn send(
        self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Empty<Bytes>>, AnyError> {
        self.service.oneshot(request).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("tries", &self.tries).finish_non_exhaustive()
    }
}

/// Bodies of answers are let go: nobody reads them.
fn erase<C, B>(service: C) -> Erased
where
    C: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
    C::Future: Send,
    C::Error: Into<BoxError>,
    B: 'static,
{
    let service = service.map_response(|response: Response<B>| response.map(|_| Empty::new()));
    BoxCloneSyncService::new(service.map_err(|error| AnyError::from_boxed(error.into())))
}

fn guarded(service: Erased) -> Result<Erased, ConfigError> {
    let wait = |base| {
        let backoff = Backoff::exponential(Duration::from_millis(base), 2.0);
        ClassRule::new(backoff.cap(Duration::from_secs(8)).jitter(Jitter::Full))
    };
    let retry = RetryPolicy::default()
        .attempts(ATTEMPTS)
        .retry(ErrorClass::Transient, wait(500))
        .retry(ErrorClass::Timeout, wait(500))
        .retry(ErrorClass::Contention, wait(500))
        .retry(ErrorClass::Throttled, wait(1000))
        .deadline(DEADLINE)
        .build()?;
    let open_for = Backoff::exponential(OPEN_FOR, 2.0)
        .cap_before_jitter(Duration::from_secs(250))
        .jitter(Jitter::Ratio(0.2));
    let breaker = BreakerPolicy::new().consecutive_failures(IN_A_ROW).open_for(open_for).build()?;
    let classifier: Classifier<HttpRules> = Classifier::new(http());
    let stack = ServiceBuilder::new()
        .layer(
            // Storm control bounds how much there is to repeat; a budget would run dry over days.
            RetryLayer::new(classifier.clone())
                .policy(retry)
                .budget(Budget::unlimited())
                .replay(HttpReplay::new()),
        )
        .layer(
            CircuitBreakerLayer::new(classifier.clone())
                .name("receivers")
                .policy(breaker)
                .keyed(KeyedSettings::default()),
        )
        .layer(TimeoutLayer::new(classifier, ATTEMPT)?)
        .service(service);
    Ok(BoxCloneSyncService::new(stack))
}

/// Connections that trust whom the system trusts.
#[cfg(feature = "tls")]
fn tls() -> Result<hyper_rustls::HttpsConnector<HttpConnector>, ConfigError> {
    let problem = |_| ConfigError::new("uri", "https", "the system has no root certificates");
    let provider = rustls::crypto::ring::default_provider();
    let builder = hyper_rustls::HttpsConnectorBuilder::new();
    let builder = builder.with_provider_and_native_roots(provider).map_err(problem)?;
    Ok(builder.https_only().enable_http1().build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_are_sound() {
        assert!(Client::reaching("http").is_ok_and(|client| client.tries));
        assert_eq!(Client::reaching("ftp").unwrap_err().field(), "uri");
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn the_system_is_trusted() {
        assert!(Client::reaching("https").is_ok());
    }
}
