//! What fails in the middle of an answer is said in the log. Alone in its process, because it looks
//! at everything that is logged.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_triage_grpc::PeekLayer;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The log of one call whose answer has a message, and then this status.
async fn log_of(status: &'static str) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _entered = tracing::subscriber::set_default(subscriber);
    let peer = service_fn(async |_: Request<()>| {
        let trailers = async move {
            let status = ("grpc-status".parse().unwrap(), status.parse().unwrap());
            Some(Ok::<_, Infallible>(HeaderMap::from_iter([status])))
        };
        let mut response =
            Response::new(Box::pin(Full::new(Bytes::from("message")).with_trailers(trailers)));
        *response.version_mut() = Version::HTTP_2;
        Ok::<_, Infallible>(response)
    });
    let stack = ServiceBuilder::new().layer(PeekLayer::new()).service(peer);
    let request = Request::post("/shop.Orders/Watch").body(()).unwrap();
    let response = stack.oneshot(request).await.unwrap();
    response.into_body().collect().await.unwrap();
    let log = log.0.lock().unwrap();
    String::from_utf8_lossy(&log).into_owned()
}

#[tokio::test]
async fn kf25_an_answer_that_fails_after_it_has_begun_is_reported() {
    let log = log_of("14").await;
    for said in ["WARN", "late_failure", "shop.Orders/Watch", "grpc_unavailable"] {
        assert!(log.contains(said), "{said} in {log}");
    }
    assert_eq!(log_of("0").await, "");
}
