//! The event for whoever names nobody else to tell. Alone in its process: other tests' callsites would
//! decide who is asked.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::{Layer, Service, service_fn};
use tower_triage_llm::PeekLayer;

const TOKEN: &str = "data: {\"type\":\"content_block_delta\"}\n\n";
const PING: &str = "data: {\"type\":\"ping\"}\n\n";
const ERROR: &str = "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n";

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn kf25_a_late_failure_is_one_warning() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let pieces = [TOKEN, ERROR, PING, ERROR].map(|data| Ok(Frame::data(Bytes::from(data))));
        let broken = std::iter::once(Err(io::Error::other("reset")));
        let body = StreamBody::new(stream::iter(pieces.into_iter().chain(broken)));
        let response = http::Response::builder().header("content-type", "text/event-stream");
        let mut response = Some(response.body(body).unwrap());
        let mut peek = PeekLayer::new().layer(service_fn(move |_: http::Request<()>| {
            std::future::ready(Ok::<_, Infallible>(response.take().unwrap()))
        }));
        let request = http::Request::post("/v1/messages").body(()).unwrap();
        let body = peek.call(request).now_or_never().unwrap().unwrap().into_body();
        assert!(body.collect().now_or_never().unwrap().is_err());
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    assert!(log.contains("Transient") && log.contains("http_500"), "{log}");
}
