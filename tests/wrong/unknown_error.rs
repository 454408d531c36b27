//~ cannot classify a `Result<(), Mine>`
//~ `impl ToFailure for Mine`
//! No rule knows the error type: that must not become `Unknown` at run time.

use tower::{ServiceBuilder, service_fn};
use tower_triage::{AnyOk, Chain, Classifier, Halves, RetryLayer, serving};

#[derive(Debug)]
struct Mine;

fn main() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier))
        .service(service_fn(async |_: u32| Ok::<(), Mine>(())));
    serving::<u32, _>(stack);
}
