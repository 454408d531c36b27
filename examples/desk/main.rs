//! The whole story of a desk: a dependency is down and calls fail; every failure is stored with its
//! request; one call asks what to do, and is answered from a second process; when the dependency is
//! back, a second process drives the rest again. At the end three books must say the same: the
//! callers', the store's and the dependency's.
//!
//! The second process is this program too: called as `desk triage ..` it is the command `triage`.

mod upstream;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinSet;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage::dead_letter_sqlite::SqliteStore;
use tower_triage::escalate::store::{Filter, Letter, LetterState, Store, StoreSink};
use tower_triage::escalate::{
    Asking, DeskPolicy, JsonLinesSink, LogSink, Receiver, Recording, Route, Routes,
};
use tower_triage::http::{HttpCodec, HttpReplay, http};
use tower_triage::incident::scope;
use tower_triage::{
    AnyError, Backoff, Classifier, Desk, ErrorClass, EscalateLayer, EscalatePolicy, Resolution,
    RetryLayer, RetryPolicy,
};

use crate::upstream::Upstream;

const ORDERS: usize = 40;

type Order = Request<Full<Bytes>>;
type Answer = Response<Incoming>;
type Shop = BoxCloneSyncService<Order, Answer, AnyError>;
type Story<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = env::args_os().skip(1).peekable();
    if args.peek().is_some_and(|first| first == "triage") {
        return tower_triage_cli::run(args).await;
    }
    match story().await {
        Ok(differences) if differences.is_empty() => {
            println!("the three books agree");
            ExitCode::SUCCESS
        }
        Ok(differences) => {
            differences.iter().for_each(|difference| println!("DIFFERENCE: {difference}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("the story broke off: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command `triage` on the store, as a person would.
async fn triage(store: &Path, words: &[&str]) -> Story<String> {
    println!("\n$ triage {}", words.join(" "));
    let command = Command::new(env::current_exe()?)
        .arg("triage")
        .args(words)
        .env("TRIAGE_STORE", store)
        .env("USER", "ada")
        .output()
        .await?;
    let said = String::from_utf8(command.stdout)?;
    print!("{said}");
    match command.status.success() {
        true => Ok(said),
        false => Err(String::from_utf8_lossy(&command.stderr).into_owned().into()),
    }
}

/// The service: a client whose failures are stored with their requests, and asks what to do when a
/// limit is used up.
fn shop(store: &Arc<dyn Store>, folder: &Path) -> Story<Shop> {
    let spill = JsonLinesSink::open(folder.join("spill.jsonl"))?;
    let operator = Receiver::new("operator")
        .record(StoreSink::new(store.clone()))
        .record(spill)
        .notify(LogSink);
    let routes = Routes::new(Route::new(["operator"], "human_required"));
    let desk = Desk::with_policy(DeskPolicy::new().tries(2), routes, [operator])?;

    let classifier = Classifier::new(http());
    let asking =
        Asking::new(store.clone()).classes(ErrorClass::Quota).deadline(Duration::from_secs(30));
    // A limit that is too high is lowered by whoever answers: `{"amount": ..}`.
    let change = |request: Order, change: &Value| {
        let body = serde_json::to_vec(change).ok()?;
        Some(request.map(|_| Full::from(body)))
    };
    let quick = Backoff::fixed(Duration::from_millis(5));
    let stack = ServiceBuilder::new()
        .layer(
            EscalateLayer::new(classifier.clone(), desk)
                .from("shop")
                .policy(
                    EscalatePolicy::new()
                        .recording(Recording::Durable)
                        .wait(Duration::from_secs(5)),
                )
                .capture(HttpCodec::new())
                .retry_with(change)
                .ask(asking)?,
        )
        .layer(
            RetryLayer::new(classifier)
                .policy(RetryPolicy::default().backoff(&quick).build()?)
                .replay(HttpReplay::new()),
        )
        .map_err(AnyError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());
    Ok(BoxCloneSyncService::new(stack))
}

fn order(address: SocketAddr, path: &str, body: String) -> Story<Order> {
    let uri = format!("http://{address}{path}");
    let request = Request::put(uri).header("content-type", "application/json");
    Ok(request.header("authorization", "Bearer s3cr3t-of-the-shop").body(Full::from(body))?)
}

/// How a call ended for its caller: the status, and what the incident says.
async fn call(shop: Shop, request: Order) -> (u16, Resolution) {
    let (answer, incident) = scope(shop.oneshot(request)).await;
    let status = answer.map_or(0, |answer| answer.status().as_u16());
    (status, incident.map_or(Resolution::Succeeded, |incident| incident.resolution))
}

/// Waits until a letter asks; gives it.
async fn question(store: &dyn Store) -> Story<Letter> {
    loop {
        let changed = store.changed();
        let page = store.list(Filter::any().asking(), None, 1).await?;
        if let Some(letter) = page.letters.into_iter().next() {
            return Ok(letter);
        }
        changed.await;
    }
}

async fn story() -> Story<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("letters.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&file)?);
    let replayed = JsonLinesSink::replay(folder.path().join("spill.jsonl"), &*store).await?;
    println!("the spill file of the last run held {} records", replayed.stored);
    let (upstream, address) = Upstream::start().await?;
    let shop = shop(&store, folder.path())?;

    println!("\n{ORDERS} orders go to a server that is down.");
    let mut calls = JoinSet::new();
    for n in 0..ORDERS {
        let request = order(address, "/orders", format!("{{\"order\":{n}}}"))?;
        calls.spawn(call(shop.clone(), request));
    }
    let mut callers = BTreeMap::<_, usize>::new();
    while let Some(ended) = calls.join_next().await {
        let (status, resolution) = ended?;
        *callers.entry((status, resolution.as_str())).or_default() += 1;
    }
    for ((status, resolution), calls) in &callers {
        println!("{calls} callers got {status}; the incident says: {resolution}");
    }
    triage(&file, &["stats"]).await?;

    println!("\nA refund is above the limit. Its call asks, and waits.");
    let refund = order(address, "/refunds", "{\"amount\":900}".to_owned())?;
    let refund = tokio::spawn(call(shop, refund));
    let asks = question(&*store).await?.id().to_string();
    triage(&file, &["list", "--asking"]).await?;
    let why = "that is the limit today";
    triage(&file, &["decide", &asks[..13], "retry-with", "{\"amount\":500}", "--why", why]).await?;
    let (status, resolution) = refund.await?;
    println!("\nThe caller of the refund got {status}; the incident says: {resolution}");

    println!("\nThe server is back.");
    upstream.recovers();
    let open = Filter::any().states([LetterState::Open]);
    let first = store.list(open, None, 1).await?.letters;
    let first = first.first().ok_or("no letter is open")?.id().to_string();
    triage(&file, &["redrive", "--dry-run", &first]).await?;
    triage(&file, &["redrive", "--yes", "--state", "open", "--rate", "1000"]).await?;
    triage(&file, &["stats"]).await?;
    triage(&file, &["show", &first]).await?;
    books(&*store, &upstream, &callers, (status, resolution)).await
}

/// What is not as it had to be.
async fn books(
    store: &dyn Store,
    upstream: &Upstream,
    callers: &BTreeMap<(u16, &'static str), usize>,
    refund: (u16, Resolution),
) -> Story<Vec<String>> {
    let mut differences = Vec::new();
    let mut expect = |what: &str, is: usize, expected: usize| {
        println!("{what:<52} {is:>4}");
        if is != expected {
            differences.push(format!("{what}: {is}, and not {expected}"));
        }
    };
    println!();
    let told = callers.get(&(503, "escalated")).copied().unwrap_or(0);
    expect("callers who were told: failed, and recorded", told, ORDERS);
    let solved = usize::from(refund == (201, Resolution::RecoveredByRetry));
    expect("callers whose question was answered", solved, 1);
    let stats = store.stats().await?;
    let count = |state| usize::try_from(stats.of(state)).unwrap_or(usize::MAX);
    expect("letters driven again", count(LetterState::Redriven), ORDERS);
    expect("letters decided", count(LetterState::Decided), 1);
    expect("letters open", count(LetterState::Open), 0);
    let letters = store.list(Filter::any(), None, u32::MAX).await?.letters;
    expect("letters in all", letters.len(), ORDERS + 1);
    let secret = "s3cr3t-of-the-shop";
    let leaks = letters.iter().filter_map(|letter| serde_json::to_string(letter).ok());
    expect("letters with a secret in them", leaks.filter(|l| l.contains(secret)).count(), 0);
    let book = upstream.book();
    let once = book.values().filter(|(times, _)| *times == 1).count();
    expect("orders and refunds carried out, each once", once, ORDERS + 1);
    let ids: Vec<_> = letters.iter().map(|letter| letter.id().to_string()).collect();
    let known = book.values().filter(|(_, keys)| matches!(&keys[..], [key] if ids.contains(key)));
    expect("orders that came under their letter's id", known.count(), ORDERS);
    Ok(differences)
}
