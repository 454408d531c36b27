//! Which jitter? Clients that contend for one row with optimistic concurrency, as in the comparison
//! of the AWS Architecture Blog ("Exponential Backoff And Jitter", 2015).
//!
//! Each client reads a version and writes with it; the write is refused if somebody wrote in between,
//! and the client backs off and begins again. All begin at once. A way over the network takes about
//! 10 ms. However good the backoff is, one client at a time gets through: what differs is how many
//! calls are wasted on the way, and how long nobody even tries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tower_triage_core::{Backoff, Delays, Jitter};

/// The schedules that are compared: base 5 ms, factor 2, cap 2 s.
#[must_use]
pub fn strategies() -> [(&'static str, Backoff); 4] {
    let (base, cap) = (Duration::from_millis(5), Duration::from_secs(2));
    let exponential = |jitter| Backoff::exponential(base, 2.0).cap(cap).jitter(jitter);
    [
        ("none", exponential(Jitter::None)),
        ("equal", exponential(Jitter::Equal)),
        ("full", exponential(Jitter::Full)),
        ("decorrelated", Backoff::decorrelated(base).cap(cap)),
    ]
}

/// What a crowd of clients needed, on average over the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needed {
    /// Tries of all clients together, each a read and a write.
    pub tries: f64,
    /// Until the last client was done, in milliseconds.
    pub millis: f64,
}

/// Lets `clients` contend, `runs` times.
#[must_use]
pub fn contend(backoff: &Backoff, clients: u32, runs: u32, seed: u64) -> Needed {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut tries, mut time) = (0, Duration::ZERO);
    for _ in 0..runs {
        let (more, last) = once(backoff, clients, &mut rng);
        tries += more;
        time += last;
    }
    let runs = f64::from(runs);
    Needed { tries: tries as f64 / runs, millis: time.as_secs_f64() * 1e3 / runs }
}

/// What reaches whom next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The row is read: the answer goes out.
    Read,
    /// A client writes with the version that it has read.
    Write { version: u64 },
    /// A client hears that somebody was faster.
    Refused,
    /// A client hears that it is done.
    Done,
}

fn once(backoff: &Backoff, clients: u32, rng: &mut StdRng) -> (u64, Duration) {
    let mut events = BinaryHeap::new();
    let mut delays = vec![Delays::default(); clients as usize];
    let (mut version, mut tries, mut last) = (0, 0, Duration::ZERO);
    for client in 0..clients as usize {
        events.push(Reverse((way(rng), client, Event::Read)));
    }
    while let Some(Reverse((now, client, event))) = events.pop() {
        let next = match event {
            // There and back again: the version is the one that is read now.
            Event::Read => Some((way(rng) + way(rng), Event::Write { version })),
            Event::Write { version: read } => {
                tries += 1;
                let done = read == version;
                version += u64::from(done);
                Some((way(rng), if done { Event::Done } else { Event::Refused }))
            }
            Event::Refused => {
                let wait = backoff.next(&mut delays[client], rng.random());
                Some((wait + way(rng), Event::Read))
            }
            Event::Done => {
                last = now;
                None
            }
        };
        events.extend(next.map(|(after, event)| Reverse((now + after, client, event))));
    }
    (tries, last)
}

/// One way over the network: 10 ms, give or take 2 (a sum of twelve uniform numbers is as good as
/// normal, and the same on every machine).
fn way(rng: &mut StdRng) -> Duration {
    let normal = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    Duration::from_micros((10_000.0 + 2_000.0 * normal).max(0.0) as u64)
}
