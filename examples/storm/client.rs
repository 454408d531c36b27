//! The client under test: the full stack over a real connection pool.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, uri::Authority};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage::escalate::{JsonLinesSink, LogSink, Receiver, Route, Routes};
use tower_triage::http::{HttpReplay, HttpRules};
use tower_triage::{
    AnyError, Backoff, BreakerHandle, BreakerPolicy, CircuitBreakerLayer, ClassSet, Classifier,
    Desk, EscalateLayer, EscalatePolicy, FallbackLayer, Jitter, RetryLayer, RetryPolicy,
};

pub(crate) type HttpClient =
    BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, AnyError>;

/// The stack, and what the story needs to look into it.
pub(crate) struct Stack {
    pub(crate) client: HttpClient,
    pub(crate) breaker: BreakerHandle,
    pub(crate) desk: Desk,
}

/// Escalate over fallback over retry over breaker over a time limit, one classifier for all.
pub(crate) fn build(
    classifier: &Classifier<HttpRules>,
    backup: SocketAddr,
    letters: &Path,
) -> Result<Stack, Box<dyn std::error::Error>> {
    let pool = || Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();

    // Every record goes to the file; if the disk fails, to the log.
    let routes = Routes::new(Route::new(["on-call"], "upstream_failure"));
    let on_call = Receiver::new("on-call").record(JsonLinesSink::open(letters)?).record(LogSink);
    let desk = Desk::new(routes, [on_call])?;

    let backup = Authority::try_from(backup.to_string())?;
    let fallback = FallbackLayer::new(classifier.clone())
        .or_service_with(
            ClassSet::bypassable(),
            ServiceBuilder::new().map_err(AnyError::from).service(pool()),
            move |request, _failed| redirected(request, &backup),
        )
        .within(Duration::from_secs(1));

    let quick = Backoff::exponential(Duration::from_millis(30), 2.0)
        .cap(Duration::from_millis(500))
        .jitter(Jitter::Equal);
    // A server that wants a second of peace is left to the backup.
    let patience = Duration::from_millis(500);
    let retry = RetryPolicy::interactive().backoff(&quick).hint_cap(patience).build()?;

    let breaker = BreakerPolicy::new()
        .time_window(Duration::from_secs(1))
        .minimum_calls(20)
        .failure_rate(0.5)
        .open_for(Backoff::fixed(Duration::from_millis(400)).jitter(Jitter::Ratio(0.2)))
        .build()?;
    let breaker = CircuitBreakerLayer::new(classifier.clone()).name("primary").policy(breaker);
    let handle = breaker.handle();

    // The story's books want to know for certain whether a record was written, however busy the disk.
    let certain = EscalatePolicy::new().wait(Duration::from_secs(10));
    let escalate = EscalateLayer::new(classifier.clone(), desk.clone());
    let escalate = escalate.from("storm-client").policy(certain);

    let stack = ServiceBuilder::new()
        .layer(escalate)
        .layer(fallback)
        .layer(RetryLayer::new(classifier.clone()).policy(retry).replay(HttpReplay::new()))
        .layer(breaker)
        .map_err(AnyError::from_boxed)
        .timeout(Duration::from_millis(250))
        .service(pool());
    Ok(Stack { client: BoxCloneSyncService::new(stack), breaker: handle, desk })
}

/// The same request, to another server.
fn redirected(mut request: Request<Full<Bytes>>, to: &Authority) -> Request<Full<Bytes>> {
    let mut parts = request.uri().clone().into_parts();
    parts.authority = Some(to.clone());
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

/// One request to the primary: every tenth places an order (which must not be repeated blindly),
/// the others read one.
pub(crate) fn request(primary: SocketAddr, number: u32) -> Request<Full<Bytes>> {
    let builder = match number % 10 {
        9 => Request::post(format!("http://{primary}/orders/{number}")),
        _ => Request::get(format!("http://{primary}/orders/{number}")),
    };
    builder
        .extension(tower_triage::http::RouteTemplate::new("/orders/{id}"))
        .body(Full::from("an order"))
        .expect("a valid request")
}

/// Sends it.
pub(crate) async fn send(
    client: HttpClient,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, AnyError> {
    client.oneshot(request).await
}
