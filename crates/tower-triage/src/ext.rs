//! The layers as methods of `ServiceBuilder`.

use tower::ServiceBuilder;
#[cfg(any(feature = "retry", feature = "circuit-breaker", feature = "escalate"))]
use tower_layer::Stack;

/// Adds the layers of tower-triage to [`ServiceBuilder`], each with its defaults. To adjust a
/// layer, make it and use [`ServiceBuilder::layer`].
///
/// ```
/// # #[cfg(all(feature = "retry", feature = "circuit-breaker", feature = "escalate"))]
/// # fn main() {
/// use tower::{ServiceBuilder, service_fn};
/// use tower_triage::{AnyError, AnyOk, Chain, Classifier, Desk, Halves, ServiceBuilderExt, serving};
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let stack = ServiceBuilder::new()
///     .escalate_failures(&classifier, Desk::log())
///     .retry_failures(&classifier)
///     .circuit_breaker(&classifier)
///     .service(service_fn(async |n: u32| Ok::<_, AnyError>(n + 1)));
/// serving::<u32, _>(stack);
/// # }
/// # #[cfg(not(all(feature = "retry", feature = "circuit-breaker", feature = "escalate")))]
/// # fn main() {}
/// ```
pub trait ServiceBuilderExt<L> {
    /// Has `desk` told of what nothing below could solve.
    #[cfg(feature = "escalate")]
    #[must_use]
    fn escalate_failures<R, E>(
        self,
        classifier: &crate::Classifier<R>,
        desk: crate::Desk,
    ) -> ServiceBuilder<Stack<crate::EscalateLayer<R, crate::escalate::KeepFailure, E>, L>>;

    /// Repeats what time can heal.
    #[cfg(feature = "retry")]
    #[must_use]
    fn retry_failures<R>(
        self,
        classifier: &crate::Classifier<R>,
    ) -> ServiceBuilder<Stack<crate::RetryLayer<R>, L>>;

    /// Stops calling what is down.
    #[cfg(feature = "circuit-breaker")]
    #[must_use]
    fn circuit_breaker<R>(
        self,
        classifier: &crate::Classifier<R>,
    ) -> ServiceBuilder<Stack<crate::CircuitBreakerLayer<R>, L>>;
}

impl<L> ServiceBuilderExt<L> for ServiceBuilder<L> {
    #[cfg(feature = "escalate")]
    fn escalate_failures<R, E>(
        self,
        classifier: &crate::Classifier<R>,
        desk: crate::Desk,
    ) -> ServiceBuilder<Stack<crate::EscalateLayer<R, crate::escalate::KeepFailure, E>, L>> {
        self.layer(crate::EscalateLayer::new(classifier.clone(), desk))
    }

    #[cfg(feature = "retry")]
    fn retry_failures<R>(
        self,
        classifier: &crate::Classifier<R>,
    ) -> ServiceBuilder<Stack<crate::RetryLayer<R>, L>> {
        self.layer(crate::RetryLayer::new(classifier.clone()))
    }

    #[cfg(feature = "circuit-breaker")]
    fn circuit_breaker<R>(
        self,
        classifier: &crate::Classifier<R>,
    ) -> ServiceBuilder<Stack<crate::CircuitBreakerLayer<R>, L>> {
        self.layer(crate::CircuitBreakerLayer::new(classifier.clone()))
    }
}
