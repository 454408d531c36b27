//! Letters are driven again: at their pace, as often as it helps, and each is settled once.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::incident::IncidentId;
use tower_triage_core::{
    AnyOk, Backoff, Classifier, ErrorClass, Failure, Halves, OwnError, RetryAfter, ToFailure,
};
use tower_triage_escalate::redrive::{Fate, Progress};
use tower_triage_escalate::store::{
    Change, Filter, LeaseRequest, Letter, LetterState, MemoryStore, Retention, Store,
};
use tower_triage_escalate::{
    Codec, Decision, Escalation, JsonCodec, Redrive, RedrivePolicy, Timestamp, WallClock,
};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u32,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    password: Option<String>,
}

impl Order {
    fn new(number: u32) -> Self {
        Self { number, key: None, password: None }
    }
}

#[derive(Clone, Debug)]
struct Broken(ErrorClass, Option<Duration>);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refused at https://me:s3cr3t@shop/")
    }
}

impl std::error::Error for Broken {}

impl ToFailure for Broken {
    fn to_failure(&self) -> Failure {
        let failure = Failure::new(self.0);
        match self.1 {
            Some(hint) => failure.retry_after(RetryAfter::AtLeast(hint)),
            None => failure,
        }
    }
}

const DOWN: Broken = Broken(ErrorClass::Transient, None);

type Rules = Halves<AnyOk, OwnError>;
type Shop = BoxCloneService<Order, (), Broken>;
type Worker = Redrive<Order, Shop, Rules>;

fn t0() -> Timestamp {
    "2026-03-01T12:00:00.000Z".parse().unwrap()
}

fn id(n: u32) -> IncidentId {
    IncidentId::from_bits(u128::from(n))
}

fn escalation(n: u32) -> Escalation {
    let mut escalation: Escalation = serde_json::from_value(json!({
        "schema": 1, "id": id(n), "task_type": "look", "priority": "high", "from": "shop",
        "to": ["ops"], "operation": "orders.create", "outcome": "failed", "class": "Transient",
        "reason": "transient", "fingerprint": "00000000000000aa", "summary": "", "detail": "",
        "attempts": [], "impact": "", "suggestion": "", "context": {}, "first_time": t0(),
        "last_time": t0(), "count": 1,
    }))
    .unwrap();
    let captured = JsonCodec::new().encode(&Order::new(n)).unwrap();
    escalation.request = Some(Arc::new(captured));
    escalation
}

/// A store whose clock goes with the runtime's.
struct World {
    store: Arc<MemoryStore>,
    clock: WallClock,
}

impl World {
    fn new() -> Self {
        let clock = WallClock::stepped(t0());
        let store = Arc::new(MemoryStore::new().clock(clock.clone()));
        let ticking = clock.clone();
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                ticking.step(Duration::from_millis(100));
            }
        });
        Self { store, clock }
    }

    async fn with(letters: u32) -> Self {
        let world = Self::new();
        for n in 1..=letters {
            world.store.put(escalation(n)).await.unwrap();
        }
        world
    }

    fn worker(&self, shop: Shop, policy: RedrivePolicy) -> Worker {
        let classifier = Classifier::new(Halves { response: AnyOk, error: OwnError });
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        Redrive::new(store, JsonCodec::new(), classifier, shop).policy(policy).unwrap()
    }

    async fn letter(&self, n: u32) -> Letter {
        self.store.get(id(n)).await.unwrap().unwrap()
    }

    async fn count(&self, state: LetterState) -> u64 {
        self.store.stats().await.unwrap().of(state)
    }
}

/// What the shop has seen: when, and of which order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(Instant, Order)>>>);

impl Seen {
    /// A shop that does with the `n`-th try of an order as `f` says.
    fn shop<F, A>(&self, f: F) -> Shop
    where
        F: Fn(u32, usize) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<(), Broken>> + Send + 'static,
    {
        let seen = self.clone();
        BoxCloneService::new(service_fn(move |order: Order| {
            let number = order.number;
            let attempt = {
                let mut seen = seen.0.lock().unwrap();
                seen.push((Instant::now(), order));
                seen.iter().filter(|(_, order)| order.number == number).count()
            };
            f(number, attempt)
        }))
    }

    fn times(&self, number: u32) -> Vec<Instant> {
        let seen = self.0.lock().unwrap();
        seen.iter().filter(|(_, order)| order.number == number).map(|(at, _)| *at).collect()
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn fast() -> RedrivePolicy {
    RedrivePolicy::new().rate(f64::INFINITY).backoff(Backoff::fixed(10 * SECOND))
}

async fn ok(_: u32, _: usize) -> Result<(), Broken> {
    Ok(())
}

async fn down(_: u32, _: usize) -> Result<(), Broken> {
    Err(DOWN)
}

/// Until the store says so.
async fn until(world: &World, state: LetterState, count: u64) {
    while world.count(state).await != count {
        sleep(Duration::from_millis(100)).await;
    }
}

fn started(
    mut worker: Worker,
) -> (tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<Progress>) {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let run = async move { worker.run(async { _ = stopped.await }).await };
    (stop, tokio::spawn(run))
}

#[tokio::test(start_paused = true)]
async fn what_is_due_is_sent_once_with_its_id_and_settled() {
    let (world, seen) = (World::with(20).await, Seen::default());
    let mut worker = world
        .worker(seen.shop(ok), fast())
        .with_id(|order, id| Order { key: Some(id.to_string()), ..order });
    let progress = worker.drain().await.unwrap();
    assert_eq!((progress.redriven, progress.done(), progress.left), (20, 20, 0));
    assert_eq!(world.count(LetterState::Redriven).await, 20);
    let keys: BTreeSet<_> =
        seen.0.lock().unwrap().iter().map(|(_, order)| order.key.clone()).collect();
    assert_eq!(keys, (1..=20).map(|n| Some(id(n).to_string())).collect());
    assert_eq!(worker.drain().await.unwrap(), Progress::default(), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn tries_follow_the_schedule_then_it_is_parked() {
    let (world, seen) = (World::with(1).await, Seen::default());
    let waits = [30, 60, 120].map(|seconds| seconds * SECOND);
    let policy = fast().backoff(Backoff::list(waits)).park_after(4);
    let (stop, run) = started(world.worker(seen.shop(down), policy));
    until(&world, LetterState::Parked, 1).await;
    stop.send(()).unwrap();
    let progress = run.await.unwrap();
    assert_eq!((progress.failed, progress.parked), (4, 0));
    let times = seen.times(1);
    assert_eq!(times.len(), 4);
    for (pair, wait) in times.windows(2).zip(waits) {
        // The worker looks again each second at the latest.
        let waited = pair[1] - pair[0];
        assert!(waited >= wait && waited <= wait + 2 * SECOND, "{waited:?} instead of {wait:?}");
    }
    let letter = world.letter(1).await;
    let last = letter.history.last().unwrap();
    assert_eq!(last.note, "4 tries failed; Transient: refused at https://shop/");
    assert!(!format!("{:?}", letter.history).contains("s3cr3t"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_wants_to_be_left_alone_is() {
    let (world, seen) = (World::with(1).await, Seen::default());
    let shop = seen.shop(|_, attempt| async move {
        match attempt {
            1 => Err(Broken(ErrorClass::Throttled, Some(90 * SECOND))),
            _ => Ok(()),
        }
    });
    let (stop, run) = started(world.worker(shop, fast()));
    until(&world, LetterState::Redriven, 1).await;
    stop.send(()).unwrap();
    run.await.unwrap();
    let times = seen.times(1);
    assert!(times[1] - times[0] >= 90 * SECOND, "{:?}", times[1] - times[0]);
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_exact() {
    let (world, seen) = (World::with(101).await, Seen::default());
    let begun = Instant::now();
    let policy = fast().rate(20.0).concurrency(50);
    let progress = world.worker(seen.shop(ok), policy).drain().await.unwrap();
    assert_eq!(progress.redriven, 101);
    let took = begun.elapsed().as_secs_f64();
    assert!((took - 5.0).abs() < 0.01, "101 calls, 20 a second: {took}");
    let mut times: Vec<_> = seen.0.lock().unwrap().iter().map(|(at, _)| *at).collect();
    times.sort();
    for window in times.windows(21) {
        let span = window[20] - window[0];
        assert!(span >= Duration::from_millis(998), "21 calls within {span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_at_a_time_than_allowed() {
    let world = World::with(30).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let peak = Arc::clone(&most);
    let shop = Seen::default().shop(move |_, _| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(SECOND).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let begun = Instant::now();
    let progress = world.worker(shop, fast().concurrency(3)).drain().await.unwrap();
    assert_eq!((progress.redriven, peak.load(Ordering::SeqCst)), (30, 3));
    assert_eq!(begun.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn one_batch_is_one_batch() {
    let world = World::with(10).await;
    let mut worker = world.worker(Seen::default().shop(ok), fast().concurrency(4));
    assert_eq!(worker.run_once().await.unwrap().redriven, 4);
    assert_eq!(worker.run_once().await.unwrap().redriven, 4);
    assert_eq!(worker.run_once().await.unwrap().redriven, 2);
    assert_eq!(worker.run_once().await.unwrap().done(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_driven_is_parked_with_the_reason() {
    let world = World::new();
    let mut none = escalation(1);
    none.request = None;
    let mut other = escalation(2);
    let foreign = JsonCodec::new().name("orders.v1").encode(&Order::new(2)).unwrap();
    other.request = Some(Arc::new(foreign));
    let mut secret = escalation(3);
    let order = Order { password: Some("hunter2".to_owned()), ..Order::new(3) };
    secret.request = Some(Arc::new(JsonCodec::new().encode(&order).unwrap()));
    let mut broken = escalation(4);
    broken.request = Some(Arc::new(JsonCodec::new().encode(&json!({ "number": "x" })).unwrap()));
    for escalation in [none, other, secret, broken] {
        world.store.put(escalation).await.unwrap();
    }
    let seen = Seen::default();
    let progress = world.worker(seen.shop(ok), fast()).drain().await.unwrap();
    assert_eq!((progress.parked, progress.done(), seen.len()), (4, 4, 0));
    for (n, why) in [
        (1, "no request was captured"),
        (2, "captured by codec `orders.v1`, not by `json`"),
        (3, "without password"),
        (4, "expected u32"),
    ] {
        let letter = world.letter(n).await;
        assert_eq!(letter.state, LetterState::Parked);
        let note = &letter.history.last().unwrap().note;
        assert!(note.contains(why), "{note}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definite_no_is_not_asked_again() {
    let world = World::with(1).await;
    let shop = Seen::default().shop(|_, _| async { Err(Broken(ErrorClass::Permanent, None)) });
    let progress = world.worker(shop, fast()).drain().await.unwrap();
    assert_eq!((progress.parked, progress.failed), (1, 0));
    assert_eq!(world.letter(1).await.tries, 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_our_own_costs_no_try_and_pauses() {
    let (world, seen) = (World::with(3).await, Seen::default());
    // Open for a minute.
    let opened = Instant::now();
    let shop = seen.shop(move |_, _| async move {
        match opened.elapsed() < 60 * SECOND {
            true => Err(Broken(ErrorClass::Rejected, Some(20 * SECOND))),
            false => Ok(()),
        }
    });
    let policy = fast().park_after(1).concurrency(1);
    let progress = world.worker(shop, policy).drain().await.unwrap();
    assert_eq!((progress.redriven, progress.released, progress.failed), (3, 3, 0));
    assert_eq!(seen.len(), 6, "once in 20 s while it is open, then one each");
    for n in 1..=3 {
        assert_eq!(world.letter(n).await.tries, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_not_over_while_a_letter_may_come_back() {
    let (world, seen) = (World::with(1).await, Seen::default());
    let shop = seen.shop(|_, attempt| async move {
        sleep(SECOND).await;
        match attempt {
            1 => Err(Broken(ErrorClass::Rejected, None)),
            _ => Ok(()),
        }
    });
    let progress = world.worker(shop, fast()).drain().await.unwrap();
    assert_eq!((progress.released, progress.redriven), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn while_it_pauses_its_letters_are_free_for_others() {
    let (world, seen) = (World::with(4).await, Seen::default());
    let open = seen.shop(|_, _| async { Err(Broken(ErrorClass::Rejected, Some(600 * SECOND))) });
    let (stop, run) = started(world.worker(open, fast().rate(1.0)));
    sleep(5 * SECOND).await;
    assert_eq!((seen.len(), world.store.stats().await.unwrap().leased), (1, 0));
    let other = world.worker(seen.shop(ok), fast()).drain().await.unwrap();
    assert_eq!(other.redriven, 4);
    stop.send(()).unwrap();
    let progress = run.await.unwrap();
    assert_eq!((progress.released, progress.done()), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn named_letters_are_tried_once_due_or_not_parked_or_not() {
    let (world, seen) = (World::with(5).await, Seen::default());
    let named = |numbers: &[u32]| numbers.iter().copied().map(id).collect::<Vec<_>>();
    // 1 is parked, 2 not due, 3 settled, 4 leased by somebody; 9 is none.
    let policy = || fast().park_after(1);
    assert_eq!(
        world.worker(seen.shop(down), policy()).ids(named(&[1])).drain().await.unwrap().failed,
        1
    );
    assert_eq!(world.letter(1).await.state, LetterState::Parked);
    assert_eq!(
        world.worker(seen.shop(down), fast()).ids(named(&[2])).drain().await.unwrap().failed,
        1
    );
    let discarded = Change::Discarded { by: "ann".to_owned(), why: String::new() };
    world.store.change(id(3), discarded).await.unwrap();
    let somebody = LeaseRequest::new("somebody", 1).ids([id(4)]);
    assert_eq!(world.store.lease(somebody).await.unwrap().len(), 1);

    let fates = Arc::new(Mutex::new(HashMap::new()));
    let told = Arc::clone(&fates);
    let mut worker = world
        .worker(seen.shop(|n, _| async move { if n == 2 { Err(DOWN) } else { Ok(()) } }), fast())
        .ids(named(&[1, 2, 3, 4, 9, 1]))
        .watch(move |driven, progress| {
            assert_eq!(progress.done() + progress.left, 5);
            told.lock().unwrap().insert(driven.id, driven.fate.clone());
        });
    let progress = worker.drain().await.unwrap();
    assert_eq!((progress.redriven, progress.failed, progress.skipped), (1, 1, 3));
    let fates = fates.lock().unwrap().clone();
    assert_eq!(fates[&id(1)], Fate::Redriven);
    assert!(matches!(&fates[&id(2)], Fate::Failed(why) if why.starts_with("Transient")));
    assert!([3, 4, 9].iter().all(|n| fates[&id(*n)] == Fate::Skipped));
    assert_eq!(world.letter(5).await.tries, 0, "nobody named it");
}

#[tokio::test(start_paused = true)]
async fn a_filter_leaves_the_others_alone() {
    let world = World::with(3).await;
    let mut refund = escalation(4);
    refund.operation = "orders.refund".to_owned();
    world.store.put(refund).await.unwrap();
    let mut worker =
        world.worker(Seen::default().shop(ok), fast()).filter(Filter::any().operation("*.refund"));
    assert_eq!(worker.drain().await.unwrap().redriven, 1);
    assert_eq!(world.count(LetterState::Open).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_plan_leases_nothing_and_shows_what_would_be_sent() {
    let (world, seen) = (World::with(3).await, Seen::default());
    let mut none = escalation(4);
    none.request = None;
    world.store.put(none).await.unwrap();
    let mut worker = world.worker(seen.shop(ok), fast());
    let plan = worker.plan(None, 3).await.unwrap();
    let orders: Vec<_> = plan.letters.iter().map(|p| p.request.clone().unwrap()).collect();
    assert_eq!(orders, [1, 2, 3].map(Order::new));
    let rest = worker.plan(plan.next, 3).await.unwrap();
    assert_eq!(rest.letters[0].request, Err("no request was captured".to_owned()));
    assert_eq!((rest.next, seen.len()), (None, 0));
    assert_eq!(world.store.stats().await.unwrap().leased, 0);
    assert!(world.letter(1).await.history.len() == 1, "no trace of it");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_changes_the_request_needs_a_worker_that_can() {
    let world = World::new();
    for n in 1..=3 {
        let mut asking = escalation(n);
        let question = json!({ "text": "?", "deadline": t0().plus(SECOND), "on_timeout": "abort" });
        asking.question = Some(serde_json::from_value(question).unwrap());
        world.store.put(asking).await.unwrap();
        let decision = match n {
            3 => Decision::Retry,
            n => Decision::RetryWith(json!({ "number": 100 + n })),
        };
        let answer = Change::Answered { decision, by: "ann".to_owned(), why: String::new() };
        world.store.change(id(n), answer).await.unwrap();
    }
    let seen = Seen::default();
    let mut cannot = world.worker(seen.shop(ok), fast());
    assert_eq!(cannot.drain().await.unwrap().done(), 0, "the call may yet take it up");
    world.clock.step(60 * SECOND);
    let progress = cannot.filter(Filter::any()).ids([id(1), id(3)]).drain().await.unwrap();
    assert_eq!((progress.parked, progress.redriven), (1, 1));
    let change = |order: Order, change: &Value| {
        Some(Order { number: u32::try_from(change["number"].as_u64()?).ok()?, ..order })
    };
    let progress = world.worker(seen.shop(ok), fast()).change(change).drain().await.unwrap();
    assert_eq!(progress.redriven, 1);
    let numbers: Vec<_> = seen.0.lock().unwrap().iter().map(|(_, order)| order.number).collect();
    assert_eq!(numbers, [3, 102]);
}

#[tokio::test(start_paused = true)]
async fn a_long_call_keeps_its_lease_and_a_lost_one_is_not_counted() {
    let (world, seen) = (World::with(2).await, Seen::default());
    let shop = seen.shop(|_, _| async {
        sleep(300 * SECOND).await;
        Ok(())
    });
    let policy = fast().lease(10 * SECOND).call_timeout(1000 * SECOND).concurrency(2);
    let mut worker = world.worker(shop, policy);
    let run = tokio::spawn(async move { worker.drain().await });
    sleep(100 * SECOND).await;
    let thief = LeaseRequest::new("thief", 5);
    assert_eq!(world.store.lease(thief).await.unwrap(), [], "both are extended");

    // The clock jumps: the leases are over before they are extended again.
    world.clock.step(60 * SECOND);
    let stolen = world.store.lease(LeaseRequest::new("thief", 1)).await.unwrap();
    assert_eq!(stolen.len(), 1);
    let progress = run.await.unwrap().unwrap();
    assert_eq!((progress.redriven, progress.lost), (1, 1));
    assert_eq!(world.count(LetterState::Redriven).await, 1);
    assert_eq!(world.store.get(stolen[0].id()).await.unwrap().unwrap().state, LetterState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_late_result_is_refused() {
    let world = World::with(1).await;
    let store = Arc::clone(&world.store);
    let clock = world.clock.clone();
    // While the call is on, its lease is over and somebody else takes the letter.
    let shop = Seen::default().shop(move |_, _| {
        let (store, clock) = (Arc::clone(&store), clock.clone());
        async move {
            clock.step(120 * SECOND);
            assert_eq!(store.lease(LeaseRequest::new("thief", 1)).await.unwrap().len(), 1);
            Ok(())
        }
    });
    let progress = world.worker(shop, fast()).run_once().await.unwrap();
    assert_eq!((progress.redriven, progress.lost), (0, 1));
    let letter = world.letter(1).await;
    assert_eq!((letter.state, letter.tries), (LetterState::Open, 2));
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_it_gives_back_what_it_has_not_begun() {
    let (world, seen) = (World::with(10).await, Seen::default());
    let shop = seen.shop(|_, _| async {
        sleep(5 * SECOND).await;
        Ok(())
    });
    let (stop, run) = started(world.worker(shop, fast().rate(1.0).concurrency(8)));
    sleep(Duration::from_millis(1500)).await;
    stop.send(()).unwrap();
    let stopped = Instant::now();
    let progress = run.await.unwrap();
    assert_eq!((progress.redriven, progress.released, progress.left), (2, 6, 0));
    assert!(stopped.elapsed() < 5 * SECOND);
    assert_eq!(world.store.stats().await.unwrap().leased, 0);
    for n in 3..=10 {
        assert_eq!(world.letter(n).await.tries, 0, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_costs_a_second_try_and_no_letter() {
    let (world, seen) = (World::with(1).await, Seen::default());
    let shop = seen.shop(|_, attempt| async move {
        if attempt == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let policy = fast().lease(60 * SECOND);
    let (_stop, run) = started(world.worker(shop.clone(), policy.clone()));
    while seen.len() == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    run.abort();
    let died = Instant::now();
    let (stop, run) = started(world.worker(shop, policy));
    until(&world, LetterState::Redriven, 1).await;
    assert!(died.elapsed() >= 59 * SECOND && died.elapsed() < 63 * SECOND, "{:?}", died.elapsed());
    stop.send(()).unwrap();
    run.await.unwrap();
    assert_eq!(seen.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_letters_over_a_service_that_fails_hangs_and_panics() {
    let (world, seen) = (World::with(1000).await, Seen::default());
    // Each first try of an order goes wrong in one of five ways, or not; every 10th never works.
    let shop = seen.shop(|n, attempt| async move {
        match (n % 10, attempt) {
            (9, _) => Err(DOWN),
            (0, 1) => std::future::pending().await,
            (1, 1) => panic!("in the call of {n}"),
            (2, 1..=2) => Err(DOWN),
            (3, 1) => Err(Broken(ErrorClass::Throttled, Some(40 * SECOND))),
            (4, _) => Err(Broken(ErrorClass::Permanent, None)),
            _ => Ok(()),
        }
    });
    let shop = BoxCloneService::new(ServiceBuilder::new().concurrency_limit(20).service(shop));
    let policy = fast().concurrency(50).call_timeout(5 * SECOND).park_after(3);
    std::panic::set_hook(Box::new(|_| {})); // a hundred panics say nothing new
    let (stop, run) = started(world.worker(shop, policy));
    until(&world, LetterState::Redriven, 800).await;
    until(&world, LetterState::Parked, 200).await;
    stop.send(()).unwrap();
    let progress = run.await.unwrap();
    _ = std::panic::take_hook();
    // A place in the limit of a call that is timed out while it waits is a try too.
    let timed_out = progress.failed - (100 + 200 + 100 + 300);
    assert_eq!((progress.redriven, progress.parked), (800, 100));
    assert!(timed_out >= 100, "{progress:?}");
    assert_eq!((progress.lost, progress.released, progress.left), (0, 0, 0));
    for n in 1..=1000 {
        let letter = world.letter(n).await;
        let parked = matches!(n % 10, 4 | 9);
        assert_eq!(letter.state == LetterState::Parked, parked, "{n}");
        assert!(letter.lease.is_none() && letter.tries <= 3, "{n}");
    }
    let tries = |n: u32| seen.times(n).len();
    assert_eq!((tries(9), tries(1), tries(2), tries(4)), (3, 2, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn two_workers_settle_each_letter_once() {
    let (world, seen) = (World::with(500).await, Seen::default());
    let shop = seen.shop(|n, _| async move {
        sleep(Duration::from_millis(u64::from(n % 7))).await;
        Ok(())
    });
    let mut one = world.worker(shop.clone(), fast().owner("one").concurrency(8));
    let mut two = world.worker(shop, fast().owner("two").concurrency(8));
    let (one, two) = tokio::join!(one.drain(), two.drain());
    let (one, two) = (one.unwrap().redriven, two.unwrap().redriven);
    assert_eq!((one + two, seen.len()), (500, 500));
    assert!(one > 100 && two > 100, "{one} and {two}");
}

#[tokio::test(start_paused = true)]
async fn the_worker_sees_to_retention() {
    let world = World::with(10).await;
    let policy =
        fast().retention(Retention::new().settled_for(30 * SECOND)).retain_every(10 * SECOND);
    let (stop, run) = started(world.worker(Seen::default().shop(ok), policy));
    sleep(20 * SECOND).await;
    assert_eq!(world.store.stats().await.unwrap().total, 10);
    sleep(25 * SECOND).await;
    assert_eq!(world.store.stats().await.unwrap().total, 0);
    stop.send(()).unwrap();
    run.await.unwrap();
}

#[tokio::test]
async fn it_can_be_spawned_over_services_that_are_not_sync() {
    let world = World::with(1).await;
    let mut worker = world.worker(ServiceExt::boxed_clone(Seen::default().shop(ok)), fast());
    let run = tokio::spawn(async move {
        worker.plan(None, 1).await.unwrap();
        worker.drain().await.unwrap()
    });
    assert_eq!(run.await.unwrap().redriven, 1);
}

#[tokio::test(start_paused = true)]
async fn spans_without_end_do_not_panic() {
    let (world, seen) = (World::with(2).await, Seen::default());
    let end = Duration::MAX;
    let policy = fast().concurrency(1).lease(end).call_timeout(end).retain_every(end);
    let policy = policy.retention(Retention::new().settled_for(end));
    // The second is refused, and its server never wants to be asked again.
    let shop = seen.shop(async |number, _| match number {
        1 => Ok(()),
        _ => Err(Broken(ErrorClass::Rejected, Some(Duration::MAX))),
    });
    let (stop, run) = started(world.worker(shop, policy));
    until(&world, LetterState::Redriven, 1).await;
    sleep(3600 * SECOND).await;
    stop.send(()).unwrap();
    assert_eq!(run.await.unwrap().redriven, 1);
    assert_eq!(world.letter(2).await.state, LetterState::Open);
}
