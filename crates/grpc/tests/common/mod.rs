//! Peers over loopback, and a client's usual stack.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod orders;

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tower_triage_core::{Backoff, ErrorClass};
use tower_triage_retry::{ClassRule, RetryPlan, RetryPolicy};

use self::orders::{Order, Orders, OrdersServer};

/// Answers in the order of a script, then with the order that it got; notes what it was asked.
#[derive(Clone, Default)]
pub struct Scripted {
    failures: Arc<Mutex<VecDeque<Status>>>,
    pub asked: Arc<Mutex<Vec<(MetadataMap, Order)>>>,
}

impl Scripted {
    pub fn failing(failures: impl IntoIterator<Item = Status>) -> Self {
        let failures = Arc::new(Mutex::new(failures.into_iter().collect()));
        Self { failures, asked: Arc::default() }
    }

    pub fn calls(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// The values of a metadata key, one for each call.
    pub fn asked_with(&self, key: &str) -> Vec<Option<String>> {
        let text = |metadata: &MetadataMap| {
            metadata.get(key).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        self.asked.lock().unwrap().iter().map(|(metadata, _)| text(metadata)).collect()
    }
}

#[tonic::async_trait]
impl Orders for Scripted {
    async fn get(&self, request: Request<Order>) -> Result<Response<Order>, Status> {
        let metadata = request.metadata().clone();
        let order = request.into_inner();
        self.asked.lock().unwrap().push((metadata, order.clone()));
        match self.failures.lock().unwrap().pop_front() {
            Some(status) => Err(status),
            None => Ok(Response::new(order)),
        }
    }
}

/// A tonic server.
pub async fn serve<T: Orders>(orders: T) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(OrdersServer::new(orders));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

pub fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// A server made of h2 alone, that answers each request with `script`; the number of the request on
/// all connections comes first.
pub async fn serve_h2<F, Fut>(script: F) -> SocketAddr
where
    F: Fn(usize, http::Request<h2::RecvStream>, h2::server::SendResponse<Bytes>) -> Fut
        + Clone
        + Send
        + Sync
        + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let (script, count) = (script.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    tokio::spawn(script(number, request, respond));
                }
            });
        }
    });
    address
}

/// Headers without a status.
pub fn bare_headers() -> http::Response<()> {
    http::Response::builder().header("content-type", "application/grpc").body(()).unwrap()
}

pub fn status_headers(lines: &[(&'static str, &str)]) -> http::HeaderMap {
    let line = |(name, value): &(&'static str, &str)| {
        (http::HeaderName::from_static(name), value.parse().unwrap())
    };
    lines.iter().map(line).collect()
}

/// A message of gRPC: not compressed, and its length.
pub fn message(order: &Order) -> Bytes {
    let encoded = prost::Message::encode_to_vec(order);
    let length = u32::try_from(encoded.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &encoded].concat().into()
}

/// Three attempts at once, so that no test sleeps.
pub fn at_once() -> RetryPlan {
    let mut policy = RetryPolicy::default();
    for class in [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Throttled] {
        policy = policy.retry(class, ClassRule::new(Backoff::immediate()));
    }
    policy.build().unwrap()
}

type Body = tonic::body::Body;

/// A client over the stack of the README, and where its type is written down.
pub type Client = orders::OrdersClient<
    tower::util::BoxCloneSyncService<
        http::Request<Body>,
        http::Response<tower_triage_grpc::PeekBody<Body>>,
        tower_triage_core::AnyError,
    >,
>;

/// The stack of the README, with retries at once.
pub fn client(
    rules: tower_triage_grpc::GrpcRules,
    replay: tower_triage_grpc::GrpcReplay,
    channel: Channel,
) -> Client {
    let retry = tower_triage_retry::RetryLayer::new(tower_triage_core::Classifier::new(rules))
        .policy(at_once())
        .replay(replay);
    let stack = tower::ServiceBuilder::new()
        .map_err(tower_triage_grpc::with_status)
        .layer(tower_triage_grpc::ReplayBodyLayer::new())
        .layer(retry)
        .layer(tower_triage_grpc::PeekLayer::new())
        .map_request(|request: http::Request<_>| request.map(Body::new))
        .map_err(tower_triage_core::AnyError::from)
        .service(channel);
    orders::OrdersClient::new(tower::util::BoxCloneSyncService::new(stack))
}

/// What would hang fails instead.
pub async fn soon<F: Future>(future: F) -> F::Output {
    let limit = std::time::Duration::from_secs(20);
    tokio::time::timeout(limit, future).await.expect("an answer within 20 s")
}
