//! Bodies that break off after their response was returned, over real sockets.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::incident::{self, LayerKind};
use tower_triage_core::{
    AnyError, Backoff, ClassSet, Classifier, ErrorClass, Refusal, Resolution, StepKind,
};
use tower_triage_fallback::FallbackLayer;
use tower_triage_http::{HttpReplay, HttpRules, WatchBodyLayer, WatchedBody, http};
use tower_triage_retry::{RetryLayer, RetryPolicy};
use tower_triage_test_support::Seen;

/// A server that lets `script` handle its first connection, and answers no other.
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

async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

fn watched() -> (Classifier<HttpRules>, Seen) {
    let (classifier, seen) = (Classifier::new(http()), Seen::default());
    classifier.observe(seen.clone());
    (classifier, seen)
}

type Answer = Response<WatchedBody<Incoming, HttpRules>>;

/// One request through everything that might repeat or replace, spawned.
async fn get(address: SocketAddr, http2: bool, classifier: Classifier<HttpRules>) -> Answer {
    let task = tokio::spawn(async move {
        let client: Client<_, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        let plan = RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap();
        let backup = client.clone().map_err(AnyError::from);
        let stack = ServiceBuilder::new()
            .layer(WatchBodyLayer::new(classifier.clone()))
            .layer(FallbackLayer::new(classifier.clone()).or_service(ClassSet::ALL, backup))
            .layer(RetryLayer::new(classifier).policy(plan).replay(HttpReplay::new()))
            .map_err(AnyError::from)
            .service(client);
        let request = Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
        stack.oneshot(request).await.unwrap()
    });
    task.await.unwrap()
}

/// Three frames, and then the connection ends.
#[tokio::test]
async fn kf25_the_mid_stream_failure_is_reported() {
    let address = server(|mut stream| async move {
        read_head(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n";
        stream.write_all(head).await.unwrap();
        stream.write_all(b"one..two..th").await.unwrap();
    })
    .await;
    let (classifier, seen) = watched();
    let response = get(address, false, classifier.clone()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.body().size_hint().exact(), Some(15));
    assert!(seen.incidents().is_empty(), "nothing has failed yet");

    let mut body = response.into_body();
    let mut data = Vec::new();
    let error = loop {
        match body.frame().await.expect("an error before the end") {
            Ok(frame) => data.extend(frame.into_data().unwrap()),
            Err(error) => break error,
        }
    };
    assert_eq!(data, b"one..two..th", "what came is the caller's");
    let error: hyper::Error = error;
    assert!(error.is_body_write_aborted() || std::error::Error::source(&error).is_some());

    let incident = seen.last();
    assert_eq!(seen.incidents().len(), 1);
    assert_eq!((incident.operation.as_str(), incident.resolution), ("GET", Resolution::Failed));
    assert_eq!(incident.failure.unwrap().class, ErrorClass::Transient);
    assert!(incident.steps.iter().all(|step| step.layer == LayerKind::ResponseBody));
    assert!(
        incident
            .steps
            .iter()
            .any(|step| matches!(step.kind, StepKind::NotRetried { why: Refusal::Committed }))
    );
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
    assert!(body.frame().await.is_none());
    assert_eq!(seen.incidents().len(), 1, "told once");
}

/// RST_STREAM with CANCEL or NO_ERROR is an end to hyper, whatever was declared.
#[tokio::test]
async fn a_body_that_ends_before_its_length_is_told_of() {
    for reason in [h2::Reason::CANCEL, h2::Reason::NO_ERROR] {
        let address = server(move |stream| async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let head = Response::builder().header("content-length", 10).body(()).unwrap();
                let mut body = respond.send_response(head, false).unwrap();
                body.send_data("half".into(), false).unwrap();
                // The frame is on its way before the reset.
                std::future::poll_fn(|cx| {
                    let _ = connection.poll_closed(cx);
                    std::task::Poll::Ready(())
                })
                .await;
                body.send_reset(reason);
            }
        })
        .await;
        let (classifier, seen) = watched();
        let response = get(address, true, classifier).await;
        let outcome = response.into_body().collect().await;
        if let Ok(body) = outcome {
            assert_eq!(body.to_bytes(), "half");
            let failure = seen.last().failure.unwrap();
            assert_eq!(
                (failure.class, failure.reason),
                (ErrorClass::Transient, "body_ended_early")
            );
        }
        assert_eq!(seen.incidents().len(), 1, "{reason}");
    }
}

/// A whole body, an empty one, and one that its reader has had enough of: nothing to tell.
#[tokio::test]
async fn nothing_is_told_of_what_is_no_failure() {
    for (head, read) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwhole", 4),
        ("HTTP/1.1 204 Done\r\n\r\n", 0),
        // Lengths of what would have been there.
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n", 0),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nwhol\r\n0\r\n\r\n", 4),
    ] {
        let address = server(move |mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            let _ = stream.read_u8().await;
        })
        .await;
        let (classifier, seen) = watched();
        let body = get(address, false, classifier).await.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes().len(), read);
        assert!(seen.incidents().is_empty());
    }
    let address = server(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        let _ = stream.read_u8().await;
    })
    .await;
    let (classifier, seen) = watched();
    let mut body = get(address, false, classifier).await.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert!(seen.incidents().is_empty(), "the caller gave up");
}

/// Read inside another call (a proxy's), the failure is part of that call's story, and no mark of it.
#[tokio::test]
async fn a_body_read_inside_a_call_belongs_to_its_story() {
    let (classifier, seen) = watched();
    let breaking = service_fn(|_: Request<()>| {
        let frames = [Ok(http_body::Frame::data(Bytes::from("some"))), Err(AnyError::msg("broke"))];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let stack = WatchBodyLayer::new(classifier).layer(breaking);
    let (error, incident) = incident::scope(async move {
        let response = stack.oneshot(Request::new(())).await.unwrap();
        response.into_body().collect().await.unwrap_err()
    })
    .await;
    assert_eq!(error.to_string(), "broke");
    assert_eq!(error.incident().unwrap().id, incident.unwrap().id, "an error that can carries it");
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Unknown);
}

/// The types of errors that bodies have.
#[test]
fn bodies_of_clients_and_servers_can_be_watched() {
    fn is_body<B: Body>() {}
    is_body::<WatchedBody<Incoming, HttpRules>>();
    is_body::<WatchedBody<http_body_util::combinators::BoxBody<Bytes, io::Error>, HttpRules>>();
    is_body::<
        WatchedBody<
            http_body_util::combinators::UnsyncBoxBody<Bytes, tower_triage_core::BoxError>,
            HttpRules,
        >,
    >();
    is_body::<WatchedBody<Empty<Bytes>, HttpRules>>();
}

/// Watching costs the happy path nothing of the heap, body included.
#[test]
fn a_watched_body_allocates_nothing() {
    use std::future::{Ready, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[derive(Clone)]
    struct Server;
    impl tower::Service<Request<()>> for Server {
        type Response = Response<http_body_util::Full<Bytes>>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<()>) -> Self::Future {
            ready(Ok(Response::new(Bytes::from_static(b"answer").into())))
        }
    }
    let mut service = WatchBodyLayer::new(Classifier::new(http())).layer(Server);
    let mut call = || {
        let mut cx = Context::from_waker(Waker::noop());
        let mut call = pin!(tower::Service::call(&mut service, Request::new(())));
        let Poll::Ready(Ok(response)) = call.as_mut().poll(&mut cx) else { panic!("not ready") };
        let mut body = pin!(response.into_body());
        let mut frames = 0;
        while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
            frames += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!(frames, 6);
    };
    call();
    let taken = allocation_counter::measure(|| (0..1000).for_each(|_| call())).count_total;
    assert_eq!(taken, 0);
}
