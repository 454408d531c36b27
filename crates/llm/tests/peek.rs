//! The peek layer over bodies in memory, in paused time.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage_core::{Classify, ErrorClass, Verdict};
use tower_triage_llm::{PeekBody, PeekLayer, llm};

type Item = Result<Frame<Bytes>, io::Error>;

fn data(text: &str) -> Item {
    Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
}

/// An answer whose frames come through a channel.
fn channel() -> (mpsc::UnboundedSender<Item>, impl Body<Data = Bytes, Error = io::Error> + Unpin) {
    let (send, receive) = mpsc::unbounded_channel();
    let frames = stream::unfold(receive, |mut receive| async move {
        receive.recv().await.map(|frame| (frame, receive))
    });
    (send, StreamBody::new(frames.boxed()))
}

fn answer<B>(status: u16, kind: &str, body: B) -> Response<B> {
    Response::builder().status(status).header("content-type", kind).body(body).unwrap()
}

/// What comes up through `peek`, for a POST unless said otherwise.
async fn peek<B: Body<Data = Bytes> + Unpin>(
    layer: PeekLayer,
    method: Method,
    response: Response<B>,
) -> Response<PeekBody<B>> {
    let response = Mutex::new(Some(response));
    let inner = service_fn(|_: Request<()>| {
        let response = response.lock().unwrap().take().unwrap();
        async { Ok::<_, Infallible>(response) }
    });
    let request = Request::builder().method(method).uri("/v1/messages").body(()).unwrap();
    layer.layer(inner).oneshot(request).await.unwrap()
}

fn verdict<B>(response: &Response<B>) -> Verdict {
    let outcome: Result<_, &Infallible> = Ok(response);
    llm().classify(outcome)
}

const STREAM: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";
const GREETING: &str = "data: {\"type\":\"message_start\"}\n\n";
const TOKEN: &str = "data: {\"type\":\"content_block_delta\"}\n\n";
const ERROR: &str = "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n";

#[tokio::test(start_paused = true)]
async fn a_greeting_is_held_back_for_a_time_and_then_passed_on() {
    let (send, body) = channel();
    send.send(data(GREETING)).unwrap();
    let began = Instant::now();
    let response = peek(PeekLayer::new(), Method::POST, answer(200, STREAM, body)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert!(verdict(&response).is_success());
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), GREETING);
    assert!(body.frame().now_or_never().is_none(), "the stream goes on");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_passed_on_at_once_and_so_is_a_failure() {
    for (event, success) in [(TOKEN, true), (ERROR, false)] {
        let (send, body) = channel();
        let (greeting, mid) = GREETING.split_at(9);
        for piece in [greeting, mid, event] {
            send.send(data(piece)).unwrap();
        }
        let began = Instant::now();
        let response = peek(PeekLayer::new(), Method::POST, answer(200, STREAM, body)).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(verdict(&response).is_success(), success);
        drop(send);
        let whole = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(whole, [GREETING, event].concat());
    }
}

/// Gemini without `alt=sse`, Ollama.
#[tokio::test(start_paused = true)]
async fn json_values_one_after_the_other_are_a_stream_too() {
    for (kind, first) in [
        (JSON, r#"[{"candidates":[{"content":{"parts":[{"text":"Hel"}]}}]}"#),
        ("application/x-ndjson", r#"{"message":{"content":"Hel"},"done":false}"#),
    ] {
        let (send, body) = channel();
        send.send(data(first)).unwrap();
        let response = peek(PeekLayer::new(), Method::POST, answer(200, kind, body)).now_or_never();
        assert!(verdict(&response.expect("passed on at once")).is_success());
    }
    let (send, body) = channel();
    send.send(data(r#"[{"error":{"code":503,"status":"UNAVAILABLE"}}"#)).unwrap();
    let response = peek(PeekLayer::new(), Method::POST, answer(200, JSON, body)).now_or_never();
    let failure = verdict(&response.expect("passed on at once")).failure().unwrap();
    assert_eq!(failure.class, ErrorClass::Transient);
}

#[tokio::test(start_paused = true)]
async fn a_failed_answer_that_never_ends_is_judged_by_what_came() {
    let (send, body) = channel();
    send.send(data("{\"error\":{\"code\":\"insufficient_quota\",")).unwrap();
    let layer = PeekLayer::new().time(Duration::from_secs(2)).unwrap();
    let response = peek(layer, Method::POST, answer(429, JSON, body)).await;
    assert_eq!(verdict(&response).failure().unwrap().class, ErrorClass::Quota);
    drop(send);

    // What is no JSON is not waited for.
    let (_send, body) = channel();
    _send.send(data("<html>")).unwrap();
    let response = peek(PeekLayer::new(), Method::GET, answer(503, "text/html", body))
        .now_or_never()
        .expect("passed on at once");
    assert_eq!(verdict(&response).failure().unwrap().class, ErrorClass::Transient);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_say_anything_is_not_held_back() {
    let untouched = |method: Method, response| {
        let response = peek(PeekLayer::new(), method, response).now_or_never();
        assert!(response.is_some_and(|response| verdict(&response).is_success()));
    };
    // Whose bodies come later, if ever.
    let (senders, bodies): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    let mut bodies = bodies.into_iter();
    let mut body = || bodies.next().unwrap();
    untouched(Method::GET, answer(200, JSON, body()));
    untouched(Method::POST, answer(200, "application/octet-stream", body()));
    let mut encoded = answer(200, JSON, body());
    encoded.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    untouched(Method::POST, encoded);
    drop(senders);
    // While a JSON answer is.
    for kind in [JSON, "application/x+JSON"] {
        let (_send, body) = channel();
        let held = peek(PeekLayer::new(), Method::POST, answer(200, kind, body));
        assert!(held.now_or_never().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn short_frames_do_not_pile_up_without_end() {
    let endless =
        StreamBody::new(stream::repeat_with(|| Ok::<_, io::Error>(Frame::data(Bytes::new()))));
    let response = peek(PeekLayer::new(), Method::POST, answer(200, STREAM, endless)).await;
    assert!(verdict(&response).is_success());
    assert!(format!("{:?}", response.body()).contains("frames: 1024"), "{:?}", response.body());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_drops_the_answer() {
    let (send, body) = channel();
    send.send(data(GREETING)).unwrap();
    let held = tokio::spawn(peek(PeekLayer::new(), Method::POST, answer(200, STREAM, body)));
    tokio::task::yield_now().await;
    held.abort();
    assert!(held.await.is_err());
    assert!(send.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_late_failure_is_told_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (first, second) = (Arc::clone(&told), Arc::clone(&told));
    let layer = PeekLayer::new()
        .on_late_failure(move |late| first.lock().unwrap().push(late.failure.class))
        .on_late_failure(move |late| second.lock().unwrap().push(late.failure.class));
    let (send, body) = channel();
    for piece in [TOKEN, ERROR, ERROR] {
        send.send(data(piece)).unwrap();
    }
    send.send(Err(io::Error::other("reset"))).unwrap();
    let response = peek(layer, Method::POST, answer(200, STREAM, body)).await;
    assert!(told.lock().unwrap().is_empty());
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(*told.lock().unwrap(), [ErrorClass::Transient; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_passed_on_at_the_limit_and_its_end_is_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    let layer = PeekLayer::new()
        .limit(50)
        .unwrap()
        .on_late_failure(move |late| hears.lock().unwrap().push(late.failure.class));
    let long = format!("{{\"content\":\"{}\",", "x".repeat(100));
    let (send, body) = channel();
    send.send(data(&long)).unwrap();
    let response = peek(layer, Method::POST, answer(200, JSON, body)).await;
    assert!(verdict(&response).is_success());
    send.send(data("\"stop_reason\":\"refusal\"}")).unwrap();
    drop(send);
    response.into_body().collect().await.unwrap();
    assert_eq!(*told.lock().unwrap(), [ErrorClass::Declined]);
}

#[test]
fn limits_of_nothing_are_refused() {
    assert_eq!(PeekLayer::new().limit(0).unwrap_err().field(), "limit");
    assert_eq!(PeekLayer::new().time(Duration::ZERO).unwrap_err().field(), "time");
}

/// What a body gives: frames, then its end.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Data(Vec<u8>),
    Trailers(String),
    Failed,
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let text = proptest::sample::select(vec![
        GREETING,
        TOKEN,
        ERROR,
        "data: ",
        "\n",
        "{",
        "}",
        "\"error\":",
        "null",
        "x",
        "",
    ]);
    let piece = prop_oneof![
        8 => text.prop_map(|text| Piece::Data(text.as_bytes().to_vec())),
        2 => proptest::collection::vec(any::<u8>(), 0..300).prop_map(Piece::Data),
        1 => "[a-z]{1,5}".prop_map(Piece::Trailers),
        1 => Just(Piece::Failed),
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|mut pieces| {
        // Behind an error nothing comes.
        if let Some(end) = pieces.iter().position(|piece| *piece == Piece::Failed) {
            pieces.truncate(end + 1);
        }
        pieces
    })
}

fn frame(piece: Piece) -> Item {
    match piece {
        Piece::Data(data) => Ok(Frame::data(data.into())),
        Piece::Trailers(value) => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-end", value.parse().unwrap());
            Ok(Frame::trailers(trailers))
        }
        Piece::Failed => Err(io::Error::other("failed")),
    }
}

fn piece(frame: Item) -> Piece {
    match frame.map(Frame::into_data) {
        Ok(Ok(data)) => Piece::Data(data.to_vec()),
        Ok(Err(frame)) => {
            let trailers = frame.into_trailers().unwrap();
            Piece::Trailers(trailers["x-end"].to_str().unwrap().to_owned())
        }
        Err(_) => Piece::Failed,
    }
}

proptest! {
    /// Whatever comes, in whatever frames, and however often it is waited for: the caller gets the
    /// same frames, the same trailers and the same error.
    #[test]
    fn every_frame_is_passed_on_as_it_came(
        pieces in pieces(),
        pauses in proptest::collection::vec(any::<bool>(), 20),
        status in proptest::sample::select(vec![200_u16, 429, 500]),
        kind in proptest::sample::select(vec![STREAM, JSON, "text/plain"]),
        limit in 1_usize..500,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let frames = stream::iter(pieces.clone()).zip(stream::iter(pauses)).then(|(piece, pause)| async move {
            if pause {
                tokio::task::yield_now().await;
            }
            frame(piece)
        });
        let body = StreamBody::new(frames.boxed());
        let got = runtime.block_on(async {
            let layer = PeekLayer::new().limit(limit).unwrap();
            let response = peek(layer, Method::POST, answer(status, kind, body)).await;
            let _ = verdict(&response);
            let mut body = response.into_body();
            let mut got = Vec::new();
            while let Some(frame) = body.frame().await {
                got.push(piece(frame));
            }
            assert!(body.is_end_stream());
            got
        });
        prop_assert_eq!(got, pieces);
    }

    /// However a stream is cut into frames, it gets the same verdict.
    #[test]
    fn any_framing_gives_the_same_verdict(
        texts in proptest::collection::vec(
            proptest::sample::select(vec![GREETING, TOKEN, ERROR, ": ping\n\n", "data: {\"e", "\n"]),
            0..6,
        ),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        limit in 1_usize..200,
    ) {
        let whole = texts.concat();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        ends.push(whole.len());
        ends.sort_unstable();
        let mut begin = 0;
        let cut = ends.iter().map(|end| whole[std::mem::replace(&mut begin, *end)..*end].to_owned());
        let judge = |pieces: Vec<String>| {
            let frames = stream::iter(pieces).map(|piece| data(&piece));
            let body = StreamBody::new(frames);
            let layer = PeekLayer::new().limit(limit).unwrap();
            let response = peek(layer, Method::POST, answer(200, STREAM, body)).now_or_never();
            verdict(&response.expect("nothing is waited for"))
        };
        prop_assert_eq!(judge(cut.collect()), judge(vec![whole.clone()]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_length_stays_what_it_was() {
    let body = http_body_util::Full::new(Bytes::from_static(b"{\"a\":1}"));
    let response = peek(PeekLayer::new(), Method::POST, answer(200, JSON, body)).await;
    let mut body = response.into_body();
    assert_eq!(body.size_hint().exact(), Some(7));
    assert!(!body.is_end_stream());
    let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await;
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "{\"a\":1}");
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(body.is_end_stream());
    let end = std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut body).poll_frame(cx)));
    assert!(matches!(end.await, Poll::Ready(None)));
}
