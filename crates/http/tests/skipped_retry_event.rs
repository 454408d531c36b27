//! What the log says of a retry that was skipped. Alone in its process: a subscriber of one thread
//! may miss events whose call site another thread meets first.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage_core::Classifier;
use tower_triage_http::http;
use tower_triage_retry::{Never, RetryLayer};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn kf12_an_event_says_that_the_retry_was_skipped_and_why() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    for (status, skipped) in [(200, false), (503, true)] {
        let service = service_fn(move |_: Request<()>| {
            let response = Response::builder().status(status).body(()).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let retry = RetryLayer::new(Classifier::new(http())).replay(Never);
        retry.layer(service).oneshot(Request::put("/").body(()).unwrap()).await.unwrap();
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.contains("not replayable: nothing is kept"), skipped, "{log}");
    }
}
