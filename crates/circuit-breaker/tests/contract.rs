//! Over tower's mock, whose clones start unready and which panics when it is called unready.

mod common;

use common::{checked, row, secs};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower_test::mock;
use tower_triage_circuit_breaker::{CircuitBreakerLayer, State};
use tower_triage_core::{AnyError, AnyOk, Chain, CircuitOpen, Classifier, Halves};

type Mock =
    tower::util::MapErr<mock::Mock<&'static str, &'static str>, fn(tower::BoxError) -> AnyError>;

fn layer() -> CircuitBreakerLayer<Halves<AnyOk, Chain>> {
    CircuitBreakerLayer::new(Classifier::new(Halves { response: AnyOk, error: Chain }))
        .policy(checked(row(1)))
}

fn inner(mock: mock::Mock<&'static str, &'static str>) -> Mock {
    tower::util::MapErr::new(mock, AnyError::from_boxed)
}

#[tokio::test(start_paused = true)]
async fn readiness_and_answers_pass_through_while_closed() {
    let (mock, mut handle) = mock::pair::<&'static str, &'static str>();
    let layer = layer();
    let mut service = mock::Spawn::new(tower::Layer::layer(&layer, inner(mock)));
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());

    let mut answer = task::spawn(service.call("hello"));
    assert_pending!(answer.poll());
    let (request, reply) = handle.next_request().await.unwrap();
    assert_eq!(request, "hello");
    reply.send_response("world");
    assert_eq!(assert_ready!(answer.poll()).unwrap(), "world");
}

#[tokio::test(start_paused = true)]
async fn the_probe_is_a_fresh_readiness_of_the_same_instance() {
    let (mock, mut handle) = mock::pair::<&'static str, &'static str>();
    let layer = layer();
    let mut service = mock::Spawn::new(tower::Layer::layer(&layer, inner(mock)));
    assert_ready_ok!(service.poll_ready());
    let mut answer = task::spawn(service.call("first"));
    assert_pending!(answer.poll());
    handle.next_request().await.unwrap().1.send_error(std::io::Error::other("down"));
    assert_ready_err!(answer.poll());
    assert_eq!(layer.handle().state(), State::Open);

    // Open: ready at once although the inner service is not, and the call is rejected.
    handle.allow(0);
    assert_ready_ok!(service.poll_ready());
    let error = assert_ready_err!(task::spawn(service.call("second")).poll());
    assert!(error.downcast_ref::<CircuitOpen>().is_some());

    common::advance(secs(10)).await;
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut answer = task::spawn(service.call("third"));
    assert_pending!(answer.poll());
    let (request, reply) = handle.next_request().await.unwrap();
    assert_eq!(request, "third");
    reply.send_response("back");
    assert_ready_ok!(answer.poll());
    assert_eq!(layer.handle().state(), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn clones_are_readied_on_their_own() {
    let (mock, mut handle) = mock::pair::<&'static str, &'static str>();
    let layer = layer();
    let mut service = mock::Spawn::new(tower::Layer::layer(&layer, inner(mock)));
    for request in ["one", "two"] {
        let mut service = service.clone();
        assert_ready_ok!(service.poll_ready());
        let mut answer = task::spawn(service.call(request));
        assert_pending!(answer.poll());
        handle.next_request().await.unwrap().1.send_response("fine");
        assert_ready_ok!(answer.poll());
    }
    assert_ready_ok!(service.poll_ready());
}
