//! The contract of tower, over a mock that insists on it.

mod common;

use std::time::Duration;

use common::{Broken, Memory, Order, Receipt, always, classifier, desk, receipt};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};
use tower::{Layer, Service, ServiceExt};
use tower_test::assert_request_eq;
use tower_test::mock::{self, Mock};
use tower_triage_core::{AnyError, AnyOk, BoxError, Chain, Classifier, Halves};
use tower_triage_escalate::EscalateLayer;
use tower_triage_test_support::Strict;

type Rules = Halves<AnyOk, Chain>;

fn layer(sink: &Memory) -> EscalateLayer<Rules, tower_triage_escalate::KeepFailure, BoxError> {
    EscalateLayer::new(Classifier::new(Halves { response: AnyOk, error: Chain }), desk(sink))
}

#[tokio::test]
async fn readiness_is_the_inner_services() {
    let sink = Memory::default();
    let (mut service, mut handle) = mock::spawn_layer::<&str, &str, _>(layer(&sink));
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut call = tokio_test::task::spawn(service.call("hello"));
    assert_pending!(call.poll());
    assert_request_eq!(handle, "hello").send_response("world");
    assert_eq!(assert_ready_ok!(call.poll()), "world");
    assert_eq!(sink.tries(), 0);
}

#[tokio::test]
async fn a_failure_comes_out_with_its_type() {
    let sink = Memory::default();
    let (mut service, mut handle) = mock::spawn_layer::<&str, &str, _>(layer(&sink));
    assert_ready_ok!(service.poll_ready());
    let mut call = tokio_test::task::spawn(service.call("hello"));
    let (_, answer) = handle.next_request().await.unwrap();
    answer.send_error(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let error: BoxError = assert_ready_err!(call.poll());
    let kind = error.downcast_ref::<std::io::Error>().unwrap().kind();
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
    assert_eq!(sink.one().reason, "connection_reset");
}

#[tokio::test]
async fn kf01_what_is_called_is_what_was_polled_ready() {
    let sink = Memory::default();
    let inner = Strict::new(always(|| Err(Broken(tower_triage_core::ErrorClass::Timeout, "slow"))));
    let service = EscalateLayer::new(classifier(), desk(&sink)).layer(inner);
    for mut clone in [service.clone(), service.clone()] {
        for _ in 0..5 {
            clone.ready().await.unwrap().call(Order::default()).await.unwrap_err();
        }
    }
    assert_eq!(sink.taken().len(), 10);
}

#[tokio::test]
async fn kf01_clones_of_a_mock_start_unready() {
    let sink = Memory::default();
    let (mock, mut handle): (Mock<&str, &str>, _) = mock::pair();
    let service = layer(&sink).layer(mock);
    let answers = tokio::spawn(async move {
        while let Some((_, answer)) = handle.next_request().await {
            answer.send_error(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        }
    });
    for mut clone in [service.clone(), service.clone()] {
        for _ in 0..5 {
            clone.ready().await.unwrap().call("hello").await.unwrap_err();
        }
    }
    drop(service);
    answers.await.unwrap();
    assert_eq!(sink.taken().len(), 10);
}

/// Neither request nor response is `Clone`, nor is the service; boxed with `Clone + Sync` it works
/// too, if the inner one is.
#[tokio::test]
async fn kf05_no_needless_bounds() {
    struct Once;
    impl Service<Order> for Once {
        type Response = Receipt;
        type Error = Broken;
        type Future = std::future::Ready<Result<Receipt, Broken>>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Broken>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Order) -> Self::Future {
            std::future::ready(Ok(receipt("once")))
        }
    }
    let sink = Memory::default();
    let layer = EscalateLayer::new(classifier(), desk(&sink));
    assert_eq!(layer.layer(Once).oneshot(Order::default()).await.unwrap().text, "once");
    let boxed = tower::util::BoxCloneSyncService::new(layer.layer(always(|| Ok(receipt("boxed")))));
    assert_eq!(boxed.clone().oneshot(Order::default()).await.unwrap().text, "boxed");
}

/// Above layers of tower, which call in their worker or box the error; spawned all the same.
#[tokio::test]
async fn among_towers_own_layers() {
    let sink = Memory::default();
    let rules = Halves { response: AnyOk, error: Chain };
    let service = tower::ServiceBuilder::new()
        .layer(EscalateLayer::new(Classifier::new(rules), desk(&sink)))
        .map_err(AnyError::from_boxed)
        .buffer(8)
        .concurrency_limit(2)
        .timeout(Duration::from_secs(1))
        .service(tower::service_fn(|_: u8| async {
            Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        }));
    let error = tokio::spawn(async move { service.oneshot(1).await }).await.unwrap().unwrap_err();
    assert!(error.find::<std::io::Error>().is_some());
    assert_eq!(sink.one().reason, "connection_refused");
}

/// The room that the layer takes in a future: the outcome lives in the state, beside nothing.
#[test]
fn the_future_is_not_much_larger_than_the_inner_one() {
    fn size<S: Service<Req>, Req>(_: &S) -> usize {
        size_of::<S::Future>()
    }
    let inner = tower::service_fn(|_: Order| async { Ok::<_, Broken>([0_u8; 256].len()) });
    let sink = Memory::default();
    let rules = Halves { response: Plain, error: tower_triage_core::OwnError };
    let layer = EscalateLayer::new(Classifier::new(rules), desk(&sink));
    let outer = layer.layer(inner);
    let grown = size::<_, Order>(&outer).saturating_sub(size::<_, Order>(&inner));
    assert!(grown <= 512, "{grown}");
}

struct Plain;

impl tower_triage_core::ClassifyResponse<usize> for Plain {
    fn response(&self, _: &usize) -> tower_triage_core::Verdict {
        tower_triage_core::Verdict::Success
    }
}

impl tower_triage_core::Describe<Order> for Plain {}
