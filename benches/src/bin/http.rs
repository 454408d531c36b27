//! End to end: clients and a hyper server on loopback, without and with layers, in turns: a hyper
//! client with our four, one by one and fused, a reqwest client with a retry, a peer's and ours. `http [seconds]`
//! takes about so many seconds, 60 if not told.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tower_triage_benches::http::client::{Hyper, Protocol, Stack, bare};
use tower_triage_benches::http::load::{Get, Outcome, run};
use tower_triage_benches::http::{reqwest, server};
use tower_triage_benches::measure::median;
use tower_triage_core::Clock;

/// What is compared: protocol and connections.
const CASES: [(Protocol, usize); 4] =
    [(Protocol::Http1, 1), (Protocol::Http1, 64), (Protocol::Http2, 1), (Protocol::Http2, 64)];
/// Connections of the clients whose layers are leaked.
const LEAKED: usize = 64;
/// Connections of the reqwest clients, which speak HTTP/1.1.
const REQWEST: usize = 64;
/// Each case with the layers one by one and fused, two protocols leaked likewise, two of reqwest.
const ROWS: u32 = 2 * CASES.len() as u32 + 6;
/// Pairs of runs of each case.
const PAIRS: u32 = 15;
const DEFAULT_SECONDS: u32 = 60;

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
    let each = Duration::from_secs(seconds.into()) / (2 * PAIRS * ROWS);
    let address = match server::start() {
        Ok(address) => address,
        Err(error) => {
            eprintln!("no server on loopback: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("Medians of {PAIRS} pairs of runs of {} ms, on loopback.", each.as_millis());
    println!();
    println!(
        "| client, protocol, connections | requests/s without | with | cost | p50 µs without, with | p99 µs without, with | cost | p99.9 µs without, with |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (protocol, connections) in CASES {
        let stack = Stack::new(Clock::new());
        let without = || Hyper(bare(protocol));
        let name = format!("{}, {connections}", name(protocol));
        let layers = || Hyper(stack.around(bare(protocol)));
        let pairs = measure(connections, without, layers, address, each);
        print_row(&format!("hyper, our four layers, {name}"), &pairs);
        let fused = || Hyper(stack.fused_around(bare(protocol)));
        let pairs = measure(connections, without, fused, address, each);
        print_row(&format!("hyper, our four, fused, {name}"), &pairs);
    }
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let stack = Stack::new(Clock::coarse());
        let without = || Hyper(bare(protocol));
        let name = format!("{}, {LEAKED}", name(protocol));
        let layers = || Hyper(stack.leaked_around(bare(protocol)));
        let pairs = measure(LEAKED, without, layers, address, each);
        print_row(&format!("hyper, our four, leaked, coarse clock, {name}"), &pairs);
        let fused = || Hyper(stack.fused_leaked_around(bare(protocol)));
        let pairs = measure(LEAKED, without, fused, address, each);
        print_row(&format!("hyper, our four, fused, leaked, coarse clock, {name}"), &pairs);
    }
    let retry = reqwest::retry();
    let ours = || reqwest::ours(&retry);
    let pairs = measure(REQWEST, reqwest::Bare::default, ours, address, each);
    print_row(&format!("reqwest, our retry, HTTP/1.1, {REQWEST}"), &pairs);
    let theirs = reqwest::ReqwestRetry::default;
    let pairs = measure(REQWEST, reqwest::Bare::default, theirs, address, each);
    print_row(&format!("reqwest, reqwest-retry 0.9, HTTP/1.1, {REQWEST}"), &pairs);
    ExitCode::SUCCESS
}

const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http1 => "HTTP/1.1",
        Protocol::Http2 => "HTTP/2",
    }
}

/// Each case has a runtime of its own, so that no connection of the one before is left.
fn measure<A: Get, B: Get>(
    connections: usize,
    without: impl Fn() -> A,
    with: impl Fn() -> B,
    address: SocketAddr,
    each: Duration,
) -> Vec<Pair> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built here");
    runtime.block_on(compare(connections, without, with, address, each))
}

async fn compare<A: Get, B: Get>(
    connections: usize,
    without: impl Fn() -> A,
    with: impl Fn() -> B,
    address: SocketAddr,
    each: Duration,
) -> Vec<Pair> {
    let without: Vec<A> = (0..connections).map(|_| without()).collect();
    let with: Vec<B> = (0..connections).map(|_| with()).collect();
    // Connects and warms up.
    turn(&without, &with, address, each / 2, true).await;
    let mut pairs = Vec::new();
    for pair in 0..PAIRS {
        pairs.push(turn(&without, &with, address, each, pair % 2 == 0).await);
    }
    pairs
}

async fn turn<A: Get, B: Get>(
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

fn print_row(name: &str, pairs: &[Pair]) {
    let of = |what: &dyn Fn(&Outcome) -> f64| {
        let without = median(pairs.iter().map(|pair| what(&pair.without)).collect());
        let with = median(pairs.iter().map(|pair| what(&pair.with)).collect());
        let ratio = median(pairs.iter().map(|p| what(&p.with) / what(&p.without)).collect());
        (without, with, ratio)
    };
    let (slow, fast, throughput) = of(&|outcome| outcome.throughput);
    let [p50, p99, p999] = [0, 1, 2].map(|at| of(&|outcome| outcome.percentiles[at]));
    println!(
        "| {name} | {slow:.0} | {fast:.0} | {:+.1} % | {:.0}, {:.0} | {:.0}, {:.0} | {:+.1} % | {:.0}, {:.0} |",
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
