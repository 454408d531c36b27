//! Errors of real clients over loopback sockets, walked by type. Servers are scripts over raw
//! sockets: they wait for what the client sends, never for time.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{fmt, io};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, Classify, ClassifyError, Disposition, ErrorClass, Failure,
    Label, Phase, Vote,
};
use tower_triage_http::{HttpErrors, http, transport_failure};

type Body = Empty<Bytes>;
type HyperClient = Client<HttpConnector, Body>;

fn client() -> HyperClient {
    Client::builder(TokioExecutor::new()).build_http()
}

fn client_http2() -> HyperClient {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

fn get(address: SocketAddr) -> http::Request<Body> {
    http::Request::get(format!("http://{address}/")).body(Body::new()).unwrap()
}

/// A server that lets `script` handle its first connection.
async fn server<F, Fut>(script: F) -> SocketAddr
where
    F: FnOnce(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        script(stream).await;
    });
    address
}

/// Reads the head of an HTTP/1 request.
async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

/// The failure of a request, judged through every type that may hold it.
async fn failure(client: HyperClient, request: http::Request<Body>) -> Failure {
    let error = client.request(request).await.expect_err("the server does not answer");
    let bare = HttpErrors.error(&error);
    let rules = http();
    let any = AnyError::from(error);
    let outcome: Result<&http::Response<()>, _> = Err(&any);
    assert_eq!(rules.classify(outcome), bare.into());
    let boxed = any.into_inner();
    assert_eq!(HttpErrors.error(&boxed), bare);
    let twice: BoxError = io::Error::other(io::Error::other(boxed)).into();
    assert_eq!(HttpErrors.error(&twice), bare);
    bare
}

#[tokio::test]
async fn a_refused_connection_was_not_sent() {
    let address = tower_triage_test_support::closed_port();
    let failure = failure(client(), get(address)).await;
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::NotSent);
    assert_eq!((failure.vote, failure.reason), (Vote::Failure, "connection_refused"));
}

#[tokio::test]
async fn a_reset_after_the_request_was_read_may_be_processed() {
    let address = server(|mut stream| async move {
        read_head(&mut stream).await;
        // A reset instead of an orderly end.
        stream.set_zero_linger().unwrap();
    })
    .await;
    let failure = failure(client(), get(address)).await;
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
    assert_eq!(failure.reason, "connection_reset");
}

#[tokio::test]
async fn an_end_without_an_answer_may_be_processed() {
    let address = server(|mut stream| async move { read_head(&mut stream).await }).await;
    let failure = failure(client(), get(address)).await;
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
    assert_eq!((failure.vote, failure.reason), (Vote::Failure, "incomplete_message"));
}

#[tokio::test]
async fn half_an_answer_fails_in_the_body() {
    let address = server(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
    })
    .await;
    let response = client().request(get(address)).await.unwrap();
    let error: hyper::Error = response.into_body().collect().await.unwrap_err();
    let failure = HttpErrors.error(&error);
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
}

#[tokio::test]
async fn nonsense_is_a_defect_and_not_repeated() {
    let address = server(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"220 mail.example.com ESMTP\r\n\r\n").await.unwrap();
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let failure = failure(client(), get(address)).await;
    assert_eq!((failure.class, failure.reason), (ErrorClass::Internal, "http_parse"));
    assert!(!failure.repeatable(true, true));
}

#[tokio::test]
async fn a_body_of_ours_that_fails_tells_nothing_about_the_peer() {
    let address = server(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let client: Client<_, FailingBody> = Client::builder(TokioExecutor::new()).build_http();
    let request = http::Request::post(format!("http://{address}/")).body(FailingBody).unwrap();
    let failure = HttpErrors.error(&client.request(request).await.unwrap_err());
    assert_eq!((failure.class, failure.vote), (ErrorClass::Permanent, Vote::Ignore));
}

/// A request body that cannot be read.
struct FailingBody;

impl http_body::Body for FailingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
    }
}

/// An HTTP/2 server, by hand, that answers the first HEADERS frame with `answer`: a frame without
/// its length.
async fn http2_server(frame_type: u8, stream_id: u32, payload: Vec<u8>) -> SocketAddr {
    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    server(move |mut stream| async move {
        stream.write_all(&SETTINGS).await.unwrap();
        stream.read_exact(&mut [0; PREFACE]).await.unwrap();
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            stream.read_exact(&mut vec![0; length]).await.unwrap();
            if head[3] == HEADERS {
                break;
            }
        }
        let mut answer = vec![0, 0, payload.len() as u8, frame_type, 0];
        answer.extend(stream_id.to_be_bytes());
        answer.extend(payload);
        stream.write_all(&answer).await.unwrap();
        // Until the client has had enough.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await
}

async fn after_reset(reason: u32) -> Failure {
    let address = http2_server(3, 1, reason.to_be_bytes().to_vec()).await;
    failure(client_http2(), get(address)).await
}

async fn after_go_away(last_id: u32, reason: u32) -> Failure {
    let payload = [last_id.to_be_bytes(), reason.to_be_bytes()].concat();
    let address = http2_server(7, 0, payload).await;
    failure(client_http2(), get(address)).await
}

#[tokio::test]
async fn a_refused_stream_was_not_processed() {
    let failure = after_reset(h2::Reason::REFUSED_STREAM.into()).await;
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::NotProcessed);
    assert_eq!((failure.vote, failure.reason), (Vote::Ignore, "h2_refused_stream"));
}

#[tokio::test]
async fn a_graceful_shutdown_vouches_for_the_streams_above_its_last() {
    let failure = after_go_away(0, h2::Reason::NO_ERROR.into()).await;
    assert_eq!(failure.disposition, Disposition::NotProcessed);
    assert_eq!((failure.vote, failure.reason), (Vote::Ignore, "h2_goaway_no_error"));
}

#[tokio::test]
async fn other_reasons_have_the_class_of_their_row() {
    let calm = after_go_away(0, h2::Reason::ENHANCE_YOUR_CALM.into()).await;
    assert_eq!((calm.class, calm.vote), (ErrorClass::Throttled, Vote::Ignore));
    assert_eq!(calm.disposition, Disposition::MaybeProcessed);

    let internal = after_reset(h2::Reason::INTERNAL_ERROR.into()).await;
    assert_eq!((internal.class, internal.vote), (ErrorClass::Transient, Vote::Failure));
    assert_eq!(internal.disposition, Disposition::MaybeProcessed);

    let protocol = after_reset(h2::Reason::PROTOCOL_ERROR.into()).await;
    assert_eq!((protocol.class, protocol.vote), (ErrorClass::Internal, Vote::Failure));

    let http1 = after_reset(h2::Reason::HTTP_1_1_REQUIRED.into()).await;
    assert_eq!((http1.class, http1.vote), (ErrorClass::Declined, Vote::Success));
}

#[test]
fn a_reason_that_no_frame_brought_is_not_vouched_for() {
    let refused = HttpErrors.error(&h2::Error::from(h2::Reason::REFUSED_STREAM));
    assert_eq!(refused.disposition, Disposition::MaybeProcessed);
    assert_eq!(refused.vote, Vote::Failure);
}

/// A connector whose error holds `self.0`.
#[derive(Clone)]
struct Connector(fn() -> BoxError);

impl tower_service::Service<http::Uri> for Connector {
    type Response = hyper_util::rt::TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _target: http::Uri) -> Self::Future {
        std::future::ready(Err((self.0)()))
    }
}

async fn while_connecting(error: fn() -> BoxError) -> Failure {
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(Connector(error));
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    HttpErrors.error(&client.request(get(address)).await.unwrap_err())
}

#[tokio::test]
async fn whatever_a_connector_meets_nothing_was_sent() {
    let cases: [(fn() -> BoxError, ErrorClass); 7] = [
        (|| io::Error::from(io::ErrorKind::ConnectionReset).into(), ErrorClass::Transient),
        (|| io::Error::from(io::ErrorKind::TimedOut).into(), ErrorClass::Timeout),
        (|| tower::timeout::error::Elapsed::new().into(), ErrorClass::Timeout),
        (|| io::Error::from_raw_os_error(24).into(), ErrorClass::Rejected),
        (|| h2::Error::from(h2::Reason::CANCEL).into(), ErrorClass::Transient),
        (
            || CircuitOpen::new(Label::new("dns"), std::time::Duration::ZERO).into(),
            ErrorClass::Rejected,
        ),
        (|| "no such host".into(), ErrorClass::Transient),
    ];
    for (error, class) in cases {
        let failure = while_connecting(error).await;
        assert_eq!((failure.class, failure.disposition), (class, Disposition::NotSent));
    }
}

#[tokio::test]
async fn kf07_the_class_follows_the_types_through_every_wrapper() {
    let bare = HttpErrors.error(&io::Error::from(io::ErrorKind::ConnectionReset));
    let other_text = io::Error::new(io::ErrorKind::ConnectionReset, "Verbindung weg");
    assert_eq!(HttpErrors.error(&other_text), bare);
    assert_eq!((bare.class, bare.reason), (ErrorClass::Transient, "connection_reset"));

    // Wrapped by hyper and by its client, then boxed twice on top (in `failure`).
    let address = server(|mut stream| async move {
        read_head(&mut stream).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    assert_eq!(failure(client(), get(address)).await, bare);

    // A text that only talks of a reset has no type.
    let text: BoxError = "connection reset by peer".into();
    assert_eq!(HttpErrors.error(&text).class, ErrorClass::Unknown);
}

/// Boxes of sized errors are errors of their own type, whose source skips what is boxed.
#[test]
fn a_boxed_type_is_found_in_its_box() {
    #[derive(Debug)]
    struct Outer(Box<h2::Error>);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let outer = Outer(Box::new(h2::Reason::ENHANCE_YOUR_CALM.into()));
    assert_eq!(transport_failure(&outer, Phase::Unknown).class, ErrorClass::Throttled);
}

/// The rules judge an error type that cannot exist.
#[test]
fn infallible_services_have_rules() {
    fn judges<R: Classify<http::Response<()>, Infallible>>(_: R) {}
    judges(http());
}
