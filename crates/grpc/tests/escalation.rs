//! The id of a call and the record that is made of its failure.

mod common;

use tonic::{Request, Status};
use tower::ServiceBuilder;
use tower_triage_core::{AnyError, Classifier};
use tower_triage_escalate::{ChannelSink, Desk, EscalateLayer, Receiver, Route, Routes};
use tower_triage_grpc::{GrpcReplay, GrpcRulesExt, PeekLayer, ReplayBodyLayer, grpc};
use tower_triage_retry::RetryLayer;

use crate::common::orders::{Order, OrdersClient};
use crate::common::{Scripted, at_once, channel, serve};

#[tokio::test]
async fn kf55_a_call_with_an_id_has_one_record_id_however_often_it_fails() {
    let server = Scripted::failing(std::iter::repeat_with(|| Status::unavailable("")).take(100));
    let (records, mut told) = ChannelSink::new(16).unwrap();
    let routes = Routes::new(Route::new(["human"], "human_required"));
    let desk = Desk::new(routes, [Receiver::new("human").record(records)]).unwrap();
    let classifier = Classifier::new(grpc().repeatable_methods(["shop.Orders"]));
    let stack = ServiceBuilder::new()
        .layer(ReplayBodyLayer::new())
        .layer(EscalateLayer::new(classifier.clone(), desk).from("shop"))
        .layer(RetryLayer::new(classifier).policy(at_once()).replay(GrpcReplay::new()))
        .layer(PeekLayer::new())
        .map_request(|request: http::Request<_>| request.map(tonic::body::Body::new))
        .map_err(AnyError::from)
        .service(channel(serve(server.clone()).await));
    let mut client = OrdersClient::new(stack);

    let mut ids = Vec::new();
    for id in ["r-1", "r-1", "r-2"] {
        let mut request = Request::new(Order::new("17"));
        request.metadata_mut().insert("x-request-id", id.parse().unwrap());
        assert!(client.get(request).await.is_err());
        let record = told.recv().await.unwrap();
        assert_eq!(record.operation, "shop.Orders/Get");
        assert_eq!(record.attempts.len(), 3);
        ids.push(record.id);
    }
    assert_eq!(server.calls(), 9);
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
}
