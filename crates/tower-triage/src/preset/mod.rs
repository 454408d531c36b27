//! Whole stacks for common places, as one layer each; every slot can still be adjusted.
//!
//! | preset | escalate | fallback | retry | breaker |
//! |---|---|---|---|---|
//! | [`service`] | yes | none | defaults, requests that are `Clone` | one, rejects with an error |
//! | [`http_client`] | yes | none | defaults, bodies that are `Clone`, failed responses drained | one per host, rejects with an error |
//! | [`reqwest_client`] | yes | none | defaults, bodies of bytes, failed responses drained | one per host, rejects with an error |
//! | [`escalation()`] | every failure that leaves | none | 3 attempts, 2 s and 8 s | one per operation, 5 in a row, 5 min |
//! | [`strategist()`] | yes | none | 3 attempts, 1 s and 2 s, adaptive rate | 5 in a row, 30 s |
//! | [`orchestrator()`] | every failure that leaves | none | 5 attempts, 2, 4, 8, 16 s, of 33 s each | one per operation, outside the retry, 3 in a row, 60 s |
//! | [`ladder()`] | what no level solved | levels 2 to 4, as you give them | 4 attempts, 1, 2, 4 s, within 30 s | none |
//! | [`http_server`] | yes | none | none: a server must not repeat its handlers | one, rejects with 503 and Retry-After |

pub mod escalation;
#[cfg(feature = "orchestrator")]
pub mod orchestrator;
pub mod strategist;

use tower_layer::Identity;
use tower_triage_circuit_breaker::CircuitBreakerLayer;
use tower_triage_core::{AnyError, Classifier};
use tower_triage_escalate::{Desk, EscalateLayer, KeepFailure};
use tower_triage_retry::RetryLayer;

use crate::triage::Triage;

pub use self::escalation::escalation;
#[cfg(feature = "orchestrator")]
pub use self::orchestrator::{Orchestrator, orchestrator};
pub use self::strategist::{Strategist, strategist};

/// What [`service`] and [`escalation()`] make.
pub type Service<R, E = AnyError> =
    Triage<EscalateLayer<R, KeepFailure, E>, Identity, RetryLayer<R>, CircuitBreakerLayer<R>>;

/// For any service whose requests are `Clone` and whose errors can hold an open circuit
/// (`E: From<CircuitOpen>`; [`AnyError`] can).
pub fn service<R, E>(classifier: Classifier<R>, desk: Desk) -> Service<R, E> {
    Triage {
        escalate: EscalateLayer::new(classifier.clone(), desk),
        fallback: Identity::new(),
        retry: RetryLayer::new(classifier.clone()),
        breaker: CircuitBreakerLayer::new(classifier),
    }
}

/// The five levels of [`tower_triage_ladder`] with the numbers of
/// [`Ladder::default`](tower_triage_ladder::Ladder), as one layer: give it levels 2 to 5. With other
/// numbers: [`Ladder::build`](tower_triage_ladder::Ladder::build).
///
/// # Panics
/// Never: the numbers are fixed, and a test builds them.
#[cfg(feature = "ladder")]
pub fn ladder<R, E>(classifier: Classifier<R>, desk: Desk) -> tower_triage_ladder::Rungs<R, E> {
    tower_triage_ladder::Ladder::default().build(classifier, desk).expect("fixed numbers")
}

#[cfg(feature = "http")]
pub use self::http::{HttpClient, HttpServer, http_client, http_server};

#[cfg(feature = "reqwest")]
pub use self::reqwest::{ReqwestClient, reqwest_client};

#[cfg(feature = "reqwest")]
mod reqwest {
    use tower_layer::Identity;
    use tower_triage_circuit_breaker::{CircuitBreakerLayer, KeyedSettings};
    use tower_triage_core::{AnyError, Classifier};
    use tower_triage_escalate::{Desk, EscalateLayer, KeepFailure};
    use tower_triage_reqwest::ReqwestReplay;
    use tower_triage_retry::RetryLayer;

    use crate::triage::Triage;

    /// What [`reqwest_client`] makes.
    pub type ReqwestClient<R, E = AnyError> = Triage<
        EscalateLayer<R, KeepFailure, E>,
        Identity,
        RetryLayer<R, ReqwestReplay>,
        CircuitBreakerLayer<R>,
    >;

    /// For a reqwest client, with rules of
    /// [`reqwest()`](tower_triage_reqwest::reqwest()). Errors must hold an open circuit: put
    /// `.map_err(AnyError::from)` between this layer and the client. As a middleware of
    /// reqwest-middleware it needs none:
    ///
    /// ```
    /// use tower_triage::reqwest::{StackMiddleware, reqwest};
    /// use tower_triage::{AnyError, Classifier, Desk, preset};
    ///
    /// let layers = preset::reqwest_client::<_, AnyError>(Classifier::new(reqwest()), Desk::log());
    /// let middleware = StackMiddleware::new(layers); // `ClientBuilder::with(middleware)`
    /// # fn is_middleware(_: impl Clone + Send + Sync + 'static) {}
    /// # is_middleware(middleware);
    /// ```
    pub fn reqwest_client<R, E>(classifier: Classifier<R>, desk: Desk) -> ReqwestClient<R, E> {
        let breaker = CircuitBreakerLayer::new(classifier.clone());
        Triage {
            escalate: EscalateLayer::new(classifier.clone(), desk),
            fallback: Identity::new(),
            retry: RetryLayer::new(classifier).replay(ReqwestReplay::new()),
            breaker: breaker.name("reqwest_client").keyed(KeyedSettings::default()),
        }
    }
}

#[cfg(feature = "http")]
mod http {
    use tower_layer::Identity;
    use tower_triage_circuit_breaker::{CircuitBreakerLayer, KeyedSettings};
    use tower_triage_core::{AnyError, Classifier};
    use tower_triage_escalate::{Desk, EscalateLayer, KeepFailure};
    use tower_triage_http::{HttpReplay, Unavailable};
    use tower_triage_retry::RetryLayer;

    use crate::triage::Triage;

    /// What [`http_client`] makes.
    pub type HttpClient<R, E = AnyError> = Triage<
        EscalateLayer<R, KeepFailure, E>,
        Identity,
        RetryLayer<R, HttpReplay>,
        CircuitBreakerLayer<R>,
    >;

    /// For an HTTP client. Bodies must be `Clone` (`Full<Bytes>`); errors must hold an open circuit:
    /// put `.map_err(AnyError::from)` between this layer and the client.
    pub fn http_client<R, E>(classifier: Classifier<R>, desk: Desk) -> HttpClient<R, E> {
        let breaker = CircuitBreakerLayer::new(classifier.clone());
        Triage {
            escalate: EscalateLayer::new(classifier.clone(), desk),
            fallback: Identity::new(),
            retry: RetryLayer::new(classifier).replay(HttpReplay::new()),
            breaker: breaker.name("http_client").keyed(KeyedSettings::default()),
        }
    }

    /// What [`http_server`] makes.
    pub type HttpServer<R, E = std::convert::Infallible> = Triage<
        EscalateLayer<R, KeepFailure, E>,
        Identity,
        Identity,
        CircuitBreakerLayer<R, Unavailable>,
    >;

    /// For an HTTP server, its router or a route, infallible or not: the breaker answers 503 with
    /// Retry-After while it is open.
    pub fn http_server<R, E>(classifier: Classifier<R>, desk: Desk) -> HttpServer<R, E> {
        let breaker = CircuitBreakerLayer::new(classifier.clone());
        Triage {
            escalate: EscalateLayer::new(classifier, desk),
            fallback: Identity::new(),
            retry: Identity::new(),
            breaker: breaker.name("http_server").reject_with(Unavailable),
        }
    }
}
