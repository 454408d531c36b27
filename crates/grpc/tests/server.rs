//! Our layers on a tonic server.

mod common;

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::LayerExt;
use tonic::transport::Server;
use tonic::{Code, Status};
use tower::ServiceBuilder;
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{Classifier, RetryAfter};
use tower_triage_grpc::{GrpcReplay, StatusDetails, Unavailable, grpc};

use crate::common::orders::{Order, OrdersServer};
use crate::common::{Scripted, channel, client};

#[tokio::test]
async fn kf06_a_server_answers_unavailable_while_its_circuit_is_open() {
    for (reject, pushes_back) in
        [(Unavailable::new(), false), (Unavailable::new().pushback(), true)]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let orders = Scripted::failing([Status::unavailable(""), Status::internal("")]);
        let policy = BreakerPolicy::new().consecutive_failures(2).build().unwrap();
        let breaker =
            CircuitBreakerLayer::new(Classifier::new(grpc())).policy(policy).reject_with(reject);
        let server =
            Server::builder().layer(breaker).add_service(OrdersServer::new(orders.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

        let mut client = client(grpc(), GrpcReplay::new(), channel(address));
        let mut code = async || client.get(Order::new("17")).await.unwrap_err();
        assert_eq!(code().await.code(), Code::Unavailable);
        assert_eq!(code().await.code(), Code::Internal);
        let refused = code().await;
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        assert_eq!(orders.calls(), 2);
        let RetryAfter::AtLeast(wait) =
            StatusDetails::of_message(refused.details()).retry_delay.unwrap()
        else {
            panic!("a lower bound")
        };
        assert!(wait > Duration::from_secs(1) && wait <= Duration::from_secs(6), "{wait:?}");
        assert_eq!(refused.metadata().contains_key("grpc-retry-pushback-ms"), pushes_back);
    }
}

/// Our layer around one service, whose name tonic wants to know.
#[tokio::test]
async fn a_single_service_keeps_its_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let orders = Scripted::failing([Status::unavailable(""), Status::unavailable("")]);
    let policy = BreakerPolicy::new().consecutive_failures(2).build().unwrap();
    let breaker = CircuitBreakerLayer::new(Classifier::new(grpc()));
    let breaker = breaker.policy(policy).reject_with(Unavailable::new());
    let service =
        ServiceBuilder::new().layer(breaker).named_layer(OrdersServer::new(orders.clone()));
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let mut client = client(grpc(), GrpcReplay::new(), channel(address));
    for _ in 0..4 {
        let status = client.get(Order::new("17")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
    assert_eq!(orders.calls(), 2);
}

/// The wait that a server asks for is the one that its client waits, to the millisecond.
#[tokio::test]
async fn a_pushback_of_a_server_is_followed() {
    let mut pushed = Status::unavailable("");
    pushed.metadata_mut().insert("grpc-retry-pushback-ms", 30.into());
    let mut never = Status::unavailable("");
    never.metadata_mut().insert("grpc-retry-pushback-ms", (-1).into());
    let orders = Scripted::failing([pushed, never]);
    let address = common::serve(orders.clone()).await;
    let rules = tower_triage_grpc::GrpcRulesExt::repeatable_methods(grpc(), ["shop.Orders"]);
    let begun = tokio::time::Instant::now();
    let mut client = client(rules, GrpcReplay::new(), channel(address));
    let status = client.get(Order::new("17")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(orders.calls(), 2);
    assert!(begun.elapsed() >= Duration::from_millis(30));
}
