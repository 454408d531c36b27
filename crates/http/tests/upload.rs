//! A large upload through the layers, over a real socket: memory and time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_triage_core::{AnyError, Classifier, Notes, Refusal, StepKind};
use tower_triage_http::{HttpReplay, ReplayBody, ReplayBodyLayer, http};
use tower_triage_retry::{RetryLayer, RetryPolicy};
use tower_triage_test_support::Stopwatch;

const GIB: u64 = 1024 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;
const LIMIT: u64 = 64 * 1024;

/// Frames of 32 KiB, made when they are asked for.
struct Generated {
    left: u64,
    exact: bool,
}

impl Body for Generated {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let size = self.left.min(32 * 1024);
        if size == 0 {
            return Poll::Ready(None);
        }
        self.left -= size;
        Poll::Ready(Some(Ok(Frame::data(vec![7; size as usize].into()))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.exact { SizeHint::with_exact(self.left) } else { SizeHint::default() }
    }
}

/// Counts the bytes of each request and answers 503.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = |request: Request<Incoming>| async {
        let (mut body, mut bytes) = (request.into_body(), 0);
        while let Some(frame) = body.frame().await {
            bytes += frame.unwrap().into_data().unwrap().len();
        }
        let response = Response::builder().status(503).header("x-bytes", bytes);
        Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
    };
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let served =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(count));
            tokio::spawn(served);
        }
    });
    address
}

/// What one upload cost.
struct Cost {
    /// The most memory that was in use at once, beyond what was in use before.
    peak: u64,
    time: Duration,
    why: Option<Refusal>,
}

/// Uploads `bytes` over a connection of its own, all in this thread.
fn upload<S>(bytes: u64, exact: bool, stack: impl FnOnce() -> S) -> Cost
where
    S: Service<Request<Generated>, Response = Response<Incoming>, Error = AnyError>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = runtime.block_on(server());
    let mut cost = Cost { peak: 0, time: Duration::ZERO, why: None };
    let used = allocation_counter::measure(|| {
        runtime.block_on(async {
            let watch = Stopwatch::start();
            let body = Generated { left: bytes, exact };
            let request = Request::put(format!("http://{address}/")).body(body).unwrap();
            let response = stack().oneshot(request).await.unwrap();
            cost.time = watch.time();
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()["x-bytes"], bytes.to_string(), "all of it, once");
            let notes = response.extensions().get::<Notes>();
            let incident = notes.and_then(|notes| notes.incident.clone());
            cost.why = incident.and_then(|incident| {
                incident.steps.iter().find_map(|step| match step.kind {
                    StepKind::NotRetried { why } => Some(why),
                    _ => None,
                })
            });
        });
    });
    cost.peak = used.bytes_max;
    cost
}

fn client<B>() -> Client<hyper_util::client::legacy::connect::HttpConnector, B>
where
    B: Body<Data = Bytes, Error: Into<tower_triage_core::BoxError>> + Send + Unpin + 'static,
{
    Client::builder(TokioExecutor::new()).build_http()
}

fn bare(bytes: u64) -> Cost {
    upload(bytes, false, || client::<Generated>().map_err(AnyError::from))
}

fn layered(bytes: u64, exact: bool, policy: RetryPolicy) -> Cost {
    upload(bytes, exact, || {
        ServiceBuilder::new()
            .layer(ReplayBodyLayer::new().limit(LIMIT))
            .layer(
                RetryLayer::new(Classifier::new(http()))
                    .policy(policy.build().unwrap())
                    .replay(HttpReplay::new()),
            )
            .map_err(AnyError::from)
            .service(client::<ReplayBody<Generated>>())
    })
}

#[test]
fn kf14_a_gibibyte_passes_within_the_limit_and_a_mebibyte() {
    let usual = RetryPolicy::default;
    bare(MIB);
    let without = bare(GIB);

    let grown = layered(GIB, false, usual());
    let why = "the request body grew over the replay limit";
    assert_eq!(grown.why, Some(Refusal::NotReplayable(why)));

    let declared = layered(GIB, true, usual());
    let why = "the request body's length is over the replay limit";
    assert_eq!(declared.why, Some(Refusal::NotReplayable(why)));

    let once = layered(64 * MIB, false, usual().attempts(1));
    assert_eq!(once.why, Some(Refusal::AttemptsUsedUp));

    for (name, with) in [("unknown length", &grown), ("declared", &declared), ("no retry", &once)] {
        println!(
            "{name}: {} KiB at most, without layers {}",
            with.peak / 1024,
            without.peak / 1024
        );
        assert!(with.peak <= without.peak + LIMIT + MIB, "{name}: {} bytes", with.peak);
    }

    // Without the time that other processes took; in turn, so that both have the same neighbours; the
    // best of each, since who shares caches and the machine costs time all the same. On a busy machine
    // it takes more rounds until both had a quiet one.
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    let mut ratio = 0.0;
    for _ in 0..16 {
        without = without.min(bare(GIB / 4).time);
        with = with.min(layered(GIB / 4, false, usual()).time);
        ratio = without.as_secs_f64() / with.as_secs_f64();
        if ratio >= 0.95 {
            break;
        }
    }
    println!("throughput with the layers: {:.1} % of that without", 100.0 * ratio);
    assert!(ratio >= 0.95, "{with:?} instead of {without:?}");
}
