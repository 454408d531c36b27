//~ cannot send a `Job` a second time
//~ needs `Job: Clone`
//~ `.replay(
//! The retry cannot copy the request.

use tower::{ServiceBuilder, service_fn};
use tower_triage::{AnyError, AnyOk, Chain, Classifier, Halves, RetryLayer, serving};

struct Job;

fn main() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier))
        .service(service_fn(async |_: Job| Ok::<(), AnyError>(())));
    serving::<Job, _>(stack);
}
