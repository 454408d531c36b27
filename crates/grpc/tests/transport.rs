//! Connections that fail: refused, reset, closed when idle, shut down, never answered.

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tower::ServiceExt;
use tower_triage_core::{
    AnyError, BoxError, Classify, ClassifyError, Disposition, ErrorClass, Failure, Vote,
};
use tower_triage_grpc::{GrpcErrors, GrpcReplay, GrpcRulesExt, ServiceConfig, grpc};

use crate::common::orders::Order;
use crate::common::{
    Client, Scripted, bare_headers, channel, client, message, serve, serve_h2, soon, status_headers,
};

fn marked(address: SocketAddr) -> Client {
    client(grpc().repeatable_methods(["shop.Orders"]), GrpcReplay::new(), channel(address))
}

fn unmarked(address: SocketAddr) -> Client {
    client(grpc(), GrpcReplay::new(), channel(address))
}

/// The failure of a call straight into the channel, judged through every type that may hold it.
async fn failure(endpoint: Endpoint) -> Failure {
    let request = http::Request::post("/shop.Orders/Get").body(tonic::body::Body::empty()).unwrap();
    let error = endpoint.connect_lazy().oneshot(request).await.expect_err("nobody answers");
    let bare = GrpcErrors.error(&error);
    let any = AnyError::from(error);
    let outcome: Result<&http::Response<()>, _> = Err(&any);
    assert_eq!(grpc().classify(outcome), bare.into());
    let boxed = any.into_inner();
    assert_eq!(GrpcErrors.error(&boxed), bare);
    let twice: BoxError = std::io::Error::other(std::io::Error::other(boxed)).into();
    assert_eq!(GrpcErrors.error(&twice), bare);
    // As a generated client sees it.
    assert_eq!(GrpcErrors.error(&Status::from_error(twice)), bare);
    bare
}

fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::from_shared(format!("http://{address}")).unwrap()
}

/// Accepts connections and hands them to `script`.
async fn listen<F, Fut>(script: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(script(stream));
        }
    });
    (address, connections)
}

#[tokio::test]
async fn a_refused_connection_was_not_sent() {
    let address = tower_triage_test_support::closed_port();
    let failure = failure(endpoint(address)).await;
    assert_eq!((failure.class, failure.disposition), (ErrorClass::Transient, Disposition::NotSent));
    assert_eq!((failure.vote, failure.reason), (Vote::Failure, "connection_refused"));
    let status = soon(unmarked(address).get(Order::new("17"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

/// Refused first; then somebody listens.
#[tokio::test]
async fn what_was_not_sent_is_repeated_also_unmarked() {
    let address = tower_triage_test_support::closed_port();
    let attempts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&attempts);
    // The connector is asked for each attempt.
    let connector = tower::service_fn(move |_: http::Uri| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            let stream = match number {
                0 | 1 => TcpStream::connect(address).await,
                _ => TcpStream::connect(serve(Scripted::default()).await).await,
            };
            stream.map(hyper_util::rt::TokioIo::new)
        }
    });
    let channel = endpoint(address).connect_with_connector_lazy(connector);
    let mut client = client(grpc(), GrpcReplay::new(), channel);
    assert_eq!(soon(client.get(Order::new("17"))).await.unwrap().into_inner(), Order::new("17"));
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
}

/// KF-18 for gRPC: the server has read the call, and is gone.
#[tokio::test]
async fn kf18_a_call_whose_fate_is_unknown_is_not_repeated_unmarked() {
    let calls = Arc::new(Mutex::new(0));
    let count = Arc::clone(&calls);
    let (address, connections) = listen(move |stream| {
        let count = Arc::clone(&count);
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (mut request, respond) = connection.accept().await.unwrap().unwrap();
            // Only a connection that is driven gives data.
            tokio::select! {
                _ = connection.accept() => {}
                _ = async { while request.body_mut().data().await.is_some() {} } => {}
            }
            *count.lock().unwrap() += 1;
            drop((connection, respond));
        }
    })
    .await;
    let status = soon(unmarked(address).get(Order::new("17"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!((*calls.lock().unwrap(), connections.load(Ordering::SeqCst)), (1, 1));
    assert!(soon(marked(address).get(Order::new("17"))).await.is_err());
    assert_eq!(*calls.lock().unwrap(), 4);
}

#[tokio::test]
async fn a_reset_after_the_call_was_read_may_be_processed() {
    let (address, _) = listen(|stream: TcpStream| async move {
        // A reset instead of an orderly end, once it is dropped.
        stream.set_zero_linger().unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let _call = connection.accept().await.unwrap().unwrap();
    })
    .await;
    let failure = failure(endpoint(address)).await;
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::MaybeProcessed, "{failure:?}");
    assert_eq!(failure.vote, Vote::Failure);
}

/// What never left us is resent under a policy: not for ever, and not faster and faster.
#[tokio::test]
async fn a_peer_that_drops_every_connection_is_not_stormed() {
    let (address, connections) = listen(|stream: TcpStream| async move {
        stream.set_zero_linger().unwrap();
    })
    .await;
    let config = ServiceConfig::parse(r#"{"methodConfig": [{"name": [{}]}]}"#).unwrap();
    let mut client = client(grpc(), GrpcReplay::new().service_config(config), channel(address));
    let mut request = tonic::Request::new(Order::new("17"));
    request.set_timeout(Duration::from_millis(500));
    let status = soon(client.get(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    // 0, 10, 20, 40, .. ms, each no less than half of it.
    assert!(connections.load(Ordering::SeqCst) < 20);
}

/// Not gRPC, not even HTTP/2.
#[tokio::test]
async fn a_peer_that_speaks_something_else_is_a_defect() {
    let (address, _) = listen(|mut stream: TcpStream| async move {
        use tokio::io::AsyncWriteExt;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
    })
    .await;
    let failure = failure(endpoint(address)).await;
    assert_eq!(failure.class, ErrorClass::Internal, "{failure:?}");
}

#[tokio::test]
async fn tonics_own_timeout_is_a_timeout() {
    let (address, _) = listen(|mut stream: TcpStream| async move {
        while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
    })
    .await;
    let slow = endpoint(address).timeout(Duration::from_millis(50));
    let failure = failure(slow.clone()).await;
    assert_eq!((failure.class, failure.reason), (ErrorClass::Timeout, "elapsed"));
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
    // tonic itself would say CANCELLED.
    let mut client = client(grpc(), GrpcReplay::new(), slow.connect_lazy());
    let status = soon(client.get(Order::new("17"))).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

fn answer(mut respond: SendResponse<Bytes>) {
    let mut stream = respond.send_response(bare_headers(), false).unwrap();
    stream.send_data(message(&Order::new("17")), false).unwrap();
    stream.send_trailers(status_headers(&[("grpc-status", "0")])).unwrap();
}

/// The reset streams, and what the calls said of attempts before them.
async fn refusing(reason: Reason, times: usize) -> (SocketAddr, Arc<Mutex<Vec<Option<String>>>>) {
    let headers: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let seen = Arc::clone(&headers);
    let address = serve_h2(move |number, request: http::Request<h2::RecvStream>, mut respond| {
        let before = request.headers().get("grpc-previous-rpc-attempts");
        seen.lock().unwrap().push(before.map(|value| value.to_str().unwrap().to_owned()));
        async move {
            match number < times {
                true => respond.send_reset(reason),
                false => answer(respond),
            }
        }
    })
    .await;
    (address, headers)
}

#[tokio::test]
async fn a_refused_stream_is_repeated_also_unmarked() {
    let (address, headers) = refusing(Reason::REFUSED_STREAM, 2).await;
    assert!(soon(unmarked(address).get(Order::new("17"))).await.is_ok());
    assert_eq!(*headers.lock().unwrap(), [None, Some("1".into()), Some("2".into())]);
}

/// gRPC A6: once, at once, uncounted; then by the policy, which here repeats nothing.
#[tokio::test]
async fn a_refused_stream_is_resent_once_and_uncounted_under_a_policy() {
    let config = || ServiceConfig::parse(r#"{"methodConfig": [{"name": [{}]}]}"#).unwrap();
    for (times, succeeds) in [(1, true), (2, false)] {
        let (address, headers) = refusing(Reason::REFUSED_STREAM, times).await;
        let replay = GrpcReplay::new().service_config(config());
        let answer = client(grpc(), replay, channel(address)).get(Order::new("17")).await;
        assert_eq!(answer.is_ok(), succeeds);
        assert_eq!(*headers.lock().unwrap(), [None, None]);
    }
}

#[tokio::test]
async fn other_resets_are_repeated_only_if_marked() {
    let (address, headers) = refusing(Reason::INTERNAL_ERROR, 1).await;
    assert!(soon(marked(address).get(Order::new("17"))).await.is_ok());
    assert_eq!(headers.lock().unwrap().len(), 2);

    let (address, headers) = refusing(Reason::INTERNAL_ERROR, 1).await;
    assert!(soon(unmarked(address).get(Order::new("17"))).await.is_err());
    assert_eq!(headers.lock().unwrap().len(), 1);

    let (address, headers) = refusing(Reason::PROTOCOL_ERROR, 1).await;
    assert!(soon(marked(address).get(Order::new("17"))).await.is_err());
    assert_eq!(headers.lock().unwrap().len(), 1);
}

/// A server that shuts down gracefully after its first call, on every connection: GOAWAY, and the
/// connection closes once the call is answered.
#[tokio::test]
async fn kf19_calls_survive_connections_that_are_shut_down_between_them() {
    let (address, connections) = listen(|stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        if let Some(Ok((mut request, respond))) = connection.accept().await {
            tokio::select! {
                _ = connection.accept() => {}
                _ = async { while request.body_mut().data().await.is_some() {} } => {}
            }
            answer(respond);
            connection.graceful_shutdown();
            while connection.accept().await.is_some() {}
        }
    })
    .await;
    let mut client = marked(address);
    for _ in 0..10 {
        assert_eq!(
            soon(client.get(Order::new("17"))).await.unwrap().into_inner(),
            Order::new("17")
        );
    }
    assert_eq!(connections.load(Ordering::SeqCst), 10);
}

/// Closed without a word, when the client does not look.
#[tokio::test]
async fn kf19_calls_survive_idle_connections_that_are_cut() {
    let (address, connections) = listen(|stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        if let Some(Ok((mut request, respond))) = connection.accept().await {
            tokio::select! {
                _ = connection.accept() => {}
                _ = async { while request.body_mut().data().await.is_some() {} } => {}
            }
            answer(respond);
            // The answer leaves while the connection is driven; the client's next frame is the end.
            let _ = tokio::time::timeout(Duration::from_millis(20), connection.accept()).await;
        }
    })
    .await;
    let mut client = marked(address);
    for _ in 0..5 {
        assert_eq!(
            soon(client.get(Order::new("17"))).await.unwrap().into_inner(),
            Order::new("17")
        );
    }
    assert!(connections.load(Ordering::SeqCst) >= 1);
}

/// Sends without an end, until the peer has had enough.
async fn send_for_ever(mut stream: h2::SendStream<Bytes>) {
    loop {
        stream.reserve_capacity(1024);
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(bytes)) if stream.send_data(vec![7; bytes].into(), false).is_ok() => {}
            _ => return,
        }
    }
}

/// Every second answer is a page that does not end. There is room for four streams, so that a few
/// that are left behind would hold up all that follow.
#[tokio::test]
async fn kf17_failed_calls_leave_nothing_behind() {
    let endless = Arc::new(AtomicUsize::new(0));
    let running = Arc::clone(&endless);
    let (address, connections) = listen(move |stream: TcpStream| {
        let running = Arc::clone(&running);
        async move {
            let mut connection = h2::server::Builder::new()
                .max_concurrent_streams(4)
                .handshake::<_, Bytes>(stream)
                .await
                .unwrap();
            let mut number = 0;
            while let Some(Ok((_request, mut respond))) = connection.accept().await {
                number += 1;
                if number % 2 == 0 {
                    let mut stream = respond.send_response(bare_headers(), false).unwrap();
                    stream.send_trailers(status_headers(&[("grpc-status", "14")])).unwrap();
                    continue;
                }
                let page =
                    http::Response::builder().status(503).header("content-type", "text/html");
                let stream = respond.send_response(page.body(()).unwrap(), false).unwrap();
                running.fetch_add(1, Ordering::SeqCst);
                let running = Arc::clone(&running);
                tokio::spawn(async move {
                    send_for_ever(stream).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
    })
    .await;
    let mut client = marked(address);
    for _ in 0..400 {
        // Of a page that it is given at last tonic makes what it can.
        assert!(soon(client.get(Order::new("17"))).await.is_err());
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    soon(async {
        while endless.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
