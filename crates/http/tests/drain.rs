//! Failed responses and the connections that they hold, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt};
use tower_triage_core::{AnyError, Backoff, Classifier};
use tower_triage_http::{HttpReplay, http};
use tower_triage_retry::budget::Budget;
use tower_triage_retry::{RetryLayer, RetryPolicy};

/// What a server saw of its connections.
#[derive(Default)]
struct Connections {
    opened: AtomicUsize,
    requests: AtomicUsize,
}

/// Serves HTTP/1.1 by hand: two requests of three are answered by `refuse`, the third by a 200.
/// The channel tells of each connection that ended.
async fn server(
    refuse: impl AsyncRefuse,
) -> (SocketAddr, Arc<Connections>, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(Connections::default());
    let (ended, ends) = mpsc::unbounded_channel();
    let seen = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            seen.opened.fetch_add(1, Ordering::Relaxed);
            let (seen, refuse, ended) = (Arc::clone(&seen), refuse.clone(), ended.clone());
            tokio::spawn(async move {
                while read_head(&mut stream).await.is_ok() {
                    let number = seen.requests.fetch_add(1, Ordering::Relaxed);
                    let sent = if number % 3 == 2 {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await
                    } else {
                        refuse.answer(&mut stream).await
                    };
                    if sent.is_err() {
                        break;
                    }
                }
                let _ = ended.send(());
            });
        }
    });
    (address, connections, ends)
}

async fn read_head(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(())
}

/// How a request is refused.
trait AsyncRefuse: Clone + Send + 'static {
    fn answer(&self, stream: &mut TcpStream) -> impl Future<Output = std::io::Result<()>> + Send;
}

/// 503 with 20 KiB, which come piece by piece: what has arrived when a response is dropped, hyper
/// drains by itself.
#[derive(Clone)]
struct Small;

impl AsyncRefuse for Small {
    async fn answer(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        stream.write_all(b"HTTP/1.1 503 Down\r\ncontent-length: 20480\r\n\r\n").await?;
        for _ in 0..20 {
            tokio::task::yield_now().await;
            stream.write_all(&[b'x'; 1024]).await?;
        }
        Ok(())
    }
}

/// 503 with a body that goes on until the client has had enough.
#[derive(Clone)]
struct Endless;

impl AsyncRefuse for Endless {
    async fn answer(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.write_all(b"HTTP/1.1 503 Down\r\ntransfer-encoding: chunked\r\n\r\n").await?;
        let mut chunk = b"1000\r\n".to_vec();
        chunk.resize(chunk.len() + 0x1000, b'x');
        chunk.extend(b"\r\n");
        loop {
            stream.write_all(&chunk).await?;
        }
    }
}

/// Sends `count` requests, one after the other, each refused twice.
async fn send(count: usize, address: SocketAddr) {
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let plan = RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap();
    let mut stack = RetryLayer::new(Classifier::new(http()))
        .policy(plan)
        .budget(Budget::unlimited())
        .replay(HttpReplay::new())
        .layer(client.map_err(AnyError::from));
    for _ in 0..count {
        let request = http::Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
        let response = stack.ready().await.unwrap();
        let response = tower::Service::call(response, request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
    }
}

#[tokio::test]
async fn kf17_discarded_responses_release_their_connection() {
    const COUNT: usize = 1000;
    let (address, connections, _ends) = server(Small).await;
    // Spawned, as users do it.
    tokio::spawn(send(COUNT, address)).await.unwrap();
    assert_eq!(connections.requests.load(Ordering::Relaxed), 3 * COUNT);
    // A drained connection goes back to the pool a moment after its last byte was read, so now and
    // then the next attempt is quicker and opens one more.
    let opened = connections.opened.load(Ordering::Relaxed);
    assert!(opened < COUNT / 10, "{opened} connections");
}

#[tokio::test]
async fn kf17_an_endless_body_is_given_up() {
    const COUNT: usize = 5;
    let (address, connections, mut ends) = server(Endless).await;
    send(COUNT, address).await;
    assert_eq!(connections.requests.load(Ordering::Relaxed), 3 * COUNT);
    // Each refusal ends only when the client drops its connection.
    for _ in 0..2 * COUNT {
        ends.recv().await.unwrap();
    }
}

/// Over HTTP/2 a discarded response costs its stream and nothing else.
#[tokio::test]
async fn kf17_over_http_2_discarded_responses_cost_no_connection() {
    use http::{Request, Response};
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::Incoming;
    use hyper::server::conn::http2;
    use hyper_util::rt::TokioIo;

    const COUNT: usize = 100;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(Connections::default());
    let (ended, mut ends) = mpsc::unbounded_channel();
    let seen = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            seen.opened.fetch_add(1, Ordering::Relaxed);
            let (seen, ended) = (Arc::clone(&seen), ended.clone());
            let service = hyper::service::service_fn(move |_: Request<Incoming>| {
                let refused = seen.requests.fetch_add(1, Ordering::Relaxed) % 3 != 2;
                // Told when the body is let go.
                let told = Told(refused.then(|| ended.clone()));
                let frames = futures_util::stream::poll_fn(move |_| {
                    let more = told.0.is_some();
                    let frame = http_body::Frame::data(Bytes::from_static(&[b'x'; 4096]));
                    std::task::Poll::Ready(more.then_some(Ok::<_, std::convert::Infallible>(frame)))
                });
                let status = if refused { 503 } else { 200 };
                let body = StreamBody::new(frames);
                let response = Response::builder().status(status).body(body).unwrap();
                async move { Ok::<_, std::convert::Infallible>(response) }
            });
            let server = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });

    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let plan = RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap();
    let stack = RetryLayer::new(Classifier::new(http()))
        .policy(plan)
        .budget(Budget::unlimited())
        .replay(HttpReplay::new())
        .layer(client.map_err(AnyError::from));
    for _ in 0..COUNT {
        let request = Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
        let response = stack.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(connections.requests.load(Ordering::Relaxed), 3 * COUNT);
    assert_eq!(connections.opened.load(Ordering::Relaxed), 1);
    // Each endless body ended with its stream.
    for _ in 0..2 * COUNT {
        ends.recv().await.unwrap();
    }
}

struct Told(Option<mpsc::UnboundedSender<()>>);

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(ended) = self.0.take() {
            let _ = ended.send(());
        }
    }
}
