//! Over HTTP/2 a reset may look like a clean end: what had said nothing is repeated all the same.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{AnyError, Backoff, Classifier, incident};
use tower_triage_http::HttpReplay;
use tower_triage_llm::{PeekLayer, llm};
use tower_triage_retry::{RetryLayer, RetryPolicy};

const GREETING: &str = "data: {\"type\":\"message_start\"}\n\n";
const TOKEN: &str = "data: {\"type\":\"content_block_delta\"}\n\n";

/// Sends `first` and resets the stream; answers the second request.
async fn provider(first: &'static str, reason: Reason) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let call = seen.fetch_add(1, Ordering::Relaxed);
            let head = http::Response::builder().header("content-type", "text/event-stream");
            let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
            if call > 0 {
                body.send_data(Bytes::from([GREETING, TOKEN].concat()), true).unwrap();
                continue;
            }
            body.send_data(Bytes::from(first), false).unwrap();
            tokio::spawn(async move {
                // Once the data are on their way.
                let _ = std::future::poll_fn(|cx| {
                    body.reserve_capacity(1);
                    body.poll_capacity(cx)
                })
                .await;
                tokio::task::yield_now().await;
                body.send_reset(reason);
            });
        }
    });
    (address, calls)
}

/// The answer, and why an attempt failed.
async fn ask(address: SocketAddr) -> (Bytes, Option<&'static str>) {
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let plan = RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Classifier::new(llm())).policy(plan).replay(HttpReplay::new()))
        .layer(PeekLayer::new())
        .map_err(AnyError::from)
        .service(client);
    let request =
        http::Request::post(format!("http://{address}/v1/messages")).body(Full::default()).unwrap();
    let (response, incident) = incident::scope(stack.oneshot(request)).await;
    let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
    (body, incident.and_then(|incident| incident.failure).map(|failure| failure.reason))
}

#[tokio::test]
async fn a_reset_before_the_first_token_is_repeated_whatever_it_looks_like() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        let (address, calls) = provider(GREETING, reason).await;
        let (body, why) = ask(address).await;
        assert_eq!(body, [GREETING, TOKEN].concat(), "{reason}");
        assert_eq!((calls.load(Ordering::Relaxed), why), (2, Some("llm_cut_off")), "{reason}");
    }
}
