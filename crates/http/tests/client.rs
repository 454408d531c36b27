//! A real client under retry: what the server sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};
use tower_triage_core::{AnyError, Backoff, Classifier, Disposition, Refusal, StepKind};
use tower_triage_http::{HttpReplay, http};
use tower_triage_retry::{RetryLayer, RetryPolicy};

/// Sends one request to a server that reads each request with its three bytes of body, and then
/// closes without an answer, but for its second one. Gives the outcome and what the server saw.
async fn send(method: Method) -> (Result<u16, AnyError>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let performed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&performed);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"abc") {
                request.push(stream.read_u8().await.unwrap());
            }
            if seen.fetch_add(1, Ordering::Relaxed) == 1 {
                stream.write_all(b"HTTP/1.1 204 Done\r\n\r\n").await.unwrap();
            }
        }
    });

    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let plan = RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap();
    let stack = RetryLayer::new(Classifier::new(http()))
        .policy(plan)
        .replay(HttpReplay::new())
        .layer(client.map_err(AnyError::from));
    let request = http::Request::builder()
        .method(method)
        .uri(format!("http://{address}/orders"))
        .body(Full::from("abc"))
        .unwrap();
    let outcome = stack.oneshot(request).await.map(|response| response.status().as_u16());
    (outcome, performed.load(Ordering::Relaxed))
}

#[tokio::test]
async fn kf18_unsafe_methods_are_not_repeated_by_default() {
    let (outcome, performed) = send(Method::POST).await;
    let error = outcome.unwrap_err();
    assert_eq!(performed, 1, "the server sees it once");
    assert!(error.downcast_ref::<ClientError>().is_some(), "the error passes unchanged");
    let steps = &error.incident().unwrap().steps;
    assert!(steps.iter().any(|step| matches!(
        &step.kind,
        StepKind::Failed { failure, .. } if failure.disposition == Disposition::MaybeProcessed
    )));
    assert!(
        steps
            .iter()
            .any(|step| matches!(&step.kind, StepKind::NotRetried { why: Refusal::NotIdempotent }))
    );

    for method in [Method::PUT, Method::DELETE] {
        let (outcome, performed) = send(method).await;
        assert_eq!((outcome.unwrap(), performed), (204, 2));
    }
}
