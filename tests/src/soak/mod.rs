//! The full stack under random load for as long as one likes: two threads, failures, hangs, drops,
//! clones, forced states, time limits anywhere in between. Rounds of a second; after each the stack
//! rests, and every counter must add up. Time is real.

mod dependency;
mod ledger;
mod memory;
mod stack;
mod warnings;

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use self::dependency::{Answer, Call};
use self::ledger::{End, Ledger};
use self::stack::{Layers, Stack};

/// Callers at a time.
const CALLERS: u64 = 48;
/// Nobody waits longer for an answer.
const PATIENCE: Duration = Duration::from_millis(60);
const ROUND: Duration = Duration::from_secs(1);

/// Runs for about so long, and prints a line every few seconds.
///
/// # Errors
/// The first sum that does not add up, memory that grows, or a warning that was not expected.
pub fn run(seconds: u64, seed: u64) -> Result<(), String> {
    let warnings = warnings::watch();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .map_err(|error| error.to_string())?;
    let layers = Arc::new(Layers::new()?);
    let mut memory = memory::Watch::new(seconds);
    let (begun, mut printed) = (Instant::now(), Instant::now());
    println!("{}", Ledger::HEADINGS);
    let mut round = 0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        runtime.block_on(one_round(&layers, seed, round));
        runtime.block_on(layers.ledger.quiet());
        layers.check(round)?;
        let unexpected = warnings.unexpected();
        if !unexpected.is_empty() {
            return Err(format!("unexpected warnings: {unexpected:?}"));
        }
        memory.sample(begun.elapsed())?;
        round += 1;
        let over = begun.elapsed() >= Duration::from_secs(seconds);
        if over || printed.elapsed() >= Duration::from_secs(5) {
            printed = Instant::now();
            println!("{}  {:>6.1}", layers.ledger.line(begun.elapsed()), memory.mebibytes());
        }
    }
    println!("{}", layers.summary());
    println!("{memory}");
    Ok(())
}

/// Callers and a commander, until the second is over; what is in flight then ends first.
async fn one_round(layers: &Arc<Layers>, seed: u64, round: u64) {
    let end = Instant::now() + ROUND;
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        let layers = Arc::clone(layers);
        let rng = StdRng::seed_from_u64(seed ^ (round << 16) ^ caller);
        tasks.spawn(call_on(layers, rng, end));
    }
    let rng = StdRng::seed_from_u64(seed ^ (round << 16) ^ CALLERS);
    tasks.spawn(command(Arc::clone(layers), rng, end, Layers::forces_closed(round)));
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Calls one after the other, through a stack that is cloned, and now and then built anew.
async fn call_on(layers: Arc<Layers>, mut rng: StdRng, end: Instant) {
    let mut stack = layers.stack(&mut rng);
    while Instant::now() < end {
        match rng.random_range(0..100) {
            0 => stack = layers.stack(&mut rng),
            1..10 => stack = stack.clone(),
            _ => {}
        }
        let call = Call::random(&mut rng);
        let ended = make(&mut stack, &call, &mut rng).await;
        let thinks = matches!(ended, End::Answered(Ok(Answer::Fallback))) || rng.random_ratio(1, 8);
        layers.ledger.ended(ended, &call);
        // Who is answered without work would otherwise ask without end.
        if thinks {
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..3000))).await;
        }
    }
}

async fn make(stack: &mut Stack, call: &Call, rng: &mut StdRng) -> End {
    let ready = match stack.ready().await {
        Ok(ready) => ready,
        Err(error) => return End::Answered(Err(error)),
    };
    let future = ready.call(call.clone());
    match rng.random_range(0..100) {
        // Never polled.
        0 => return End::Dropped,
        1..15 => {
            let patience = Duration::from_micros(rng.random_range(0..5000));
            tokio::time::timeout(patience, future).await
        }
        _ => tokio::time::timeout(PATIENCE, future).await,
    }
    .map_or(End::Dropped, End::Answered)
}

/// Somebody plays with the breaker; in the end it is an ordinary one again.
async fn command(layers: Arc<Layers>, mut rng: StdRng, end: Instant, forces_closed: bool) {
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(rng.random_range(5..40))).await;
        match rng.random_range(0..6) {
            0 => layers.breaker.force_open(),
            1 => layers.breaker.disable(),
            2 if forces_closed => layers.breaker.force_closed(),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..5))).await;
        layers.breaker.reset();
    }
}
