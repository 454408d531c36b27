//! A generated client over the stack, and tonic servers over loopback.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tonic::{Code, Request, Status};
use tower::ServiceBuilder;
use tower::util::{BoxCloneSyncService, MapRequestLayer};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{AnyError, CircuitOpen, Classifier, ErrorClass};
use tower_triage_fallback::{FallbackLayer, copy_fn};
use tower_triage_grpc::{
    Attempt, Deadline, GrpcReplay, GrpcRulesExt, PeekLayer, Repeatable, ReplayBody,
    ReplayBodyLayer, ServiceConfig, StatusDetails, circuit_open, grpc, set_timeout, with_status,
};
use tower_triage_http::copy_request;
use tower_triage_retry::RetryLayer;
use tower_triage_timeout::TimeoutLayer;

use crate::common::orders::{Order, OrdersClient};
use crate::common::{Client, Scripted, at_once, channel, client, serve};

type Body = tonic::body::Body;
type Sent = http::Request<ReplayBody<Body>>;
fn unavailable() -> Status {
    Status::unavailable("not now")
}

/// At once after UNAVAILABLE, five attempts.
fn a6() -> ServiceConfig {
    ServiceConfig::parse(
        r#"{"methodConfig": [{"name": [{"service": "shop.Orders"}], "retryPolicy": {
            "maxAttempts": 5, "initialBackoff": "0.000001s", "maxBackoff": "0.000001s",
            "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]
        }}]}"#,
    )
    .unwrap()
}

#[tokio::test]
async fn kf16_unary_calls_are_retried_out_of_the_box() {
    let repeatable = || grpc().repeatable_methods(["shop.Orders/Get"]);
    for (rules, replay) in
        [(repeatable(), GrpcReplay::new()), (grpc(), GrpcReplay::new().service_config(a6()))]
    {
        let server = Scripted::failing([unavailable(), unavailable()]);
        let mut client = client(rules, replay, channel(serve(server.clone()).await));
        // Nothing but a generated client's call, in a task.
        let answer = tokio::spawn(async move { client.get(Order::new("17")).await }).await.unwrap();
        assert_eq!(answer.unwrap().into_inner(), Order::new("17"));
        assert_eq!(server.calls(), 3);
        let before = server.asked_with("grpc-previous-rpc-attempts");
        assert_eq!(before, [None, Some("1".to_owned()), Some("2".to_owned())]);
    }

    let server = Scripted::failing([unavailable()]);
    let mut unmarked = client(grpc(), GrpcReplay::new(), channel(serve(server.clone()).await));
    assert_eq!(unmarked.get(Order::new("17")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn one_request_can_be_marked_by_itself() {
    let server = Scripted::failing([unavailable(), unavailable()]);
    let mut client = client(grpc(), GrpcReplay::new(), channel(serve(server.clone()).await));
    let mut request = Request::new(Order::new("17"));
    request.extensions_mut().insert(Repeatable);
    assert!(client.get(request).await.is_ok());
    assert_eq!(server.calls(), 3);
}

#[tokio::test]
async fn kf13_the_repeated_message_is_the_same() {
    let server = Scripted::failing([unavailable(), unavailable()]);
    let rules = grpc().repeatable_methods(["shop.Orders"]);
    let mut client = client(rules, GrpcReplay::new(), channel(serve(server.clone()).await));
    let order = Order { id: "17".to_owned(), note: (0..10 * 1024).map(|n| n as u8).collect() };
    assert_eq!(client.get(order.clone()).await.unwrap().into_inner(), order);
    let asked = server.asked.lock().unwrap();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|(_, asked)| *asked == order));
}

#[tokio::test]
async fn kf14_a_message_over_the_replay_limit_is_sent_once() {
    let server = Scripted::failing([unavailable()]);
    let rules = grpc().repeatable_methods(["shop.Orders"]);
    let mut client = client(rules, GrpcReplay::new(), channel(serve(server.clone()).await));
    let order = Order { id: "17".to_owned(), note: vec![7; 100 * 1024] };
    assert_eq!(client.get(order).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.calls(), 1);
}

/// A stack whose retry layer is above `spy`, which sees each attempt on its way down.
fn spied(
    address: std::net::SocketAddr,
    spy: impl Fn(&mut Sent) + Clone + Send + Sync + 'static,
) -> Client {
    let retry = RetryLayer::new(Classifier::new(grpc().repeatable_methods(["shop.Orders"])))
        .policy(at_once())
        .replay(GrpcReplay::new());
    let stack = ServiceBuilder::new()
        .layer(ReplayBodyLayer::new())
        .layer(retry)
        .layer(PeekLayer::new())
        .layer(MapRequestLayer::new(move |mut request: Sent| {
            spy(&mut request);
            request
        }))
        .map_request(|request: http::Request<_>| request.map(Body::new))
        .map_err(AnyError::from)
        .service(channel(address));
    OrdersClient::new(BoxCloneSyncService::new(stack))
}

#[derive(Clone, Debug, PartialEq)]
struct Tenant(&'static str);

#[tokio::test]
async fn kf15_the_parts_of_a_call_are_kept() {
    type Parts = (http::Version, Vec<String>, Option<Tenant>, Option<String>, Option<u32>);
    let seen: Arc<Mutex<Vec<Parts>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let server = Scripted::failing([unavailable(), unavailable()]);
    let mut client = spied(serve(server.clone()).await, move |request| {
        let tags = request.headers().get_all("x-tag").iter();
        let extensions = request.extensions();
        notes.lock().unwrap().push((
            request.version(),
            tags.map(|tag| tag.to_str().unwrap().to_owned()).collect(),
            extensions.get::<Tenant>().cloned(),
            extensions.get::<tonic::GrpcMethod<'static>>().map(|method| method.method().to_owned()),
            extensions.get::<Attempt>().map(|attempt| attempt.number),
        ));
    });
    let mut request = Request::new(Order::new("17"));
    request.metadata_mut().append("x-tag", "one".parse().unwrap());
    request.metadata_mut().append("x-tag", "two".parse().unwrap());
    request.extensions_mut().insert(Tenant("north"));
    assert!(client.get(request).await.is_ok());

    let tags = vec!["one".to_owned(), "two".to_owned()];
    let attempt = |number| {
        let (tenant, method) = (Some(Tenant("north")), Some("Get".to_owned()));
        (http::Version::HTTP_2, tags.clone(), tenant, method, number)
    };
    assert_eq!(*seen.lock().unwrap(), [attempt(None), attempt(Some(2)), attempt(Some(3))]);
}

#[tokio::test]
async fn kf26_each_attempt_passes_the_layers_below_afresh() {
    let server = Scripted::failing([unavailable(), unavailable()]);
    let tokens = Mutex::new(0);
    let tokens = Arc::new(tokens);
    let mut client = spied(serve(server.clone()).await, move |request| {
        let mut token = tokens.lock().unwrap();
        *token += 1;
        assert!(!request.headers().contains_key("authorization"), "left from the attempt before");
        request.headers_mut().insert("authorization", (*token).into());
    });
    assert!(client.get(Order::new("17")).await.is_ok());
    let tokens = ["1", "2", "3"].map(|token| Some(token.to_owned()));
    assert_eq!(server.asked_with("authorization"), tokens);
}

fn timeout_of(text: &Option<String>) -> Duration {
    let header = http::HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-timeout"),
        text.as_deref().unwrap().parse().unwrap(),
    )]);
    tower_triage_grpc::timeout_of(&header).unwrap()
}

#[tokio::test]
async fn kf30_the_timeout_header_says_what_is_left() {
    // The deadline of the caller, the one of the policy, and the mark of a layer above.
    for source in ["header", "config", "mark"] {
        let server = Scripted::failing([unavailable(), unavailable()]);
        let config = match source {
            "config" => a6_with_timeout(),
            _ => a6(),
        };
        let replay = GrpcReplay::new().service_config(config);
        let mut client = client(grpc(), replay, channel(serve(server.clone()).await));
        let mut request = Request::new(Order::new("17"));
        match source {
            "header" => request.set_timeout(Duration::from_secs(60)),
            "mark" => {
                let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
                request.extensions_mut().insert(Deadline(deadline));
            }
            _ => {}
        }
        assert!(client.get(request).await.is_ok());
        let told = server.asked_with("grpc-timeout");
        let told: Vec<Duration> =
            told.iter().filter(|text| text.is_some()).map(timeout_of).collect();
        let expected = if source == "mark" { 2 } else { 3 };
        assert_eq!(told.len(), expected, "{source}");
        assert!(told[0] <= Duration::from_secs(60) && told[0] > Duration::from_secs(30));
        assert!(told.windows(2).all(|pair| pair[1] < pair[0]), "{source}: {told:?}");
    }
}

fn a6_with_timeout() -> ServiceConfig {
    ServiceConfig::parse(
        r#"{"methodConfig": [{"name": [{"service": "shop.Orders"}], "timeout": "60s",
            "retryPolicy": {
                "maxAttempts": 5, "initialBackoff": "0.000001s", "maxBackoff": "0.000001s",
                "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]
            }}]}"#,
    )
    .unwrap()
}

/// A server that never answers; it says when it was asked, and lets the time pass that the call has.
struct Silent(tokio::sync::mpsc::UnboundedSender<Option<String>>);

#[tonic::async_trait]
impl common::orders::Orders for Silent {
    async fn get(&self, request: Request<Order>) -> Result<tonic::Response<Order>, Status> {
        let told = request.metadata().get("grpc-timeout");
        let told = told.map(|text| text.to_str().unwrap().to_owned());
        let left = timeout_of(&told);
        let _ = self.0.send(told);
        tokio::time::pause();
        tokio::time::advance(left).await;
        tokio::time::resume();
        std::future::pending().await
    }
}

#[tokio::test]
async fn kf30_each_attempt_gets_the_smaller_of_its_limit_and_what_is_left() {
    let (asked, mut attempts) = tokio::sync::mpsc::unbounded_channel();
    let classifier = Classifier::new(grpc().repeatable_methods(["shop.Orders"]));
    let limit = TimeoutLayer::new(classifier.clone(), Duration::from_secs(40))
        .unwrap()
        .policy(
            tower_triage_timeout::TimeoutPolicy::new(Duration::from_secs(40))
                .grace(Duration::ZERO)
                .build()
                .unwrap(),
        )
        .tell(|request: &mut Sent, limit: &tower_triage_timeout::SoftLimit| {
            set_timeout(request.headers_mut(), limit.time_until_dropped());
        });
    let stack = ServiceBuilder::new()
        .map_err(with_status)
        .layer(ReplayBodyLayer::new())
        .layer(RetryLayer::new(classifier).policy(at_once()).replay(GrpcReplay::new()))
        .layer(limit)
        .layer(PeekLayer::new())
        .map_request(|request: http::Request<_>| request.map(Body::new))
        .map_err(AnyError::from)
        .service(channel(serve(Silent(asked)).await));
    let mut client = OrdersClient::new(stack);
    let mut request = Request::new(Order::new("17"));
    request.set_timeout(Duration::from_secs(100));
    let begun = tokio::time::Instant::now();
    let status = client.get(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    // Two whole attempts and a part of a third: not three, and nothing after the deadline.
    assert!(begun.elapsed() < Duration::from_secs(115), "{:?}", begun.elapsed());
    let mut told = Vec::new();
    while let Ok(text) = attempts.try_recv() {
        told.push(timeout_of(&text));
    }
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|told| *told <= Duration::from_secs(40)));
    assert!(told[2] <= Duration::from_secs(20), "{told:?}");
}

#[tokio::test]
async fn kf06_a_rejection_is_unavailable_with_the_time_to_wait() {
    let server = Scripted::failing(std::iter::repeat_with(unavailable).take(10));
    let classifier = Classifier::new(grpc());
    let policy = BreakerPolicy::new().consecutive_failures(2).build().unwrap();
    let stack = ServiceBuilder::new()
        .map_err(with_status)
        .layer(ReplayBodyLayer::new())
        .layer(RetryLayer::new(classifier.clone()).replay(GrpcReplay::new()))
        .layer(CircuitBreakerLayer::new(classifier).policy(policy))
        .layer(PeekLayer::new())
        .map_request(|request: http::Request<_>| request.map(Body::new))
        .map_err(AnyError::from)
        .service(channel(serve(server.clone()).await));
    let mut client = OrdersClient::new(stack);
    for _ in 0..2 {
        let status = client.get(Order::new("17")).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "not now"));
        assert!(circuit_open(&status).is_none());
    }
    let status = client.get(Order::new("17")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(server.calls(), 2);
    let open: &CircuitOpen = circuit_open(&status).unwrap();
    let told = StatusDetails::of_message(status.details()).retry_delay.unwrap();
    assert_eq!(told.duration(), open.retry_after());
    assert!(open.retry_after() > Duration::from_secs(1), "{open:?}");
}

/// Retry and fallback share one buffer; no code of the user's copies anything.
#[tokio::test]
async fn a_second_channel_takes_over() {
    let down = Scripted::failing(std::iter::repeat_with(unavailable).take(10));
    let up = Scripted::default();
    let classifier = Classifier::new(grpc().repeatable_methods(["shop.Orders"]));
    let leaf = |channel| {
        ServiceBuilder::new()
            .layer(PeekLayer::new())
            .map_request(|request: Sent| request.map(Body::new))
            .map_err(AnyError::from)
            .service(channel)
    };
    let backup = leaf(channel(serve(up.clone()).await));
    let primary = channel(serve(down.clone()).await);
    let call = tokio::spawn(async move {
        let stack = ServiceBuilder::new()
            .layer(ReplayBodyLayer::new())
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_service([ErrorClass::Transient], backup)
                    .copy_requests(copy_fn(copy_request)),
            )
            .layer(RetryLayer::new(classifier).policy(at_once()).replay(GrpcReplay::new()))
            .service(leaf(primary));
        OrdersClient::new(stack).get(Order::new("17")).await
    });
    assert_eq!(call.await.unwrap().unwrap().into_inner(), Order::new("17"));
    assert_eq!((down.calls(), up.calls()), (3, 1));
}
