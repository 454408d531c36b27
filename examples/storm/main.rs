//! A real HTTP client on real sockets survives a failing upstream.
//!
//! An upstream goes through phases (healthy, 503, resets, slow, closed, 400s, healthy again) while
//! some thousand requests go through the full stack; a backup stands by. At the end each request is
//! accounted for exactly once, in two independent books, or the exit code says so.

mod chart;
mod client;
mod ledger;
mod upstream;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower_triage::circuit_breaker::State;
use tower_triage::escalate::Outcome;
use tower_triage::http::http;
use tower_triage::{Classifier, ErrorClass, Incident, Resolution};

use crate::client::Stack;
use crate::ledger::{Fate, Incidents};
use crate::upstream::{Phase, Upstream};

/// What happens, and for how long.
const STORY: [(Phase, Duration); 7] = [
    (Phase::Healthy, Duration::from_millis(1500)),
    (Phase::Unavailable, Duration::from_millis(2500)),
    (Phase::Resets, Duration::from_millis(2000)),
    (Phase::Slow, Duration::from_millis(2500)),
    (Phase::Closed, Duration::from_millis(2000)),
    (Phase::BadRequests, Duration::from_millis(1500)),
    (Phase::Healthy, Duration::from_millis(3000)),
];

/// One request every 5 ms.
const PACE: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let primary = Upstream::start().await?;
    let backup = upstream::start_backup().await?;
    let folder = std::env::temp_dir().join("tower-triage-storm");
    std::fs::create_dir_all(&folder)?;
    let letters = folder.join(format!("escalations-{}.jsonl", std::process::id()));

    let classifier = Classifier::new(http());
    let incidents = Incidents::default();
    classifier.observe(incidents.clone());
    let Stack { client, breaker, desk } = client::build(&classifier, backup, &letters)?;

    println!(
        "upstream http://{}, backup http://{backup} (it reads orders, but places none)",
        primary.address
    );
    println!(
        "nine of ten requests read an order, one places one, which must not be repeated blindly\n"
    );
    let begun = Instant::now();
    let states = Arc::new(Mutex::new(Vec::new()));
    breaker.subscribe({
        let states = Arc::clone(&states);
        move |transition| {
            let entry = (begun.elapsed(), transition.to);
            states.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        }
    });

    let mut calls = JoinSet::new();
    let mut fates = BTreeMap::new();
    let mut phases = Vec::new();
    let mut sent = 0_u32;
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for (phase, length) in STORY {
        primary.enter(phase);
        phases.push((begun.elapsed(), phase));
        let until = Instant::now() + length;
        while Instant::now() < until {
            ticks.tick().await;
            sent += 1;
            let (client, request) = (client.clone(), client::request(primary.address, sent));
            calls.spawn(async move {
                let outcome = client::send(client, request).await;
                let fate = Fate::of(&outcome);
                if let Ok(response) = outcome {
                    // Read to its end, so that the connection is used again.
                    let _ = response.into_body().collect().await;
                }
                fate
            });
            while let Some(fate) = calls.try_join_next() {
                *fates.entry(fate?).or_default() += 1;
            }
            if sent.is_multiple_of(20) {
                progress(begun, phase, sent, &classifier, breaker.state());
            }
        }
        progress(begun, phase, sent, &classifier, breaker.state());
        if std::io::stdout().is_terminal() {
            println!();
        }
    }
    while let Some(fate) = calls.join_next().await {
        *fates.entry(fate?).or_default() += 1;
    }
    desk.idle().await;
    let whole = begun.elapsed();

    let incidents = incidents.all();
    let written = ledger::read(&letters)?;
    report(&fates, &classifier, sent);
    println!("\nbreaker `primary` over {whole:.1?}");
    let states = states.lock().unwrap_or_else(PoisonError::into_inner);
    print!("{}", chart::breaker(&phases, &states, whole));
    println!("\nthree incidents");
    for resolution in
        [Resolution::RecoveredByRetry, Resolution::AnsweredByFallback, Resolution::Escalated]
    {
        if let Some(incident) = longest(&incidents, resolution) {
            println!("{}", incident.timeline(30));
        }
    }
    let failed = written.iter().filter(|letter| letter.outcome == Outcome::Failed).count();
    println!("{} escalations in {}:", written.len(), letters.display());
    println!(
        "  {failed} of failed requests, {} of solved ones whose failure opened the breaker",
        written.len() - failed
    );

    let differences = ledger::differences(sent as usize, &fates, &incidents, &written);
    if differences.is_empty() {
        println!("the books agree: each of {sent} requests is accounted for exactly once");
        return Ok(ExitCode::SUCCESS);
    }
    for difference in differences {
        eprintln!("the books DISAGREE: {difference}");
    }
    Ok(ExitCode::FAILURE)
}

/// One line that is written over on a terminal, and printed each second elsewhere. Counts are since
/// the start.
fn progress<R>(
    begun: Instant,
    phase: Phase,
    sent: u32,
    classifier: &Classifier<R>,
    breaker: State,
) {
    let refused = classifier.count(ErrorClass::Rejected);
    let failed: u64 = ErrorClass::ALL.into_iter().map(|class| classifier.count(class)).sum();
    let line = format!(
        "{:>5.1} s  upstream: {:<18} {sent:>5} requests, {:>4} failed attempts, {refused:>4} refused by the breaker ({})",
        begun.elapsed().as_secs_f64(),
        phase.name(),
        failed - refused,
        breaker.as_str()
    );
    if std::io::stdout().is_terminal() {
        print!("\r{line:<100}");
    } else if sent.is_multiple_of(200) {
        println!("{line}");
    }
    let _ = std::io::stdout().flush();
}

fn report<R>(fates: &BTreeMap<Fate, usize>, classifier: &Classifier<R>, sent: u32) {
    println!("\nrequests by resolution");
    for fate in Fate::ALL {
        let count = fates.get(&fate).copied().unwrap_or(0);
        let share = 100.0 * count as f64 / f64::from(sent);
        println!("  {:<26} {count:>5}  {share:>5.1} %", fate.name());
    }
    println!(
        "\nfailures by class (each attempt counts once, and so does each refusal of the breaker)"
    );
    for class in ErrorClass::ALL {
        match classifier.count(class) {
            0 => {}
            count => println!("  {class:<26} {count:>5}"),
        }
    }
}

/// The incident with the most to tell.
fn longest(incidents: &[Incident], resolution: Resolution) -> Option<&Incident> {
    let with = incidents.iter().filter(|incident| incident.resolution == resolution);
    with.max_by_key(|incident| incident.steps.len())
}
