//! What an answer costs on its way through a peek.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use tower::{Service, ServiceBuilder};
use tower_triage_core::{Classifier, Operation};
use tower_triage_grpc::{PeekLayer, grpc};

#[derive(Clone)]
struct Answering;

impl Service<Request<()>> for Answering {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(Full::new(Bytes::from_static(b"message")));
        *response.version_mut() = Version::HTTP_2;
        ready(Ok(response))
    }
}

#[test]
fn an_answer_that_starts_with_data_costs_nothing() {
    let classifier = Classifier::new(grpc());
    let mut stack = ServiceBuilder::new().layer(PeekLayer::new()).service(Answering);
    let mut request = Some(Request::post("/shop.Orders/Get").body(()).unwrap());
    let measured = allocation_counter::measure(|| {
        let call = pin!(stack.call(request.take().unwrap()));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = call.poll(&mut cx) else { panic!("ready at once") };
        let outcome: Result<_, &Infallible> = Ok(&response);
        assert!(classifier.judge(&Operation::EMPTY, outcome).is_success());
    });
    assert_eq!(measured.count_total, 0);
}
