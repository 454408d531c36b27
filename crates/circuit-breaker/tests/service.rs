//! What the layer does, story by story.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{
    Answer, Call, Dependency, Error, Response, Rules, advance, call, checked, down, failed, layer,
    ok, pending, poll_once, rejection, row, run, secs,
};
use tokio_test::{assert_pending, assert_ready};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_triage_circuit_breaker::{
    BreakerHandle, BreakerPolicy, CircuitBreakerLayer, KeyedSettings, State, reject_fn,
};
use tower_triage_core::{
    AnyError, AnyOk, Backoff, Chain, CircuitOpen, Classifier, Classify, Describe, ErrorClass,
    Failure, Halves, Key, Note, Resolution, RetryAfter, StepKind, Verdict, Vote,
};
use tower_triage_test_support::Seen;

// === Trip rules ===

#[tokio::test(start_paused = true)]
async fn by_default_half_of_twenty_within_ten_seconds_trips() {
    let layer = CircuitBreakerLayer::new(Classifier::new(Rules));
    let mut service = layer.layer(Dependency::default());
    for _ in 0..10 {
        run(&mut service, ok()).await.unwrap();
    }
    for _ in 0..9 {
        run(&mut service, down()).await.unwrap_err();
    }
    assert_eq!(layer.handle().state(), State::Closed);
    run(&mut service, down()).await.unwrap_err();
    assert_eq!(layer.handle().state(), State::Open);
}

/// Nine of ten slices are young, the oldest leaves while the latest is still the current one.
#[tokio::test(start_paused = true)]
async fn a_success_trips_when_the_good_calls_before_it_leave_the_window() {
    let layer =
        layer(BreakerPolicy::new().time_window(secs(10)).failure_rate(0.5).minimum_calls(3));
    let mut service = layer.layer(Dependency::default());
    for _ in 0..4 {
        run(&mut service, ok()).await.unwrap();
    }
    advance(Duration::from_millis(9_500)).await;
    for _ in 0..2 {
        run(&mut service, down()).await.unwrap_err();
    }
    advance(Duration::from_millis(499)).await;
    run(&mut service, ok()).await.unwrap();
    assert_eq!(layer.handle().window().recorded, 7);
    advance(Duration::from_millis(1)).await;
    run(&mut service, ok()).await.unwrap();
    assert_eq!(layer.handle().state(), State::Open, "two of four");
}

/// Looking at the window, or a neutral call, lets old calls leave it without judging the rest.
#[tokio::test(start_paused = true)]
async fn looking_at_the_window_does_not_keep_the_next_success_from_tripping() {
    let layer =
        layer(BreakerPolicy::new().time_window(secs(10)).failure_rate(0.5).minimum_calls(2));
    let mut service = layer.layer(Dependency::default());
    for _ in 0..4 {
        run(&mut service, ok()).await.unwrap();
    }
    advance(secs(5)).await;
    for _ in 0..3 {
        run(&mut service, down()).await.unwrap_err();
    }
    advance(secs(5)).await;
    assert_eq!(layer.handle().window().failure_rate(), 1.0);
    assert_eq!(layer.handle().state(), State::Closed, "no outcome came");
    run(&mut service, ok()).await.unwrap();
    assert_eq!(layer.handle().state(), State::Open, "three of four");
}

#[tokio::test(start_paused = true)]
async fn slow_calls_trip_and_slow_probes_fail() {
    let policy = BreakerPolicy::new()
        .count_window(4)
        .minimum_calls(4)
        .slow_call(secs(1))
        .slow_rate(0.5)
        .open_for(Backoff::fixed(secs(10)));
    let layer = layer(policy);
    let mut service = layer.layer(Dependency::default());
    let mut take = async |time: Duration| {
        let (answer, call) = pending();
        let future = service.ready().await.unwrap().call(call);
        advance(time).await;
        answer.send(ok()).unwrap();
        future.await.unwrap();
        layer.handle().state()
    };
    for time in [secs(1), secs(2), secs(1)] {
        assert_eq!(take(time).await, State::Closed);
    }
    assert_eq!(take(secs(3)).await, State::Open);
    advance(secs(10)).await;
    assert_eq!(take(secs(2)).await, State::Open, "a slow success is a failed probe");
    advance(secs(10)).await;
    assert_eq!(take(secs(1)).await, State::Closed);
    assert_eq!(layer.handle().counts().slow, 3);
}

// === What counts ===

/// Judged by rate, a recovery that answers too slowly is none.
#[tokio::test(start_paused = true)]
async fn probes_that_are_judged_by_rate_may_be_too_slow() {
    for (slow, state) in [(1, State::Closed), (2, State::Open)] {
        let policy = row(1).slow_call(secs(1)).slow_rate(0.5).probes(3).decide_by_rate();
        let layer = layer(policy);
        let mut service = layer.layer(Dependency::default());
        run(&mut service, down()).await.unwrap_err();
        advance(secs(10)).await;
        let mut probes = Vec::new();
        for _ in 0..3 {
            let (answer, call) = pending();
            let mut probe = Box::pin(service.ready().await.unwrap().call(call));
            assert!(poll_once(probe.as_mut()).is_pending());
            probes.push((answer, probe));
        }
        for (number, (answer, probe)) in probes.into_iter().enumerate() {
            if number + slow == 3 {
                advance(secs(2)).await;
            }
            answer.send(ok()).unwrap();
            probe.await.unwrap();
        }
        assert_eq!(layer.handle().state(), state, "{slow} of 3");
    }
}

#[tokio::test(start_paused = true)]
async fn the_vote_decides_not_the_class() {
    let layer = layer(row(1));
    let mut service = layer.layer(Dependency::default());
    let voting = |class, vote| Err(Error::Failed(Failure::new(class).vote(vote)));
    run(&mut service, voting(ErrorClass::Transient, Vote::Ignore)).await.unwrap_err();
    run(&mut service, voting(ErrorClass::Transient, Vote::Success)).await.unwrap_err();
    assert_eq!(layer.handle().state(), State::Closed);
    run(&mut service, voting(ErrorClass::Throttled, Vote::Failure)).await.unwrap_err();
    assert_eq!(layer.handle().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_lengthens_the_open_time_up_to_its_cap() {
    let hinted = |hint| Err(Error::Failed(Failure::new(ErrorClass::Transient).retry_after(hint)));
    let open_for = async |hint, policy: BreakerPolicy| {
        let layer = layer(policy);
        run(&mut layer.layer(Dependency::default()), hinted(hint)).await.unwrap_err();
        layer.handle().time_to_next_probe().unwrap()
    };
    let at_least = |s| RetryAfter::AtLeast(secs(s));
    assert_eq!(open_for(at_least(120), row(1)).await, secs(120));
    assert_eq!(open_for(at_least(3), row(1)).await, secs(10), "never shorter");
    assert_eq!(open_for(RetryAfter::Never, row(1)).await, secs(300));
    assert_eq!(open_for(at_least(120), row(1).retry_after_cap(Duration::ZERO)).await, secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_a_retry_after_asked_for() {
    let layer = layer(row(1));
    let mut service = layer.layer(Dependency::default());
    let hint = RetryAfter::AtLeast(secs(120));
    let hinted = Failure::new(ErrorClass::Transient).retry_after(hint);
    run(&mut service, Err(Error::Failed(hinted))).await.unwrap_err();
    layer.handle().reset();
    run(&mut service, down()).await.unwrap_err();
    assert_eq!(layer.handle().time_to_next_probe(), Some(secs(10)));
}

#[tokio::test(start_paused = true)]
async fn a_disabled_breaker_counts_and_never_trips() {
    let layer = layer(row(1));
    let handle = layer.handle();
    let mut service = layer.layer(Dependency::default());
    handle.disable();
    for answer in [down(), ok(), down(), failed(ErrorClass::Throttled)] {
        _ = run(&mut service, answer).await;
    }
    let counts = handle.counts();
    assert_eq!((counts.failures, counts.successes, counts.ignored), (2, 1, 1));
    assert_eq!(handle.state(), State::Disabled);
}

// === Half-open ===

#[tokio::test(start_paused = true)]
async fn one_more_probe_each_open_period_while_one_hangs() {
    let layer = layer(row(1).reprobe());
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    advance(secs(10)).await;
    let (_hangs, call) = pending();
    let _probe = service.ready().await.unwrap().call(call);
    advance(secs(9)).await;
    assert!(rejection(&run(&mut service, ok()).await).is_some());
    assert_eq!(layer.handle().time_to_next_probe(), Some(secs(1)));
    advance(secs(1)).await;
    run(&mut service, ok()).await.unwrap();
    assert_eq!(layer.handle().state(), State::Closed);
}

// === Readiness ===

/// Ready when it is told to be.
#[derive(Clone, Debug, Default)]
struct Gate {
    ready: Arc<AtomicBool>,
    inner: Dependency,
}

impl Service<Call> for Gate {
    type Response = Response;
    type Error = Error;
    type Future = <Dependency as Service<Call>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.ready.load(Ordering::SeqCst) {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    fn call(&mut self, call: Call) -> Self::Future {
        assert!(self.ready.load(Ordering::SeqCst));
        self.inner.call(call)
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_caller_is_woken_when_the_circuit_opens() {
    let layer = layer(row(1));
    let mut service = layer.layer(Gate::default());
    let mut parked = tokio_test::task::spawn(async move {
        let mut service = service.ready().await.unwrap();
        Service::call(&mut service, call(ok())).await
    });
    assert_pending!(parked.poll());
    run(&mut layer.layer(Dependency::default()), down()).await.unwrap_err();
    assert!(parked.is_woken());
    assert!(rejection(&assert_ready!(parked.poll())).is_some());
}

/// Never ready; opens the circuit while it is asked, before anybody could have parked.
struct OpensIt(BreakerHandle);

impl Service<Call> for OpensIt {
    type Response = Response;
    type Error = Error;
    type Future = std::future::Ready<Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.force_open();
        Poll::Pending
    }

    fn call(&mut self, _: Call) -> Self::Future {
        panic!("called without being ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_is_about_to_park_does_not_miss_the_opening() {
    let layer = layer(row(1));
    let mut service = layer.layer(OpensIt(layer.handle()));
    let mut answer = tokio_test::task::spawn(async { run(&mut service, ok()).await });
    assert!(rejection(&assert_ready!(answer.poll())).is_some());
}

#[tokio::test(start_paused = true)]
async fn readied_while_closed_and_called_while_open_is_rejected_and_stays_ready() {
    let layer = layer(row(1));
    let gate = Gate::default();
    gate.ready.store(true, Ordering::SeqCst);
    let mut service = layer.layer(gate.clone());
    service.ready().await.unwrap();
    run(&mut layer.layer(Dependency::default()), down()).await.unwrap_err();
    assert!(rejection(&service.call(call(ok())).await).is_some());
    assert_eq!(gate.inner.calls(), 0);

    // The readiness that was not used is still there when the probe is due.
    advance(secs(10)).await;
    service.call(call(ok())).await.unwrap();
    assert_eq!((gate.inner.calls(), layer.handle().state()), (1, State::Closed));
}

/// A look while it was open takes nothing from a service that had been readied before.
#[tokio::test(start_paused = true)]
async fn readied_while_closed_it_stays_readied_through_an_open_period() {
    let layer = layer(row(1));
    let mut service = layer.layer(Dependency::default());
    let mut readied = service.clone();
    readied.ready().await.unwrap();
    run(&mut service, down()).await.unwrap_err();
    readied.ready().await.unwrap();
    advance(secs(10)).await;
    readied.call(call(ok())).await.unwrap();
    assert_eq!(layer.handle().state(), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn readied_to_reject_rejects_even_if_the_time_ran_out_meanwhile() {
    let layer = layer(row(1));
    let mut service = layer.layer(Gate::default());
    run(&mut layer.layer(Dependency::default()), down()).await.unwrap_err();
    service.ready().await.unwrap();
    advance(secs(10)).await;
    let open = rejection(&service.call(call(ok())).await).unwrap();
    assert_eq!(open.retry_after(), Duration::ZERO);
    assert_eq!(layer.handle().state(), State::Open, "no probe was taken");
}

#[tokio::test(start_paused = true)]
async fn an_unreadied_inner_service_is_never_called() {
    let mut service = layer(row(1)).layer(Gate::default());
    assert!(rejection(&service.call(call(ok())).await).is_some());
    let gate = Gate::default();
    gate.ready.store(true, Ordering::SeqCst);
    let mut service = layer(row(1)).layer(gate);
    service.ready().await.unwrap();
    let mut clone = service.clone();
    assert!(rejection(&clone.call(call(ok())).await).is_some(), "readiness is not copied");
    service.call(call(ok())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn half_open_waits_for_the_inner_service_only_with_a_free_slot() {
    let layer = layer(row(1));
    let gate = Gate::default();
    let mut first = layer.layer(Dependency::default());
    run(&mut first, down()).await.unwrap_err();
    advance(secs(10)).await;

    let mut waiting = tokio_test::task::spawn(layer.layer(gate.clone()).ready_oneshot());
    assert_pending!(waiting.poll(), "a probe is due: the inner service's readiness counts");
    let (_answer, hanging) = pending();
    let _probe = first.ready().await.unwrap().call(hanging);
    assert!(waiting.is_woken(), "the slot is gone");
    let mut service = assert_ready!(waiting.poll()).unwrap();
    assert!(rejection(&service.call(call(ok())).await).is_some());
}

/// Fails to become ready.
struct Broken;

impl Service<Call> for Broken {
    type Response = Response;
    type Error = Error;
    type Future = std::future::Ready<Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Err(Error::Failed(ErrorClass::Transient.into())))
    }

    fn call(&mut self, _: Call) -> Self::Future {
        panic!("called without being ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_readiness_error_is_a_failed_call_to_the_circuit_and_no_incident() {
    let (classifier, seen) = (Classifier::new(Rules), Seen::default());
    classifier.observe(seen.clone());
    let layer = CircuitBreakerLayer::new(classifier.clone()).policy(checked(row(2)));
    let mut service = layer.layer(Broken);
    for _ in 0..2 {
        assert!(matches!(run(&mut service, ok()).await, Err(Error::Failed(_))));
    }
    // Whoever gives the error as the outcome of a call counts and records it.
    assert_eq!(classifier.count(ErrorClass::Transient), 0);
    assert!(seen.incidents().is_empty());
    assert_eq!(seen.outcomes(), ["circuit_opened"]);
    assert_eq!((layer.handle().state(), layer.handle().counts().failures), (State::Open, 2));
    assert!(rejection(&run(&mut service, ok()).await).is_some());
    // It is a failed probe, too: the circuit opens again.
    advance(secs(10)).await;
    assert!(matches!(run(&mut service, ok()).await, Err(Error::Failed(_))));
    assert_eq!(layer.handle().time_to_next_probe(), Some(secs(10)));
}

#[tokio::test(start_paused = true)]
async fn below_a_balancer_an_open_breaker_is_pending_until_its_probe_is_due() {
    let layer = layer(row(1)).below_balancer();
    let mut service = layer.layer(Dependency::default());
    let mut readied = service.clone();
    readied.ready().await.unwrap();
    run(&mut service, down()).await.unwrap_err();

    // A balancer asks again before it calls what it knew to be ready.
    assert_pending!(tokio_test::task::spawn(readied.ready()).poll());
    let mut waiting = tokio_test::task::spawn(service.clone().ready_oneshot());
    assert_pending!(waiting.poll());
    advance(secs(9)).await;
    assert_pending!(waiting.poll());
    advance(secs(2)).await;
    assert!(waiting.is_woken());
    assert_ready!(waiting.poll()).unwrap().call(call(down())).await.unwrap_err();

    // A reset ends the wait before its time; so does a probe slot that comes back.
    let mut waiting = tokio_test::task::spawn(service.clone().ready_oneshot());
    assert_pending!(waiting.poll());
    layer.handle().reset();
    assert!(waiting.is_woken());
    assert_ready!(waiting.poll()).unwrap().call(call(down())).await.unwrap_err();
    advance(secs(10)).await;
    let (_answer, hanging) = pending();
    let probe = service.ready().await.unwrap().call(hanging);
    let mut waiting = tokio_test::task::spawn(service.clone().ready_oneshot());
    assert_pending!(waiting.poll());
    drop(probe);
    assert!(waiting.is_woken());
    assert_ready!(waiting.poll()).unwrap().call(call(ok())).await.unwrap();
}

/// Who waits for one open period waits for the next one too, if that takes its place; and who waits
/// no longer is not woken.
#[tokio::test(start_paused = true)]
async fn below_a_balancer_it_is_the_present_period_that_is_waited_for() {
    let layer = layer(row(1)).below_balancer();
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    let mut readied = service.clone();
    let mut waiting = tokio_test::task::spawn(std::future::poll_fn(|cx| readied.poll_ready(cx)));
    assert_pending!(waiting.poll());
    advance(secs(5)).await;
    layer.handle().reset();
    run(&mut service, down()).await.unwrap_err();
    assert!(waiting.is_woken());
    assert_pending!(waiting.poll());
    advance(secs(6)).await;
    assert!(!waiting.is_woken(), "eleven seconds after the first opening, six after the second");
    advance(secs(4)).await;
    assert!(waiting.is_woken());
    assert_ready!(waiting.poll()).unwrap();
    layer.handle().force_open();
    layer.handle().reset();
    assert!(!waiting.is_woken(), "it is ready, and waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn below_a_balancer_an_open_period_without_end_is_waited_for() {
    let for_ever = Backoff::fixed(Duration::MAX);
    let layer = layer(BreakerPolicy::new().consecutive_failures(1).open_for(for_ever));
    let mut service = layer.below_balancer().layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    assert_pending!(tokio_test::task::spawn(service.ready()).poll());
}

// === Keys ===

#[tokio::test(start_paused = true)]
async fn each_key_has_its_circuit_and_readiness_is_the_inner_services() {
    let gate = Gate::default();
    let layer = layer(row(1)).keyed(KeyedSettings::default());
    let mut service = layer.layer(gate.clone());
    assert_pending!(tokio_test::task::spawn(service.ready()).poll());
    gate.ready.store(true, Ordering::SeqCst);

    let mut run = async |key: &str, answer: Answer| {
        let call = Call { key: Key::new(key), ..call(answer) };
        service.ready().await.unwrap().call(call).await
    };
    run("a", down()).await.unwrap_err();
    run("b", ok()).await.unwrap();
    let open = rejection(&run("a", ok()).await).expect("a is open");
    assert_eq!((open.name(), open.retry_after()), ("a", secs(10)));
    run("b", ok()).await.unwrap();

    let handle = layer.handle();
    let a = handle.key(&Key::new("a")).unwrap();
    assert_eq!((a.state(), a.counts().rejected), (State::Open, 1));
    assert_eq!(handle.key(&Key::new("b")).unwrap().state(), State::Closed);
    assert!(handle.key(&Key::new("c")).is_none());
    assert_eq!((handle.keys().len(), handle.state()), (2, State::Closed));
    a.reset();
    run("a", ok()).await.unwrap();
}

// === Incidents and subscribers ===

#[tokio::test(start_paused = true)]
async fn an_incident_tells_of_the_opening_and_of_each_rejection() {
    let seen = Seen::default();
    let classifier = Classifier::new(Rules);
    classifier.observe(seen.clone());
    let layer = CircuitBreakerLayer::new(classifier).name("shop").policy(checked(row(1)));
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    assert_eq!(seen.outcomes(), ["failed", "circuit_opened"]);
    let opened = seen.last().steps.pop().unwrap().kind;
    assert!(matches!(opened, StepKind::CircuitOpened { breaker, open_for }
        if breaker == "shop" && open_for == secs(10)));

    run(&mut service, ok()).await.unwrap_err();
    let incident = seen.last();
    assert_eq!((incident.attempts, incident.resolution), (0, Resolution::Failed));
    assert!(matches!(incident.steps[0].kind, StepKind::Rejected { retry_after, .. }
        if retry_after == secs(10)));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_recorded_in_poll_and_never_in_call() {
    let seen = Seen::default();
    let classifier = Classifier::new(Rules);
    classifier.observe(seen.clone());
    let layer = CircuitBreakerLayer::new(classifier).policy(checked(row(1)));
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    let before = seen.outcomes().len();
    let rejected = service.ready().await.unwrap().call(call(ok()));
    assert_eq!(seen.outcomes().len(), before);
    rejected.await.unwrap_err();
    assert_eq!(seen.outcomes().len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn each_change_is_told_once() {
    let layer = layer(row(1));
    let changes = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&changes);
    layer.handle().subscribe(move |change| told.lock().unwrap().push((change.from, change.to)));
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    advance(secs(10)).await;
    run(&mut service, ok()).await.unwrap();
    layer.handle().reset();
    layer.handle().force_open();
    layer.handle().force_open();
    assert_eq!(
        *changes.lock().unwrap(),
        [
            (State::Closed, State::Open),
            (State::Open, State::HalfOpen),
            (State::HalfOpen, State::Closed),
            (State::Closed, State::ForcedOpen),
        ]
    );
}

// === Types ===

#[tokio::test(start_paused = true)]
async fn nothing_has_to_be_clone_or_send() {
    struct Request(Rc<Cell<u32>>);
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let mut service = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new(classifier))
        .service(tower::service_fn(async |request: Request| Ok::<_, AnyError>(request.0)));
    let answer = service.ready().await.unwrap().call(Request(Rc::new(Cell::new(7)))).await;
    assert_eq!(answer.unwrap().get(), 7);
}

#[tokio::test]
async fn an_unboxed_stack_is_spawnable() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new(classifier.clone()).keyed(KeyedSettings::default()))
        .layer(CircuitBreakerLayer::new(classifier).policy(checked(row(1))).below_balancer())
        .map_err(AnyError::from_boxed)
        .buffer(4)
        .timeout(secs(5))
        .service(tower::service_fn(async |n: u32| Ok::<_, std::io::Error>(n + 1)));
    let answer = tokio::spawn(async move { stack.oneshot(1).await }).await.unwrap();
    assert_eq!(answer.unwrap(), 2);
}

#[tokio::test]
async fn a_rejection_through_any_error_is_found_by_type() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let layer = CircuitBreakerLayer::new(classifier);
    layer.handle().force_open();
    let service = layer.layer(tower::service_fn(async |()| Ok::<_, AnyError>(())));
    let error = service.oneshot(()).await.unwrap_err();
    assert!(error.downcast_ref::<CircuitOpen>().is_some());
    assert_eq!(error.incident().unwrap().steps.len(), 1);
}

/// What a rejection looks like where errors are impossible.
#[derive(Debug, Default, PartialEq)]
struct Page {
    stamp: Option<Verdict>,
}

struct PageRules;

impl Classify<Page, Error> for PageRules {
    fn classify(&self, outcome: Result<&Page, &Error>) -> Verdict {
        match outcome {
            Ok(page) => page.stamp.unwrap_or(Verdict::Success),
            Err(error) => Rules.classify(Err::<&Page, _>(error)),
        }
    }

    fn annotate(&self, outcome: Result<&mut Page, &mut Error>, note: &Note) -> bool {
        let (Ok(page), Note::Verdict(verdict)) = (outcome, note) else { return false };
        page.stamp = Some(*verdict);
        true
    }
}

impl Describe<()> for PageRules {}

#[tokio::test]
async fn a_rejection_as_a_response_is_stamped_so_that_no_layer_above_takes_it_for_an_answer() {
    let classifier = Classifier::new(PageRules);
    let outer = CircuitBreakerLayer::new(classifier.clone());
    let inner = CircuitBreakerLayer::new(classifier)
        .reject_with(reject_fn(|_| Ok::<_, Error>(Page::default())));
    inner.handle().force_open();
    let seen = outer.handle();
    let service = tower::service_fn(async |()| Ok::<_, Error>(Page::default()));
    let page = outer.layer(inner.layer(service)).oneshot(()).await.unwrap();
    let failure = page.stamp.unwrap().failure().unwrap();
    assert_eq!((failure.class, failure.reason), (ErrorClass::Rejected, CircuitOpen::REASON));
    assert_eq!((seen.counts().ignored, seen.counts().successes), (1, 0));
}

/// A callback's own call through one of our layers is a call of its own.
#[tokio::test(start_paused = true)]
async fn callbacks_run_detached_from_the_call() {
    let seen = Seen::default();
    let classifier = Classifier::new(Rules);
    classifier.observe(seen.clone());
    let layer = CircuitBreakerLayer::new(classifier.clone()).policy(checked(row(1)));
    let side = CircuitBreakerLayer::new(classifier);
    layer.handle().subscribe(move |_| {
        let mut service = side.layer(Dependency::default());
        let mut future = Box::pin(async move { run(&mut service, down()).await });
        assert!(poll_once(future.as_mut()).is_ready());
    });
    run(&mut layer.layer(Dependency::default()), down()).await.unwrap_err();
    let steps: Vec<usize> = seen.incidents().iter().map(|incident| incident.steps.len()).collect();
    assert_eq!(steps, [1, 2]);
}
