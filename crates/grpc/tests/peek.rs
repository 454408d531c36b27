//! The body under a peek is the body: same frames, same hints, whatever comes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use proptest::prelude::*;
use tonic::Status;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{Classify, ErrorClass};
use tower_triage_grpc::{PeekBody, PeekLayer, Peeked, grpc};

#[derive(Clone, Debug)]
enum Piece {
    Data(Vec<u8>),
    Trailers(Option<String>),
    Error,
    /// Nothing, this time.
    Later,
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..8).prop_map(Piece::Data),
        1 => proptest::option::of("[0-9]{0,3}").prop_map(Piece::Trailers),
        1 => Just(Piece::Error),
        2 => Just(Piece::Later),
    ];
    proptest::collection::vec(piece, 0..6)
}

#[derive(Clone)]
struct Played(VecDeque<Piece>);

impl Body for Played {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(match self.0.pop_front() {
            None => None,
            Some(Piece::Data(data)) => Some(Ok(Frame::data(data.into()))),
            Some(Piece::Trailers(status)) => Some(Ok(Frame::trailers(trailers(status.as_deref())))),
            Some(Piece::Error) => Some(Err(Status::unavailable("broke off"))),
            Some(Piece::Later) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.0.iter().map(|piece| match piece {
            Piece::Data(data) => data.len() as u64,
            _ => 0,
        });
        SizeHint::with_exact(bytes.sum())
    }
}

fn trailers(status: Option<&str>) -> HeaderMap {
    let status = status.map(|status| HeaderValue::from_str(status).unwrap());
    status.into_iter().map(|status| ("grpc-status".parse().unwrap(), status)).collect()
}

/// The frames as text, to compare them.
async fn read<B: Body<Data = Bytes, Error = Status> + Unpin>(mut body: B) -> Vec<String> {
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        frames.push(match frame {
            // Says nothing, and may be left out.
            Ok(frame) if frame.data_ref().is_some_and(Bytes::is_empty) => continue,
            Ok(frame) => format!("{frame:?}"),
            Err(status) => status.message().to_owned(),
        });
    }
    frames
}

async fn through(pieces: &[Piece], wait: Duration) -> Response<PeekBody<Played>> {
    let played = Played(pieces.iter().cloned().collect());
    let mut response = Response::new(played);
    *response.version_mut() = Version::HTTP_2;
    let mut response = Some(response);
    let peer = service_fn(move |_: Request<()>| {
        let response = response.take().expect("one call");
        async move { Ok::<_, Infallible>(response) }
    });
    let mut stack = ServiceBuilder::new().layer(PeekLayer::new().wait(wait)).service(peer);
    stack.ready().await.unwrap().call(Request::new(())).await.unwrap()
}

fn run<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn every_frame_passes_as_it_is(pieces in pieces(), wait in prop_oneof![Just(0), Just(50)]) {
        run(async {
            let response = through(&pieces, Duration::from_millis(wait)).await;
            let said = response.extensions().get::<Peeked>().cloned();
            let says_nothing = |piece: &Piece| match piece {
                Piece::Data(data) => data.is_empty(),
                Piece::Later => true,
                Piece::Trailers(_) | Piece::Error => false,
            };
            let first = pieces.iter().find(|piece| !says_nothing(piece));
            let at_once = pieces.iter().take_while(|piece| says_nothing(piece));
            let at_once = at_once.filter(|piece| matches!(piece, Piece::Later)).count() == 0;
            // Without a wait nothing is known of a first frame that is not there yet.
            if wait > 0 || at_once {
                match first {
                    Some(Piece::Data(_)) => prop_assert!(said.is_none()),
                    Some(Piece::Trailers(_)) => {
                        prop_assert!(matches!(said, Some(Peeked::Trailers(_))));
                    }
                    Some(Piece::Error) => prop_assert!(matches!(said, Some(Peeked::Failed(_)))),
                    _ => prop_assert!(matches!(said, Some(Peeked::End))),
                }
            }
            let whole = Played(pieces.iter().cloned().collect());
            prop_assert_eq!(response.body().size_hint().exact(), whole.size_hint().exact());
            prop_assert_eq!(read(response.into_body()).await, read(whole).await);
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_frame_that_does_not_come_is_not_waited_for_longer_than_asked() {
    struct Never;
    impl Body for Never {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Pending
        }
    }
    let peer = service_fn(async |_: Request<()>| {
        let mut response = Response::new(Never);
        *response.version_mut() = Version::HTTP_2;
        Ok::<_, Infallible>(response)
    });
    let layer = PeekLayer::new().wait(Duration::from_millis(70));
    let begun = tokio::time::Instant::now();
    let stack = ServiceBuilder::new().layer(layer).service(peer);
    let answer = tokio::time::timeout(Duration::from_secs(9), stack.oneshot(Request::new(())));
    let response = answer.await.expect("an answer in time").unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(70));
    assert!(response.extensions().get::<Peeked>().is_none());
    let outcome: Result<_, &Infallible> = Ok(&response);
    assert!(grpc().classify(outcome).is_success(), "the status is still to come");
}

/// A stream that breaks off before its first message can be repeated, as its failure says.
#[tokio::test]
async fn what_breaks_off_at_once_has_the_failure_of_its_error() {
    let response = through(&[Piece::Error], Duration::from_millis(50)).await;
    let outcome: Result<_, &Infallible> = Ok(&response);
    let failure = grpc().classify(outcome).failure().unwrap();
    assert_eq!((failure.class, failure.reason), (ErrorClass::Transient, "grpc_unavailable"));
}

/// On HTTP/1.1 (grpc-web) nobody looks.
#[tokio::test]
async fn only_http2_is_looked_at() {
    let peer = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Played(VecDeque::from([Piece::Trailers(None)]))))
    });
    let stack = ServiceBuilder::new().layer(PeekLayer::new()).service(peer);
    let response = stack.oneshot(Request::new(())).await.unwrap();
    assert!(response.extensions().get::<Peeked>().is_none());
}

/// A tonic server whose time for a call is up says CANCELLED.
#[tokio::test(start_paused = true)]
async fn cancelled_after_the_deadline_is_a_timeout() {
    for (in_trailers, timeout, class) in [
        (false, Some("1S"), ErrorClass::Timeout),
        (true, Some("1S"), ErrorClass::Timeout),
        (false, Some("3S"), ErrorClass::Cancelled),
        (true, None, ErrorClass::Cancelled),
    ] {
        let peer = service_fn(move |_: Request<()>| async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let status = trailers(Some("1"));
            let pieces = in_trailers.then(|| Piece::Trailers(Some("1".to_owned())));
            let mut response = Response::new(Played(pieces.into_iter().collect()));
            *response.version_mut() = Version::HTTP_2;
            if !in_trailers {
                *response.headers_mut() = status;
            }
            Ok::<_, Infallible>(response)
        });
        let mut request = Request::new(());
        if let Some(timeout) = timeout {
            request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
        }
        let stack = ServiceBuilder::new().layer(PeekLayer::new()).service(peer);
        let response = stack.oneshot(request).await.unwrap();
        let outcome: Result<_, &Infallible> = Ok(&response);
        assert_eq!(grpc().classify(outcome).failure().unwrap().class, class, "{timeout:?}");
    }
}
