//! What must not go wrong, one test per known fault.

mod common;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{
    Answer, Call, Dependency, Error, Response, Rules, advance, call, checked, down, failed, layer,
    ok, pending, poll_once, rejection, row, run, secs,
};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt};
use tower_triage_circuit_breaker::{
    BreakerPolicy, CircuitBreakerLayer, KeyedSettings, State, reject_fn,
};
use tower_triage_core::{
    AnyError, AnyOk, Backoff, Chain, CircuitOpen, Classifier, ErrorClass, Halves, Jitter, Key,
    Random,
};
use tower_triage_test_support::Strict;

#[tokio::test(start_paused = true)]
async fn kf01_readiness_survives_wrapping() {
    let mut service = layer(row(2)).layer(Strict::new(Dependency::default()));
    for mut service in [service.clone(), service.clone()] {
        for _ in 0..5 {
            run(&mut service, ok()).await.unwrap();
        }
    }
    // And through an open period: the probe's instance was polled ready, too.
    for _ in 0..2 {
        run(&mut service, down()).await.unwrap_err();
    }
    assert!(rejection(&run(&mut service, ok()).await).is_some());
    advance(secs(10)).await;
    run(&mut service, ok()).await.unwrap();
}

/// Never ready; counts how often it is asked.
#[derive(Default)]
struct NeverReady {
    polls: Arc<Mutex<usize>>,
}

impl Service<Call> for NeverReady {
    type Response = Response;
    type Error = Error;
    type Future = std::future::Ready<Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        *self.polls.lock().unwrap() += 1;
        Poll::Pending
    }

    fn call(&mut self, _: Call) -> Self::Future {
        panic!("called without being ready");
    }
}

#[tokio::test(start_paused = true)]
async fn kf03_an_open_breaker_does_not_wait_on_the_inner_service() {
    let layer = layer(row(1));
    let polls = Arc::default();
    let mut service = layer.layer(NeverReady { polls: Arc::clone(&polls) });

    let mut waiting = tokio_test::task::spawn(service.ready());
    assert!(waiting.poll().is_pending(), "closed: inner readiness counts");
    drop(waiting);
    assert_eq!(*polls.lock().unwrap(), 1);

    run(&mut layer.layer(Dependency::default()), down()).await.unwrap_err();
    let answer = tokio::time::timeout(secs(1), run(&mut service, ok())).await.expect("it ends");
    let open = rejection(&answer).expect("rejected at once");
    assert_eq!((open.name(), open.retry_after()), ("test", secs(10)));
    assert_eq!(*polls.lock().unwrap(), 1, "not asked while open");
}

#[tokio::test(start_paused = true)]
async fn kf04_one_layer_value_one_state() {
    let layer = layer(row(5));
    let mut services: Vec<_> = (0..4).map(|_| layer.clone().layer(Dependency::default())).collect();
    services.push(services[3].clone());
    for service in &mut services {
        run(service, down()).await.unwrap_err();
    }
    for service in &mut services {
        assert!(rejection(&run(service, ok()).await).is_some());
    }
    let mut other = common::layer(row(5)).layer(Dependency::default());
    run(&mut other, ok()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kf11_our_own_rejections_are_not_upstream_failures() {
    let classifier = Classifier::new(Rules);
    let breaker = |name: &'static str, failures| {
        CircuitBreakerLayer::new(classifier.clone()).name(name).policy(checked(row(failures)))
    };
    let (outer, inner) = (breaker("outer", 3), breaker("inner", 1));
    let (seen, below) = (outer.handle(), inner.handle());
    let mut service = outer.layer(inner.layer(Dependency::default()));

    run(&mut service, down()).await.unwrap_err();
    for _ in 0..5 {
        let answer = run(&mut service, ok()).await;
        assert_eq!(rejection(&answer).unwrap().name(), "inner");
    }
    assert_eq!(seen.state(), State::Closed);
    assert_eq!((seen.counts().failures, seen.counts().ignored), (1, 5));
    assert_eq!(below.counts().rejected, 5);
    assert_eq!(classifier.count(ErrorClass::Rejected), 5, "each counted once");
    assert_eq!(classifier.count(ErrorClass::Transient), 1);
}

#[tokio::test(start_paused = true)]
async fn kf11_an_overloaded_error_is_not_a_failure_of_the_service() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let layer = CircuitBreakerLayer::new(classifier).policy(checked(row(1)));
    let handle = layer.handle();
    let shed = tower::load_shed::LoadShed::new(tower::limit::ConcurrencyLimit::new(
        tower::service_fn(async |()| std::future::pending::<Result<(), AnyError>>().await),
        1,
    ));
    let mut service = layer.layer(shed.map_err(AnyError::from_boxed));
    let mut busy = Box::pin(service.ready().await.unwrap().call(()));
    assert!(poll_once(busy.as_mut()).is_pending());
    for _ in 0..3 {
        service.ready().await.unwrap().call(()).await.unwrap_err();
    }
    assert_eq!((handle.state(), handle.counts().ignored), (State::Closed, 3));
}

#[tokio::test(start_paused = true)]
async fn kf36_client_mistakes_do_not_open_the_circuit() {
    let layer = layer(row(5));
    let mut service = layer.layer(Dependency::default());
    for _ in 0..100 {
        run(&mut service, failed(ErrorClass::Permanent)).await.unwrap_err();
    }
    let counts = layer.handle().counts();
    assert_eq!((layer.handle().state(), counts.successes), (State::Closed, 100));
}

#[tokio::test(start_paused = true)]
async fn kf37_cancellations_are_neutral() {
    let layer = layer(row(1));
    let mut service = layer.layer(Dependency::default());
    for _ in 0..50 {
        let (_answer, call) = pending();
        let mut future = Box::pin(service.ready().await.unwrap().call(call));
        assert!(poll_once(future.as_mut()).is_pending());
    }
    let counts = layer.handle().counts();
    assert_eq!(layer.handle().state(), State::Closed);
    assert_eq!((counts.abandoned, counts.successes, counts.failures), (50, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn kf38_a_dropped_probe_gives_its_slot_back() {
    let layer = layer(row(1));
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    advance(secs(10)).await;

    let (_answer, hanging) = pending();
    let probe = service.ready().await.unwrap().call(hanging);
    assert_eq!(layer.handle().state(), State::HalfOpen);
    assert!(rejection(&run(&mut service, ok()).await).is_some(), "the slot is taken");
    drop(probe);
    run(&mut service, ok()).await.expect("admitted as the probe");
    assert_eq!(layer.handle().state(), State::Closed);
}

/// The probe panics in `call` and in `poll`: the slot must come back in both cases.
#[tokio::test(start_paused = true)]
async fn kf38_a_panicking_probe_gives_its_slot_back() {
    #[derive(Clone, Copy, PartialEq)]
    enum Panic {
        No,
        InCall,
        InPoll,
    }
    let layer = CircuitBreakerLayer::new(Classifier::new(Halves { response: AnyOk, error: Chain }))
        .policy(checked(row(1)));
    let service = layer.layer(tower::service_fn(|panic: Panic| {
        assert!(panic != Panic::InCall);
        async move {
            assert!(panic != Panic::InPoll);
            Err::<(), _>(AnyError::from(std::io::Error::other("down")))
        }
    }));
    service.clone().oneshot(Panic::No).await.unwrap_err();
    for panic in [Panic::InCall, Panic::InPoll] {
        advance(secs(10)).await;
        let probe = tokio::spawn(service.clone().oneshot(panic));
        assert!(probe.await.unwrap_err().is_panic());
        assert_eq!(layer.handle().state(), State::HalfOpen);
    }
    assert_eq!(layer.handle().counts().abandoned, 2);
    let error = service.oneshot(Panic::No).await.unwrap_err();
    assert!(error.downcast_ref::<CircuitOpen>().is_none(), "it was called");
}

#[tokio::test(start_paused = true)]
async fn kf39_no_stampede_when_half_open() {
    for probes in [1, 3] {
        let policy = row(1).probes(probes).decide_by_count(probes, 1);
        let dependency = Dependency::default();
        let layer = layer(policy);
        let service = layer.layer(dependency.clone());
        run(&mut service.clone(), down()).await.unwrap_err();
        advance(secs(10)).await;

        let before = dependency.calls();
        let mut in_flight = Vec::new();
        let mut rejected = 0;
        for _ in 0..1000 {
            let (answer, call) = pending();
            let mut service = service.clone();
            let mut future = Box::pin(async move { service.ready().await?.call(call).await });
            match poll_once(future.as_mut()) {
                Poll::Pending => in_flight.push((answer, future)),
                Poll::Ready(answer) => rejected += usize::from(rejection(&answer).is_some()),
            }
        }
        assert_eq!(dependency.calls() - before, probes as usize);
        assert_eq!(rejected, 1000 - probes as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn kf40_late_results_belong_to_their_own_era() {
    for late in [down, ok] {
        let layer = layer(row(1));
        let mut service = layer.layer(Dependency::default());
        let (answer, call) = pending();
        let mut slow = Box::pin(service.ready().await.unwrap().call(call));
        assert!(poll_once(slow.as_mut()).is_pending());

        run(&mut service, down()).await.unwrap_err();
        advance(secs(10)).await;
        let (probe_answer, call) = pending();
        let mut probe = Box::pin(service.ready().await.unwrap().call(call));
        assert!(poll_once(probe.as_mut()).is_pending());

        answer.send(late()).unwrap();
        _ = slow.await;
        assert_eq!(layer.handle().state(), State::HalfOpen);
        assert_eq!(layer.handle().counts().late, 1);
        assert!(rejection(&run(&mut service, ok()).await).is_some(), "the slot is still taken");

        probe_answer.send(ok()).unwrap();
        probe.await.unwrap();
        assert_eq!(layer.handle().state(), State::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn kf41_minimum_traffic_before_judging() {
    let policy = BreakerPolicy::new().time_window(secs(60)).failure_rate(0.5).minimum_calls(10);
    let layer = layer(policy);
    let handle = layer.handle();
    assert_eq!((handle.window().failure_rate(), handle.success_rate()), (0.0, 1.0));
    let mut service = layer.layer(Dependency::default());
    for failures in 1..=10 {
        assert_eq!(handle.state(), State::Closed, "before failure {failures}");
        run(&mut service, down()).await.unwrap_err();
    }
    assert_eq!(handle.state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn kf42_old_failures_age_out() {
    for policy in [
        BreakerPolicy::new().time_window(secs(10)).failures(5),
        row(5).consecutive_within(secs(10)),
    ] {
        let layer = layer(policy);
        let mut service = layer.layer(Dependency::default());
        for _ in 0..4 {
            run(&mut service, down()).await.unwrap_err();
        }
        advance(secs(11)).await;
        run(&mut service, down()).await.unwrap_err();
        assert_eq!(layer.handle().state(), State::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn kf43_spread_the_recovery() {
    let times = async |policy: BreakerPolicy, random: fn(u64) -> Random| {
        let mut times = Vec::new();
        for number in 0..100 {
            let layer = layer(policy.clone()).random(random(number));
            run(&mut layer.layer(Dependency::default()), down()).await.unwrap_err();
            times.push(layer.handle().time_to_next_probe().unwrap());
        }
        times
    };
    let policy = BreakerPolicy::new().consecutive_failures(1);
    let spread = times(policy.clone(), |_| Random::default()).await;
    assert!(spread.iter().all(|time| (secs(4)..=secs(6)).contains(time)), "{spread:?}");
    assert!(
        spread.iter().any(|time| *time < Duration::from_millis(4500))
            && spread.iter().any(|time| *time > Duration::from_millis(5500))
    );

    let seeded = times(policy.clone(), Random::seeded).await;
    assert_eq!(seeded, times(policy.clone(), Random::seeded).await);
    let still = policy.open_for(Backoff::fixed(secs(5)).jitter(Jitter::None));
    assert_eq!(times(still, |_| Random::default()).await, [secs(5); 100]);
}

#[tokio::test(start_paused = true)]
async fn kf43_the_default_open_time_doubles_up_to_five_minutes_and_still_spreads() {
    let layer = layer(BreakerPolicy::new().consecutive_failures(1)).random(Random::seeded(7));
    let mut service = layer.layer(Dependency::default());
    let mut times = Vec::new();
    for _ in 0..20 {
        run(&mut service, down()).await.unwrap_err();
        let left = layer.handle().time_to_next_probe().unwrap();
        times.push(left);
        advance(left).await;
    }
    for (time, base) in times.iter().zip([5, 10, 20, 40, 80, 160]) {
        assert!((secs(base * 4 / 5)..=secs(base * 6 / 5)).contains(time), "{times:?}");
    }
    assert!(times.iter().all(|time| *time <= secs(300)));
    assert!(times[6..].windows(2).all(|pair| pair[0] != pair[1]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn kf44_keyed_breakers_stay_bounded() {
    let limits = KeyedSettings::new(100, secs(600)).unwrap();
    let layer = layer(row(1)).keyed(limits);
    let mut service = layer.layer(Dependency::default());
    let handle = layer.handle();
    let mut run = async |number: usize, answer: Answer| {
        let key = Key::new(&format!("host-{number}"));
        service.ready().await.unwrap().call(Call { key, ..call(answer) }).await
    };
    for number in 0..1_000_000 {
        _ = run(number, if number % 10 == 0 { down() } else { ok() }).await;
    }
    assert_eq!(handle.keys().len(), 100);
    assert!(handle.keys().iter().all(|key| key.state() == State::Open), "the open ones stay");
    assert!(handle.overflowed() > 500_000);

    // The first that failed is still known to be down, and the overflow entry is shared.
    assert_eq!(rejection(&run(0, ok()).await).unwrap().name(), "host-0");
    _ = run(2_000_001, down()).await;
    assert!(rejection(&run(2_000_002, ok()).await).is_some());

    // Idle ones expire, the open ones once their time is over.
    advance(secs(600)).await;
    assert_eq!(handle.keys().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn kf44_the_least_recently_used_key_goes_first() {
    let limits = KeyedSettings::new(8, secs(600)).unwrap();
    let layer = layer(row(3)).keyed(limits);
    let mut service = layer.layer(Dependency::default());
    for number in 0..100 {
        for key in [Key::new("busy"), Key::new(&number.to_string())] {
            let call = Call { key, ..call(down()) };
            _ = service.ready().await.unwrap().call(call).await;
            advance(Duration::from_millis(1)).await;
        }
    }
    let handle = layer.handle();
    assert_eq!(handle.key(&Key::new("busy")).unwrap().counts().failures, 3);
    assert!(handle.key(&Key::new("0")).is_none());
    assert!(handle.key(&Key::new("99")).is_some());
    assert_eq!(handle.overflowed(), 0);
}

/// Closed keys go in the order of their last use, and no sooner than there is need.
#[tokio::test(start_paused = true)]
async fn kf44_what_is_used_is_kept() {
    let limits = KeyedSettings::new(16, secs(600)).unwrap();
    let layer = layer(row(3)).keyed(limits);
    let mut service = layer.layer(Dependency::default());
    for number in 0..100 {
        for key in ["busy", "often", &number.to_string()] {
            let call = Call { key: Key::new(key), ..call(ok()) };
            service.ready().await.unwrap().call(call).await.unwrap();
            advance(Duration::from_millis(1)).await;
        }
    }
    let handle = layer.handle();
    for key in ["busy", "often"] {
        assert_eq!(handle.key(&Key::new(key)).unwrap().counts().successes, 100, "{key}");
    }
    assert!((12..=16).contains(&handle.keys().len()), "{}", handle.keys().len());
    for number in 90..100 {
        assert!(handle.key(&Key::new(&number.to_string())).is_some(), "{number}");
    }
    assert_eq!(handle.overflowed(), 0);
}

/// Where it is full an eighth goes, those that were not used for longest.
#[tokio::test(start_paused = true)]
async fn kf44_an_eighth_makes_room() {
    let layer = layer(row(3)).keyed(KeyedSettings::new(16, secs(600)).unwrap());
    let mut service = layer.layer(Dependency::default());
    for number in 0..16 {
        let key = Key::new(&number.to_string());
        let call = Call { key, ..call(ok()) };
        service.ready().await.unwrap().call(call).await.unwrap();
        advance(Duration::from_millis(1)).await;
    }
    let mut left: Vec<u32> =
        layer.handle().keys().iter().map(|key| key.name().as_str().parse().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, (2..16).collect::<Vec<_>>());
}

/// Nobody's order is forgotten, however long nobody calls; a probe that hangs for so long is.
#[tokio::test(start_paused = true)]
async fn kf44_idle_keys_are_forgotten_unless_somebody_forced_them() {
    let layer = layer(row(1)).keyed(KeyedSettings::new(16, secs(600)).unwrap());
    let mut service = layer.layer(Dependency::default());
    let mut start = async |key: &str, answer: Option<Answer>| {
        let (sender, call) = pending();
        let call = Call { key: Key::new(key), ..call };
        let mut future = Box::pin(service.ready().await.unwrap().call(call));
        match answer {
            Some(answer) => {
                sender.send(answer).unwrap();
                _ = future.await;
                None
            }
            None => {
                assert!(poll_once(future.as_mut()).is_pending());
                Some((sender, future))
            }
        }
    };
    for key in ["closed", "forced", "disabled"] {
        start(key, Some(ok())).await;
    }
    for key in ["open", "probed"] {
        start(key, Some(down())).await;
    }
    let handle = layer.handle();
    handle.key(&Key::new("forced")).unwrap().force_open();
    handle.key(&Key::new("disabled")).unwrap().disable();
    advance(secs(10)).await;
    let _hanging = start("probed", None).await.unwrap();
    let names = || {
        let mut names: Vec<_> = handle.keys().iter().map(|key| key.name().to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["closed", "disabled", "forced", "open", "probed"]);
    advance(secs(590)).await;
    assert_eq!(names(), ["disabled", "forced", "probed"], "used ten seconds later");
    advance(secs(10)).await;
    assert_eq!(names(), ["disabled", "forced"]);
}

/// A service finds the circuit of the key that it called last without a search. Forgotten is forgotten all
/// the same, whether the key was idle or made room for others.
#[tokio::test(start_paused = true)]
async fn kf44_who_called_a_key_last_does_not_call_its_forgotten_circuit() {
    let layer = layer(row(2)).keyed(KeyedSettings::new(8, secs(600)).unwrap());
    let (mut service, mut other) =
        (layer.layer(Dependency::default()), layer.layer(Dependency::default()));
    let handle = layer.handle();
    let mut fails = async || {
        run(&mut service, down()).await.unwrap_err();
        let counts = handle.key(&Key::EMPTY).map(|key| (key.state(), key.counts().failures));
        assert_eq!(counts, Some((State::Closed, 1)), "what failed before is forgotten");
    };
    fails().await;
    advance(secs(600)).await;
    assert!(handle.keys().is_empty());
    fails().await;
    advance(secs(1)).await;
    for number in 0..16 {
        let call = Call { key: Key::new(&number.to_string()), ..call(ok()) };
        other.ready().await.unwrap().call(call).await.unwrap();
    }
    assert!(handle.key(&Key::EMPTY).is_none());
    fails().await;
}

/// Whose callers give up is in use all the same: what is known of it stays.
#[tokio::test(start_paused = true)]
async fn kf44_a_dropped_call_uses_its_key() {
    let layer = layer(row(2)).keyed(KeyedSettings::new(16, secs(600)).unwrap());
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    for _ in 0..4 {
        advance(secs(300)).await;
        let (_sender, call) = pending();
        drop(service.ready().await.unwrap().call(call));
        assert_eq!(layer.handle().keys().len(), 1);
    }
    run(&mut service, down()).await.unwrap_err();
    assert_eq!(layer.handle().key(&Key::EMPTY).unwrap().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn kf45_callbacks_run_outside_the_lock() {
    let layer = layer(row(1));
    let handle = layer.handle();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let inside = handle.clone();
    handle.subscribe(move |change| {
        told.lock().unwrap().push((change.to, inside.state(), inside.counts().failures));
        if change.to == State::Open {
            inside.reset();
        }
        assert!(change.to != State::Closed, "a panic in a callback is not the caller's");
    });
    let answer = run(&mut layer.layer(Dependency::default()), down()).await;
    assert!(matches!(answer, Err(Error::Failed(_))), "the call completes");
    assert_eq!(handle.state(), State::Closed);
    let seen = seen.lock().unwrap();
    assert_eq!(*seen, [(State::Open, State::Open, 1), (State::Closed, State::Closed, 1)]);
}

#[tokio::test(start_paused = true)]
async fn kf46_a_handle_survives_boxing() {
    let layer = layer(row(1));
    let handle = layer.handle();
    let mut stack = BoxCloneService::new(layer.layer(Dependency::default()));
    drop(layer);

    run(&mut stack, down()).await.unwrap_err();
    advance(secs(4)).await;
    assert_eq!((handle.name().as_str(), handle.state()), ("test", State::Open));
    assert_eq!(handle.time_to_next_probe(), Some(secs(6)));
    assert_eq!((handle.counts().failures, handle.success_rate()), (1, 0.0));

    let admin = tokio::spawn(async move {
        handle.force_closed();
        handle
    });
    let handle = admin.await.unwrap();
    for _ in 0..3 {
        assert!(matches!(run(&mut stack, down()).await, Err(Error::Failed(_))));
        run(&mut stack, ok()).await.unwrap();
    }
    let counts = handle.counts();
    assert_eq!((counts.failures, counts.successes), (1, 0), "forced closed records nothing");
    handle.force_open();
    assert_eq!(handle.time_to_next_probe(), None);
    advance(secs(1_000_000)).await;
    assert!(rejection(&run(&mut stack, ok()).await).is_some());
    handle.reset();
    run(&mut stack, ok()).await.unwrap();
    assert_eq!(handle.state(), State::Closed);
}

/// The rejection may be a response where errors are impossible.
#[tokio::test(start_paused = true)]
async fn kf11_a_rejection_as_a_response_is_still_a_rejection() {
    let classifier = Classifier::new(Rules);
    let layer = CircuitBreakerLayer::new(classifier.clone())
        .policy(checked(row(1)))
        .reject_with(reject_fn(|_| Ok::<_, Error>(Response)));
    let mut service = layer.layer(Dependency::default());
    run(&mut service, down()).await.unwrap_err();
    assert_eq!(run(&mut service, down()).await.unwrap(), Response);
    assert_eq!(classifier.count(ErrorClass::Rejected), 1);
}
