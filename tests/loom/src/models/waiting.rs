//! Who must hear of a transition: subscribers, and callers parked on readiness.

use std::future::{Pending, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::{AnyError, AnyOk, Backoff, Chain, Classifier, Halves};

use super::{Model, model, race};
use crate::layer::CircuitBreakerLayer;
use crate::policy::BreakerPolicy;
use crate::reject::AsError;
use crate::service::CircuitBreaker;
use crate::state::State;

pub(super) const MODELS: &[Model] = &[
    model("subscription and transition", subscription_and_transition),
    model("callbacks that use the handle", callbacks_that_use_the_handle),
    model("parked callers and an opening", parked_callers_and_an_opening),
    model("parked callers and a freed slot", parked_callers_and_a_freed_slot),
];

type Rules = Halves<AnyOk, Chain>;

fn layer(policy: BreakerPolicy) -> CircuitBreakerLayer<Rules> {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    CircuitBreakerLayer::new(classifier).policy(policy.build().unwrap())
}

/// Whether it is ever ready is its only answer.
struct Inner {
    ready: bool,
}

impl Service<()> for Inner {
    type Response = ();
    type Error = AnyError;
    type Future = Pending<Result<(), AnyError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        if self.ready { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, (): ()) -> Self::Future {
        pending()
    }
}

/// In std's atomics: loom's threads take turns on one thread, and whether the waker was called is
/// asked after they ended.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whoever subscribes and then looks misses no opening, and hears of it at most once.
fn subscription_and_transition() {
    let layer = layer(BreakerPolicy::default());
    let heard = Arc::new(AtomicUsize::new(0));
    let (hears, opener, handle) = (Arc::clone(&heard), layer.handle(), layer.handle());
    let subscribes = move || {
        handle.subscribe(move |_| _ = hears.fetch_add(1, Ordering::Relaxed));
        handle.state()
    };
    let (saw, ()) = race(subscribes, move || opener.force_open());

    let heard = heard.load(Ordering::Relaxed);
    assert!(heard == 1 || (heard == 0 && saw == State::ForcedOpen), "{heard} times, saw {saw}");
}

/// Callbacks run outside every lock: they may look, and subscribe.
fn callbacks_that_use_the_handle() {
    let layer = layer(BreakerPolicy::default());
    let heard = Arc::new(AtomicUsize::new(0));
    let (hears, used) = (Arc::clone(&heard), layer.handle());
    layer.handle().subscribe(move |_| {
        hears.fetch_add(1, Ordering::Relaxed);
        assert_ne!(used.state(), State::Closed);
        used.subscribe(|_| {});
    });
    let (one, other) = (layer.handle(), layer.handle());
    race(move || one.force_open(), move || other.disable());
    assert_eq!(heard.load(Ordering::Relaxed), 2);
}

/// Polls a service once beside `change`: not ready, it is woken; and afterwards it is ready.
fn park(mut service: CircuitBreaker<Inner, Rules, AsError>, change: impl FnOnce() + 'static) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let parks = move || {
        let first = service.poll_ready(&mut Context::from_waker(&waker));
        (service, waker, first.is_ready())
    };
    let ((mut service, waker, ready), ()) = race(parks, change);
    assert!(ready || woken.0.load(Ordering::Relaxed), "parked for ever");
    assert!(service.poll_ready(&mut Context::from_waker(&waker)).is_ready());
}

/// A caller whose inner service is not ready is woken when the circuit opens, and is then ready to
/// be rejected.
fn parked_callers_and_an_opening() {
    let layer = layer(BreakerPolicy::default());
    let handle = layer.handle();
    park(layer.layer(Inner { ready: false }), move || handle.force_open());
}

/// Below a balancer a caller that waits for a probe slot is woken when one is given back.
fn parked_callers_and_a_freed_slot() {
    let policy = BreakerPolicy::new().consecutive_failures(1).open_for(Backoff::immediate());
    let layer = layer(policy).below_balancer();
    let mut failing = layer.layer(NeverReady);
    assert!(failing.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(layer.handle().state(), State::Open, "a readiness error counts");

    let mut prober = layer.layer(Inner { ready: true });
    assert!(prober.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
    let probe = prober.call(());
    assert_eq!(layer.handle().state(), State::HalfOpen);
    park(layer.layer(Inner { ready: true }), move || drop(probe));
}

/// Fails when asked whether it is ready.
struct NeverReady;

impl Service<()> for NeverReady {
    type Response = ();
    type Error = AnyError;
    type Future = Pending<Result<(), AnyError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        Poll::Ready(Err(AnyError::from(reset)))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        pending()
    }
}
