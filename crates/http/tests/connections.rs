//! Failing requests leave no connection behind, whatever way the server fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_circuit_breaker::CircuitBreakerLayer;
use tower_triage_core::{AnyError, Backoff, Classifier};
use tower_triage_http::{HttpReplay, WatchBodyLayer, http};
use tower_triage_retry::budget::Budget;
use tower_triage_retry::{RetryLayer, RetryPolicy};
use tower_triage_timeout::{TimeoutLayer, TimeoutPolicy};

const REQUESTS: usize = 1000;
const AT_ONCE: usize = 20;

/// The ways in which a request fails, in turn.
const WAYS: usize = 7;

async fn read_head(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(())
}

/// Waits until the client hangs up.
async fn until_closed(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

/// Fails one request; an error ends the connection.
async fn fail(stream: &mut TcpStream, way: usize) -> std::io::Result<()> {
    let ended = Err(std::io::ErrorKind::ConnectionAborted.into());
    match way {
        0 => stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy").await,
        1 => {
            // Endless, and too much to drain.
            stream.write_all(b"HTTP/1.1 500 Down\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            loop {
                stream.write_all(b"400\r\n").await?;
                stream.write_all(&[b'x'; 0x400]).await?;
                stream.write_all(b"\r\n").await?;
            }
        }
        2 => {
            stream.set_zero_linger()?;
            ended
        }
        3 => ended,
        4 => {
            // Half an answer, and the rest never comes.
            stream.write_all(b"HTTP/1.1 502 Half\r\ncontent-length: 10\r\n\r\nhalf").await?;
            until_closed(stream).await
        }
        5 => {
            // A success that breaks off in its body.
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await?;
            ended
        }
        _ => until_closed(stream).await,
    }
}

/// Serves failures; tells how many connections are open.
async fn server() -> (SocketAddr, watch::Receiver<usize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (open, opened) = watch::channel(0);
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            open.send_modify(|open| *open += 1);
            let (open, counted) = (open.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                while read_head(&mut stream).await.is_ok() {
                    let number = counted.fetch_add(1, Ordering::Relaxed);
                    if fail(&mut stream, number % WAYS).await.is_err() {
                        break;
                    }
                }
                drop(stream);
                open.send_modify(|open| *open -= 1);
            });
        }
    });
    (address, opened, requests)
}

#[tokio::test]
async fn kf17_a_thousand_failing_requests_leave_no_connection_behind() {
    let (address, mut open, requests) = server().await;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let classifier = Classifier::new(http());
    let plan = RetryPolicy::default().attempts(2).backoff(&Backoff::immediate()).build().unwrap();
    let limit = Duration::from_millis(200);
    let hard = TimeoutPolicy::new(limit).grace(Duration::ZERO).build().unwrap();
    let breaker = CircuitBreakerLayer::new(classifier.clone());
    // It counts and lets everything through.
    breaker.handle().disable();
    let drain = HttpReplay::new().drain_time(Duration::from_millis(50));
    let retry = RetryLayer::new(classifier.clone()).policy(plan).budget(Budget::unlimited());
    let stack = ServiceBuilder::new()
        .layer(WatchBodyLayer::new(classifier.clone()))
        .layer(retry.replay(drain))
        .layer(breaker)
        .layer(TimeoutLayer::new(classifier, limit).unwrap().policy(hard))
        .map_err(AnyError::from)
        .service(client.clone());

    let callers = (0..AT_ONCE).map(|_| {
        let stack = stack.clone();
        tokio::spawn(async move {
            for _ in 0..REQUESTS / AT_ONCE {
                let request =
                    Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
                if let Ok(response) = stack.clone().oneshot(request).await {
                    if response.status() == 200 {
                        response.into_body().collect().await.unwrap_err();
                    }
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert!(requests.load(Ordering::Relaxed) > REQUESTS, "{requests:?}");
    // What is left may be idle in the pool, and no more than were in use at once.
    open.wait_for(|open| *open <= AT_ONCE).await.unwrap();
    drop((stack, client));
    open.wait_for(|open| *open == 0).await.unwrap();
}
