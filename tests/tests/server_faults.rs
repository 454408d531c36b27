//! What happens to a server: clients that hang up, handlers that hang, routers and servers that apply
//! a layer over and over. axum under `axum::serve`, and hyper's own server, HTTP/1.1 and HTTP/2.

mod common;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use common::{desk, opens_at, watched};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::http::{GatewayTimeout, HttpRulesExt, Unavailable, http};
use tower_triage::timeout::TimeoutPolicy;
use tower_triage::{
    BreakerHandle, CircuitBreakerLayer, Classifier, Desk, ErrorClass, EscalateLayer, Escalation,
    FallbackLayer, Resolution, TimeoutLayer, preset,
};

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn serve(app: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn client(http2: bool) -> Client<hyper_util::client::legacy::connect::HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(http2).pool_max_idle_per_host(0).build_http()
}

async fn fetch(address: SocketAddr, id: Option<&str>) -> Response<Incoming> {
    let mut request = Request::get(format!("http://{address}/"));
    if let Some(id) = id {
        request = request.header("x-request-id", id);
    }
    client(false).request(request.body(Empty::new()).unwrap()).await.unwrap()
}

/// Tells when a handler has begun, and when it was dropped.
#[derive(Clone, Default)]
struct Hanging {
    begun: Arc<Notify>,
    dropped: Arc<Notify>,
}

impl Hanging {
    /// A handler that never ends by itself.
    async fn handle(self) {
        struct OnDrop(Arc<Notify>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let _on_drop = OnDrop(self.dropped);
        self.begun.notify_one();
        std::future::pending().await
    }
}

/// Neither a vote nor a record, but counted.
fn assert_neutral(breaker: &BreakerHandle, letters: &mut mpsc::Receiver<Escalation>) {
    let counts = breaker.counts();
    assert_eq!((counts.successes, counts.failures, counts.abandoned), (0, 0, 1));
    assert!(letters.try_recv().is_err(), "nobody has to act on a client that hung up");
}

#[tokio::test]
async fn kf37_a_client_that_hangs_up_is_neutral_under_axum() {
    let hanging = Hanging::default();
    let handler = hanging.clone();
    let (desk, mut letters) = desk();
    let layer = preset::http_server(Classifier::new(http()), desk)
        .breaker(|breaker| breaker.policy(opens_at(1)));
    let breaker = layer.breaker.handle();
    let app = Router::new().route("/", get(move || handler.clone().handle())).layer(layer);
    let address = serve(app).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    hanging.begun.notified().await;
    drop(stream);
    hanging.dropped.notified().await;
    assert_neutral(&breaker, &mut letters);
}

/// hyper's own server: the layer is applied anew for each connection, its state is one.
async fn hyper_server<L, S>(layer: L, handler: S) -> SocketAddr
where
    L: Layer<S> + Send + 'static,
    L::Service: tower::Service<
            Request<Incoming>,
            Response = Response<Full<Bytes>>,
            Error = Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static,
    S: Clone + Send + 'static,
{
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(layer.layer(handler.clone()));
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn kf37_a_client_that_hangs_up_is_neutral_under_hyper() {
    for http2 in [false, true] {
        let hanging = Hanging::default();
        let handler = hanging.clone();
        let (desk, mut letters) = desk();
        let layer = preset::http_server(Classifier::new(http()), desk)
            .breaker(|breaker| breaker.policy(opens_at(1)));
        let breaker = layer.breaker.handle();
        let handler = service_fn(move |_: Request<Incoming>| {
            let handled = handler.clone().handle();
            async move {
                handled.await;
                Ok::<_, Infallible>(Response::new(Full::default()))
            }
        });
        let address = hyper_server(layer, handler).await;
        let request = Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
        // Dropping the call closes the connection of HTTP/1.1, and resets the stream of HTTP/2.
        let call = tokio::spawn(client(http2).request(request));
        hanging.begun.notified().await;
        call.abort();
        hanging.dropped.notified().await;
        assert_neutral(&breaker, &mut letters);
    }
}

/// A call that had met a failure before the client hung up ends as abandoned.
#[tokio::test]
async fn kf37_an_abandoned_call_keeps_its_story() {
    let hanging = Hanging::default();
    let handler = hanging.clone();
    let (classifier, seen) = watched(http());
    let (desk, mut letters) = desk();
    let later = move |_: tower_triage::fallback::Failed<'_, Response<Body>, Infallible>| {
        let handled = handler.clone().handle();
        async move {
            handled.await;
            Ok(Response::new(Body::empty()))
        }
    };
    let layers = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(FallbackLayer::new(classifier).or_call(ErrorClass::Transient, later));
    let app = Router::new().route("/", get(async || StatusCode::BAD_GATEWAY)).layer(layers);
    let address = serve(app).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    hanging.begun.notified().await;
    drop(stream);
    hanging.dropped.notified().await;
    assert_eq!(seen.last().resolution, Resolution::Abandoned);
    assert!(letters.try_recv().is_err());
}

#[tokio::test]
async fn kf04_one_state_however_often_a_server_applies_the_layer() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = service_fn(move |_: Request<Incoming>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let response = Response::builder().status(500).body(Full::default()).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let layer = preset::http_server(Classifier::new(http()), Desk::log())
        .breaker(|breaker| breaker.policy(opens_at(5)));
    let address = hyper_server(layer, handler).await;
    for _ in 0..5 {
        assert_eq!(fetch(address, None).await.status(), 500);
    }
    let response = fetch(address, None).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert_eq!(calls.load(Ordering::Relaxed), 5, "six connections, one state");
}

/// A handler that hangs: 504 under `Infallible`, which the layers above take for what it is.
#[tokio::test]
async fn a_time_limit_is_a_504_where_errors_are_impossible() {
    let hanging = Hanging::default();
    let handler = hanging.clone();
    let (classifier, seen) = watched(http());
    let (desk, mut letters) = desk();
    let limit = Duration::from_millis(50);
    let plan = TimeoutPolicy::new(limit).grace(Duration::ZERO).build().unwrap();
    let breaker =
        CircuitBreakerLayer::new(classifier.clone()).reject_with(Unavailable).policy(opens_at(1));
    let handle = breaker.handle();
    let layers = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(breaker)
        .layer(
            TimeoutLayer::new(classifier, limit).unwrap().policy(plan).reject_with(GatewayTimeout),
        );
    let app = Router::new().route("/", get(move || handler.clone().handle())).layer(layers);
    let address = serve(app).await;

    assert_eq!(fetch(address, None).await.status(), 504);
    hanging.dropped.notified().await;
    let failure = seen.last().failure.unwrap();
    assert_eq!(
        (failure.class, failure.reason),
        (ErrorClass::Timeout, "elapsed"),
        "ours, not a peer's 504"
    );
    assert_eq!(letters.recv().await.unwrap().class, ErrorClass::Timeout);
    assert_eq!(handle.counts().failures, 1);
    assert_eq!(fetch(address, None).await.status(), 503, "it opened the circuit");
}

/// The whole stack around a route whose errors are impossible: marked answer, one record per request,
/// named by the request's own id.
#[tokio::test]
async fn kf55_escalation_and_fallback_around_a_route() {
    let (desk, mut letters) = desk();
    let classifier = Classifier::new(http().fallback_header("x-fallback".parse().unwrap()));
    let escalate = EscalateLayer::new(classifier.clone(), desk);
    let app = Router::new().route("/", get(async || StatusCode::BAD_GATEWAY)).layer(escalate);
    let address = serve(app).await;
    let mut ids = Vec::new();
    for id in ["r-1", "r-1", "r-2"] {
        assert_eq!(fetch(address, Some(id)).await.status(), 502, "the answer passes as it is");
        let letter = letters.recv().await.unwrap();
        assert_eq!(
            (letter.class, letter.context.request_id.unwrap().as_str()),
            (ErrorClass::Transient, id)
        );
        ids.push(letter.id);
    }
    assert_eq!(ids[0], ids[1], "the same request, the same record");
    assert_ne!(ids[0], ids[2]);

    let stale = |_: tower_triage::fallback::Failed<'_, Response<Body>, Infallible>| {
        Response::new(Body::from("stale"))
    };
    let fallback = FallbackLayer::new(classifier).or_value(ErrorClass::Transient, stale);
    let app = Router::new().route("/", get(async || StatusCode::BAD_GATEWAY)).layer(fallback);
    let response = fetch(serve(app).await, None).await;
    assert_eq!(response.headers()["x-fallback"], "Transient");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "stale");
}

/// A handler's stream passes the layers frame by frame.
#[tokio::test]
async fn kf52_streams_stay_streams_under_axum() {
    let (feed, frames) = mpsc::unbounded_channel::<&'static str>();
    let frames = Arc::new(std::sync::Mutex::new(Some(frames)));
    let handler = move || {
        let mut frames = frames.lock().unwrap().take().unwrap();
        let stream = futures_util::stream::poll_fn(move |cx| frames.poll_recv(cx));
        let stream = futures_util::StreamExt::map(stream, Ok::<_, Infallible>);
        std::future::ready(Body::from_stream(stream))
    };
    let classifier = Classifier::new(http());
    let stale = |_: tower_triage::fallback::Failed<'_, Response<Body>, Infallible>| {
        Response::new(Body::from("stale"))
    };
    let layer = preset::http_server(classifier.clone(), Desk::log())
        .fallback(|_| FallbackLayer::new(classifier).or_value(ErrorClass::Transient, stale));
    let address = serve(Router::new().route("/", get(handler)).layer(layer)).await;

    feed.send("first").unwrap();
    let mut body = fetch(address, None).await.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "first", "before there is a second");
    feed.send("second").unwrap();
    drop(feed);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "second");
}

/// A router whose layer was made by hand, used in the process too.
#[tokio::test]
async fn a_router_behind_every_layer_is_still_a_router() {
    let classifier = Classifier::new(http());
    let limit = TimeoutLayer::new(classifier.clone(), Duration::from_secs(5)).unwrap();
    let app: Router = Router::new()
        .route("/", get(async || "fine"))
        .layer(limit.reject_with(GatewayTimeout))
        .layer(preset::http_server(classifier, Desk::log()));
    let task = tokio::spawn(app.oneshot(Request::get("/").body(Body::empty()).unwrap()));
    let Ok(response) = task.await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "fine");
}

/// Layers by one call of the router are one call's; by two calls, two: each has an incident.
#[tokio::test]
async fn layers_of_one_service_builder_tell_one_story() {
    for (together, incidents) in [(true, 1), (false, 2)] {
        let (classifier, seen) = watched(http());
        let (desk, mut letters) = desk();
        let escalate = EscalateLayer::new(classifier.clone(), desk);
        let breaker = CircuitBreakerLayer::new(classifier).reject_with(Unavailable);
        let app = Router::new().route("/", get(async || StatusCode::BAD_GATEWAY));
        let app: Router = match together {
            true => app.layer((escalate, breaker)),
            false => app.layer(breaker).layer(escalate),
        };
        let request = Request::get("/").body(Body::empty()).unwrap();
        let Ok(response) = app.oneshot(request).await;
        assert_eq!(response.status(), 502);
        letters.recv().await.unwrap();
        assert!(letters.try_recv().is_err(), "one record either way");
        assert_eq!(seen.incidents().len(), incidents, "together: {together}");
    }
}
