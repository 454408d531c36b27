//! What a storm at the desk does to other calls of the same process: 100,000 failures of 50 kinds,
//! spread over a minute, go through the layer, the desk and a store on the disk, while a thread makes
//! calls through another stack, in which nothing fails.
//!
//! Seconds with and without the storm take turns, so that what disturbs the machine disturbs both
//! alike; the result is the median of the pairs' ratios. Ends with 1 if the calls are slowed by more
//! than 10 %, or if a failure is not stored. On a machine that is busy with other things processor
//! time is judged instead of time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver as Inbox, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_benches::measure::{median, runtime};
use tower_triage_benches::ours::{Stack, Window, four};
use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Fingerprint, Halves};
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::{Store, StoreSink};
use tower_triage_escalate::{
    Desk, EscalateLayer, EscalatePolicy, Escalation, Receiver, Route, Routes,
};

/// 100,000 in a minute.
const FAILURES_PER_SECOND: f64 = 100_000.0 / 60.0;
const KINDS: u64 = 50;
/// How long one turn takes, with the storm or without.
const TURN: Duration = Duration::from_secs(1);
/// Calls between two looks at the clock.
const CALLS: u64 = 10_000;
/// What the storm may cost the others.
const SLOWDOWN: f64 = 0.10;
/// The calls' thread has its processor for this share of the time without the storm, if the machine
/// is quiet.
const QUIET: f64 = 0.95;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let pairs: usize = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 60,
        ["--seconds", seconds] => seconds.parse()?,
        _ => {
            eprintln!("usage: desk_storm [--seconds OF_STORM]   (60: 100,000 failures)");
            return Ok(ExitCode::FAILURE);
        }
    };
    // Beside the program: on the disk that has the build, which is not in memory.
    let program = std::env::current_exe()?;
    let home = tempfile::tempdir_in(program.parent().unwrap_or_else(|| ".".as_ref()))?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path().join("desk.db"))?);
    let people = People::default();
    let storm = Storm::begin(desk(&store, &people)?);

    let runtime = runtime();
    let _inside = runtime.enter();
    let mut stack = four(Window::Time);
    turn(&runtime, &mut stack);
    let mut turns = Vec::new();
    for pair in 0..pairs {
        // Who is first takes turns too.
        let first = (pair % 2 == 1).then(|| turn(&runtime, &mut stack));
        let with = storm.around(|| turn(&runtime, &mut stack));
        turns.push((with, first.unwrap_or_else(|| turn(&runtime, &mut stack))));
    }
    let failures = storm.end();
    let stored = Builder::new_current_thread().build()?.block_on(store.stats())?.total;
    Ok(report(&turns, failures, stored, &people))
}

fn report(turns: &[(Turn, Turn)], failures: u64, stored: u64, people: &People) -> ExitCode {
    let typical = |of: &dyn Fn(&(Turn, Turn)) -> f64| median(turns.iter().map(of).collect());
    let wall = typical(&|(with, without)| with.wall / without.wall);
    let cpu = typical(&|(with, without)| with.cpu / without.cpu);
    let others: Duration = turns.iter().map(|(with, _)| with.others).sum();
    println!("| ns per call | without the storm | with it | median of the ratios |");
    println!("|---|---|---|---|");
    let row = |name, without: f64, with: f64, ratio: f64| {
        println!("| {name} | {without:.1} | {with:.1} | {ratio:.3} |");
    };
    row("time", typical(&|(_, it)| it.wall), typical(&|(it, _)| it.wall), wall);
    row("processor time", typical(&|(_, it)| it.cpu), typical(&|(it, _)| it.cpu), cpu);
    println!();
    let told = people.0.lock().map(|told| (told.len(), told.values().sum::<u64>()));
    let (kinds, notifications) = told.unwrap_or_default();
    println!(
        "{failures} failures in {} s of storm, {stored} stored, {notifications} notifications of \
         {kinds} kinds; {:.0} µs of processor time each, all threads of the storm",
        turns.len(),
        others.as_secs_f64() * 1e6 / failures.max(1) as f64,
    );
    let mut passed = true;
    if stored != failures {
        eprintln!("desk_storm: not all failures are stored");
        passed = false;
    }
    // Where others take the processor away, time says what they do.
    let kept = typical(&|(_, it)| it.cpu / it.wall);
    let (judged, slowdown) = if kept < QUIET {
        eprintln!("desk_storm: THE MACHINE IS NOT QUIET: processor time is judged, not time");
        ("processor time", cpu)
    } else {
        ("time", wall)
    };
    if slowdown > 1.0 + SLOWDOWN {
        eprintln!(
            "desk_storm: {judged} of other calls grew by more than {:.0} %",
            SLOWDOWN * 100.0
        );
        passed = false;
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a turn took: nanoseconds per call, and the processor time of all other threads meanwhile.
#[derive(Clone, Copy)]
struct Turn {
    wall: f64,
    cpu: f64,
    others: Duration,
}

/// Calls in which nothing fails, for as long as a turn takes.
fn turn<S: Stack>(runtime: &Runtime, stack: &mut S) -> Turn {
    let now = || (Instant::now(), cpu(ClockId::ThreadCPUTime), cpu(ClockId::ProcessCPUTime));
    let (begun, mine, all) = now();
    let mut calls = 0;
    while begun.elapsed() < TURN {
        runtime.block_on(async {
            for n in 0..CALLS {
                _ = black_box(call(stack, black_box(n)).await);
            }
        });
        calls += CALLS;
    }
    let (ended, mine_then, all_then) = now();
    let mine = mine_then - mine;
    let per_call = |time: Duration| time.as_secs_f64() * 1e9 / calls as f64;
    Turn {
        wall: per_call(ended - begun),
        cpu: per_call(mine),
        others: (all_then - all).saturating_sub(mine),
    }
}

async fn call<S: Stack>(stack: &mut S, n: u64) -> bool {
    match stack.ready().await {
        Ok(ready) => ready.call(n).await.is_ok(),
        Err(_) => false,
    }
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The storm, on threads of its own: blows when it is told to, and says when it has settled.
struct Storm {
    blow: Sender<bool>,
    settled: Inbox<()>,
    thread: thread::JoinHandle<u64>,
}

impl Storm {
    fn begin(desk: Desk) -> Self {
        let (blow, blows) = channel();
        let (settles, settled) = channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
            let runtime = runtime.expect("a runtime can be built here");
            let mut failures = 0;
            while blows.recv() == Ok(true) {
                failures += runtime.block_on(gust(&desk, &blows, failures));
                _ = settles.send(());
            }
            failures
        });
        Self { blow, settled, thread }
    }

    /// Runs `f` in the storm.
    fn around<T>(&self, f: impl FnOnce() -> T) -> T {
        _ = self.blow.send(true);
        let done = f();
        _ = self.blow.send(false);
        _ = self.settled.recv();
        done
    }

    /// How many failures it had.
    fn end(self) -> u64 {
        drop(self.blow);
        self.thread.join().unwrap_or_default()
    }
}

/// Calls that fail, as many as are due, until there is word to stop; then those under way end.
async fn gust(desk: &Desk, blows: &Inbox<bool>, number: u64) -> u64 {
    let (mut begun, mut calls) = (0, JoinSet::new());
    let start = Instant::now();
    let mut tick = interval(Duration::from_millis(5));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while blows.try_recv().is_err() {
        tick.tick().await;
        let due = (start.elapsed().as_secs_f64() * FAILURES_PER_SECOND) as u64;
        while begun < due {
            calls.spawn(fail(desk.clone(), number + begun));
            begun += 1;
        }
        while calls.try_join_next().is_some() {}
    }
    while calls.join_next().await.is_some() {}
    desk.idle().await;
    begun
}

async fn fail(desk: Desk, n: u64) {
    let rules = Halves { response: AnyOk, error: Chain };
    let layer = EscalateLayer::new(Classifier::new(rules), desk)
        .from("shop")
        .policy(EscalatePolicy::new().wait(Duration::from_secs(30)));
    let down = service_fn(|n: u64| async move {
        // Two letters: a digit would be the same kind.
        let letter = |n: u64| char::from(b'a' + (n % 26) as u8);
        let text = format!("shard {}{} is gone", letter(n % KINDS), letter(n % KINDS / 26));
        Err::<(), _>(AnyError::from(io::Error::new(io::ErrorKind::ConnectionReset, text)))
    });
    _ = layer.layer(down).oneshot(n).await;
}

fn desk(store: &Arc<dyn Store>, people: &People) -> Result<Desk, tower_triage_core::ConfigError> {
    let receiver =
        Receiver::new("on-call").record(StoreSink::new(Arc::clone(store))).notify(people.clone());
    Desk::new(Routes::new(Route::new(["on-call"], "infra_failure")), [receiver])
}

/// People, who count what they are told of each kind.
#[derive(Clone, Default)]
struct People(Arc<Mutex<HashMap<Fingerprint, u64>>>);

impl Service<Escalation> for People {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, escalation: Escalation) -> Self::Future {
        if let Ok(mut told) = self.0.lock() {
            *told.entry(escalation.fingerprint).or_default() += 1;
        }
        ready(Ok(()))
    }
}
