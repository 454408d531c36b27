//! The stack around real servers and clients: axum under `axum::serve`, hyper-util on top.

mod common;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use common::{classifier, desk, opens_at};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage::http::{HttpReplay, http};
use tower_triage::{
    AnyError, AnyOk, CircuitBreakerLayer, CircuitOpen, ClassSet, Classifier, Desk, ErrorClass,
    EscalateLayer, Failure, FallbackLayer, Halves, OwnError, RetryLayer, ToFailure, preset,
};
use tower_triage_test_support::scripted;

/// Serves `app` on loopback, a new connection for each request of the client below.
async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn fetch(address: SocketAddr) -> Response<Incoming> {
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new()).unwrap();
    client.request(request).await.unwrap()
}

/// The router applies the layer per route and per connection; the state stays one, and the
/// rejection reaches the client as 503 with the time to wait.
#[tokio::test]
async fn kf06_a_rejection_is_a_503_with_retry_after_under_axum() {
    let handled = Arc::new(AtomicUsize::new(0));
    let handler = {
        let handled = Arc::clone(&handled);
        move || {
            handled.fetch_add(1, Ordering::Relaxed);
            async { StatusCode::INTERNAL_SERVER_ERROR }
        }
    };
    let layer = preset::http_server(Classifier::new(http()), Desk::log())
        .breaker(|breaker| breaker.policy(opens_at(5)));
    let app = Router::new().route("/", get(handler)).layer(layer);
    let address = serve(app).await;

    for _ in 0..5 {
        assert_eq!(fetch(address).await.status(), 500);
    }
    for _ in 0..3 {
        let response = fetch(address).await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
    }
    assert_eq!(handled.load(Ordering::Relaxed), 5, "five connections, one state");
}

#[derive(Debug)]
enum ShopError {
    SoldOut { item: u32 },
    Open(CircuitOpen),
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for ShopError {}

impl From<CircuitOpen> for ShopError {
    fn from(open: CircuitOpen) -> Self {
        Self::Open(open)
    }
}

impl ToFailure for ShopError {
    fn to_failure(&self) -> Failure {
        match self {
            Self::SoldOut { .. } => ErrorClass::Transient.into(),
            Self::Open(_) => ErrorClass::Rejected.into(),
        }
    }
}

/// A request and a response that are no `Clone`: only what repeats a request asks for more.
struct Order(#[expect(dead_code, reason = "what the order is of does not matter")] u32);
#[derive(Debug)]
struct Receipt;

#[tokio::test(start_paused = true)]
async fn kf06_a_users_own_error_is_reached_by_match() {
    let (desk, _letters) = desk();
    let classifier = Classifier::new(Halves { response: AnyOk, error: OwnError });
    let inner = scripted::<Order, Receipt, ShopError, _>([|| Err(ShopError::SoldOut { item: 7 })]);
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(
            FallbackLayer::new(classifier.clone())
                .or_call(ErrorClass::Quota, |_| std::future::ready(Ok(Receipt))),
        )
        .layer(CircuitBreakerLayer::new(classifier).policy(opens_at(1)))
        .service(inner);
    let first = stack.clone().oneshot(Order(1)).await.unwrap_err();
    assert!(matches!(first, ShopError::SoldOut { item: 7 }));
    let second = stack.oneshot(Order(2)).await.unwrap_err();
    assert!(matches!(second, ShopError::Open(open) if open.retry_after().as_secs() == 1));
}

type Boxed = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, AnyError>;

fn full_stack(backup: SocketAddr) -> Boxed {
    let (classifier, _) = common::watched(http());
    let pool = || Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let to_backup = move |mut request: Request<Full<Bytes>>,
                          _: tower_triage::fallback::Failed<'_, _, _>| {
        *request.uri_mut() = format!("http://{backup}/").parse().unwrap();
        request
    };
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), Desk::log()))
        .layer(FallbackLayer::new(classifier.clone()).or_service_with(
            ClassSet::bypassable(),
            ServiceBuilder::new().map_err(AnyError::from).service(pool()),
            to_backup,
        ))
        .layer(RetryLayer::new(classifier.clone()).replay(HttpReplay::new()))
        .layer(CircuitBreakerLayer::new(classifier))
        .map_err(AnyError::from)
        .service(pool());
    BoxCloneSyncService::new(stack)
}

/// The full stack, boxed, is an axum handler's state and shared between tasks; the primary is down.
#[tokio::test]
async fn kf05_the_stack_boxes_as_a_clone_sync_service_in_an_axum_handler() {
    let backup = serve(Router::new().route("/", get(async || "backup"))).await;
    let primary = tower_triage_test_support::closed_port();

    let proxy = async move |state: axum::extract::State<Boxed>| {
        let request = Request::get(format!("http://{primary}/")).body(Full::default()).unwrap();
        let response = state.0.oneshot(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        let body = response.into_body().collect().await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok::<_, StatusCode>(body.to_bytes())
    };
    let app = Router::new().route("/", get(proxy)).with_state(full_stack(backup));
    let front = serve(app).await;
    let calls: Vec<_> = (0..4).map(|_| tokio::spawn(fetch(front))).collect();
    for call in calls {
        let response = call.await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "backup");
    }
}

/// The layers one by one ask for no more than they use; their futures are `Send` with the inner's.
#[test]
fn kf05_no_needless_bounds() {
    fn served<Req, S>(service: S) -> S
    where
        S: tower::Service<Req, Future: Send> + Clone + Send + Sync + 'static,
    {
        service
    }
    let (classifier, _) = classifier();
    let inner = scripted::<Order, Receipt, AnyError, _>([|| Ok(Receipt)]);
    let builder = ServiceBuilder::new();
    served::<Order, _>(
        builder.layer(CircuitBreakerLayer::new(classifier.clone())).service(inner.clone()),
    );
    served::<Order, _>(
        ServiceBuilder::new()
            .layer(EscalateLayer::new(classifier.clone(), Desk::log()))
            .service(inner.clone()),
    );
    served::<Order, _>(
        ServiceBuilder::new()
            .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Quota, |_| Receipt))
            .service(inner.clone()),
    );
    // A retry over a request that is no `Clone`, told to send it once.
    served::<Order, _>(
        ServiceBuilder::new()
            .layer(RetryLayer::new(classifier).replay(tower_triage::retry::Never))
            .service(inner),
    );
}

/// Infallible stays infallible, through every layer.
#[tokio::test]
async fn an_infallible_service_stays_so() {
    let classifier = Classifier::new(http());
    let stack = ServiceBuilder::new().layer(preset::http_server(classifier, Desk::log())).service(
        scripted::<Request<()>, Response<String>, Infallible, _>([|| {
            Ok(Response::new("fine".to_owned()))
        }]),
    );
    let Ok(response) = stack.oneshot(Request::new(())).await;
    assert_eq!(response.body(), "fine");
}
