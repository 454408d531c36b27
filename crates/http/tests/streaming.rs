//! Bodies that stream, through the layers and over real sockets.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_triage_circuit_breaker::CircuitBreakerLayer;
use tower_triage_core::{
    AnyError, Backoff, BoxError, ClassSet, Classifier, Notes, Refusal, StepKind,
};
use tower_triage_fallback::{FallbackLayer, copy_fn};
use tower_triage_http::{
    Attempt, HttpReplay, ReplayBody, ReplayBodyLayer, ReplayError, copy_request, http,
};
use tower_triage_retry::{Never, RetryLayer, RetryPlan, RetryPolicy};

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Serves HTTP/1.1 and HTTP/2.
async fn serve<F, Fut>(handler: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handler = handler.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// What the server saw of one attempt.
struct Seen {
    method: Method,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

type Attempts = Arc<Mutex<Vec<Seen>>>;

/// Reads each request to its end; answers with the statuses in turn, and the last one from then on.
async fn answering(statuses: &'static [u16]) -> (SocketAddr, Attempts) {
    let attempts = Attempts::default();
    let seen = Arc::clone(&attempts);
    let address = serve(move |request| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap();
            let trailers = body.trailers().cloned();
            let mut seen = seen.lock().unwrap();
            seen.push(Seen {
                method: parts.method,
                version: parts.version,
                headers: parts.headers,
                body: body.to_bytes(),
                trailers,
            });
            status(statuses[seen.len().min(statuses.len()) - 1])
        }
    })
    .await;
    (address, attempts)
}

fn status(status: u16) -> Answer {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// A one-shot stream of a known length or not, which may end with trailers.
struct Upload {
    chunks: std::vec::IntoIter<Bytes>,
    trailers: Option<HeaderMap>,
    known: Option<u64>,
}

impl Upload {
    fn unknown(chunks: Vec<Bytes>) -> Self {
        Self { chunks: chunks.into_iter(), trailers: None, known: None }
    }

    fn known(chunks: Vec<Bytes>) -> Self {
        let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self { known: Some(length), ..Self::unknown(chunks) }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(chunk) = self.chunks.next() else {
            return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        };
        if let Some(known) = &mut self.known {
            *known -= chunk.len() as u64;
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn size_hint(&self) -> SizeHint {
        self.known.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// 10 KiB in ten pieces.
fn ten_kib() -> Vec<Bytes> {
    (0..10).map(|i| Bytes::from(vec![b'a' + i; 1024])).collect()
}

fn at_once() -> RetryPlan {
    RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap()
}

fn put<B>(address: SocketAddr, body: B) -> Request<B> {
    Request::put(format!("http://{address}/things/17")).body(body).unwrap()
}

/// Why it was not repeated, as its incident says.
fn refusal<B>(response: &Response<B>) -> Option<Refusal> {
    let incident = response.extensions().get::<Notes>()?.incident.as_ref()?;
    incident.steps.iter().find_map(|step| match step.kind {
        StepKind::NotRetried { why } => Some(why),
        _ => None,
    })
}

/// One request through replay and retry, spawned, as users do it.
async fn send<B>(http2: bool, request: Request<B>) -> Response<Incoming>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let task = tokio::spawn(async move {
        let client: Client<_, ReplayBody<B>> =
            Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        let retry = RetryLayer::new(Classifier::new(http())).policy(at_once());
        let stack = ServiceBuilder::new()
            .layer(ReplayBodyLayer::new())
            .layer(retry.replay(HttpReplay::new()))
            .map_err(AnyError::from)
            .service(client);
        stack.oneshot(request).await
    });
    task.await.unwrap().unwrap()
}

#[tokio::test]
async fn kf12_streaming_bodies_pass_through() {
    for (code, skipped) in [(200, false), (503, true)] {
        let statuses: &'static [u16] = if skipped { &[503] } else { &[200] };
        let (address, attempts) = answering(statuses).await;
        let client: Client<_, Upload> = Client::builder(TokioExecutor::new()).build_http();
        // A body that can be read once, and no replay layer.
        let retry = RetryLayer::new(Classifier::new(http())).policy(at_once()).replay(Never);
        let stack = retry.layer(client.map_err(AnyError::from));
        let response = stack.oneshot(put(address, Upload::unknown(ten_kib()))).await.unwrap();

        assert_eq!(response.status().as_u16(), code);
        let why = skipped.then_some(Refusal::NotReplayable("nothing is kept"));
        assert_eq!(refusal(&response), why);
        let attempts = attempts.lock().unwrap();
        assert_eq!((attempts.len(), &attempts[0].body), (1, &ten_kib().concat().into()));
    }
}

#[tokio::test]
async fn kf13_the_retried_request_carries_the_same_body() {
    let (address, attempts) = answering(&[503, 200]).await;
    let response = send(false, put(address, Upload::known(ten_kib()))).await;
    assert_eq!(response.status(), 200);
    let attempts = attempts.lock().unwrap();
    assert_eq!(attempts.len(), 2);
    for attempt in &*attempts {
        assert_eq!(attempt.method, Method::PUT);
        assert_eq!(attempt.body, ten_kib().concat());
        assert_eq!(attempt.headers["content-length"], "10240");
        assert!(!attempt.headers.contains_key("transfer-encoding"));
    }
    assert_eq!(attempts[0].headers, attempts[1].headers);
}

/// Chunked over HTTP/1.1 and over HTTP/2, with trailers.
#[tokio::test]
async fn a_stream_of_unknown_length_is_repeated_with_its_trailers() {
    for http2 in [false, true] {
        let (address, attempts) = answering(&[503, 503, 200]).await;
        let mut upload = Upload::unknown(ten_kib());
        upload.trailers = Some(HeaderMap::from_iter([("x-sum".parse().unwrap(), 17.into())]));
        let mut request = put(address, upload);
        request.headers_mut().insert("trailer", "x-sum".parse().unwrap());
        assert_eq!(send(http2, request).await.status(), 200);
        let attempts = attempts.lock().unwrap();
        assert_eq!(attempts.len(), 3);
        for attempt in &*attempts {
            assert_eq!(attempt.version == Version::HTTP_2, http2);
            assert_eq!(attempt.body, ten_kib().concat());
            assert!(!attempt.headers.contains_key("content-length"));
            assert_eq!(attempt.trailers.as_ref().unwrap()["x-sum"], "17");
        }
    }
}

/// axum's body is not `Sync`, and neither is a boxed one; a GET has none.
#[tokio::test]
async fn other_bodies_inside_and_outside() {
    let (address, attempts) = answering(&[503, 200, 503, 200, 503, 200]).await;
    let task = tokio::spawn(async move {
        let client: Client<_, axum::body::Body> =
            Client::builder(TokioExecutor::new()).build_http();
        let stack = ServiceBuilder::new()
            .layer(ReplayBodyLayer::new())
            .layer(
                RetryLayer::new(Classifier::new(http()))
                    .policy(at_once())
                    .replay(HttpReplay::new()),
            )
            .map_request(|request: Request<ReplayBody<_>>| request.map(axum::body::Body::new))
            .map_err(AnyError::from)
            .service(client);
        let body = axum::body::Body::from_stream(stream::iter(
            ten_kib().into_iter().map(Ok::<_, io::Error>),
        ));
        stack.oneshot(put(address, body)).await.unwrap().status()
    });
    assert_eq!(task.await.unwrap(), 200);

    let boxed: UnsyncBoxBody<Bytes, BoxError> =
        Upload::known(ten_kib()).map_err(BoxError::from).boxed_unsync();
    assert_eq!(send(false, put(address, boxed)).await.status(), 200);

    let get = Request::get(format!("http://{address}/")).body(axum::body::Body::empty()).unwrap();
    assert_eq!(send(false, get).await.status(), 200);

    let attempts = attempts.lock().unwrap();
    assert_eq!(attempts.len(), 6);
    for attempt in &attempts[..4] {
        assert_eq!(attempt.body, ten_kib().concat());
    }
    for attempt in &attempts[4..] {
        assert!(attempt.body.is_empty());
        assert!(!attempt.headers.contains_key("transfer-encoding"), "no body, no framing");
    }
}

/// A stream fed by the test.
fn fed() -> (mpsc::UnboundedSender<Bytes>, impl Body<Data = Bytes, Error = io::Error> + Unpin + Send)
{
    let (feed, mut fed) = mpsc::unbounded_channel::<Bytes>();
    let frames = stream::poll_fn(move |cx| fed.poll_recv(cx));
    (feed, StreamBody::new(frames.map(|data| Ok(Frame::data(data)))))
}

async fn read_until(stream: &mut tokio::net::TcpStream, end: &[u8]) {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(stream.read_u8().await.unwrap());
    }
}

/// The server refuses before it has read the body, of which there is more to come.
#[tokio::test]
async fn a_body_that_is_still_being_sent_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, b"first\r\n").await;
        stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        (stream, listener)
    });
    let (feed, body) = fed();
    feed.send("first".into()).unwrap();
    let response = send(false, put(address, body)).await;
    assert_eq!(response.status(), 503, "the answer passes as it is");
    let held = "an earlier attempt still holds the request body";
    assert_eq!(refusal(&response), Some(Refusal::NotReplayable(held)));
    let _still_open = server.await.unwrap();
}

/// The connection is lost midway: what was read is sent again, and then the rest.
#[tokio::test]
async fn a_lost_upload_is_begun_again_and_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (feed, body) = fed();
    feed.send("first".into()).unwrap();
    let server = tokio::spawn(async move {
        let (mut lost, _) = listener.accept().await.unwrap();
        read_until(&mut lost, b"first\r\n").await;
        drop(lost);
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, b"first\r\n").await;
        feed.send("second".into()).unwrap();
        drop(feed);
        read_until(&mut stream, b"second\r\n0\r\n\r\n").await;
        stream.write_all(b"HTTP/1.1 204 Done\r\n\r\n").await.unwrap();
    });
    assert_eq!(send(false, put(address, body)).await.status(), 204);
    server.await.unwrap();
}

/// The body's own error reaches the caller through the client's, and is nothing to repeat.
#[tokio::test]
async fn a_failing_body_is_no_failure_of_the_server() {
    let (address, attempts) = answering(&[200]).await;
    let frames = [Ok(Frame::data(Bytes::from("some"))), Err(io::Error::other("disk"))];
    let body = StreamBody::new(stream::iter(frames));
    let client: Client<_, ReplayBody<_>> = Client::builder(TokioExecutor::new()).build_http();
    let retry = RetryLayer::new(Classifier::new(http())).policy(at_once());
    let stack = ServiceBuilder::new()
        .layer(ReplayBodyLayer::new())
        .layer(retry.replay(HttpReplay::new()))
        .map_err(AnyError::from)
        .service(client);
    let error = stack.oneshot(put(address, body)).await.unwrap_err();
    assert!(error.find::<ReplayError>().unwrap().not_replayable().is_none());
    assert_eq!(error.find::<io::Error>().unwrap().to_string(), "disk");
    assert!(attempts.lock().unwrap().is_empty());
}

/// A response in frames that the test gives, one by one; `None` breaks it off.
async fn frame_by_frame()
-> (SocketAddr, mpsc::UnboundedSender<Option<&'static str>>, Arc<Mutex<u32>>) {
    let (feed, frames) = mpsc::unbounded_channel();
    let frames = Arc::new(Mutex::new(Some(frames)));
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let address = serve(move |_| {
        *counted.lock().unwrap() += 1;
        let frames = frames.lock().unwrap().take();
        async move {
            let Some(mut frames) = frames else { return status(500) };
            let frames = stream::poll_fn(move |cx| frames.poll_recv(cx)).map(|text| match text {
                Some(text) => Ok(Frame::data(Bytes::from(text))),
                None => Err(io::Error::other("broken off")),
            });
            Response::builder()
                .header("content-length", 15)
                .body(StreamBody::new(frames).boxed_unsync())
                .unwrap()
        }
    })
    .await;
    (address, feed, calls)
}

/// Everything in between: replayable body, fallback, retry, breaker.
async fn through_all_layers(address: SocketAddr, http2: bool) -> Response<Incoming> {
    let client: Client<_, ReplayBody<Full<Bytes>>> =
        Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
    let classifier = Classifier::new(http());
    let backup = client.clone().map_err(AnyError::from);
    let stack = ServiceBuilder::new()
        .layer(ReplayBodyLayer::new())
        .layer(
            FallbackLayer::new(classifier.clone())
                .or_service(ClassSet::bypassable(), backup)
                .copy_requests(copy_fn(copy_request)),
        )
        .layer(RetryLayer::new(classifier.clone()).policy(at_once()).replay(HttpReplay::new()))
        .layer(CircuitBreakerLayer::new(classifier))
        .map_err(AnyError::from)
        .service(client);
    stack.oneshot(put(address, Full::from("question"))).await.unwrap()
}

#[tokio::test]
async fn kf25_no_retry_once_the_answer_has_started() {
    let (address, feed, calls) = frame_by_frame().await;
    for frame in ["one..", "two..", "th"] {
        feed.send(Some(frame)).unwrap();
    }
    let response = through_all_layers(address, false).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut data = Vec::new();
    while data.len() < 12 {
        data.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    feed.send(None).unwrap();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(data, b"one..two..th");
    let cause = std::error::Error::source(&error).unwrap();
    let cause = cause.downcast_ref::<io::Error>().unwrap();
    assert_eq!(cause.kind(), io::ErrorKind::UnexpectedEof, "hyper's own");
    assert_eq!(*calls.lock().unwrap(), 1, "neither retry nor fallback");
}

#[tokio::test]
async fn kf52_streams_stay_streams() {
    for http2 in [false, true] {
        let (address, feed, _) = frame_by_frame().await;
        // The head goes out with the first frame; the second does not exist yet.
        feed.send(Some("first")).unwrap();
        let response = through_all_layers(address, http2).await;
        assert_eq!(response.headers()["content-length"], "15");
        let mut body = response.into_body();
        assert_eq!(body.size_hint().exact(), Some(15));
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first");
        assert_eq!(body.size_hint().exact(), Some(10));

        feed.send(Some("and second")).unwrap();
        let second = body.frame().await.unwrap().unwrap();
        assert_eq!(second.into_data().unwrap(), "and second");
        drop(feed);
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
    }
}

/// A backup gets the same body, and none that it could not read.
#[tokio::test]
async fn a_fallback_shares_the_buffer() {
    for (limit, expected) in [(64 * 1024, 200), (1024, 503)] {
        let (primary, refused) = answering(&[503]).await;
        let (secondary, answered) = answering(&[200]).await;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let classifier = Classifier::new(http());
        let to_secondary = move |mut request: Request<_>| {
            *request.uri_mut() = format!("http://{secondary}/").parse().unwrap();
            request
        };
        let backup = client.clone().map_request(to_secondary).map_err(AnyError::from);
        let stack = ServiceBuilder::new()
            .layer(ReplayBodyLayer::new().limit(limit))
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_service(ClassSet::bypassable(), backup)
                    .copy_requests(copy_fn(copy_request)),
            )
            .layer(RetryLayer::new(classifier).policy(at_once()).replay(HttpReplay::new()))
            .map_err(AnyError::from)
            .service(client);
        let response = stack.oneshot(put(primary, Upload::unknown(ten_kib()))).await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
        let (refused, answered) = (refused.lock().unwrap(), answered.lock().unwrap());
        let made = if expected == 200 { (3, 1) } else { (1, 0) };
        assert_eq!((refused.len(), answered.len()), made);
        for attempt in refused.iter().chain(&*answered) {
            assert_eq!(attempt.body, ten_kib().concat());
        }
    }
}

/// The number of the attempt is with the request, above a replayable body too.
#[tokio::test]
async fn kf15_the_attempt_is_an_extension() {
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&numbers);
    let (address, attempts) = answering(&[503, 200]).await;
    let client: Client<_, ReplayBody<Upload>> = Client::builder(TokioExecutor::new()).build_http();
    let stack = ServiceBuilder::new()
        .layer(ReplayBodyLayer::new())
        .layer(RetryLayer::new(Classifier::new(http())).policy(at_once()).replay(HttpReplay::new()))
        .map_request(move |request: Request<ReplayBody<Upload>>| {
            let attempt = request.extensions().get::<Attempt>().map(|attempt| attempt.number);
            seen.lock().unwrap().push(attempt);
            request
        })
        .map_err(AnyError::from)
        .service(client);
    let mut request = put(address, Upload::known(ten_kib()));
    request.headers_mut().append("x-tag", "one".parse().unwrap());
    request.headers_mut().append("x-tag", "two".parse().unwrap());
    assert_eq!(stack.oneshot(request).await.unwrap().status(), 200);
    assert_eq!(*numbers.lock().unwrap(), [None, Some(2)]);
    for attempt in &*attempts.lock().unwrap() {
        assert!(attempt.headers.get_all("x-tag").iter().eq(["one", "two"]));
    }
}
