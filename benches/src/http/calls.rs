//! Calls over HTTP types, without a network: what the layers do with a request that has a method, a
//! target, headers and a body that is kept for another attempt.

use ::http::header::{ACCEPT, USER_AGENT};
use tower::ServiceBuilder;
use tower_layer::Layer;
use tower_triage_core::Classifier;
use tower_triage_http::http;

use super::layers::four;
use super::{Body, ReadyHttp, Request, response};
use crate::case::{Case, Expect};

/// The group of these cases.
pub const HTTP: &str = "nothing fails, HTTP types";

/// A small request for a target with a name.
fn get() -> Request {
    ::http::Request::get("http://orders.example.com/orders/17?verbose=1")
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, "bench/1.0")
        .body(Body::default())
        .expect("it is valid")
}

/// Each call makes a request by cloning one, with and without our four layers.
#[must_use]
pub fn cases() -> Vec<Case> {
    let bare = || over_http(tower_layer::Identity::new());
    let one_by_one = || over_http(four(&Classifier::new(http()), |_| response()));
    let fused = || {
        let c = Classifier::new(http());
        over_http(four(&c, |_| response()).fused(c))
    };
    vec![
        Case::tower(HTTP, "no layer", Expect::Answer, bare).one_thread(),
        Case::tower(HTTP, "ours, four, time window", Expect::Answer, one_by_one).one_thread(),
        Case::tower(HTTP, "ours, four, time window, fused", Expect::Answer, fused).one_thread(),
    ]
}

/// `layer` around a service that answers at once, called with numbers.
fn over_http<L>(
    layer: L,
) -> impl tower_service::Service<u64, Response = u64> + Clone + Send + use<L>
where
    L: Layer<ReadyHttp>,
    L::Service: tower_service::Service<Request, Response = super::Response> + Clone + Send,
{
    let template = get();
    ServiceBuilder::new()
        .map_request(move |_: u64| template.clone())
        .map_response(|response: super::Response| u64::from(response.status().as_u16()))
        .service(layer.layer(ReadyHttp))
}
