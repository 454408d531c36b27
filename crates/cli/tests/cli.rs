//! The binary over a real file: every command, every exit code.

mod server;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tower_triage_core::incident::IncidentId;
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::{Change, LeaseRequest, Letter, LetterState, Store};
use tower_triage_escalate::{Codec, Decision, Escalation, JsonCodec, Timestamp};
use tower_triage_http::HttpCodec;

use self::server::{Seen, Server};

const SECRET: &str = "hunter2hunter2";

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn id(n: u32) -> IncidentId {
    // The first digits differ, as those of chance do.
    IncidentId::from_bits(u128::from(n) << 96 | u128::from(n))
}

fn escalation(n: u32) -> Escalation {
    let now = now();
    serde_json::from_value(json!({
        "schema": 1, "id": id(n), "task_type": "look", "priority": "high", "from": "shop",
        "to": ["ops"], "operation": "orders.create", "outcome": "failed", "class": "Transient",
        "reason": "transient", "fingerprint": "00000000000000aa",
        "summary": format!("order {n} failed \u{1b}[31mred"), "detail": "connection reset",
        "attempts": [{ "number": 1, "strategy": "call", "delay_ms": 0, "result": "reset" }],
        "impact": "an order is missing", "suggestion": "look at it", "context": {},
        "first_time": now, "last_time": now, "count": 1,
    }))
    .unwrap()
}

fn asking(n: u32) -> Escalation {
    let mut escalation = escalation(n);
    let question = json!({
        "text": "again?", "deadline": now().plus(Duration::from_secs(600)), "on_timeout": "abort",
        "options": [{ "label": "yes", "decision": "retry" }, { "label": "no", "decision": "abort" }],
    });
    escalation.question = Some(serde_json::from_value(question).unwrap());
    escalation
}

fn request(n: u32, target: &str) -> http::Request<Full<Bytes>> {
    http::Request::post(format!("{target}/orders/{n}?draft=1"))
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {SECRET}"))
        .body(Full::new(Bytes::from(format!(r#"{{"order": {n}, "note": "body-of-it"}}"#))))
        .unwrap()
}

fn captured(n: u32, target: &str) -> Escalation {
    let mut escalation = escalation(n);
    escalation.request = Some(Arc::new(HttpCodec::new().encode(&request(n, target)).unwrap()));
    escalation
}

/// A file, open here too, as it is in the service beside which the tool works.
struct World {
    _home: TempDir,
    path: PathBuf,
    store: SqliteStore,
}

impl World {
    async fn new(letters: impl IntoIterator<Item = Escalation>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("letters.db");
        let store = SqliteStore::open(&path).unwrap();
        for letter in letters {
            store.put(letter).await.unwrap();
        }
        Self { _home: home, path, store }
    }

    async fn letter(&self, n: u32) -> Letter {
        self.store.get(id(n)).await.unwrap().unwrap()
    }

    async fn run(&self, args: &[&str]) -> Ran {
        run(&self.path, args).await
    }

    async fn json(&self, args: &[&str]) -> Vec<Value> {
        let mut all = vec!["--json"];
        all.extend(args);
        self.run(&all).await.json()
    }
}

fn triage(path: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_triage"));
    command.env_remove("TRIAGE_STORE").env("USER", "ann").arg("--store").arg(path).args(args);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(path: &Path, args: &[&str]) -> Ran {
    Ran::of(triage(path, args).output().await.unwrap())
}

/// What a run left behind.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        Self { code: output.status.code().expect("it ended by itself"), out, err }
    }

    fn ends(&self, code: i32, says: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.out.contains(says) || self.err.contains(says), "{says}: {self:?}");
    }

    fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn list_shows_people_a_table_and_programs_every_letter() {
    let world = World::new((1..=3).map(|n| captured(n, "http://shop.example"))).await;
    let ran = world.run(&["list"]).await;
    ran.ends(0, "orders.create");
    assert_eq!(ran.out.lines().count(), 4, "{ran:?}");
    let short = id(1).to_string()[..13].to_owned();
    assert!(ran.out.contains(&short) && ran.out.contains("Transient") && ran.out.contains("open"));
    assert!(!ran.out.contains('\u{1b}'), "nothing that a terminal obeys");
    let ran = world.run(&["list", "--limit", "2"]).await;
    ran.ends(0, "there are more: --after 2");
    let ran = world.run(&["list", "--after", "2"]).await;
    assert_eq!(ran.out.lines().count(), 2);

    let letters = world.json(&["list"]).await;
    assert_eq!(letters.len(), 3);
    for (n, letter) in (1..).zip(letters) {
        assert_eq!((&letter["id"], &letter["seq"]), (&json!(id(n)), &json!(n)));
        assert_eq!(letter["request"], json!({ "codec": "http", "redacted": [] }));
        // Any letter can be read back by who knows the type.
        let mut document = letter.clone();
        document.as_object_mut().unwrap().remove("request");
        let again: Letter = serde_json::from_value(document).unwrap();
        let mut stored = world.letter(n).await;
        stored.request = None;
        assert_eq!(again, stored);
    }
}

#[tokio::test]
async fn a_filter_says_which() {
    let mut refund = escalation(4);
    refund.operation = "orders.refund".to_owned();
    refund.class = tower_triage_core::ErrorClass::Quota;
    let world = World::new([escalation(1), asking(2), refund]).await;
    world.run(&["discard", &id(1).to_string()]).await.ends(0, "is discarded");
    let ids = |letters: Vec<Value>| letters.iter().map(|l| l["id"].clone()).collect::<Vec<_>>();
    for (args, found) in [
        (vec!["list"], vec![2, 4]),
        (vec!["list", "--state", "discarded"], vec![1]),
        (vec!["list", "--state", "discarded", "--state", "open"], vec![1, 2, 4]),
        (vec!["list", "--class", "quota"], vec![4]),
        (vec!["list", "--operation", "*.create"], vec![2]),
        (vec!["list", "--asking"], vec![2]),
        (vec!["list", "--receiver", "nobody"], vec![]),
        (vec!["list", "--from", "sh*"], vec![2, 4]),
        (vec!["list", "--fingerprint", "00000000000000aa"], vec![2, 4]),
        (vec!["list", "--before", "1h"], vec![]),
        (vec!["list", "--since", "1h"], vec![2, 4]),
        (vec!["list", "--since", "2026-03-01T12:00:00Z", "--limit", "1"], vec![2]),
    ] {
        let found: Vec<_> = found.into_iter().map(|n| json!(id(n))).collect();
        assert_eq!(ids(world.json(&args).await), found, "{args:?}");
    }
    world.run(&["list", "--receiver", "nobody"]).await.ends(0, "no letters");
    world.run(&["list", "--class", "x"]).await.ends(2, "Throttled");
    world.run(&["list", "--fingerprint", "x"]).await.ends(2, "16 hexadecimal digits");
}

#[tokio::test]
async fn show_tells_all_but_the_request() {
    let world = World::new([captured(1, "http://shop.example")]).await;
    let ran = world.run(&["show", &id(1).to_string()]).await;
    ran.ends(0, "an order is missing");
    for part in ["connection reset", "look at it", "captured by http; --request shows it", "stored"]
    {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    assert!(!ran.out.contains("body-of-it") && !ran.out.contains('\u{1b}'));
    let ran = world.run(&["show", "00000001", "--request"]).await;
    ran.ends(0, "body-of-it");
    assert!(!ran.out.contains(SECRET));
    let [letter] = &*world.json(&["show", "00000001", "--request"]).await else { panic!() };
    let again: Letter = serde_json::from_value(letter.clone()).unwrap();
    assert_eq!(again, world.letter(1).await, "the whole document");
}

#[tokio::test]
async fn the_proof_of_a_lease_is_nobodys_business() {
    let world = World::new([escalation(1)]).await;
    let leased = world.store.lease(LeaseRequest::new("bob", 1)).await.unwrap();
    let token = json!(leased[0].lease.as_ref().unwrap().token);
    let ran = world.run(&["--json", "show", "00000001"]).await;
    assert!(!ran.out.contains(token.as_str().unwrap()), "{ran:?}");
    assert_eq!(ran.json()[0]["lease"]["owner"], "bob");
}

#[tokio::test]
async fn an_id_may_be_cut_as_long_as_it_is_one() {
    let world = World::new([escalation(0x1234_0001), escalation(0x1234_0002)]).await;
    world.run(&["show", "12340001"]).await.ends(0, "order");
    world.run(&["show", "1234-0002"]).await.ends(0, "order");
    world.run(&["show", "1234"]).await.ends(4, "more than one letter's id begins with 1234");
    world.run(&["show", "9999"]).await.ends(4, "there is no letter whose id begins with 9999");
    world.run(&["show", "123"]).await.ends(4, "4 digits at least");
    world.run(&["show", "../x"]).await.ends(4, "neither an id nor the beginning of one");
    world.run(&["show", &id(9).to_string()]).await.ends(4, "there is no letter");
}

#[tokio::test]
async fn stats_counts() {
    let world = World::new([escalation(1), escalation(2), asking(3)]).await;
    world.run(&["discard", "00000001", "--why", "test"]).await.ends(0, "is discarded");
    let ran = world.run(&["stats"]).await;
    ran.ends(0, "that ask something");
    assert!(ran.out.contains("the oldest open one was stored"));
    let [stats] = &*world.json(&["stats"]).await else { panic!() };
    assert_eq!(stats["total"], 3);
    assert_eq!(stats["by_state"], json!({ "open": 2, "discarded": 1 }));
    assert_eq!((&stats["asking"], &stats["leased"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn decide_answers_once() {
    let world = World::new([asking(1), asking(2), asking(3), escalation(4)]).await;
    let ran = world.run(&["decide", "00000001", "choose", "2", "--why", "too old"]).await;
    ran.ends(0, "is answered: abort");
    let letter = world.letter(1).await;
    let answer = letter.answer.as_ref().unwrap();
    assert_eq!((&answer.decision, &*answer.by, &*answer.why), (&Decision::Abort, "ann", "too old"));

    let [letter] =
        &*world.json(&["--by", "bob", "decide", "00000002", "retry-with", r#"{"n":1}"#]).await
    else {
        panic!()
    };
    assert_eq!(letter["answer"]["decision"], json!({ "retry_with": { "n": 1 } }));
    let late = world.run(&["decide", "00000002", "retry"]).await;
    late.ends(5, "`bob` has answered already");
    world.run(&["decide", "00000003", "respond", r#""sold out""#]).await.ends(0, "respond");
    assert_eq!(world.letter(3).await.state, LetterState::Decided);

    world.run(&["decide", "00000004", "retry"]).await.ends(5, "it asks nothing");
    world.run(&["decide", "00000004", "choose", "1"]).await.ends(2, "from 1 to 0");
    world.run(&["decide", "00000003", "choose", "x"]).await.ends(2, "from 1 to 2");
    world.run(&["decide", "00000003", "respond"]).await.ends(2, "needs a value");
    world.run(&["decide", "00000003", "respond", "{"]).await.ends(2, "is not JSON");
    world.run(&["decide", "00000003", "retry", "1"]).await.ends(2, "takes no value");
    world.run(&["decide", "00000003", "maybe"]).await.ends(2, "possible values");
    world.run(&["decide", "0000000f", "retry"]).await.ends(4, "no letter");
}

#[tokio::test]
async fn of_two_who_decide_one_wins_and_the_other_hears_who() {
    for round in 1..=5 {
        let world = World::new([asking(round)]).await;
        let id = id(round).to_string();
        let (ann, bob) =
            (["--by", "ann", "decide", &id, "retry"], ["--by", "bob", "decide", &id, "abort"]);
        let (ann, bob) = tokio::join!(world.run(&ann), world.run(&bob));
        let (winner, loser) = if ann.code == 0 { ("ann", bob) } else { ("bob", ann) };
        loser.ends(5, &format!("`{winner}` has answered already"));
        assert_eq!(world.letter(round).await.answer.unwrap().by, winner);
    }
}

#[tokio::test]
async fn discard_and_reopen_tell_of_each_letter() {
    let world = World::new((1..=4).map(escalation)).await;
    world.run(&["discard"]).await.ends(2, "which letters?");
    world.run(&["discard", "00000001", "--state", "open"]).await.ends(2, "either ids or a filter");
    world
        .run(&["discard", "--state", "open"])
        .await
        .ends(2, "Discard 4 letters? Say so with --yes");
    world.run(&["discard", "00000001", "--why", "a test"]).await.ends(0, "is discarded");
    let event = world.letter(1).await.history.pop().unwrap();
    assert_eq!((&*event.what, &*event.by, &*event.note), ("discarded", "ann", "a test"));
    world.run(&["discard", "00000001"]).await.ends(5, "it is settled: discarded");
    world.run(&["discard", "00000001", "00000002", "--yes"]).await.ends(1, "1 of 2 letters failed");
    world.store.lease(LeaseRequest::new("bob\u{1b}", 1).ids([id(3)])).await.unwrap();
    world.run(&["discard", "00000003"]).await.ends(5, "`bob\u{fffd}` works on it");
    world.run(&["reopen", "00000004"]).await.ends(5, "it is open");
    world.run(&["reopen", "--state", "discarded", "--yes"]).await.ends(0, "is open");
    assert_eq!(world.letter(1).await.state, LetterState::Open);
    let reopened = world.json(&["discard", "00000001", "00000002", "--yes"]).await;
    assert_eq!(reopened.len(), 2);
    assert_eq!(reopened[1]["state"], "discarded");
}

#[tokio::test]
async fn redrive_sends_what_was_captured_and_settles() {
    let server = Server::start(|n, _| if n == 2 { 503 } else { 200 }).await;
    let world = World::new((1..=3).map(|n| captured(n, "http://shop.invalid"))).await;
    let to = server.url("/v2/");
    let args = ["redrive", "--state", "open", "--to", &to, "--header-env", "authorization=TOKEN"];
    let ran = triage(&world.path, &[&args[..], &["--yes", "--rate", "1000"]].concat())
        .env("TOKEN", "Bearer fresh")
        .output()
        .await
        .unwrap();
    let ran = Ran::of(ran);
    ran.ends(1, "2 redriven, 1 failed");
    assert!(ran.out.contains(&format!("{} failed: Transient", id(2))), "{ran:?}");
    assert!(ran.err.contains("1 of 3 letters failed"));
    let mut seen = server.seen();
    seen.sort_by_key(|seen| seen.target.clone());
    assert_eq!(seen.len(), 3);
    for (n, seen) in (1..).zip(seen) {
        let Seen { method, target, headers, body } = seen;
        assert_eq!((&*method, target), ("POST", format!("/v2/orders/{n}?draft=1")));
        assert_eq!(headers["idempotency-key"], id(n).to_string());
        assert_eq!(headers["authorization"], "Bearer fresh");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(body, format!(r#"{{"order": {n}, "note": "body-of-it"}}"#));
    }
    assert_eq!(world.letter(1).await.state, LetterState::Redriven);
    let letter = world.letter(2).await;
    assert_eq!((letter.state, letter.tries), (LetterState::Open, 1));
    assert!(letter.history.iter().any(|event| event.by == "triage redrive by ann"));
}

#[tokio::test]
async fn redrive_tells_programs_of_each_letter() {
    let server = Server::start(|n, _| [200, 400, 302][n as usize - 1]).await;
    let mut none = escalation(4);
    none.request = None;
    let letters = (1..=3).map(|n| captured(n, &server.url("")));
    let world = World::new(letters.chain([none])).await;
    let ran = world.run(&["--json", "redrive", "--operation", "*", "--yes", "--rate", "inf"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let mut lines = ran.json();
    let progress = lines.pop().unwrap()["progress"].clone();
    assert_eq!((&progress["redriven"], &progress["parked"]), (&json!(1), &json!(2)));
    let fate = |n: u32| lines.iter().find(|line| line["id"] == json!(id(n))).unwrap().clone();
    assert_eq!(fate(1), json!({ "id": id(1), "fate": "redriven" }));
    assert_eq!(fate(2)["fate"], "parked", "the same again gets the same answer");
    assert_eq!(fate(3)["fate"], "parked", "a redirect is no success");
    assert_eq!((&fate(4)["fate"], &progress["skipped"]), (&json!("skipped"), &json!(1)));
    assert_eq!(fate(4)["why"], "no request was captured");
    assert_eq!(world.letter(4).await.state, LetterState::Open, "left as it is");
    world.run(&["redrive", "00000004"]).await.ends(1, "cannot be sent: no request was captured");

    // Parked letters are sent when they are named.
    let parked = world.run(&["redrive", "00000002"]).await;
    parked.ends(1, "1 of 1 letters failed");
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn a_dry_run_shows_and_does_nothing() {
    let server = Server::start(|_, _| 200).await;
    let other = JsonCodec::new().encode(&1).unwrap();
    let mut foreign = escalation(3);
    foreign.request = Some(Arc::new(other));
    let letters = [captured(1, &server.url("")), captured(2, &server.url("")), foreign];
    let world = World::new(letters).await;
    let ran = world.run(&["redrive", "--state", "open", "--dry-run"]).await;
    ran.ends(1, &format!("{} would send POST {}/orders/1?draft=1", id(1), server.url("")));
    assert!(
        ran.out.contains("cannot be sent: the request was captured by codec `json`"),
        "{ran:?}"
    );
    let lines =
        world.json(&["redrive", "00000001", "--dry-run", "--to", "https://b.example/x"]).await;
    let target = "https://b.example/x/orders/1?draft=1";
    let would = json!({ "id": id(1), "would": "send", "method": "POST", "target": target });
    assert_eq!(lines, [would]);
    assert_eq!(server.seen().len(), 0);
    for n in 1..=3 {
        assert_eq!((world.letter(n).await.tries, world.letter(n).await.history.len()), (0, 1));
    }
}

#[tokio::test]
async fn redrive_refuses_what_cannot_be_meant() {
    let mut relative = escalation(3);
    let bare = HttpCodec::new().encode(&request(3, "")).unwrap();
    relative.request = Some(Arc::new(bare));
    let letters =
        [captured(1, "http://a.example"), captured(2, "http://b.example"), relative, asking(4)];
    let world = World::new(letters).await;
    world.run(&["redrive"]).await.ends(2, "which letters?");
    world
        .run(&["redrive", "00000001", "00000002"])
        .await
        .ends(2, "Send 2 requests? Say so with --yes");
    let spread = ["redrive", "00000001", "00000002", "--yes", "--header", "authorization: x"];
    world.run(&spread).await.ends(2, "more than one server");
    world.run(&["redrive", "00000003"]).await.ends(2, "say where to with --to");
    world.run(&["redrive", "00000001", "--to", "/x"]).await.ends(2, "http or https, a host");
    world.run(&["redrive", "00000001", "--header", "x"]).await.ends(2, "`name: value`");
    world.run(&["redrive", "00000001", "--header-env", "x=NO_SUCH"]).await.ends(2, "is not set");
    world.run(&["redrive", "00000001", "--rate", "0"]).await.ends(2, "`rate` is 0");
    world.run(&["redrive", "00000004"]).await.ends(5, "waits for an answer");
    world.run(&["redrive", "--asking"]).await.ends(0, "no letters");
    world.run(&["redrive", "0000000f"]).await.ends(4, "no letter");
    world.store.lease(LeaseRequest::new("bob", 1).ids([id(1)])).await.unwrap();
    world.run(&["redrive", "00000001"]).await.ends(5, "`bob` works on letter");
    let why = String::new();
    let discarded = Change::Discarded { by: "bob".to_owned(), why };
    world.store.change(id(2), discarded).await.unwrap();
    world.run(&["redrive", "00000002"]).await.ends(5, "is settled: discarded");
    assert!(world.letter(1).await.tries == 1, "bob's");
}

#[tokio::test]
async fn an_interrupted_redrive_gives_back_what_it_has_not_begun() {
    let server = Server::start(|_, _| 200).await;
    let world = World::new((1..=8).map(|n| captured(n, &server.url("")))).await;
    let args = ["redrive", "--state", "open", "--yes", "--rate", "2", "--concurrency", "8"];
    let child =
        triage(&world.path, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    server.wait(1).await;
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    let ran = Ran::of(child.wait_with_output().await.unwrap());
    ran.ends(1, "not tried");
    assert_eq!(world.store.stats().await.unwrap().leased, 0);
    let sent = server.seen().len() as u64;
    assert_eq!(world.store.stats().await.unwrap().of(LetterState::Redriven), sent);
}

#[tokio::test]
async fn tail_shows_the_last_and_then_what_comes() {
    let world = World::new((1..=5).map(escalation)).await;
    let mut child = triage(&world.path, &["--json", "tail", "--lines", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for n in [4, 5] {
        let letter: Value =
            serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!(letter["id"], json!(id(n)));
    }
    world.store.put(escalation(6)).await.unwrap();
    let letter: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(letter["id"], json!(id(6)));

    // Whoever reads goes away: the tool ends with the next letter, without a word.
    drop(lines);
    world.store.put(escalation(7)).await.unwrap();
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_reader_that_has_read_enough_is_no_failure() {
    let world = World::new((1..=2000).map(escalation)).await;
    let mut child = triage(&world.path, &["--json", "list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap().unwrap();
    drop(lines);
    let ran = Ran::of(child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, &*ran.err), (0, ""));
}

#[tokio::test]
async fn without_a_store_it_says_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("nothing.db");
    run(&missing, &["list"]).await.ends(3, "there is no file");
    assert!(!missing.exists(), "it is not made");
    let other = home.path().join("letter.txt");
    std::fs::write(&other, "Dear Sir or Madam, ".repeat(100)).unwrap();
    run(&other, &["list"]).await.ends(3, "is not a store of dead letters");
    let none = Command::new(env!("CARGO_BIN_EXE_triage"))
        .env_remove("TRIAGE_STORE")
        .arg("list")
        .output()
        .await
        .unwrap();
    Ran::of(none).ends(2, "which store?");
    run(&missing, &["lost"]).await.ends(2, "unrecognized subcommand");
    run(&missing, &["--help"]).await.ends(0, "Exit codes:");

    let world = World::new([escalation(1)]).await;
    let by_environment = Command::new(env!("CARGO_BIN_EXE_triage"))
        .env("TRIAGE_STORE", &world.path)
        .arg("list")
        .output()
        .await
        .unwrap();
    Ran::of(by_environment).ends(0, "orders.create");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_server_out_of_reach_is_named_without_its_password() {
    let url = format!("postgres://me:{SECRET}@127.0.0.1:1/letters");
    let ran = run(Path::new(&url), &["list"]).await;
    ran.ends(3, "the store failed");
    assert!(!ran.err.contains(SECRET), "{ran:?}");
}

/// The same over a database; its tests are left out where those of the store are.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_database_serves_as_well_as_a_file() {
    use tower_triage_dead_letter_postgres::PostgresStore;
    use tower_triage_test_support::postgres::PostgresServer;

    let Some(database) = PostgresServer::own(&[]) else { return };
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", database.port());
    let store = PostgresStore::connect(&url).await.unwrap();
    let server = Server::start(|_, _| 200).await;
    for letter in [captured(1, &server.url("")), asking(2), escalation(3)] {
        store.put(letter).await.unwrap();
    }
    let place = Path::new(&url);
    let ran = run(place, &["--json", "list"]).await;
    assert_eq!(ran.json().len(), 3, "{ran:?}");
    let (ann, bob) =
        (["decide", "00000002", "retry"], ["--by", "bob", "decide", "00000002", "abort"]);
    let (ann, bob) = tokio::join!(run(place, &ann), run(place, &bob));
    let (winner, loser) = if ann.code == 0 { ("ann", bob) } else { ("bob", ann) };
    loser.ends(5, &format!("`{winner}` has answered already"));
    run(place, &["redrive", "00000001"]).await.ends(0, "1 redriven");
    run(place, &["discard", "00000003"]).await.ends(0, "is discarded");
    assert_eq!(store.get(id(1)).await.unwrap().unwrap().state, LetterState::Redriven);

    let mut tail = triage(place, &["--json", "tail"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    for _ in 1..=3 {
        lines.next_line().await.unwrap().unwrap();
    }
    store.put(escalation(4)).await.unwrap();
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.contains(&id(4).to_string()), "{line}");
}

#[tokio::test]
async fn a_locked_file_is_said_to_be_locked() {
    let world = World::new([asking(1)]).await;
    let other = rusqlite::Connection::open(&world.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.run(&["list"]).await.ends(0, "orders.create");
    world.run(&["decide", "00000001", "retry"]).await.ends(3, "locked");
    other.execute_batch("ROLLBACK").unwrap();
    world.run(&["decide", "00000001", "retry"]).await.ends(0, "is answered");
}
