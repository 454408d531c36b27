//! The four layers, shared by every service that is made of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tower::timeout::Timeout;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt};
use tower_triage::circuit_breaker::BreakerPolicy;
use tower_triage::escalate::{DeskPolicy, EscalatePolicy, Receiver, Route, Routes};
use tower_triage::fallback::FallbackLayer;
use tower_triage::retry::ClassRule;
use tower_triage::retry::budget::BucketSettings;
use tower_triage::{
    AnyError, AnyOk, Backoff, BreakerHandle, Budget, CircuitBreakerLayer, Classifier, Desk,
    ErrorClass, EscalateLayer, Halves, Jitter, RetryLayer, RetryPolicy,
};

use super::dependency::{Answer, ByFault, Call, Dependency, Witness};
use super::ledger::{Ledger, Recorder};

pub(super) type Stack = BoxCloneSyncService<Call, Answer, AnyError>;
type Rules = Halves<AnyOk, ByFault>;

/// Less than what would be retried, so that it bites.
const GAIN: f64 = 0.12;
const INITIAL: u32 = 10;
const CAPACITY: u32 = 100;

pub(super) struct Layers {
    pub(super) ledger: Arc<Ledger>,
    pub(super) breaker: BreakerHandle,
    classifier: Classifier<Rules>,
    escalate: EscalateLayer<Rules>,
    retry: RetryLayer<Rules>,
    breaking: CircuitBreakerLayer<Rules>,
    budget: Budget,
    desk: Desk,
    fallback: Box<dyn Fn(Stack) -> Stack + Send + Sync>,
    calls: Calls,
    unrecorded: AtomicU64,
    opened: Arc<AtomicU64>,
}

/// How many calls passed which place.
#[derive(Default)]
struct Calls {
    below_escalate: Arc<AtomicU64>,
    below_fallback: Arc<AtomicU64>,
    above_retry: Arc<AtomicU64>,
    below_retry: Arc<AtomicU64>,
    above_breaker: Arc<AtomicU64>,
    below_breaker: Arc<AtomicU64>,
}

impl Layers {
    pub(super) fn new() -> Result<Self, String> {
        let text = |error: tower_triage::ConfigError| error.to_string();
        let ledger = Arc::new(Ledger::default());
        let classifier = Classifier::new(Halves { response: AnyOk, error: ByFault });
        classifier.observe(Arc::clone(&ledger).observer());

        let routes = Routes::new(Route::new(["ops"], "look_at_it"));
        let ops = Receiver::new("ops").record(Recorder::new(Arc::clone(&ledger)));
        let desk =
            Desk::with_policy(DeskPolicy::new().queue(100_000), routes, [ops]).map_err(text)?;
        let escalate = EscalateLayer::new(classifier.clone(), desk.clone())
            .policy(EscalatePolicy::new().wait(Duration::from_secs(5)));

        let chain = FallbackLayer::new(classifier.clone())
            .or_value([ErrorClass::Rejected, ErrorClass::Contention], |_| Answer::Fallback);
        let fallback = Box::new(move |stack: Stack| Stack::new(chain.layer(stack)));

        let budget = BucketSettings { gain: GAIN, capacity: CAPACITY, initial: INITIAL };
        let budget = Budget::bucket(budget).map_err(text)?;
        let wait = Backoff::exponential(Duration::from_millis(1), 2.0).jitter(Jitter::Full);
        let policy = RetryPolicy::default()
            .backoff(&wait)
            .retry(ErrorClass::Contention, ClassRule::new(Backoff::immediate()).attempts(2))
            .build()
            .map_err(text)?;
        let retry = RetryLayer::new(classifier.clone()).policy(policy).budget(budget.clone());

        let policy = BreakerPolicy::new()
            .count_window(50)
            .minimum_calls(20)
            .failure_rate(0.3)
            .slow_call(Duration::from_millis(20))
            .open_for(Backoff::exponential(Duration::from_millis(2), 2.0).cap(ROUND_TRIP))
            .retry_after_cap(ROUND_TRIP)
            .probes(2)
            .decide_by_count(2, 1)
            .build()
            .map_err(text)?;
        let breaking = CircuitBreakerLayer::new(classifier.clone()).policy(policy);
        let opened = Arc::new(AtomicU64::new(0));
        let opens = Arc::clone(&opened);
        breaking.handle().subscribe(move |change| {
            if change.open_for.is_some() {
                opens.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self {
            ledger,
            breaker: breaking.handle(),
            classifier,
            escalate,
            retry,
            breaking,
            budget,
            desk,
            fallback,
            calls: Calls::default(),
            unrecorded: AtomicU64::new(0),
            opened,
        })
    }

    /// A service over all of them, with time limits in random places.
    pub(super) fn stack(&self, rng: &mut StdRng) -> Stack {
        let calls = &self.calls;
        let stack = limited(Dependency, rng);
        let stack = self.breaking.layer(witness(stack, &calls.below_breaker));
        let stack = limited(witness(stack, &calls.above_breaker), rng);
        let stack = self.retry.layer(witness(stack, &calls.below_retry));
        let stack = limited(witness(stack, &calls.above_retry), rng);
        let stack = (self.fallback)(Stack::new(witness(stack, &calls.below_fallback)));
        let stack = limited(stack, rng);
        Stack::new(self.escalate.layer(witness(stack, &calls.below_escalate)))
    }

    /// Is this a round in which the breaker is forced closed at times, so that it does not record?
    pub(super) const fn forces_closed(round: u64) -> bool {
        round % 2 == 1
    }

    /// Does everything add up?
    pub(super) fn check(&self, round: u64) -> Result<(), String> {
        self.ledger.check()?;
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let (asked, passed) = (read(&self.calls.above_breaker), read(&self.calls.below_breaker));
        let counts = self.breaker.counts();
        equal("rejections of the breaker", counts.rejected, asked - passed)?;
        let (by_success, opened) = (self.ledger.only_opened(), read(&self.opened));
        if by_success > opened {
            return Err(format!("successes opened it {by_success} times, all in all {opened}"));
        }
        let ended =
            counts.successes + counts.failures + counts.ignored + counts.late + counts.abandoned;
        let before = read(&self.unrecorded);
        let unrecorded = passed.checked_sub(ended).unwrap_or(u64::MAX);
        if !(before..=passed).contains(&unrecorded) {
            return Err(format!("{passed} calls passed the breaker, {ended} ended: {counts:?}"));
        }
        if !Self::forces_closed(round) {
            equal("calls that the breaker did not record", unrecorded, before)?;
        }
        self.unrecorded.store(unrecorded, Ordering::SeqCst);

        let requests = read(&self.calls.above_retry);
        let retries = read(&self.calls.below_retry) - requests;
        let allowed = f64::from(INITIAL) + GAIN * requests as f64;
        if retries as f64 > allowed {
            return Err(format!("{retries} retries for {requests} requests"));
        }
        if self.budget.balance(Duration::ZERO) > CAPACITY.into() {
            return Err(format!("the budget holds more than it can: {:?}", self.budget));
        }
        let desk = self.desk.counts();
        equal("letters delivered", desk.delivered, self.ledger.letters())?;
        equal("letters lost", desk.dropped + desk.not_recorded, 0)
    }

    pub(super) fn summary(&self) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let requests = read(&self.calls.above_retry);
        let failures: u64 = ErrorClass::ALL.map(|class| self.classifier.count(class)).iter().sum();
        format!(
            "attempts {}, retries {} of {:.0} allowed, failed outcomes {failures}\n\
             the breaker opened {} times, by a success {} times; {:?}",
            read(&self.calls.below_retry),
            read(&self.calls.below_retry) - requests,
            f64::from(INITIAL) + GAIN * requests as f64,
            read(&self.opened),
            self.ledger.only_opened(),
            self.breaker.counts(),
        )
    }
}

const ROUND_TRIP: Duration = Duration::from_millis(20);

fn equal(what: &str, is: u64, should: u64) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what}: {is}, should be {should}")) }
}

fn witness<S>(inner: S, calls: &Arc<AtomicU64>) -> Witness<S> {
    Witness { inner, calls: Arc::clone(calls) }
}

/// With a time limit, or without.
fn limited<S>(inner: S, rng: &mut StdRng) -> Stack
where
    S: Service<Call, Response = Answer, Error = AnyError> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    if rng.random_bool(0.6) {
        return Stack::new(inner);
    }
    let limit = Duration::from_micros(rng.random_range(500..30_000));
    Stack::new(Timeout::new(inner, limit).map_err(AnyError::from_boxed))
}
