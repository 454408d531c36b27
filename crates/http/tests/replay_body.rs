//! A replayable body by itself: what its clones give, when they refuse, and what is kept.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage_core::{AnyError, Backoff, Classifier, Notes, Refusal, StepKind};
use tower_triage_http::{HttpReplay, ReplayBody, ReplayBodyLayer, Replayable, http};
use tower_triage_retry::{RetryLayer, RetryPolicy};

type Item = Result<Frame<Bytes>, io::Error>;

/// A stream that can be read once.
struct Once {
    items: VecDeque<Item>,
    exact: bool,
    /// Nothing more comes after the items, not even the end.
    hangs: bool,
}

impl Once {
    fn new(items: impl IntoIterator<Item = Item>) -> Self {
        Self { items: items.into_iter().collect(), exact: false, hangs: false }
    }

    fn of(texts: &[&'static str]) -> Self {
        Self::new(texts.iter().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
    }

    fn bytes_left(&self) -> u64 {
        let length =
            |item: &Item| item.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
        self.items.iter().map(length).sum::<usize>() as u64
    }
}

impl Body for Once {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Item>> {
        match self.items.pop_front() {
            None if self.hangs => Poll::Pending,
            item => Poll::Ready(item),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exact && self.items.is_empty() && !self.hangs
    }

    fn size_hint(&self) -> SizeHint {
        if self.exact { SizeHint::with_exact(self.bytes_left()) } else { SizeHint::default() }
    }
}

type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// One poll.
fn poll<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Polled<B::Error> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

/// Reads until the end, an error, or a wait: the data, the trailers, the error.
fn read<B>(body: &mut B) -> (Bytes, Option<HeaderMap>, Option<B::Error>)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: fmt::Debug,
{
    let (mut data, mut trailers) = (BytesMut::new(), None);
    loop {
        match poll(body) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(chunk) => data.extend_from_slice(&chunk),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            Poll::Ready(Some(Err(error))) => return (data.freeze(), trailers, Some(error)),
            Poll::Ready(None) | Poll::Pending => return (data.freeze(), trailers, None),
        }
    }
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([("x-sum".parse().unwrap(), "17".parse().unwrap())])
}

fn refusal<B: Body>(body: &ReplayBody<B>) -> &'static str {
    body.replayable().unwrap_err()
}

#[test]
fn a_clone_gives_data_and_trailers_again() {
    let mut once = Once::of(&["ab", "", "cd"]);
    once.items.push_back(Ok(Frame::trailers(trailers())));
    let mut first = ReplayBody::new(once);
    let kept = first.clone();
    let whole = (Bytes::from("abcd"), Some(trailers()));
    let (data, end, _) = read(&mut first);
    assert_eq!((data, end), whole);
    // The first one is still there, but has nothing left that a clone needs.
    for mut again in [kept.clone(), kept, first.clone()] {
        assert_eq!(again.replayable(), Ok(()));
        let (data, end, _) = read(&mut again);
        assert_eq!((data, end), whole);
        assert!(again.is_end_stream());
    }
}

#[test]
fn a_reader_dropped_midway_hands_the_stream_over() {
    let mut first = ReplayBody::new(Once::of(&["ab", "cd", "ef"]));
    let kept = first.clone();
    let _ = poll(&mut first);
    drop(first);
    let mut second = kept.clone();
    let _ = (poll(&mut second), poll(&mut second));
    drop(second);
    assert_eq!(kept.replayable(), Ok(()));
    assert_eq!(read(&mut kept.clone()).0, "abcdef");
}

#[test]
fn while_one_reads_the_others_are_refused() {
    let mut once = Once::of(&["ab"]);
    once.hangs = true;
    let mut first = ReplayBody::new(once);
    let kept = first.clone();
    assert_eq!(kept.replayable(), Ok(()));
    assert_eq!(read(&mut first).0, "ab");
    let held = "an earlier attempt still holds the request body";
    assert_eq!((refusal(&kept), refusal(&first)), (held, held));
    let mut early = kept.clone();
    let (data, _, error) = read(&mut early);
    assert_eq!((data.len(), error.unwrap().not_replayable()), (0, Some(held)));
    assert!(matches!(poll(&mut early), Poll::Ready(None)), "said once");
    drop(first);
    assert_eq!(kept.replayable(), Ok(()));
    assert_eq!(early.replayable(), Err(held), "what failed stays failed");
}

#[test]
fn over_the_limit_it_flows_on_and_is_lost_to_replay() {
    let mut first = ReplayBody::with_limit(Once::of(&["ab", "cd", "ef"]), 4);
    let kept = first.clone();
    let _ = (poll(&mut first), poll(&mut first), poll(&mut first));
    let grown = "the request body grew over the replay limit";
    assert_eq!((refusal(&kept), refusal(&first)), (grown, grown));
    drop(first);
    assert_eq!(refusal(&kept), grown);

    let mut first = ReplayBody::with_limit(Once::of(&["ab", "cd"]), 4);
    let kept = first.clone();
    assert_eq!(read(&mut first).0, "abcd");
    assert_eq!(read(&mut kept.clone()).0, "abcd", "the limit itself is within");

    let mut first = ReplayBody::with_limit(Once::of(&["abcde", "f"]), 4);
    let _kept = first.clone();
    assert_eq!(read(&mut first).0, "abcdef", "nothing is lost of the body itself");
}

#[test]
fn a_declared_length_over_the_limit_is_left_alone() {
    let mut long = Once::of(&["abc", "def"]);
    long.exact = true;
    let mut body = ReplayBody::with_limit(long, 5);
    let declared = "the request body's length is over the replay limit";
    assert_eq!(refusal(&body), declared);
    let clone = body.clone();
    assert_eq!(refusal(&clone), declared);
    assert_eq!(body.size_hint().exact(), Some(6));
    assert_eq!(read(&mut body).0, "abcdef");
}

#[test]
fn a_failed_body_says_so_and_keeps_its_error() {
    let broken = || Err(io::Error::new(io::ErrorKind::UnexpectedEof, "broken"));
    let mut first = ReplayBody::new(Once::new([Ok(Frame::data("ab".into())), broken()]));
    let kept = first.clone();
    let (data, _, error) = read(&mut first);
    let error = error.unwrap();
    assert_eq!((&data[..], error.not_replayable()), (&b"ab"[..], None));
    let source = std::error::Error::source(&error).unwrap();
    let kind = source.downcast_ref::<io::Error>().unwrap().kind();
    assert_eq!(kind, io::ErrorKind::UnexpectedEof);
    assert_eq!(refusal(&kept), "the request body failed while it was sent");
}

#[test]
fn a_body_read_before_it_was_cloned_is_refused() {
    let mut body = ReplayBody::new(Once::of(&["ab", "cd"]));
    assert_eq!(body.replayable(), Ok(()));
    let _ = poll(&mut body);
    let late = body.clone();
    assert_eq!(refusal(&late), "the request body was read before a copy of it was made");
    assert_eq!(read(&mut body).0, "cd");
}

#[test]
fn an_empty_body_is_empty_and_replayable_whatever_the_limit() {
    for mut body in [0, 10].map(|limit| ReplayBody::with_limit(Full::new(Bytes::new()), limit)) {
        let clone = body.clone();
        assert!(body.is_end_stream() && clone.is_end_stream());
        assert_eq!(clone.size_hint().exact(), Some(0));
        assert_eq!((body.replayable(), clone.replayable()), (Ok(()), Ok(())));
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }
}

/// Data that tells how much of it is alive.
struct Tracked(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// Generates `frames` frames of 16 KiB when they are asked for.
struct Generated {
    frames: usize,
    alive: Arc<AtomicUsize>,
    exact: bool,
}

const FRAME: usize = 16 * 1024;

impl Body for Generated {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(left) = self.frames.checked_sub(1) else { return Poll::Ready(None) };
        self.frames = left;
        self.alive.fetch_add(FRAME, Ordering::Relaxed);
        let data = Tracked(vec![7; FRAME], Arc::clone(&self.alive));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(data)))))
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = (self.frames * FRAME) as u64;
        if self.exact { SizeHint::with_exact(bytes) } else { SizeHint::default() }
    }
}

/// Sends 64 frames of 16 KiB to a service that reads them all and answers 503, under a retry layer
/// with the default limit: the most that was alive between two frames, the calls, and what the incident says.
async fn upload(method: &str, exact: bool, policy: RetryPolicy) -> (usize, usize, Option<Refusal>) {
    let (alive, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, calls) = (Arc::clone(&most), Arc::new(AtomicUsize::new(0)));
    let (now, called) = (Arc::clone(&alive), Arc::clone(&calls));
    let inner = service_fn(move |request: ::http::Request<ReplayBody<Generated>>| {
        called.fetch_add(1, Ordering::Relaxed);
        let (now, most) = (Arc::clone(&now), Arc::clone(&counted));
        async move {
            let mut body = request.into_body();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame.unwrap().data_ref().map_or(0, Bytes::len);
                most.fetch_max(now.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            assert_eq!(bytes, 64 * FRAME);
            let response = ::http::Response::builder().status(503);
            Ok::<_, AnyError>(response.body(Full::<Bytes>::default()).unwrap())
        }
    });
    let plan = policy.backoff(&Backoff::immediate());
    let retry = RetryLayer::new(Classifier::new(http()))
        .policy(plan.build().unwrap())
        .replay(HttpReplay::new());
    let stack = ReplayBodyLayer::new().layer(retry.layer(inner));
    let body = Generated { frames: 64, alive: Arc::clone(&alive), exact };
    let request = ::http::Request::builder().method(method).body(body).unwrap();
    let response = stack.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(alive.load(Ordering::Relaxed), 0, "nothing stays");
    let incident = response.extensions().get::<Notes>().unwrap().incident.clone().unwrap();
    let why = incident.steps.iter().find_map(|step| match step.kind {
        StepKind::NotRetried { why } => Some(why),
        _ => None,
    });
    (most.load(Ordering::Relaxed), calls.load(Ordering::Relaxed), why)
}

#[tokio::test]
async fn kf14_copies_are_bounded_and_made_only_where_they_could_be_used() {
    let usual = RetryPolicy::default;
    let (most, calls, why) = upload("PUT", false, usual()).await;
    // What is kept; the frame over it drops it.
    assert_eq!((most, calls), (4 * FRAME, 1));
    let grown = "the request body grew over the replay limit";
    assert_eq!(why, Some(Refusal::NotReplayable(grown)));

    let (most, calls, why) = upload("PUT", true, usual()).await;
    assert_eq!((most, calls), (0, 1), "too long from the start: never copied");
    let declared = "the request body's length is over the replay limit";
    assert_eq!(why, Some(Refusal::NotReplayable(declared)));

    for (method, policy) in
        [("PUT", usual().attempts(1)), ("PATCH", usual().keep_unrepeatable(false))]
    {
        let (most, calls, _) = upload(method, false, policy).await;
        assert_eq!((most, calls), (0, 1), "not repeated, so not copied");
    }
}

/// The retry layer keeps its clone until there is an answer; after that nothing more is copied.
#[test]
fn copying_ends_with_the_last_clone() {
    let alive = Arc::new(AtomicUsize::new(0));
    let body = Generated { frames: 64, alive: Arc::clone(&alive), exact: false };
    let mut body = ReplayBody::new(body);
    let kept = body.clone();
    let _ = (poll(&mut body), poll(&mut body));
    assert_eq!(alive.load(Ordering::Relaxed), 2 * FRAME);
    drop(kept);
    let _ = poll(&mut body);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// A request that will not be repeated costs nothing, and neither does a body known to be too long.
#[test]
fn kf14_without_a_clone_there_is_no_allocation() {
    let made = |items: &[&'static str], exact| {
        let mut once = Once::of(items);
        once.exact = exact;
        once
    };
    for (exact, limit, cloned) in [(false, 1024, false), (true, 1024, false), (true, 3, true)] {
        let once = made(&["ab", "cd"], exact);
        let used = allocation_counter::measure(|| {
            let mut body = ReplayBody::with_limit(once, limit);
            let clone = cloned.then(|| body.clone());
            while let Poll::Ready(Some(frame)) = poll(&mut body) {
                assert!(frame.is_ok());
            }
            drop(clone);
        });
        assert_eq!(used.count_total, 0);
    }
}

/// What happens in turn to one body.
#[derive(Clone, Debug)]
struct Story {
    sizes: Vec<usize>,
    trailers: bool,
    exact: bool,
    fails: bool,
    limit: u64,
    /// How many frames each reader reads before it is dropped, or stays.
    readers: Vec<(usize, bool)>,
}

fn stories() -> impl Strategy<Value = Story> {
    let sizes = prop::collection::vec(prop_oneof![0..4_usize, 400..2000_usize], 0..12);
    let readers = prop::collection::vec((0..16_usize, prop::bool::weighted(0.9)), 1..6);
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2));
    let limit = prop_oneof![0..10_u64, 0..20_000_u64, Just(1 << 20)];
    (sizes, flags, limit, readers).prop_map(|(sizes, flags, limit, readers)| {
        let (trailers, exact, fails) = flags;
        Story { sizes, trailers, exact, fails, limit, readers }
    })
}

/// Counts what was taken from the stream.
struct Counted(Once, Arc<AtomicUsize>);

impl Body for Counted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.1.fetch_add(frame.data_ref().map_or(0, Bytes::len), Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever reads, however far: each reader gets the body from its beginning, and a clone refuses
    /// exactly where it must.
    #[test]
    fn readers_in_turn(story in stories()) {
        let total: usize = story.sizes.iter().sum();
        let mut whole = (0..=u8::MAX).cycle().take(total).collect::<Bytes>();
        let all = whole.clone();
        let mut once = Once::new(story.sizes.iter().map(|size| Ok(Frame::data(whole.split_to(*size)))));
        if story.fails {
            once.items.push_back(Err(io::ErrorKind::Other.into()));
        } else if story.trailers {
            once.items.push_back(Ok(Frame::trailers(trailers())));
        }
        once.exact = story.exact;
        let empty = once.is_end_stream();
        let taken = Arc::new(AtomicUsize::new(0));
        let kept = ReplayBody::with_limit(Counted(once, Arc::clone(&taken)), story.limit);
        let mut next = Some(kept.clone());
        // Cloning may be all that a declared length allows: the original is read then.
        let declared = story.exact && total as u64 > story.limit;
        let mut staying = Vec::new();
        let (mut failed, mut held, mut complete) = (false, false, false);

        for (frames, dropped) in story.readers {
            let Some(mut reader) = next.take() else { break };
            prop_assert_eq!(reader.replayable().is_err(), declared);
            if declared {
                prop_assert_eq!(reader.size_hint().exact(), None);
                break;
            }
            let (mut read, mut ended, mut sum) = (0, reader.is_end_stream(), None);
            for _ in 0..frames {
                if story.exact && !failed {
                    prop_assert_eq!(reader.size_hint().exact(), Some((total - read) as u64));
                }
                match poll(&mut reader) {
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => {
                            prop_assert_eq!(&data, &all.slice(read..read + data.len()));
                            read += data.len();
                        }
                        Err(frame) => sum = frame.into_trailers().ok(),
                    },
                    Poll::Ready(Some(Err(_))) => {
                        prop_assert!(story.fails && read == total);
                        failed = true;
                        break;
                    }
                    Poll::Ready(None) => {
                        prop_assert_eq!(read, total);
                        prop_assert_eq!(sum.is_some(), story.trailers && !story.fails);
                        ended = true;
                        break;
                    }
                    Poll::Pending => prop_assert!(false, "it never waits"),
                }
            }
            complete |= ended || reader.is_end_stream();
            // Before its first frame it holds nothing, and after the last there is nothing to hold.
            held = !dropped && !complete && frames > 0;
            if dropped { drop(reader) } else { staying.push(reader) }

            let read_over = taken.load(Ordering::Relaxed) as u64 > story.limit;
            let expected = match () {
                () if empty => Ok(()),
                () if read_over => Err("grew over"),
                () if failed => Err("failed"),
                () if held => Err("still holds"),
                () => Ok(()),
            };
            match (kept.replayable(), expected) {
                (Ok(()), Ok(())) => next = Some(kept.clone()),
                (Err(why), Err(part)) => prop_assert!(why.contains(part), "{} {}", why, part),
                (is, expected) => prop_assert!(false, "{:?}, expected {:?}", is, expected),
            }
        }
        prop_assert!(taken.load(Ordering::Relaxed) <= total, "nothing is read twice");
        if let Some(mut last) = next.filter(|_| !declared) {
            let over = total as u64 > story.limit;
            let (data, sum, error) = read(&mut last);
            prop_assert_eq!(data, all);
            prop_assert_eq!(sum.is_some(), story.trailers && !story.fails);
            prop_assert_eq!(error.is_some(), story.fails);
            let whole = !over && !story.fails && !held;
            prop_assert_eq!(kept.replayable().is_ok(), whole || empty);
        }
    }
}
