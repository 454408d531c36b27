//! The happy path of the four-layer stack takes nothing from the heap.

use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use tower::{Layer as _, Service, ServiceBuilder};
use tower_triage::http::{Unavailable, http};
use tower_triage::{
    AnyError, AnyOk, Chain, CircuitBreakerLayer, Classifier, Desk, ErrorClass, EscalateLayer,
    FallbackLayer, FuseLayer, Halves, RetryLayer, RetryPolicy,
};

fn allocations(f: impl FnOnce()) -> u64 {
    allocation_counter::measure(f).count_total
}

/// Polls a future that is ready at once.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("not ready at once"),
    }
}

fn call<S: Service<Req>, Req>(service: &mut S, request: Req) -> Result<S::Response, S::Error> {
    let mut cx = Context::from_waker(Waker::noop());
    match service.poll_ready(&mut cx) {
        Poll::Ready(Ok(())) => now(service.call(request)),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => panic!("not ready at once"),
    }
}

#[derive(Clone)]
struct Plain;

impl Service<u64> for Plain {
    type Response = u64;
    type Error = AnyError;
    type Future = Ready<Result<u64, AnyError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(request + 1))
    }
}

#[test]
fn four_layers_over_a_plain_service_allocate_nothing() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let mut stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), Desk::log()))
        .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Transient, |_| 0))
        .layer(RetryLayer::new(classifier.clone()))
        .layer(CircuitBreakerLayer::new(classifier))
        .service(Plain);
    for n in 0..1000 {
        assert_eq!(call(&mut stack, n).unwrap(), n + 1);
    }
    let taken = allocations(|| {
        for n in 0..1000 {
            assert_eq!(call(&mut stack, n).unwrap(), n + 1);
        }
    });
    assert_eq!(taken, 0);
}

#[test]
fn the_four_fused_allocate_nothing() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let layers = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), Desk::log()))
        .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Transient, |_| 0))
        .layer(RetryLayer::new(classifier.clone()))
        .layer(CircuitBreakerLayer::new(classifier.clone()))
        .into_inner();
    let mut fused = FuseLayer::new(classifier.clone(), layers.clone()).layer(Plain);
    let mut leaked = FuseLayer::new(classifier, layers).leak().layer(Plain);
    let mut calls = || {
        for n in 0..1000 {
            assert_eq!(call(&mut fused, n).unwrap(), n + 1);
            assert_eq!(call(&mut leaked, n).unwrap(), n + 1);
        }
    };
    calls();
    assert_eq!(allocations(calls), 0);
}

#[derive(Clone)]
struct Server;

impl Service<Request<Full<Bytes>>> for Server {
    type Response = Response<Empty<Bytes>>;
    type Error = AnyError;
    type Future = Ready<Result<Self::Response, AnyError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(Empty::new())))
    }
}

fn request() -> Request<Full<Bytes>> {
    Request::get("http://example.com/orders/17?q=1")
        .header("x-request-id", "r-1")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .body(Full::new(Bytes::from_static(b"x")))
        .unwrap()
}

/// Over HTTP types the copy of a request that may be repeated is the only thing that allocates.
#[test]
fn over_http_only_the_copy_of_a_repeatable_request_allocates() {
    let classifier = Classifier::new(http());
    let layers = |policy: RetryPolicy| {
        ServiceBuilder::new()
            .layer(EscalateLayer::new(classifier.clone(), Desk::log()))
            .layer(RetryLayer::new(classifier.clone()).policy(policy.build().unwrap()))
            .layer(CircuitBreakerLayer::new(classifier.clone()).reject_with(Unavailable))
            .service(Server)
    };
    let per_call = |policy: RetryPolicy| {
        let mut stack = layers(policy);
        for _ in 0..100 {
            call(&mut stack, request()).unwrap();
        }
        let requests: Vec<_> = (0..100).map(|_| request()).collect();
        allocations(|| {
            for request in requests {
                call(&mut stack, request).unwrap();
            }
        }) / 100
    };
    let original = request();
    let copy = allocations(|| drop(original.clone()));
    assert_eq!(per_call(RetryPolicy::single_attempt()), 0, "nothing is kept");
    assert_eq!(per_call(RetryPolicy::default()), copy, "one copy of the request");
}
