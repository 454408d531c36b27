//! Foreign bytes cost a bounded time and a bounded memory.

use std::convert::Infallible;
use std::future::ready;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::{Layer, Service, service_fn};
use tower_triage_llm::{BodyFacts, LlmFacts, PeekLayer};
use tower_triage_test_support::Stopwatch;

/// What tries a parser: nesting, escapes, long names and numbers, endless lines and events.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let many = |unit: &str| unit.repeat((4 << 20) / unit.len()).into_bytes();
    vec![
        ("arrays", many("[")),
        ("objects", many("{\"a\":")),
        ("quotes", many("\"")),
        ("a text", [b"{\"".to_vec(), many("x")].concat()),
        ("escapes", [b"\"".to_vec(), many("\\u0041\\")].concat()),
        ("digits", [b"[".to_vec(), many("9")].concat()),
        ("commas", [b"[".to_vec(), many("1,")].concat()),
        ("documents", many("{}")),
        ("errors", many("{\"error\":{\"code\":\"slow_down\"}}")),
        ("one line", [b"data: ".to_vec(), many("x")].concat()),
        ("lines", many("\n")),
        ("returns", many("\r")),
        ("data lines", many("data: {\n")),
        ("events", many("data: {\"type\":\"ping\"}\n\n")),
        ("fields", many("a:")),
        ("names", [b"event: ".to_vec(), many("error")].concat()),
        ("zeros", vec![0; 4 << 20]),
    ]
}

#[test]
fn no_beginning_of_a_body_costs_heap() {
    let headers = HeaderMap::new();
    for (name, body) in hostile() {
        let used = allocation_counter::measure(|| {
            let facts = LlmFacts {
                status: 200,
                headers: &headers,
                body: BodyFacts::read(&body),
                now: SystemTime::UNIX_EPOCH,
            };
            let _ = facts.verdict();
        });
        assert_eq!(used.bytes_total, 0, "{name}");
    }
}

/// Reads all of `body`, in frames of 16 KiB behind a first one, through the peek layer.
fn pass(kind: &str, first: &'static str, body: &Bytes) -> usize {
    let frames = std::iter::once(Bytes::from_static(first.as_bytes())).chain(
        (0..body.len()).step_by(16 << 10).map(|at| body.slice(at..body.len().min(at + (16 << 10)))),
    );
    let frames = stream::iter(frames.map(|data| Ok::<_, Infallible>(Frame::data(data))));
    let response = http::Response::builder().header("content-type", kind);
    let mut response = Some(response.body(StreamBody::new(frames)).unwrap());
    let inner = service_fn(move |_: http::Request<()>| {
        ready(Ok::<_, Infallible>(response.take().expect("one call")))
    });
    let mut peek = PeekLayer::new().layer(inner);
    let mut request = http::Request::new(());
    *request.method_mut() = http::Method::POST;
    let mut answered = None;
    let used = allocation_counter::measure(|| answered = peek.call(request).now_or_never());
    if !first.is_empty() {
        assert_eq!(used.count_total, 2, "what reads on, and the list of frames held back");
    }
    let mut body = answered.unwrap().unwrap().into_body();
    std::iter::from_fn(|| body.frame().now_or_never().unwrap())
        .map(|frame| frame.unwrap().into_data().unwrap().len())
        .sum()
}

#[test]
fn a_body_that_passes_costs_a_bounded_time_and_memory() {
    for (name, body) in hostile() {
        let body = Bytes::from(body);
        for (kind, first) in [
            ("text/event-stream", "data: {\"type\":\"token\"}\n\n"),
            // Held back up to the limit.
            ("text/event-stream", ""),
            ("application/json", ""),
        ] {
            let watch = Stopwatch::start();
            let mut passed = 0;
            let used = allocation_counter::measure(|| passed = pass(kind, first, &body));
            assert_eq!(passed, body.len() + first.len(), "{name}");
            // 4 MiB, in a build without optimisation.
            let took = watch.time();
            assert!(took < Duration::from_secs(2), "{name}: {took:?}");
            // The frames' own storage is the test's; the layer keeps a list of what it holds back.
            assert!(used.bytes_max < 8 << 10, "{name}: {} bytes", used.bytes_max);
        }
    }
}
