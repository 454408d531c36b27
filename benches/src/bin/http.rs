//! End to end: a hyper client and a hyper server on loopback, without and with our four layers, in
//! turns. `http [seconds]` takes about so many seconds, 45 if not told.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tower_triage_benches::http::client::{Calls, Protocol, Stack, bare};
use tower_triage_benches::http::load::{Outcome, run};
use tower_triage_benches::http::server;
use tower_triage_benches::measure::median;

/// What is compared: protocol and connections.
const CASES: [(Protocol, usize); 4] =
    [(Protocol::Http1, 1), (Protocol::Http1, 64), (Protocol::Http2, 1), (Protocol::Http2, 64)];
/// Pairs of runs of each case.
const PAIRS: u32 = 15;
const DEFAULT_SECONDS: u32 = 45;

/// One run without and one with the layers, right after each other.
struct Pair {
    without: Outcome,
    with: Outcome,
}

fn main() -> ExitCode {
    let seconds = match std::env::args().nth(1).map(|seconds| seconds.parse::<u32>()) {
        None => DEFAULT_SECONDS,
        Some(Ok(seconds)) if seconds > 0 => seconds,
        Some(_) => {
            eprintln!("usage: http [seconds]");
            return ExitCode::FAILURE;
        }
    };
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures mean nothing (use --release)");
    }
    let each = Duration::from_secs(seconds.into()) / (2 * PAIRS * CASES.len() as u32);
    let address = match server::start() {
        Ok(address) => address,
        Err(error) => {
            eprintln!("no server on loopback: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built here");

    println!(
        "Four layers around a hyper client on loopback; medians of {PAIRS} pairs of runs of {} ms.",
        each.as_millis()
    );
    println!();
    println!(
        "| protocol, connections | requests/s without | with | cost | p50 µs without, with | p99 µs without, with | cost | p99.9 µs without, with |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (protocol, connections) in CASES {
        let pairs = runtime.block_on(compare(protocol, connections, address, each));
        print_row(protocol, connections, &pairs);
    }
    ExitCode::SUCCESS
}

async fn compare(
    protocol: Protocol,
    connections: usize,
    address: SocketAddr,
    each: Duration,
) -> Vec<Pair> {
    let stack = Stack::default();
    let without: Vec<_> = (0..connections).map(|_| bare(protocol)).collect();
    let with: Vec<_> = (0..connections).map(|_| stack.around(bare(protocol))).collect();
    // Connects and warms up.
    turn(&without, &with, address, each / 2, true).await;
    let mut pairs = Vec::new();
    for pair in 0..PAIRS {
        pairs.push(turn(&without, &with, address, each, pair % 2 == 0).await);
    }
    pairs
}

async fn turn<A: Calls, B: Calls>(
    without: &[A],
    with: &[B],
    address: SocketAddr,
    each: Duration,
    without_first: bool,
) -> Pair {
    if without_first {
        let without = run(without, address, each).await;
        Pair { without, with: run(with, address, each).await }
    } else {
        let with = run(with, address, each).await;
        Pair { without: run(without, address, each).await, with }
    }
}

fn print_row(protocol: Protocol, connections: usize, pairs: &[Pair]) {
    let of = |what: &dyn Fn(&Outcome) -> f64| {
        let without = median(pairs.iter().map(|pair| what(&pair.without)).collect());
        let with = median(pairs.iter().map(|pair| what(&pair.with)).collect());
        let ratio = median(pairs.iter().map(|p| what(&p.with) / what(&p.without)).collect());
        (without, with, ratio)
    };
    let (slow, fast, throughput) = of(&|outcome| outcome.throughput);
    let [p50, p99, p999] = [0, 1, 2].map(|at| of(&|outcome| outcome.percentiles[at]));
    let name = match protocol {
        Protocol::Http1 => "HTTP/1.1",
        Protocol::Http2 => "HTTP/2",
    };
    println!(
        "| {name}, {connections} | {slow:.0} | {fast:.0} | {:+.1} % | {:.0}, {:.0} | {:.0}, {:.0} | {:+.1} % | {:.0}, {:.0} |",
        (1.0 - throughput) * 100.0,
        p50.0,
        p50.1,
        p99.0,
        p99.1,
        (p99.2 - 1.0) * 100.0,
        p999.0,
        p999.1,
    );
}
