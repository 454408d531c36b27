//! A fused stack behaves as its layers do one by one: random scripts run through both, and the two
//! must tell the same story of every call, to the caller, the observer, the desk, the breaker and the
//! budget, and make the same calls at the same times.

mod common;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Rules, attempts, classifier, desk};
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
use tower_triage::retry::budget::ThrottleSettings;
use tower_triage::{
    AnyError, Backoff, BreakerHandle, Budget, CircuitBreakerLayer, ClassSet, Classifier, Desk,
    ErrorClass, EscalateLayer, Escalation, FallbackLayer, FuseLayer, Random, RetryLayer,
};
use tower_triage_test_support::{Seen, Strict};

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
    /// Retry alone.
    Retry,
    /// The four below another layer of ours, whose call it is.
    Below,
    /// The four, but the retry has a classifier of its own.
    Apart,
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
        /// Before it answers it makes a call through a layer of ours, which fails.
        nested: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Call {
    pause_ms: u64,
    /// Dropped after so many polls.
    dropped: Option<usize>,
    /// Through a clone of the service.
    cloned: bool,
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
        let (after_ms, answer, nested) = match self.script.lock().unwrap().pop_front() {
            Some(Line::Answer { after_ms, answer, nested }) => (after_ms, answer, nested),
            Some(Line::Unready(kind)) => (0, Err(kind), false),
            None => (0, Ok(()), false),
        };
        let inner = self.nested.clone();
        Box::pin(async move {
            if nested {
                _ = inner.oneshot(0).await;
            }
            if after_ms > 0 {
                sleep(Duration::from_millis(after_ms)).await;
            }
            answer.map(|()| request).map_err(error)
        })
    }
}

/// A stack, and everything that can be seen of it.
struct World {
    service: Boxed,
    leaf: Leaf,
    seen: Seen,
    classifier: Classifier<Rules>,
    letters: mpsc::Receiver<Escalation>,
    breakers: Vec<BreakerHandle>,
    budget: Budget,
}

/// Opens at two failures in a row or at half of six calls within a second, for a second; two probes.
fn plan() -> BreakerPlan {
    let policy = BreakerPolicy::new().consecutive_failures(2).time_window(Duration::from_secs(1));
    let policy = policy.minimum_calls(6).failure_rate(0.5).probes(2).decide_by_count(2, 1);
    policy.open_for(Backoff::fixed(Duration::from_secs(1))).build().unwrap()
}

trait Client:
    Service<u32, Response = u32, Error = AnyError, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> Client for S where
    S: Service<u32, Response = u32, Error = AnyError, Future: Send> + Clone + Send + Sync + 'static
{
}

type Bottom = Strict<Leaf>;

fn around<T>(way: Way, classifier: &Classifier<Rules>, layers: T, leaf: &Leaf) -> Boxed
where
    T: Layer<Bottom, Service: Client>,
    FuseLayer<T, Rules>: Layer<Bottom, Service: Client>,
    FuseLayer<T, Rules, tower_triage::Leaked>: Layer<Bottom, Service: Client>,
{
    let leaf = Strict::new(leaf.clone());
    let classifier = classifier.clone();
    match way {
        Way::Layers => Boxed::new(layers.layer(leaf)),
        Way::Fused => Boxed::new(FuseLayer::new(classifier, layers).layer(leaf)),
        Way::Leaked => Boxed::new(FuseLayer::new(classifier, layers).leak().layer(leaf)),
    }
}

impl World {
    fn new(shape: Shape, way: Way, script: &[Line]) -> Self {
        let ((classifier, seen), (desk, letters)) = (classifier(), desk());
        let failing = tower::service_fn(async |_| Err::<u32, _>(error(ErrorKind::TimedOut)));
        let nested = RetryLayer::new(classifier.clone()).policy(attempts(2));
        let nested = nested.random(Random::seeded(3)).layer(failing);
        let leaf = Leaf {
            script: Arc::new(Mutex::new(script.iter().copied().collect())),
            asked: Arc::default(),
            begun: Instant::now(),
            nested: Boxed::new(nested),
        };
        let throttle = ThrottleSettings { max_tokens: 4, token_ratio: 0.3 };
        let budget = Budget::failure_throttle(throttle).unwrap();
        let mut world = Self {
            service: Boxed::new(leaf.clone()),
            leaf,
            seen,
            classifier,
            letters,
            breakers: Vec::new(),
            budget,
        };
        world.service = world.stack(shape, way, desk);
        world
    }

    fn breaker(&mut self, keyed: bool) -> CircuitBreakerLayer<Rules> {
        let layer = CircuitBreakerLayer::new(self.classifier.clone()).policy(plan());
        let layer = layer.random(Random::seeded(1));
        let layer = if keyed { layer.keyed(KeyedSettings::default()) } else { layer };
        self.breakers.push(layer.handle());
        layer
    }

    fn retry(&self) -> RetryLayer<Rules> {
        let retry = RetryLayer::new(self.classifier.clone()).policy(attempts(3));
        retry.budget(self.budget.clone()).random(Random::seeded(2))
    }

    fn stack(&mut self, shape: Shape, way: Way, desk: Desk) -> Boxed {
        let classifier = self.classifier.clone();
        let escalate = EscalateLayer::new(classifier.clone(), desk);
        let fallback = FallbackLayer::new(classifier.clone());
        let value = fallback.clone().or_value(ErrorClass::Rejected, |_| 100);
        let (retry, breaker) = (self.retry(), self.breaker(false));
        let builder = ServiceBuilder::new();
        match shape {
            Shape::Four => {
                let layers = builder.layer(escalate).layer(value).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.leaf)
            }
            Shape::Keeping => {
                let replan = fallback.or_replan(ClassSet::ALL, |n, _| n + 1);
                let escalate =
                    escalate.capture(JsonCodec::<u32>::new()).retry_with(|n: u32, _| Some(n));
                let breaker = self.breaker(true);
                let layers = builder.layer(escalate).layer(replan).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.leaf)
            }
            Shape::Preset => {
                let layers = builder.layer(escalate).layer(retry).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.leaf)
            }
            Shape::Outside => {
                let layers = builder.layer(escalate).layer(breaker).layer(retry);
                around(way, &classifier, layers.into_inner(), &self.leaf)
            }
            Shape::Twice => {
                let (outer, inner) = (self.retry(), self.breaker(false));
                let layers = builder.layer(outer).layer(breaker).layer(retry).layer(inner);
                around(way, &classifier, layers.into_inner(), &self.leaf)
            }
            Shape::Retry => {
                let layers = builder.layer(retry);
                around(way, &classifier, layers.into_inner(), &self.leaf)
            }
            Shape::Below => {
                let layers = builder.layer(escalate.clone()).layer(value).layer(retry);
                let layers = layers.layer(breaker).into_inner();
                Boxed::new(escalate.layer(around(way, &classifier, layers, &self.leaf)))
            }
            Shape::Apart => {
                let own = RetryLayer::new(self::classifier().0).policy(attempts(3));
                let own = own.budget(self.budget.clone()).random(Random::seeded(4));
                let layers = builder.layer(escalate).layer(value).layer(own).layer(breaker);
                around(way, &classifier, layers.into_inner(), &self.leaf)
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
async fn story(shape: Shape, way: Way, script: &[Line], calls: &[Call]) -> Vec<Vec<String>> {
    let mut world = World::new(shape, way, script);
    let (mut story, mut known) = (Vec::new(), 0);
    for &Call { pause_ms, dropped, cloned } in calls {
        sleep(Duration::from_millis(pause_ms)).await;
        if cloned {
            world.service = world.service.clone();
        }
        let service = &mut world.service;
        let said = match service.ready().await {
            Err(error) => format!("not ready: {error}"),
            Ok(ready) => {
                let mut call = Box::pin(ready.call(7));
                let mut polls = 0;
                let outcome = poll_fn(|cx| {
                    if dropped == Some(polls) {
                        return Poll::Ready(None);
                    }
                    polls += 1;
                    call.as_mut().poll(cx).map(Some)
                });
                let outcome = outcome.await;
                drop(call);
                let outcome = outcome.map(|outcome| outcome.map_err(|error| error.to_string()));
                format!("{outcome:?} after {polls} polls")
            }
        };
        // What is on its way to the desk arrives.
        sleep(Duration::from_millis(1)).await;
        story.push([vec![said], world.look(&mut known)].concat());
    }
    story
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    use ErrorKind::{ConnectionReset, InvalidInput, Other, StorageFull};
    let kind = prop_oneof![
        3 => Just(ConnectionReset),
        1 => prop::sample::select(&[StorageFull, InvalidInput, Other][..]),
    ];
    let answer = prop_oneof![2 => Just(Ok(())), 3 => kind.clone().prop_map(Err)];
    let after_ms = prop::sample::select(&[0, 5, 40][..]);
    let nested = prop::bool::weighted(0.1);
    let line = prop_oneof![
        12 => (after_ms, answer, nested)
            .prop_map(|(after_ms, answer, nested)| Line::Answer { after_ms, answer, nested }),
        1 => kind.prop_map(Line::Unready),
    ];
    vec(line, 0..16)
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let pause_ms = prop::sample::select(&[0, 0, 120, 1500][..]);
    let dropped = prop::option::weighted(0.2, 0_usize..8);
    let call = (pause_ms, dropped, prop::bool::weighted(0.2))
        .prop_map(|(pause_ms, dropped, cloned)| Call { pause_ms, dropped, cloned });
    vec(call, 1..10)
}

fn shape() -> impl Strategy<Value = Shape> {
    use Shape::{Apart, Below, Four, Keeping, Outside, Preset, Retry, Twice};
    prop::sample::select(&[Four, Keeping, Preset, Outside, Twice, Retry, Below, Apart][..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fused_or_not_the_story_is_the_same(shape in shape(), script in lines(), calls in calls()) {
        let tell = |way| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(story(shape, way, &script, &calls))
        };
        let expected = tell(Way::Layers);
        prop_assert_eq!(&tell(Way::Fused), &expected);
        prop_assert_eq!(&tell(Way::Leaked), &expected);
    }
}
