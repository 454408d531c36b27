//! `triage redrive`

use std::io::{IsTerminal, stderr};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tower_triage_core::{Classifier, ConfigError, ErrorClass};
use tower_triage_escalate::redrive::{Driven, Fate, Planned, Progress};
use tower_triage_escalate::store::{Letter, LetterState};
use tower_triage_escalate::{Redrive, RedrivePolicy};
use tower_triage_http::{HttpCodec, HttpRules, HttpRulesExt, http};

use crate::args;
use crate::commands::Desk;
use crate::exit::Exit;
use crate::letters::chosen;
use crate::out;
use crate::send::{Requests, Sender};

type Request = http::Request<Full<Bytes>>;

pub(super) async fn run(desk: &Desk, args: args::Redrive) -> Result<(), Exit> {
    let requests = Requests::new(args.to.clone(), &args.headers, &args.header_envs)?;
    let mut letters = chosen(&*desk.store, &args.ids, &args.which, &[LetterState::Open]).await?;
    if args.ids.is_empty() {
        // What waits for an answer is the answer's business. Named ones are told of.
        let now = crate::table::now();
        letters.retain(|letter| !letter.asks(now));
    } else if let [letter] = &*letters {
        can_be_leased(letter)?;
    }
    let policy = RedrivePolicy::new()
        .owner(format!("triage redrive by {}", desk.by))
        .rate(args.rate)
        .concurrency(args.concurrency)
        .call_timeout(args.timeout);
    let usage = |error: ConfigError| Exit::Usage(error.to_string());
    let sender = Sender::new(requests.clone())?;
    let store = Arc::clone(&desk.store);
    let mut worker = Redrive::new(store, HttpCodec::new(), Classifier::new(rules()), sender)
        .policy(policy)
        .map_err(usage)?
        .ids(letters.iter().map(Letter::id));
    let plan = worker.plan(None, u32::MAX).await?.letters;
    let sendable = || plan.iter().filter_map(|planned| planned.request.as_ref().ok());
    requests.check(sendable())?;
    if args.dry_run {
        return dry_run(desk, &plan, &requests);
    }
    let question = format!("Send {} requests?", sendable().count());
    out::confirm(&question, sendable().count(), args.yes)?;
    drive(desk, worker, &plan).await
}

/// HTTP's rules, but a redirect is no success: nobody follows it, so nothing was done.
fn rules() -> HttpRules {
    (300..400).fold(http(), |rules, status| rules.status(status, ErrorClass::Permanent))
}

/// Why the only letter cannot be had, if so; of several it is told as they come.
fn can_be_leased(letter: &Letter) -> Result<(), Exit> {
    let now = crate::table::now();
    let (id, state) = (letter.id(), letter.state);
    match &letter.lease {
        _ if state.is_settled() => Err(Exit::Conflict(format!("letter {id} is settled: {state}"))),
        Some(lease) if letter.is_leased(now) => {
            let (owner, until) = (&lease.owner, lease.until);
            Err(Exit::Conflict(format!(
                "`{owner}` works on letter {id}, until {until} at the longest"
            )))
        }
        _ if letter.asks(now) => {
            Err(Exit::Conflict(format!("letter {id} waits for an answer: see `triage decide`")))
        }
        _ => Ok(()),
    }
}

fn dry_run(desk: &Desk, plan: &[Planned<Request>], requests: &Requests) -> Result<(), Exit> {
    let mut failed = 0;
    for planned in plan {
        let id = planned.letter.id();
        let aimed = match &planned.request {
            Ok(request) => requests.aim(request.clone()).map_err(str::to_owned),
            Err(why) => Err(why.clone()),
        };
        match aimed {
            Ok(request) if desk.json => {
                let (method, target) = (request.method().as_str(), request.uri().to_string());
                out::json(
                    &json!({ "id": id, "would": "send", "method": method, "target": target }),
                )?;
            }
            Ok(request) => {
                let line = format!("{id} would send {} {}", request.method(), request.uri());
                out::line(&out::one_line(&line))?;
            }
            Err(why) => {
                failed += 1;
                match desk.json {
                    true => out::json(&json!({ "id": id, "would": "skip", "why": why }))?,
                    false => out::line(&out::one_line(&format!("{id} cannot be sent: {why}")))?,
                }
            }
        }
    }
    ended(failed, plan.len() as u64)
}

fn ended(failed: u64, of: u64) -> Result<(), Exit> {
    if failed == 0 { Ok(()) } else { Err(Exit::Some { failed, of }) }
}

async fn drive(
    desk: &Desk,
    worker: Redrive<Request, Sender, HttpRules>,
    plan: &[Planned<Request>],
) -> Result<(), Exit> {
    let letters = plan.len() as u64;
    let mut sendable = Vec::new();
    for Planned { letter, request, .. } in plan {
        match request {
            Ok(_) => sendable.push(letter.id()),
            // Maybe a worker of the service's own can; it is left as it is.
            Err(why) => cannot(desk, letter, why)?,
        }
    }
    let unsendable = letters - sendable.len() as u64;
    let worker = worker.ids(sendable);
    let (tell, mut told) = mpsc::unbounded_channel();
    // It fails only when nobody listens any more.
    let mut worker = worker.watch(move |driven, _| _ = tell.send(driven.clone()));
    let (stop, stopped) = oneshot::channel::<()>();
    let (mut stop, mut unheard) = (Some(stop), None);
    let bar = bar(desk, letters - unsendable);
    let mut show = |driven: Driven| {
        bar.inc(1);
        if let Err(exit) = bar.suspend(|| show(desk, &driven)) {
            // Whoever reads is gone: what is under way is finished, and no more begun.
            unheard.get_or_insert(exit);
            stop.take();
        }
    };
    let interrupted = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = stopped => {}
        }
    };
    let mut run = pin!(worker.drain_until(interrupted));
    let mut progress = loop {
        tokio::select! {
            biased;
            Some(driven) = told.recv() => show(driven),
            progress = &mut run => break progress?,
        }
    };
    while let Ok(driven) = told.try_recv() {
        show(driven);
    }
    bar.finish_and_clear();
    if let Some(exit) = unheard {
        return Err(exit);
    }
    progress.skipped += unsendable;
    match desk.json {
        true => out::json(&json!({ "progress": progress }))?,
        false => out::line(&summary(&progress))?,
    }
    if letters == 1 && unsendable == 0 && progress.skipped == 1 {
        return Err(Exit::Conflict("somebody else was quicker".to_owned()));
    }
    ended(letters - progress.redriven, letters)
}

/// For a person who waits.
fn bar(desk: &Desk, letters: u64) -> ProgressBar {
    if desk.json || letters < 2 || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {eta} left");
    let bar = ProgressBar::new(letters);
    // The template is ours; a wrong one leaves the default.
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn cannot(desk: &Desk, letter: &Letter, why: &str) -> Result<(), Exit> {
    let id = letter.id();
    match desk.json {
        true => out::json(&json!({ "id": id, "fate": "skipped", "why": why })),
        false => out::line(&out::one_line(&format!("{id} cannot be sent: {why}"))),
    }
}

fn show(desk: &Desk, driven: &Driven) -> Result<(), Exit> {
    let id = driven.id;
    if desk.json {
        let mut line = serde_json::to_value(&driven.fate).unwrap_or_default();
        line["id"] = json!(id);
        return out::json(&line);
    }
    let text = match &driven.fate {
        Fate::Redriven => format!("{id} is redriven"),
        Fate::Failed(why) => format!("{id} failed: {why}"),
        Fate::Parked(why) => format!("{id} is parked: {why}"),
        Fate::Released(why) => format!("{id} was not tried: {why}"),
        Fate::Lost(why) => format!("{id} was sent, and is not settled: {why}"),
        Fate::Skipped => {
            format!("{id} was not to be had: settled, leased, or waiting for an answer")
        }
        // Only this version's fates come from this version.
        fate => format!("{id}: {fate:?}"),
    };
    out::line(&out::one_line(&text))
}

fn summary(progress: &Progress) -> String {
    let parts = [
        (progress.redriven, "redriven"),
        (progress.failed, "failed"),
        (progress.parked, "parked"),
        (progress.released, "not tried"),
        (progress.lost, "not settled"),
        (progress.skipped, "not to be had"),
        (progress.left, "left"),
    ];
    let said = parts.iter().filter(|(count, _)| *count > 0);
    let said: Vec<_> = said.map(|(count, what)| format!("{count} {what}")).collect();
    if said.is_empty() { "no letters".to_owned() } else { said.join(", ") }
}
