//! The readiness contract, once for every layer alone and for the whole stack, over every kind of
//! service whose readiness is real; second attempts included.

mod common;

use common::{attempts, classifier, desk, opens_at, reset};
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};
use tower_triage::{
    AnyError, Budget, CircuitBreakerLayer, Desk, ErrorClass, EscalateLayer, FallbackLayer,
    RetryLayer,
};
use tower_triage_test_support::{Scripted, Strict, scripted};

type Leaf = BoxCloneService<u32, u32, AnyError>;

/// Fails, then succeeds, over and over.
fn flaky() -> Scripted<u32, u32, AnyError> {
    scripted([|| Err(reset()), || Ok(7), || Err(reset()), || Ok(7), || Err(reset()), || Ok(7)])
}

/// The leaves: name and service.
fn leaves() -> Vec<(&'static str, Leaf)> {
    let unboxed = AnyError::from_boxed;
    vec![
        ("a service that insists", Leaf::new(Strict::new(flaky()))),
        ("a mock", Leaf::new(mock().map_err(unboxed))),
        ("one permit", Leaf::new(ServiceBuilder::new().concurrency_limit(1).service(flaky()))),
        (
            "a buffer of one",
            Leaf::new(ServiceBuilder::new().map_err(unboxed).buffer(1).service(flaky())),
        ),
        (
            "a shedder over one permit",
            Leaf::new(
                ServiceBuilder::new()
                    .map_err(unboxed)
                    .load_shed()
                    .concurrency_limit(1)
                    .service(flaky()),
            ),
        ),
    ]
}

/// tower-test's mock: its clones start unready and panic when called so. It answers as `flaky`.
fn mock() -> tower_test::mock::Mock<u32, u32> {
    let (mock, mut handle) = tower_test::mock::pair::<u32, u32>();
    tokio::spawn(async move {
        let mut calls = 0_u32;
        while let Some((_, respond)) = handle.next_request().await {
            calls += 1;
            match calls % 2 {
                1 => respond.send_error(BoxError::from(reset())),
                _ => respond.send_response(7),
            }
        }
    });
    mock
}

/// What comes of a leaf that fails every other call.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    /// The layer goes again, or elsewhere: every call is answered.
    Answers,
    /// The layer passes on what comes.
    Passes,
}

/// Ready, then call, several times on each of two clones; then two at once.
async fn keeps_the_contract<L>(layer: L, expect: Expect, name: &str)
where
    L: Layer<Leaf>,
    L::Service: Service<u32, Response = u32, Error = AnyError> + Clone + Send + 'static,
    <L::Service as Service<u32>>::Future: Send,
{
    for (leaf_name, leaf) in leaves() {
        let over = format!("{name} over {leaf_name}");
        let service = layer.layer(leaf);
        let mut clones = [service.clone(), service];
        let mut answers = Vec::new();
        for _ in 0..3 {
            for service in &mut clones {
                let answer = service.ready().await.expect(&over).call(1).await;
                answers.push(answer.is_ok());
            }
        }
        let expected = match expect {
            Expect::Answers => [true; 6],
            Expect::Passes => [false, true, false, true, false, true],
        };
        assert_eq!(answers, expected, "{over}");

        let [one, other] = clones;
        let both = [tokio::spawn(one.oneshot(1)), tokio::spawn(other.oneshot(2))];
        for call in both {
            // Whatever comes of it, it ends and nothing panics.
            let _ = call.await.expect(&over);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn kf01_every_layer_alone_and_all_together() {
    use Expect::{Answers, Passes};

    let (classifier, _) = classifier();
    // Every call here is repeated: more than a budget would allow.
    let retry = || {
        let layer = RetryLayer::new(classifier.clone()).policy(attempts(3));
        layer.budget(Budget::unlimited())
    };
    let breaker = || CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(100));
    let fallback = || FallbackLayer::new(classifier.clone());
    let escalate = || EscalateLayer::new(classifier.clone(), Desk::log());

    keeps_the_contract(retry(), Answers, "retry").await;
    keeps_the_contract(breaker(), Passes, "breaker").await;
    keeps_the_contract(fallback().or_value(ErrorClass::Transient, |_| 0), Answers, "value").await;
    keeps_the_contract(fallback().or_replan(ErrorClass::Transient, |n, _| n), Answers, "replan")
        .await;
    let backup = Strict::new(scripted([|| Ok(8)]));
    keeps_the_contract(fallback().or_service(ErrorClass::Transient, backup), Answers, "backup")
        .await;
    keeps_the_contract(escalate(), Passes, "escalate").await;
    let stack = ServiceBuilder::new()
        .layer(escalate())
        .layer(fallback().or_replan(ErrorClass::Transient, |n, _| n))
        .layer(retry())
        .layer(breaker());
    keeps_the_contract(stack, Answers, "the stack").await;
    let upside_down = ServiceBuilder::new()
        .layer(breaker())
        .layer(retry())
        .layer(fallback().or_value(ErrorClass::Internal, |_| 0))
        .layer(escalate());
    keeps_the_contract(upside_down, Answers, "the stack upside down").await;
}

/// A caller that is dropped, at whatever point, leaves the stack as it was: permits, probe slots
/// and queue places are given back.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_nothing_behind() {
    let (classifier, _) = classifier();
    let (desk, mut letters) = desk();
    let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(opens_at(1));
    let handle = breaker.handle();
    let hanging = tower::service_fn(|n: u32| async move {
        match n {
            0 => Err(reset()),
            1 => std::future::pending().await,
            n => Ok(n),
        }
    });
    let mut stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk.clone()))
        .layer(FallbackLayer::new(classifier.clone()).or_value(ErrorClass::Quota, |_| 0))
        .layer(RetryLayer::new(classifier.clone()).policy(attempts(3)))
        .layer(breaker)
        .concurrency_limit(1)
        .service(hanging);

    // Dropped before its first poll, then in flight: the one permit is free again.
    drop(stack.ready().await.unwrap().call(1));
    let in_flight = tokio::time::timeout(std::time::Duration::from_millis(5), async {
        stack.ready().await.unwrap().call(1).await
    });
    assert!(in_flight.await.is_err());
    assert_eq!(handle.counts().abandoned, 2);
    assert_eq!(stack.ready().await.unwrap().call(2).await.unwrap(), 2);

    // Opened; then the only probe is dropped: the next caller is the probe.
    stack.ready().await.unwrap().call(0).await.unwrap_err();
    desk.idle().await;
    assert_eq!(letters.try_recv().unwrap().class, ErrorClass::Transient);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    drop(stack.ready().await.unwrap().call(1));
    assert_eq!(stack.ready().await.unwrap().call(3).await.unwrap(), 3);
    assert!(letters.try_recv().is_err());
}
