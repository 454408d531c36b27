//! Random stacks of all layers, in any order that Tower allows, over a service that answers, fails,
//! hangs or does not become ready by a script; some calls are dropped half way. Whatever the stack:
//! the caller, the observer and the desk are told one and the same story of each call, once; each
//! failure is recorded once; and when the service works again, so does the stack.
//!
//! Faults of the kind that this finds: what is said of an outcome (it is recorded, somebody is to be
//! told) stays behind when the outcome is kept, goes on when it is replaced, or is forgotten when a
//! fallback fails.

mod common;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Rules, attempts, classifier, desk, opens_at};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::circuit_breaker::State;
use tower_triage::retry::budget::InFlightSettings;
use tower_triage::{
    AnyError, BreakerHandle, Budget, CircuitBreakerLayer, ClassSet, Classifier, Desk, ErrorClass,
    EscalateLayer, EscalateWhen, Escalation, FallbackLayer, Incident, Operation, Random,
    Resolution, RetryLayer, StepKind, TimeoutLayer, TimeoutPolicy,
};
use tower_triage_test_support::{Seen, Strict};

/// `Sync`, as the retry shares the service that further attempts are cloned from.
type Boxed = BoxCloneSyncService<u32, u32, AnyError>;

#[derive(Clone, Debug)]
enum Layer {
    /// So many attempts.
    Retry(u32),
    /// Fallbacks: a value, another request, another service with its answer.
    Value,
    Replan,
    Backup(Result<(), ErrorKind>),
    /// Opens at so many failures.
    Breaker(u32),
    Timeout,
    Escalate,
    /// Not of ours: makes every error one of this kind. Never of a success a failure or the other
    /// way round, as then the caller's outcome says nothing of what the layers below met.
    Map(ErrorKind),
}

#[derive(Clone, Debug)]
struct Stack {
    /// The outermost first. That one is always of ours: what a layer above all of ours makes of an
    /// outcome, none of ours can tell.
    layers: Vec<Layer>,
    /// The layers behind a `Buffer`: the calls there are calls of their own.
    beyond: Option<Vec<Layer>>,
    script: VecDeque<Line>,
    calls: Vec<Call>,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Unready(ErrorKind),
    Answer { after_ms: u64, answer: Result<(), ErrorKind> },
}

#[derive(Clone, Copy, Debug)]
struct Call {
    pause_ms: u64,
    /// Dropped after so many polls.
    dropped: Option<usize>,
}

/// Transient, Timeout, Quota (to be told at once), Permanent (never told) and Unknown.
fn kind() -> impl Strategy<Value = ErrorKind> + Clone {
    use ErrorKind::{ConnectionReset, InvalidInput, Other, StorageFull, TimedOut};
    prop_oneof![
        3 => Just(ConnectionReset),
        1 => prop::sample::select(&[TimedOut, StorageFull, InvalidInput, Other][..]),
    ]
}

fn answer() -> impl Strategy<Value = Result<(), ErrorKind>> + Clone {
    prop_oneof![Just(Ok(())), kind().prop_map(Err)]
}

fn stack() -> impl Strategy<Value = Stack> {
    let retry = || (1_u32..=3).prop_map(Layer::Retry);
    // They return what came from below, or what came from below last.
    let solver = || {
        let backup = answer().prop_map(Layer::Backup);
        prop_oneof![2 => retry(), 1 => Just(Layer::Value), 1 => Just(Layer::Replan), 1 => backup]
    };
    // They return failures of their own.
    let maker = || prop_oneof![(1_u32..=2).prop_map(Layer::Breaker), Just(Layer::Timeout)];
    let map = || kind().prop_map(Layer::Map);

    // Whoever tells has to have seen the failure that the caller gets, so above the first `Escalate`
    // there are only solvers.
    let below = prop_oneof![2 => solver(), 2 => maker(), 1 => map(), 1 => Just(Layer::Escalate)];
    let told = (vec(solver(), 0..=2), vec(below, 0..=3))
        .prop_map(|(above, below)| [above, vec![Layer::Escalate], below].concat());
    let below = prop_oneof![2 => solver(), 2 => maker(), 1 => map()];
    let untold = (prop_oneof![solver(), maker()], vec(below, 0..=3))
        .prop_map(|(top, below)| [vec![top], below].concat());
    // No fallback here: its answers would pass for one of a fallback on this side. No breaker: a
    // retry on this side knows a refusal by its type and returns the failure before it, but in the
    // incident of this side the refusal, which was recorded on the other, is an attempt's failure.
    let beyond = prop_oneof![retry(), Just(Layer::Timeout), map(), Just(Layer::Escalate)];
    let beyond = prop::option::weighted(0.2, vec(beyond, 0..=2));

    let after_ms = prop::sample::select(&[0, 5, 40][..]);
    let line = prop_oneof![
        8 => (after_ms, answer()).prop_map(|(after_ms, answer)| Line::Answer { after_ms, answer }),
        1 => kind().prop_map(Line::Unready),
    ];
    let call = (prop::sample::select(&[0, 1500][..]), prop::option::weighted(0.3, 0_usize..12))
        .prop_map(|(pause_ms, dropped)| Call { pause_ms, dropped });
    (prop_oneof![3 => told, 1 => untold], beyond, vec(line, 0..12), vec(call, 1..5)).prop_map(
        |(layers, beyond, script, calls)| Stack { layers, beyond, script: script.into(), calls },
    )
}

fn error(kind: ErrorKind) -> AnyError {
    io::Error::from(kind).into()
}

/// Answers with the request, by the script; after its end always at once.
#[derive(Clone, Default)]
struct Leaf {
    script: Arc<Mutex<VecDeque<Line>>>,
    unready: Arc<AtomicU32>,
}

impl Service<u32> for Leaf {
    type Response = u32;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<u32, AnyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        let mut script = self.script.lock().unwrap();
        let Some(&Line::Unready(kind)) = script.front() else { return Poll::Ready(Ok(())) };
        script.pop_front();
        self.unready.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(error(kind)))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        let (after_ms, answer) = match self.script.lock().unwrap().pop_front() {
            Some(Line::Answer { after_ms, answer }) => (after_ms, answer),
            // Another clone was ready first.
            Some(Line::Unready(kind)) => (0, Err(kind)),
            None => (0, Ok(())),
        };
        Box::pin(async move {
            if after_ms > 0 {
                sleep(Duration::from_millis(after_ms)).await;
            }
            answer.map(|()| request).map_err(error)
        })
    }
}

/// One side of a boundary: its layers share classifier and desk.
struct Side {
    classifier: Classifier<Rules>,
    seen: Seen,
    told: bool,
    desk: Desk,
    letters: mpsc::Receiver<Escalation>,
    /// How many incidents have been looked at.
    known: usize,
    /// How many failures services and mappings made on this side, for our layers to see.
    made: Arc<AtomicU32>,
    breakers: Vec<BreakerHandle>,
    budgets: Vec<Budget>,
}

impl Side {
    fn new(told: bool) -> Self {
        let ((classifier, seen), (desk, letters)) = (classifier(), desk());
        let (breakers, budgets, made) = (Vec::new(), Vec::new(), Arc::default());
        Self { classifier, seen, told, desk, letters, known: 0, made, breakers, budgets }
    }

    /// The bottom of this side: counts the failures of `service`.
    fn over(&self, service: Boxed) -> Boxed {
        let made = Arc::clone(&self.made);
        Boxed::new(service.map_result(move |outcome: Result<u32, AnyError>| {
            made.fetch_add(u32::from(outcome.is_err()), Ordering::Relaxed);
            outcome
        }))
    }

    /// How many failures the layers of this side recorded.
    fn recorded(&self) -> u64 {
        ErrorClass::ALL.into_iter().map(|class| self.classifier.count(class)).sum()
    }

    /// How many failures there were: those that our layers made themselves included.
    fn failures(&self) -> u64 {
        let steps = self.seen.steps();
        let ours = steps.iter().filter(|(_, step)| {
            matches!(step.kind, StepKind::Rejected { .. } | StepKind::TimedOut { soft: false, .. })
        });
        ours.count() as u64 + u64::from(self.made.load(Ordering::Relaxed))
    }

    fn put(&mut self, layer: &Layer, inner: Boxed) -> Boxed {
        let classifier = self.classifier.clone();
        match *layer {
            Layer::Retry(times) => {
                let half = InFlightSettings { max_ratio: 0.5, min: 1 };
                self.budgets.push(Budget::in_flight(half).unwrap());
                let retry = RetryLayer::new(classifier).policy(attempts(times));
                let retry = retry.budget(self.budgets[self.budgets.len() - 1].clone());
                Boxed::new(retry.random(Random::seeded(7)).layer(inner))
            }
            Layer::Value => {
                let classes = [ErrorClass::Unknown, ErrorClass::Rejected];
                let fallback = FallbackLayer::new(classifier).or_value(classes, |_| 100);
                Boxed::new(fallback.layer(inner))
            }
            Layer::Replan => {
                let fallback = FallbackLayer::new(classifier);
                Boxed::new(fallback.or_replan(ClassSet::ALL, |n, _| n + 1).layer(inner))
            }
            Layer::Backup(answer) => {
                let backup = Boxed::new(Strict::new(service_fn(move |_| async move {
                    tokio::task::yield_now().await;
                    answer.map(|()| 100).map_err(error)
                })));
                let mut backup = self.over(backup);
                if self.told {
                    backup = self.put(&Layer::Escalate, backup);
                }
                let fallback = FallbackLayer::new(classifier);
                Boxed::new(fallback.or_service(ClassSet::bypassable(), backup).layer(inner))
            }
            Layer::Breaker(failures) => {
                let breaker = CircuitBreakerLayer::new(classifier).policy(opens_at(failures));
                self.breakers.push(breaker.handle());
                Boxed::new(breaker.layer(inner))
            }
            Layer::Timeout => {
                let limit = Duration::from_millis(22);
                // No grace: an answer given in it is a clean success that has an incident.
                let plan = TimeoutPolicy::new(limit).grace(Duration::ZERO).build().unwrap();
                Boxed::new(TimeoutLayer::new(classifier, limit).unwrap().policy(plan).layer(inner))
            }
            Layer::Escalate => {
                Boxed::new(EscalateLayer::new(classifier, self.desk.clone()).layer(inner))
            }
            Layer::Map(kind) => {
                // Over a layer of ours, which sees what is mapped. Of another class it is another
                // failure; of the same one our layers take it for the one below.
                let inner = self.put(&Layer::Retry(1), inner);
                let made = Arc::clone(&self.made);
                Boxed::new(inner.map_result(move |outcome| {
                    outcome.map_err(|below: AnyError| {
                        let above = error(kind);
                        let changed = class(&classifier, &below) != class(&classifier, &above);
                        made.fetch_add(u32::from(changed), Ordering::Relaxed);
                        above
                    })
                }))
            }
        }
    }

    /// The incidents that ended and the letters that came since the last time. Of an incident at
    /// most one letter comes, and an incident that ended with its failure says whether one did.
    fn news(&mut self) -> Result<(Vec<Incident>, Vec<Escalation>), TestCaseError> {
        let incidents = self.seen.incidents().split_off(self.known);
        self.known += incidents.len();
        let letters: Vec<_> = std::iter::from_fn(|| self.letters.try_recv().ok()).collect();
        let mut of_incidents = 0;
        for incident in &incidents {
            let told = letters.iter().filter(|letter| letter.id == incident.id).count();
            of_incidents += told;
            let ends = match incident.resolution {
                Resolution::Escalated => told == 1,
                Resolution::Failed => told == 0,
                _ => told <= 1,
            };
            prop_assert!(ends && !incident.not_recorded, "{told} letters of {incident:#?}");
        }
        prop_assert_eq!(of_incidents, letters.len(), "letters of nothing: {:#?}", letters);
        Ok((incidents, letters))
    }
}

fn class(classifier: &Classifier<Rules>, error: &AnyError) -> Option<ErrorClass> {
    let verdict = classifier.judge(&Operation::EMPTY, Err::<&u32, _>(error));
    verdict.failure().map(|failure| failure.class)
}

/// Must somebody be told of this incident, whatever becomes of the call?
fn is_urgent(incident: &Incident) -> bool {
    let opened = |kind: &StepKind| matches!(kind, StepKind::CircuitOpened { .. });
    incident.classes.iter().any(|class| class.escalate() == EscalateWhen::Now)
        || incident.steps.iter().any(|step| !step.nested && opened(&step.kind))
}

/// What the caller, the observer and the desk have got of one call is one story. `outcome` is `None`
/// if the call was dropped; `failed`: did anything fail meanwhile?
fn check(
    side: &mut Side,
    outcome: Option<Result<u32, AnyError>>,
    failed: bool,
) -> Result<(), TestCaseError> {
    let (incidents, letters) = side.news()?;
    prop_assert!(incidents.len() <= 1, "{incidents:#?}");
    let incident = incidents.first();
    let resolution = incident.map(|incident| incident.resolution);
    let mut leaving = None;
    match outcome {
        None => prop_assert!(matches!(resolution, None | Some(Resolution::Abandoned))),
        Some(Ok(0)) => {
            prop_assert_eq!(incident.is_some(), failed, "{:#?}", incident);
            let nested = incident.is_some_and(|incident| incident.failure.is_none());
            let kind = if nested { Resolution::Succeeded } else { Resolution::RecoveredByRetry };
            prop_assert_eq!(resolution, incident.map(|_| kind));
        }
        // Only fallbacks change what the service would have answered.
        Some(Ok(_)) => prop_assert_eq!(resolution, Some(Resolution::AnsweredByFallback)),
        Some(Err(error)) => {
            leaving = class(&side.classifier, &error);
            let recorded = incident.and_then(|incident| incident.failure);
            prop_assert_eq!(recorded.map(|failure| failure.class), leaving, "{:#?}", incident);
            let ended = matches!(resolution, Some(Resolution::Failed | Resolution::Escalated));
            prop_assert!(ended, "{incident:#?}");
            prop_assert_eq!(error.incident().map(|own| own.id), incident.map(|own| own.id));
        }
    }
    let escalates = leaving.filter(|class| class.escalate() != EscalateWhen::Never);
    let due = escalates.is_some() || incident.is_some_and(is_urgent);
    prop_assert_eq!(letters.len(), usize::from(due && side.told), "{:#?}", incident);
    if let (Some(class), Some(letter)) = (escalates, letters.first()) {
        prop_assert_eq!(letter.class, class);
    }
    Ok(())
}

async fn run(stack: Stack) -> Result<(), TestCaseError> {
    let told = stack.layers.iter().any(|layer| matches!(layer, Layer::Escalate));
    let (mut near, mut far) = (Side::new(told), Side::new(true));
    let leaf = Leaf { script: Arc::new(Mutex::new(stack.script)), ..Leaf::default() };
    let bottom = if stack.beyond.is_some() { &far } else { &near };
    let mut service = bottom.over(Boxed::new(Strict::new(leaf.clone())));
    if let Some(beyond) = &stack.beyond {
        // Outermost there, as it holds errors of readiness: a buffer ends with the first one.
        for layer in beyond.iter().rev().chain([&Layer::Escalate]) {
            service = far.put(layer, service);
        }
        let buffer = ServiceBuilder::new().map_err(AnyError::from_boxed).buffer(4);
        service = near.over(Boxed::new(buffer.service(service)));
    }
    for layer in stack.layers.iter().rev() {
        service = near.put(layer, service);
    }

    for Call { pause_ms, dropped } in stack.calls {
        sleep(Duration::from_millis(pause_ms)).await;
        let recorded = near.recorded() + far.recorded();
        let Ok(ready) = service.ready().await else {
            prop_assert!(near.news()?.0.is_empty(), "there was no call");
            continue;
        };
        let mut call = Box::pin(ready.call(0));
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
        // What is on its way to the desk or through the buffer arrives.
        sleep(Duration::from_millis(1)).await;
        let failed = near.recorded() + far.recorded() > recorded;
        check(&mut near, outcome, failed)?;
        far.news()?;
    }

    // No place was lost: once the service works and the breakers' time is over, calls pass.
    leaf.script.lock().unwrap().clear();
    sleep(Duration::from_millis(1500)).await;
    let answer = service.ready().await.unwrap().call(0).await;
    prop_assert_eq!(answer.map_err(|error| error.to_string()), Ok(0));
    check(&mut near, Some(Ok(0)), false)?;
    // A service that is not ready has failed only if there is a call to see it.
    let unready = u64::from(leaf.unready.load(Ordering::Relaxed));
    for side in [near, far] {
        let (failures, recorded) = (side.failures(), side.recorded());
        let once = failures <= recorded && recorded <= failures + unready;
        prop_assert!(once, "{failures} failures, {recorded} recorded, {unready} times not ready");
        prop_assert!(side.breakers.iter().all(|breaker| breaker.state() == State::Closed));
        // More, if a call were counted still; less, if a retry were.
        prop_assert!(side.budgets.iter().all(|budget| budget.balance(Duration::ZERO) == 1));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_stack_tells_one_story_of_each_call(stack in stack()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(run(stack))?;
    }
}
