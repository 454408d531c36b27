//! Random scripts run through the layers and through the same layers fused: both must tell the same
//! story of every call, to the caller, the observer, the desk, the breaker, the budget and `tracing`,
//! and make the same calls at the same times.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_triage::circuit_breaker::{BreakerPlan, BreakerPolicy, KeyedSettings};
use tower_triage::escalate::JsonCodec;
use tower_triage::fallback::LastGood;
use tower_triage::retry::Never;
use tower_triage::retry::budget::{
    BucketSettings, InFlightSettings, ThrottleSettings, TokenCostSettings, WindowSettings,
};
use tower_triage::{
    AnyError, AnyOk, Backoff, BreakerHandle, Budget, Chain, CircuitBreakerLayer, ClassSet,
    Classifier, Desk, ErrorClass, EscalateLayer, EscalatePolicy, EscalateWhen, Escalation,
    FallbackLayer, FuseLayer, Halves, Random, RequestFacts, RetryLayer, RulesExt,
};
use tower_triage_core::Described;
use tower_triage_test_support::{Seen, Strict};

use super::spans::Recorder;
use crate::common::{attempts, desk, watched};

type Rules = Described<crate::common::Rules, fn(&u32) -> RequestFacts>;

type Boxed = BoxCloneSyncService<u32, u32, AnyError>;

/// Which layers, the outermost first.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Escalate, fallback, retry, breaker.
    Four,
    /// The same, with a step that sends the request again, capturing requests, per key.
    Keeping,
    /// Escalate, retry, breaker.
    Preset,
    /// Escalate, breaker, retry.
    Outside,
    /// A breaker on either side of the retry, and a retry around all.
    Twice,
    /// Fallback, escalate, retry, breaker: the call is not the escalation's.
    Inside,
    /// Escalate, fallback, escalate, breaker.
    Escalates,
    /// The four; the fallback has learned from earlier answers, by operation and by request.
    LastGood,
    /// The four, with a retry that keeps nothing.
    Once,
    /// Escalate, fallback, breaker around a service that repeats by itself; told at once.
    Around,
    /// The same with a second escalation, below the fallback.
    AroundTwice,
    /// Escalate, fallback, retry.
    Bare,
    /// Escalate, retry.
    Told,
    /// Retry alone.
    Retry,
    /// The four below another layer of ours, whose call it is.
    Below,
    /// The four, but the retry has a classifier of its own.
    Apart,
}

/// What the layers of a stack are set to.
#[derive(Clone, Copy, Debug)]
struct Kit {
    shape: Shape,
    budget: Kind,
    circuit: Circuit,
    /// Somebody listens to `tracing`.
    spans: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Bucket,
    Window,
    Cost,
    Throttle,
    InFlight,
    Unlimited,
}

#[derive(Clone, Copy, Debug)]
enum Circuit {
    /// Opens at two failures in a row or at half of six calls within a second; two probes.
    Plain,
    /// So do slow calls.
    Slow,
    /// Only failures that follow soon upon each other, and a single probe.
    Within,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Layers,
    Fused,
    Leaked,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Unready(ErrorKind),
    Answer {
        after_ms: u64,
        answer: Result<(), ErrorKind>,
        /// Before it answers it makes a call through a layer of ours, which fails so.
        nested: Option<ErrorKind>,
    },
    Panics {
        in_call: bool,
    },
}

/// Somebody turns the breaker.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Open,
    Closed,
    Disabled,
    Reset,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    pause_ms: u64,
    /// Dropped after so many polls.
    dropped: Option<usize>,
    /// Through a clone of the service.
    cloned: bool,
    request: u32,
    /// The service is not polled ready before.
    unready: bool,
    /// So long it waits between readiness and call.
    stale_ms: u64,
    /// What happens to the outermost breaker between readiness and call.
    turn: Option<Turn>,
}

fn error(kind: ErrorKind) -> AnyError {
    io::Error::from(kind).into()
}

/// Answers with the request, by the script; after its end always at once. Notes what it was asked.
#[derive(Clone)]
struct Leaf {
    script: Arc<Mutex<VecDeque<Line>>>,
    asked: Arc<Mutex<Vec<(u32, Duration)>>>,
    begun: Instant,
    nested: Boxed,
    below_retry: bool,
}

impl Service<u32> for Leaf {
    type Response = u32;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<u32, AnyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        let mut script = self.script.lock().unwrap();
        let Some(&Line::Unready(kind)) = script.front() else { return Poll::Ready(Ok(())) };
        script.pop_front();
        Poll::Ready(Err(error(kind)))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        self.asked.lock().unwrap().push((request, self.begun.elapsed()));
        let line = self.script.lock().unwrap().pop_front();
        tracing::info!("is called");
        let (after_ms, answer, nested) = match line {
            Some(Line::Answer { after_ms, answer, nested }) => (after_ms, answer, nested),
            Some(Line::Unready(kind)) => (0, Err(kind), None),
            // Without a word to the panic hook.
            Some(Line::Panics { in_call: true }) => resume_unwind(Box::new("in call")),
            Some(Line::Panics { in_call: false }) => {
                let future = async { resume_unwind(Box::new("in poll")) };
                return Leaving::boxed(future, self.below_retry);
            }
            None => (0, Ok(()), None),
        };
        let inner = self.nested.clone();
        let future = async move {
            tracing::info!("works");
            if let Some(kind) = nested {
                _ = inner.oneshot(kind as u32).await;
            }
            if after_ms > 0 {
                sleep(Duration::from_millis(after_ms)).await;
            }
            answer.map(|()| request).map_err(error)
        };
        Leaving::boxed(future, self.below_retry)
    }
}

/// Says when it is dropped, unless it has ended in a way of which that is nobody's business: after a
/// failure, or right below a retry, it depends on the layers whether the attempt is over by then.
struct Leaving<F> {
    future: Pin<Box<F>>,
    below_retry: bool,
    silent: bool,
}

impl<F> Leaving<F>
where
    F: Future<Output = Result<u32, AnyError>> + Send + 'static,
{
    fn boxed(future: F, below_retry: bool) -> <Leaf as Service<u32>>::Future {
        Box::pin(Self { future: Box::pin(future), below_retry, silent: false })
    }
}

impl<F: Future<Output = Result<u32, AnyError>>> Future for Leaving<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.future.as_mut().poll(cx);
        self.silent = match &polled {
            Poll::Ready(outcome) => self.below_retry || outcome.is_err(),
            Poll::Pending => false,
        };
        polled
    }
}

impl<F> Drop for Leaving<F> {
    fn drop(&mut self) {
        if !self.silent {
            tracing::info!("leaves");
        }
    }
}

fn describe(request: &u32) -> RequestFacts {
    RequestFacts::new("count")
        .key(&format!("{}", request % 3))
        .repeatable(*request != 9)
        .request_id(&format!("r-{request}"))
        .target(&format!("GET /{request}"))
}

/// A stack, and everything that can be seen of it.
struct World {
    service: Boxed,
    leaf: Leaf,
    /// The leaf, maybe with a retry of ours that is not one of the layers.
    bottom: Boxed,
    seen: Seen,
    classifier: Classifier<Rules>,
    letters: mpsc::Receiver<Escalation>,
    breakers: Vec<BreakerHandle>,
    budget: Budget,
    kit: Kit,
}

impl Circuit {
    /// Open for a second.
    fn plan(self) -> BreakerPlan {
        let policy = BreakerPolicy::new().consecutive_failures(2);
        let policy = match self {
            Self::Plain | Self::Slow => policy.time_window(Duration::from_secs(1)).minimum_calls(6),
            Self::Within => policy.count_window(8).consecutive_within(Duration::from_millis(30)),
        };
        let policy = match self {
            Self::Plain => policy.failure_rate(0.5).probes(2).decide_by_count(2, 1),
            Self::Slow => policy.slow_call(Duration::from_millis(20)).slow_rate(0.3).probes(2),
            Self::Within => policy.failures(5).probes(1).decide_by_count(1, 1).reprobe(),
        };
        policy.open_for(Backoff::fixed(Duration::from_secs(1))).build().unwrap()
    }
}

impl Kind {
    fn budget(self) -> Budget {
        let throttle = ThrottleSettings { max_tokens: 4, token_ratio: 0.3 };
        match self {
            Self::Bucket => Budget::bucket(BucketSettings::default()).unwrap(),
            Self::Window => Budget::window(WindowSettings::default()).unwrap(),
            Self::Cost => Budget::token_cost(TokenCostSettings::default()).unwrap(),
            Self::Throttle => Budget::failure_throttle(throttle).unwrap(),
            Self::InFlight => Budget::in_flight(InFlightSettings::default()).unwrap(),
            Self::Unlimited => Budget::unlimited(),
        }
    }
}

trait Client:
    Service<u32, Response = u32, Error = AnyError, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> Client for S where
    S: Service<u32, Response = u32, Error = AnyError, Future: Send> + Clone + Send + Sync + 'static
{
}

type Bottom = Strict<Boxed>;

fn around<T>(way: Way, classifier: &Classifier<Rules>, layers: T, bottom: &Boxed) -> Boxed
where
    T: Layer<Bottom, Service: Client>,
    FuseLayer<T, Rules>: Layer<Bottom, Service: Client>,
    FuseLayer<T, Rules, tower_triage::Leaked>: Layer<Bottom, Service: Client>,
{
    let bottom = Strict::new(bottom.clone());
    let classifier = classifier.clone();
    match way {
        Way::Layers => Boxed::new(layers.layer(bottom)),
        Way::Fused => Boxed::new(FuseLayer::new(classifier, layers).layer(bottom)),
        Way::Leaked => Boxed::new(FuseLayer::new(classifier, layers).leak().layer(bottom)),
    }
}

impl World {
    fn new(kit: Kit, way: Way, script: &[Line]) -> Self {
        let rules = Halves { response: AnyOk, error: Chain };
        let rules = rules.describe(describe as fn(&u32) -> RequestFacts);
        let ((classifier, seen), (desk, letters)) = (watched(rules), desk());
        let failing = tower::service_fn(async |kind: u32| {
            let kinds = NESTED.into_iter().find(|of| *of as u32 == kind);
            Err::<u32, _>(error(kinds.unwrap()))
        });
        let nested = RetryLayer::new(classifier.clone()).policy(attempts(2));
        let nested = nested.random(Random::seeded(3)).layer(failing);
        let leaf = Leaf {
            script: Arc::new(Mutex::new(script.iter().copied().collect())),
            asked: Arc::default(),
            begun: Instant::now(),
            nested: Boxed::new(nested),
            below_retry: matches!(
                kit.shape,
                Shape::Retry | Shape::Outside | Shape::Bare | Shape::Told
            ),
        };
        let bottom = match kit.shape {
            Shape::Around | Shape::AroundTwice => {
                let retry = RetryLayer::new(classifier.clone()).policy(attempts(3));
                Boxed::new(retry.random(Random::seeded(5)).layer(leaf.clone()))
            }
            _ => Boxed::new(leaf.clone()),
        };
        let mut world = Self {
            service: bottom.clone(),
            bottom,
            leaf,
            seen,
            classifier,
            letters,
            breakers: Vec::new(),
            budget: kit.budget.budget(),
            kit,
        };
        world.service = world.stack(way, desk);
        world
    }

    fn breaker(&mut self, keyed: bool) -> CircuitBreakerLayer<Rules> {
        let layer =
            CircuitBreakerLayer::new(self.classifier.clone()).policy(self.kit.circuit.plan());
        let layer = layer.random(Random::seeded(1));
        let layer = if keyed {
            layer.keyed(KeyedSettings::new(1, Duration::from_secs(60)).unwrap())
        } else {
            layer
        };
        self.breakers.push(layer.handle());
        layer
    }

    fn retry(&self) -> RetryLayer<Rules> {
        let retry = RetryLayer::new(self.classifier.clone()).policy(attempts(3));
        retry.budget(self.budget.clone()).random(Random::seeded(2))
    }

    fn stack(&mut self, way: Way, desk: Desk) -> Boxed {
        let classifier = self.classifier.clone();
        let escalate = EscalateLayer::new(classifier.clone(), desk);
        let now = EscalatePolicy::new().when(ErrorClass::Transient, EscalateWhen::Now);
        let at_once = escalate.clone().policy(now);
        let fallback = FallbackLayer::new(classifier.clone());
        let value = fallback.clone().or_value(ErrorClass::Rejected, |_| 100);
        let (retry, breaker) = (self.retry(), self.breaker(false));
        let builder = ServiceBuilder::new();
        match self.kit.shape {
            Shape::Four => {
                let layers = builder.layer(escalate).layer(value).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Keeping => {
                let replan = fallback.or_replan(ClassSet::ALL, |n, _| n + 1);
                let escalate =
                    escalate.capture(JsonCodec::<u32>::new()).retry_with(|n: u32, _| Some(n));
                let breaker = self.breaker(true);
                let layers = builder.layer(escalate).layer(replan).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Preset => {
                let layers = builder.layer(escalate).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Outside => {
                let layers = builder.layer(escalate).layer(breaker).layer(retry);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Twice => {
                let (outer, inner) = (self.retry(), self.breaker(false));
                let layers = builder.layer(outer).layer(breaker).layer(retry).layer(inner);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Inside => {
                let layers = builder.layer(value).layer(escalate).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Escalates => {
                let inner = escalate.clone();
                let layers = builder.layer(escalate).layer(value).layer(inner).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Around => {
                let layers = builder.layer(at_once).layer(value).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::AroundTwice => {
                let inner = at_once.clone();
                let layers = builder.layer(at_once).layer(value).layer(inner).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Bare => {
                let layers = builder.layer(escalate).layer(value).layer(retry);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Told => {
                let layers = builder.layer(escalate).layer(retry);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::LastGood => {
                let policy =
                    LastGood::new(Duration::from_millis(1), Duration::from_secs(2)).unwrap();
                let by_request =
                    fallback.or_last_good_by(ErrorClass::Transient, policy, |n: &u32| *n);
                let last = by_request.or_last_good(ClassSet::ALL, policy);
                let layers = builder.layer(escalate).layer(last).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Once => {
                let once = retry.replay(Never);
                let layers = builder.layer(escalate).layer(value).layer(once).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Retry => {
                let layers = builder.layer(retry);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
            Shape::Below => {
                let layers = builder.layer(escalate.clone()).layer(value).layer(retry);
                let layers = layers.layer(breaker).into_inner();
                Boxed::new(escalate.layer(around(way, &classifier, layers, &self.bottom)))
            }
            Shape::Apart => {
                let rules = *classifier.rules();
                let own = RetryLayer::new(Classifier::new(rules)).policy(attempts(3));
                let own = own.budget(self.budget.clone()).random(Random::seeded(4));
                let layers = builder.layer(escalate).layer(value).layer(own).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.bottom)
            }
        }
    }

    /// What there is to be seen since the last look.
    fn look(&mut self, known: &mut usize) -> Vec<String> {
        let incidents = self.seen.incidents();
        let new = incidents.iter().skip(std::mem::replace(known, incidents.len()));
        let mut story: Vec<String> = new.map(|incident| told(incident, &["id"])).collect();
        let letters = std::iter::from_fn(|| self.letters.try_recv().ok());
        // By the calendar, or made by chance.
        let chance = ["id", "first_time", "last_time"];
        story.extend(letters.map(|letter| told(&letter, &chance)));
        for breaker in &self.breakers {
            let keys = (breaker.keys().len(), breaker.overflowed());
            story.push(format!(
                "{:?} {:?} {:?} {keys:?}",
                breaker.state(),
                breaker.counts(),
                breaker.window()
            ));
        }
        let counts = ErrorClass::ALL.map(|class| self.classifier.count(class));
        story.push(format!("{counts:?} {}", self.budget.balance(Duration::ZERO)));
        story.push(format!("{:?}", self.leaf.asked.lock().unwrap()));
        story
    }
}

fn told(record: &impl Serialize, but: &[&str]) -> String {
    let mut record = serde_json::to_value(record).unwrap();
    if let Value::Object(fields) = &mut record {
        fields.retain(|name, _| !but.contains(&name.as_str()));
    }
    record.to_string()
}

/// Everything that happens, in order.
async fn story(kit: Kit, way: Way, script: &[Line], calls: &[Call]) -> Vec<Vec<String>> {
    let recorder = Recorder::default();
    let _listening = kit.spans.then(|| recorder.listen());
    let mut world = World::new(kit, way, script);
    let (mut story, mut known) = (Vec::new(), 0);
    for &Call { pause_ms, dropped, cloned, request, unready, stale_ms, turn } in calls {
        sleep(Duration::from_millis(pause_ms)).await;
        if cloned {
            world.service = world.service.clone();
        }
        let ready = match unready {
            true => Ok(()),
            false => world.service.ready().await.map(drop),
        };
        sleep(Duration::from_millis(stale_ms)).await;
        match (turn, world.breakers.first()) {
            (Some(Turn::Open), Some(breaker)) => breaker.force_open(),
            (Some(Turn::Closed), Some(breaker)) => breaker.force_closed(),
            (Some(Turn::Disabled), Some(breaker)) => breaker.disable(),
            (Some(Turn::Reset), Some(breaker)) => breaker.reset(),
            (None, _) | (_, None) => {}
        }
        let service = &mut world.service;
        let said = match ready {
            Err(error) => format!("not ready: {error}"),
            Ok(()) => match catch_unwind(AssertUnwindSafe(|| service.call(request))) {
                Err(_) => String::from("panics when called"),
                Ok(call) => polled(call, dropped).await,
            },
        };
        // What is on its way to the desk arrives.
        sleep(Duration::from_millis(1)).await;
        let mut spans = recorder.take();
        // When exactly an answered call leaves, before its breaker has counted it or after, nobody is
        // told; in which span it does is what matters.
        spans.sort_by_key(|line| line.ends_with("message=leaves"));
        story.push([vec![said], world.look(&mut known), spans].concat());
    }
    story
}

async fn polled(
    call: impl Future<Output = Result<u32, AnyError>>,
    dropped: Option<usize>,
) -> String {
    let mut call = Box::pin(call);
    let mut polls = 0;
    let outcome = poll_fn(|cx| {
        if dropped == Some(polls) {
            return Poll::Ready(String::from("dropped"));
        }
        polls += 1;
        match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(answer))) => Poll::Ready(answer.to_string()),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(error.to_string()),
            Err(_) => Poll::Ready(String::from("panics")),
        }
    });
    let outcome = outcome.await;
    // An attempt is over when its answer is there.
    tracing::info!("is answered");
    drop(call);
    format!("{outcome} after {polls} polls")
}

/// Of no importance, to be told when all else fails, to be told at once.
const NESTED: [ErrorKind; 3] =
    [ErrorKind::InvalidInput, ErrorKind::TimedOut, ErrorKind::PermissionDenied];

fn lines() -> impl Strategy<Value = Vec<Line>> {
    use ErrorKind::{ConnectionReset, InvalidInput, Other, StorageFull};
    let kind = prop_oneof![
        3 => Just(ConnectionReset),
        1 => prop::sample::select(&[StorageFull, InvalidInput, Other][..]),
    ];
    let answer = prop_oneof![2 => Just(Ok(())), 3 => kind.clone().prop_map(Err)];
    let after_ms = prop::sample::select(&[0, 5, 40][..]);
    let nested = prop::option::weighted(0.15, prop::sample::select(&NESTED[..]));
    let line = prop_oneof![
        12 => (after_ms, answer, nested)
            .prop_map(|(after_ms, answer, nested)| Line::Answer { after_ms, answer, nested }),
        1 => kind.prop_map(Line::Unready),
        1 => any::<bool>().prop_map(|in_call| Line::Panics { in_call }),
    ];
    vec(line, 0..16)
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let pause_ms = prop::sample::select(&[0, 0, 120, 1500][..]);
    let dropped = prop::option::weighted(0.2, 0_usize..8);
    let turns = &[Turn::Open, Turn::Closed, Turn::Disabled, Turn::Reset, Turn::Reset][..];
    let turn = prop::option::weighted(0.08, prop::sample::select(turns));
    let stale_ms = prop::sample::select(&[0, 0, 0, 0, 5, 1100][..]);
    let (cloned, unready) = (prop::bool::weighted(0.2), prop::bool::weighted(0.05));
    let call = (pause_ms, dropped, cloned, 6..10_u32, unready, stale_ms, turn).prop_map(
        |(pause_ms, dropped, cloned, request, unready, stale_ms, turn)| Call {
            pause_ms,
            dropped,
            cloned,
            request,
            unready,
            stale_ms,
            turn,
        },
    );
    vec(call, 1..10)
}

fn kit() -> impl Strategy<Value = Kit> {
    use Circuit::{Plain, Slow, Within};
    use Kind::{Bucket, Cost, InFlight, Throttle, Unlimited, Window};
    use Shape::{
        Apart, Around, AroundTwice, Bare, Below, Escalates, Four, Inside, Keeping, LastGood, Once,
        Outside, Preset, Retry, Told, Twice,
    };
    let shapes = &[
        Four,
        Keeping,
        Preset,
        Outside,
        Twice,
        Inside,
        Escalates,
        LastGood,
        Once,
        Retry,
        Below,
        Apart,
        Around,
        AroundTwice,
        Bare,
        Told,
    ][..];
    let kinds = &[Bucket, Window, Cost, Throttle, InFlight, Unlimited][..];
    let circuits = &[Plain, Slow, Within][..];
    let (shape, budget) = (prop::sample::select(shapes), prop::sample::select(kinds));
    (shape, budget, prop::sample::select(circuits), any::<bool>())
        .prop_map(|(shape, budget, circuit, spans)| Kit { shape, budget, circuit, spans })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fused_or_not_the_story_is_the_same(kit in kit(), script in lines(), calls in calls()) {
        let tell = |way| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(story(kit, way, &script, &calls))
        };
        let expected = tell(Way::Layers);
        prop_assert_eq!(&tell(Way::Fused), &expected);
        prop_assert_eq!(&tell(Way::Leaked), &expected);
    }
}
