//! Our layers: each alone, three like the peers', all four.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_circuit_breaker::{BreakerPlan, BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{
    AnyOk, Backoff, CircuitOpen, Classifier, Clock, ErrorClass, Failure, FuseLayer, Halves,
    OwnError, ToFailure,
};
use tower_triage_escalate::{Desk, EscalateLayer, KeepFailure, LogSink, Receiver, Route, Routes};
use tower_triage_fallback::chain::{End, Then};
use tower_triage_fallback::keep::Nothing;
use tower_triage_fallback::steps::ValueStep;
use tower_triage_fallback::{Failed, FallbackLayer};
use tower_triage_retry::budget::{BucketSettings, Budget};
use tower_triage_retry::{RetryLayer, RetryPolicy};

use crate::case::{Case, Expect, tripped};
use crate::work::{FALLBACK, FIRST_FAILS, NOTHING_FAILS, OPEN, SHARES, Script, Work, WorkFailed};

type Rules = Halves<AnyOk, OwnError>;
type Value = ValueStep<fn(Failed<'_, u64, WorkFailed>) -> u64>;

impl ToFailure for WorkFailed {
    fn to_failure(&self) -> Failure {
        match self {
            Self::Transient => ErrorClass::Transient.into(),
            Self::Refused | Self::Rejected => ErrorClass::Rejected.into(),
        }
    }
}

impl From<CircuitOpen> for WorkFailed {
    fn from(_: CircuitOpen) -> Self {
        Self::Rejected
    }
}

/// What the breaker's window spans.
#[derive(Clone, Copy, Debug)]
pub enum Window {
    /// Ten seconds: the default.
    Time,
    /// So many calls.
    Count(u32),
}

impl Window {
    /// The default thresholds over this window.
    fn policy(self) -> BreakerPolicy {
        match self {
            Self::Time => BreakerPolicy::default(),
            Self::Count(calls) => {
                BreakerPolicy::new().count_window(calls).minimum_calls(20).failure_rate(0.5)
            }
        }
    }

    /// The default thresholds over this window, checked.
    pub(crate) fn plan(self) -> BreakerPlan {
        plan(self.policy())
    }

    /// The same, but nothing short of a window full of failures trips it.
    fn patient_policy(self) -> BreakerPolicy {
        self.policy().minimum_calls(100).failure_rate(1.0)
    }
}

/// The rules that all cases share in kind; each stack has a classifier of its own.
pub(crate) fn classifier() -> Classifier<Rules> {
    Classifier::new(Halves { response: AnyOk, error: OwnError })
}

fn fallback(
    classifier: &Classifier<Rules>,
) -> FallbackLayer<Rules, Then<End, Value>, Nothing<WorkFailed>> {
    let classes = [ErrorClass::Transient, ErrorClass::Rejected];
    FallbackLayer::new(classifier.clone()).or_value(classes, |_| 0)
}

fn retry(classifier: &Classifier<Rules>) -> RetryLayer<Rules> {
    RetryLayer::new(classifier.clone())
}

/// Retries at once, with a budget that never says no.
fn eager_retry(classifier: &Classifier<Rules>) -> RetryLayer<Rules> {
    let plan = RetryPolicy::default().backoff(&Backoff::immediate()).build().expect("it is valid");
    retry(classifier).policy(plan).budget(ample_budget())
}

pub(crate) fn ample_budget() -> Budget {
    let settings = BucketSettings { gain: 1000.0, capacity: 1_000_000, initial: 1_000_000 };
    Budget::bucket(settings).expect("it is valid")
}

fn breaker(classifier: &Classifier<Rules>, policy: BreakerPolicy) -> CircuitBreakerLayer<Rules> {
    CircuitBreakerLayer::new(classifier.clone()).policy(plan(policy))
}

fn plan(policy: BreakerPolicy) -> BreakerPlan {
    policy.build().expect("it is valid")
}

fn escalate(classifier: &Classifier<Rules>) -> EscalateLayer<Rules, KeepFailure, WorkFailed> {
    let routes = Routes::new(Route::new(["log"], "failure"));
    let desk =
        Desk::new(routes, [Receiver::new("log").record(LogSink)]).expect("one receiver, one route");
    EscalateLayer::new(classifier.clone(), desk)
}

/// All four layers at their defaults, but for the breaker's window.
#[must_use]
pub fn four(window: Window) -> impl Stack {
    let c = &classifier();
    ServiceBuilder::new()
        .layer(escalate(c))
        .layer(fallback(c))
        .layer(retry(c))
        .layer(breaker(c, window.policy()))
        .service(Work(Script::Succeeds))
}

/// The same, leaked: nothing is counted.
fn four_leaked(window: Window) -> impl Stack {
    let c = &classifier();
    ServiceBuilder::new()
        .layer(escalate(c).leak())
        .layer(fallback(c).leak())
        .layer(retry(c).leak())
        .layer(breaker(c, window.policy()).leak())
        .service(Work(Script::Succeeds))
}

/// Leaked, and with a clock that may be some milliseconds behind.
fn coarse_four() -> impl Stack {
    let c = &classifier();
    ServiceBuilder::new()
        .layer(escalate(c).leak())
        .layer(fallback(c).leak())
        .layer(retry(c).leak())
        .layer(breaker(c, Window::Time.policy()).clock(Clock::coarse()).leak())
        .service(Work(Script::Succeeds))
}

/// All four as one.
#[must_use]
pub fn four_fused(window: Window) -> impl Stack {
    let c = &classifier();
    let layers = ServiceBuilder::new()
        .layer(escalate(c))
        .layer(fallback(c))
        .layer(retry(c))
        .layer(breaker(c, window.policy()));
    FuseLayer::new(c.clone(), layers.into_inner()).layer(Work(Script::Succeeds))
}

/// The same, leaked.
fn four_fused_leaked(window: Window) -> impl Stack {
    let c = &classifier();
    let layers = ServiceBuilder::new()
        .layer(escalate(c).leak())
        .layer(fallback(c).leak())
        .layer(retry(c).leak())
        .layer(breaker(c, window.policy()).leak());
    FuseLayer::new(c.clone(), layers.into_inner()).leak().layer(Work(Script::Succeeds))
}

/// The three layers that peers have too, as one.
fn three_fused(window: Window) -> impl Stack {
    let c = &classifier();
    let layers =
        ServiceBuilder::new().layer(fallback(c)).layer(retry(c)).layer(breaker(c, window.policy()));
    FuseLayer::new(c.clone(), layers.into_inner()).layer(Work(Script::Succeeds))
}

/// The three layers that peers have too, leaked.
fn three_leaked(window: Window) -> impl Stack {
    let c = &classifier();
    ServiceBuilder::new()
        .layer(fallback(c).leak())
        .layer(retry(c).leak())
        .layer(breaker(c, window.policy()).leak())
        .service(Work(Script::Succeeds))
}

/// The three layers that peers have too.
#[must_use]
pub fn three(window: Window) -> impl Stack {
    let c = &classifier();
    ServiceBuilder::new()
        .layer(fallback(c))
        .layer(retry(c))
        .layer(breaker(c, window.policy()))
        .service(Work(Script::Succeeds))
}

/// All four layers over work that fails: retries do not wait, nothing trips.
fn failing_four(script: Script) -> impl Stack {
    let c = &classifier();
    ServiceBuilder::new()
        .layer(escalate(c))
        .layer(fallback(c))
        .layer(eager_retry(c))
        .layer(breaker(c, Window::Count(100).patient_policy()))
        .service(Work(script))
}

/// The same as one: a call that fails is the layers' from then on.
fn failing_four_fused(script: Script) -> impl Stack {
    let c = &classifier();
    let layers = ServiceBuilder::new()
        .layer(escalate(c))
        .layer(fallback(c))
        .layer(eager_retry(c))
        .layer(breaker(c, Window::Count(100).patient_policy()));
    FuseLayer::new(c.clone(), layers.into_inner()).layer(Work(script))
}

/// The three layers that peers have too, over work that fails.
fn failing_three(script: Script) -> impl Stack {
    let c = &classifier();
    ServiceBuilder::new()
        .layer(fallback(c))
        .layer(eager_retry(c))
        .layer(breaker(c, Window::Count(100).patient_policy()))
        .service(Work(script))
}

/// A breaker that has just opened, for an hour.
fn open_breaker(clock: Clock) -> impl Stack {
    let policy = BreakerPolicy::new()
        .consecutive_failures(1)
        .open_for(Backoff::fixed(Duration::from_secs(3600)));
    let c = &classifier();
    let layer = breaker(c, policy).clock(clock);
    tripped(ServiceBuilder::new().layer(layer).service(Work(Script::Down)))
}

/// A breaker whose window is over work of which a tenth fails.
pub(crate) fn failing_breaker(window: Window) -> impl Stack {
    let c = &classifier();
    let layer = breaker(c, window.patient_policy());
    ServiceBuilder::new().layer(layer).service(Work(Script::ShareFails(100)))
}

/// What [`Case::tower`] can drive.
pub trait Stack:
    Service<u64, Response = u64, Error = WorkFailed, Future: Send> + Clone + Send + 'static
{
}

impl<S> Stack for S where
    S: Service<u64, Response = u64, Error = WorkFailed, Future: Send> + Clone + Send + 'static
{
}

/// Everything at its defaults where nothing fails; the fallback is a value, escalations go to the
/// log. The layers of one case share one classifier.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = single_layers();
    cases.extend([
        answered(NOTHING_FAILS, "ours, three, time window", || three(Window::Time)),
        answered(NOTHING_FAILS, "ours, three, count window", || three(Window::Count(100))),
        answered(NOTHING_FAILS, "ours, three, count window, leaked", || {
            three_leaked(Window::Count(100))
        }),
        answered(NOTHING_FAILS, "ours, four, time window", || four(Window::Time)),
        answered(NOTHING_FAILS, "ours, four, count window", || four(Window::Count(100))),
        answered(NOTHING_FAILS, "ours, four, time window, leaked", || four_leaked(Window::Time)),
        answered(NOTHING_FAILS, "ours, four, time window, leaked, coarse clock", coarse_four),
        answered(NOTHING_FAILS, "ours, four, count window, leaked", || {
            four_leaked(Window::Count(100))
        }),
        answered(NOTHING_FAILS, "ours, three, count window, fused", || {
            three_fused(Window::Count(100))
        }),
        answered(NOTHING_FAILS, "ours, four, time window, fused", || four_fused(Window::Time)),
        answered(NOTHING_FAILS, "ours, four, count window, fused", || {
            four_fused(Window::Count(100))
        }),
        answered(NOTHING_FAILS, "ours, four, count window, fused, leaked", || {
            four_fused_leaked(Window::Count(100))
        }),
    ]);
    let first_fails = Script::EverySecondFails;
    for (group, script) in [(FIRST_FAILS, first_fails), (FALLBACK, Script::Refuses)] {
        cases.push(answered(group, "ours, three", move || failing_three(script)).one_thread());
        cases.push(answered(group, "ours, four", move || failing_four(script)).one_thread());
        let fused = move || failing_four_fused(script);
        cases.push(answered(group, "ours, four, fused", fused).one_thread());
    }
    for (who, clock) in [
        ("ours, breaker", Clock::new as fn() -> Clock),
        ("ours, breaker, coarse clock", Clock::coarse),
    ] {
        let make = move || open_breaker(clock());
        cases.push(Case::tower(OPEN, who, Expect::Error, make).one_thread());
    }
    for (group, share) in SHARES {
        let script = Script::ShareFails(share);
        cases.push(answered(group, "ours, three", move || failing_three(script)));
        cases.push(answered(group, "ours, four", move || failing_four(script)));
        cases.push(answered(group, "ours, four, fused", move || failing_four_fused(script)));
    }
    cases
}

/// Every layer by itself, on one thread; nothing fails.
fn single_layers() -> Vec<Case> {
    vec![
        alone("ours, fallback", |c, work| ServiceBuilder::new().layer(fallback(c)).service(work)),
        alone("ours, retry", |c, work| ServiceBuilder::new().layer(retry(c)).service(work)),
        alone("ours, breaker, time window", |c, work| {
            ServiceBuilder::new().layer(breaker(c, Window::Time.policy())).service(work)
        }),
        alone("ours, breaker, count window", |c, work| {
            ServiceBuilder::new().layer(breaker(c, Window::Count(100).policy())).service(work)
        }),
        alone("ours, escalate", |c, work| ServiceBuilder::new().layer(escalate(c)).service(work)),
    ]
}

fn alone<S: Stack>(who: &'static str, make: fn(&Classifier<Rules>, Work) -> S) -> Case {
    answered(NOTHING_FAILS, who, move || make(&classifier(), Work(Script::Succeeds))).one_thread()
}

fn answered<S, M>(group: &'static str, who: &'static str, make: M) -> Case
where
    S: Stack,
    M: Fn() -> S + Clone + Send + Sync + 'static,
{
    Case::tower(group, who, Expect::Answer, make)
}
