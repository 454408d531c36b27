//! The send rate that adapts to throttling, below a retry.

use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{AnyOk, Classifier, ErrorClass, Failure, Halves, OwnError, ToFailure};
use tower_triage_retry::budget::Budget;
use tower_triage_retry::{AdaptiveLayer, RetryLayer, SendRate};

type Rules = Halves<AnyOk, OwnError>;

fn classifier() -> Classifier<Rules> {
    Classifier::new(Halves { response: AnyOk, error: OwnError })
}

#[derive(Debug)]
struct Failed(ErrorClass);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for Failed {}

impl ToFailure for Failed {
    fn to_failure(&self) -> Failure {
        self.0.into()
    }
}

/// Answers at most so many requests in each second; the rest it throttles.
#[derive(Clone)]
struct Server {
    limit: Arc<Mutex<u32>>,
    seen: Arc<Mutex<Vec<(Duration, bool)>>>,
    begun: Instant,
}

impl Server {
    fn new(limit: u32) -> Self {
        Self { limit: Arc::new(Mutex::new(limit)), seen: Arc::default(), begun: Instant::now() }
    }

    fn service(
        &self,
    ) -> impl Service<(), Response = (), Error = Failed, Future = Ready<Result<(), Failed>>>
    + Clone
    + use<> {
        let server = self.clone();
        service_fn(move |()| {
            let now = server.begun.elapsed();
            let mut seen = server.seen.lock().unwrap();
            let this_second =
                seen.iter().rev().take_while(|(at, _)| at.as_secs() == now.as_secs()).count();
            let answered = this_second < *server.limit.lock().unwrap() as usize;
            seen.push((now, answered));
            ready(if answered { Ok(()) } else { Err(Failed(ErrorClass::Throttled)) })
        })
    }

    /// Requests, and how many of them were throttled, in these seconds.
    fn between(&self, from: u64, to: u64) -> (usize, usize) {
        let seen = self.seen.lock().unwrap();
        let within = seen.iter().filter(|(at, _)| (from..to).contains(&at.as_secs()));
        let throttled = within.clone().filter(|(_, answered)| !answered).count();
        (within.count(), throttled)
    }
}

/// R10: frequent rate limits lengthen the waits by themselves; when they cease, they shorten again.
#[tokio::test(start_paused = true)]
async fn r10_the_rate_follows_what_the_dependency_bears() {
    let server = Server::new(10);
    let rate = AdaptiveLayer::new(classifier());
    let mut service = rate.layer(server.service());
    let mut clock = tokio::time::interval(Duration::from_millis(10));
    let mut run = async |seconds: u64| {
        while server.begun.elapsed() < Duration::from_secs(seconds) {
            clock.tick().await; // a hundred a second are wanted
            let _ = service.ready().await.unwrap().call(()).await;
        }
    };
    run(60).await;
    let (sent, throttled) = server.between(20, 60);
    assert!((200..480).contains(&sent), "{sent} in 40 s, of at most 400");
    assert!(throttled * 4 < sent, "{throttled} of {sent}");
    // Without the layer nine of ten would be throttled.
    let limited = rate.per_second().unwrap();

    *server.limit.lock().unwrap() = 1000;
    run(120).await;
    assert!(rate.per_second().unwrap() > 5.0 * limited);
    let (sent, throttled) = server.between(110, 120);
    assert!(sent > 700 && throttled == 0, "{sent}, {throttled} throttled");
}

/// Many calls throttled at once, each repeated: with the layer they come back at the rate that passes.
#[tokio::test(start_paused = true)]
async fn below_a_retry_it_spreads_the_second_attempts() {
    let server = Server::new(5);
    let layer = AdaptiveLayer::new(classifier());
    let retry = RetryLayer::new(classifier()).budget(Budget::unlimited());
    let stack = ServiceBuilder::new().layer(retry).layer(layer.clone()).service(server.service());
    let calls: Vec<_> = (0..20).map(|_| tokio::spawn(stack.clone().oneshot(()))).collect();
    let mut solved = 0;
    for call in calls {
        solved += u32::from(call.await.unwrap().is_ok());
    }
    assert!(layer.per_second().is_some());
    assert!(solved >= 18, "{solved}");
}

#[tokio::test(start_paused = true)]
async fn other_failures_wait_for_nothing() {
    let layer = AdaptiveLayer::new(classifier());
    let classes = [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Rejected];
    let begun = Instant::now();
    for class in classes {
        let mut service = layer.layer(service_fn(move |()| ready(Err::<(), _>(Failed(class)))));
        for _ in 0..100 {
            service.ready().await.unwrap().call(()).await.unwrap_err();
        }
    }
    assert_eq!((begun.elapsed(), layer.per_second()), (Duration::ZERO, None));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_used_is_given_back() {
    let layer = AdaptiveLayer::new(classifier());
    let throttled = service_fn(|()| ready(Err::<(), _>(Failed(ErrorClass::Throttled))));
    let mut service = layer.layer(throttled);
    service.ready().await.unwrap().call(()).await.unwrap_err();
    assert_eq!(layer.per_second(), Some(0.5));
    tokio::time::advance(Duration::from_secs(2)).await;
    // Readied and dropped, by ten clones: each had the one turn there was.
    for _ in 0..10 {
        let begun = Instant::now();
        let mut clone = service.clone();
        clone.ready().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
    // Waiting, and dropped.
    service.ready().await.unwrap();
    for _ in 0..10 {
        let mut waiting = service.clone();
        let waited = tokio::time::timeout(Duration::from_millis(1), waiting.ready()).await;
        assert!(waited.is_err());
    }
    service.call(()).await.unwrap_err();
    let begun = Instant::now();
    service.ready().await.unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(2010), "{:?}", begun.elapsed());
}

/// A layer whose rate is half a request a second and used up, and a service behind it that bears
/// everything, and writes down who came when.
async fn throttled_just_now() -> (AdaptiveLayer<Rules>, Log) {
    let layer = AdaptiveLayer::new(classifier());
    let throttled =
        layer.layer(service_fn(|()| ready(Err::<(), _>(Failed(ErrorClass::Throttled)))));
    throttled.oneshot(()).await.unwrap_err();
    assert_eq!(layer.per_second(), Some(0.5));
    (layer, Log { begun: Instant::now(), came: Arc::default() })
}

#[derive(Clone)]
struct Log {
    begun: Instant,
    came: Arc<Mutex<Vec<(u32, Duration)>>>,
}

impl Log {
    fn service(
        &self,
    ) -> impl Service<u32, Response = (), Error = Failed, Future: Send> + Clone + Send + use<> {
        let log = self.clone();
        service_fn(move |number| {
            log.came.lock().unwrap().push((number, log.begun.elapsed()));
            ready(Ok(()))
        })
    }

    /// Who came, and at which second.
    fn seconds(&self) -> Vec<(u32, u64)> {
        self.came.lock().unwrap().iter().map(|(number, at)| (*number, at.as_secs())).collect()
    }
}

/// Two hundred in line at half a request a second would need 400 s. The throttling is over, so the
/// rate grows, and takes those along who wait already: as it would one who asks again and again.
#[tokio::test(start_paused = true)]
async fn those_in_line_go_faster_when_the_throttling_is_over() {
    const MANY: u32 = 200;
    let (mut model, mut now) = (SendRate::default(), Duration::ZERO);
    model.observe(true, now);
    for _ in 0..MANY {
        now += model.take(now);
        assert!(model.take(now).is_zero());
        model.observe(false, now);
    }
    let (layer, log) = throttled_just_now().await;
    let stack = layer.layer(log.service());
    let calls: Vec<_> =
        (0..MANY).map(|number| tokio::spawn(stack.clone().oneshot(number))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let took = log.begun.elapsed();
    assert!(took.abs_diff(now) < now / 50, "{took:?}, and {now:?} in the model");
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(log.seconds().iter().map(|(number, _)| *number).eq(0..MANY), "in order");
}

#[tokio::test(start_paused = true)]
async fn who_is_dropped_in_line_frees_their_turn() {
    let (layer, log) = throttled_just_now().await;
    let stack = layer.layer(log.service());
    let calls: Vec<_> = (0..4).map(|number| tokio::spawn(stack.clone().oneshot(number))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    calls[0].abort();
    calls[2].abort();
    for call in calls {
        let _ = call.await;
    }
    // In line they would have been the second and the fourth.
    let came = log.seconds();
    assert!(matches!(came[..], [(1, 2), (3, 2..=4)]), "{came:?}");
}

/// A service that was asked once and is kept, as below a load shed, has its turn and does not use it.
#[tokio::test(start_paused = true)]
async fn who_does_not_ask_again_keeps_nobody_waiting() {
    let (layer, log) = throttled_just_now().await;
    let stack = layer.layer(log.service());
    let mut kept = stack.clone();
    assert!(tokio_test::task::spawn(kept.ready()).poll().is_pending());
    tokio::spawn(stack.clone().oneshot(1)).await.unwrap().unwrap();
    assert_eq!(log.seconds(), [(1, 4)]);
    kept.ready().await.unwrap().call(0).await.unwrap();
    assert_eq!(log.seconds(), [(1, 4), (0, 4)]);
}

/// What is called is what was polled ready: the mock's clones start unready and panic otherwise.
#[tokio::test(start_paused = true)]
async fn contract_the_readied_instance_is_the_called_one() {
    let layer = AdaptiveLayer::new(classifier());
    let (mock, mut handle) = tower_test::mock::pair::<u32, u32>();
    let mut service = layer.layer(mock.map_err(|_| Failed(ErrorClass::Internal)));
    handle.allow(0);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), service.ready()).await.is_err(),
        "it is not ready before the inner one is"
    );
    handle.allow(1);
    let answer = service.ready().await.unwrap().call(1);
    let (request, send) = handle.next_request().await.unwrap();
    send.send_response(request + 1);
    assert_eq!(answer.await.unwrap(), 2);
}
