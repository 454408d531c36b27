//! What an escalation tells of an HTTP request, kept by the retry or not.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder, ServiceExt as _, service_fn};
use tower_triage::http::{HttpReplay, Unavailable, http};
use tower_triage::{AnyError, CircuitBreakerLayer, Escalation, FuseLayer, RetryLayer};
use tower_triage::{Classifier, EscalateLayer};

use crate::common::{attempts, desk};

async fn letter(method: Method, fused: bool) -> Escalation {
    let classifier = Classifier::new(http());
    let (desk, mut letters) = desk();
    let layers = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(RetryLayer::new(classifier.clone()).replay(HttpReplay::new()).policy(attempts(2)))
        .layer(CircuitBreakerLayer::new(classifier.clone()).reject_with(Unavailable))
        .into_inner();
    let server = service_fn(async |_: Request<Full<Bytes>>| {
        let mut response = Response::new(Empty::<Bytes>::new());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        Ok::<_, AnyError>(response)
    });
    let stack = match fused {
        true => BoxCloneSyncService::new(FuseLayer::new(classifier, layers).layer(server)),
        false => BoxCloneSyncService::new(layers.layer(server)),
    };
    let request = Request::builder()
        .method(method)
        .uri("http://example.com/orders/17?q=1")
        .header("x-request-id", "r-1")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .body(Full::new(Bytes::from_static(b"x")))
        .unwrap();
    _ = stack.oneshot(request).await;
    letters.recv().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_request_is_told_of_in_the_same_words() {
    for method in [Method::GET, Method::POST] {
        let (layers, fused) =
            (letter(method.clone(), false).await, letter(method.clone(), true).await);
        assert_eq!(fused.method.as_deref(), Some(method.as_str()));
        assert_eq!(fused.method, layers.method);
        assert_eq!(fused.target, layers.target);
        assert!(fused.target.is_some_and(|target| target.contains("/orders/17")));
        assert_eq!(fused.operation, layers.operation);
        assert_eq!(fused.id, layers.id, "made of operation and request id");
        assert_eq!(fused.context, layers.context);
        assert_eq!(fused.context.request_id.as_deref(), Some("r-1"));
        assert!(fused.context.traceparent.is_some());
        assert_eq!(fused.attempts, layers.attempts);
        let repeated = fused.attempts.len();
        assert_eq!(repeated, if method == Method::GET { 2 } else { 1 });
    }
}
