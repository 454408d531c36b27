//~ an open circuit cannot become a `Result<u32, Infallible>`
//~ `Infallible: From<CircuitOpen>`: add a variant with `#[from] CircuitOpen`
//~ `.reject_with(
//! The error type has no place for an open circuit.

use std::convert::Infallible;

use tower::{ServiceBuilder, service_fn};
use tower_triage::{AnyOk, Chain, CircuitBreakerLayer, Classifier, Halves, serving};

fn main() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new(classifier))
        .service(service_fn(async |n: u32| Ok::<u32, Infallible>(n)));
    serving::<u32, _>(stack);
}
