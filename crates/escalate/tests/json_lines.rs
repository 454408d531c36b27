//! A file of escalations survives what files go through.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use common::{Broken, Order, always, classifier, to_human};
use tower::{Layer, ServiceExt};
use tower_triage_core::ErrorClass;
use tower_triage_escalate::{
    Desk, EscalateLayer, EscalatePolicy, Escalation, JsonLinesSink, Receiver,
};

/// Fails `ids` one after the other, with the file at `path` as the only sink.
async fn fail(path: &Path, ids: &[&'static str]) -> JsonLinesSink {
    let sink = JsonLinesSink::open(path).unwrap();
    let desk = Desk::new(to_human(), [Receiver::new("human").record(sink.clone())]).unwrap();
    let layer = EscalateLayer::new(classifier(), desk.clone())
        .policy(EscalatePolicy::new().wait(Duration::from_secs(60)));
    for id in ids {
        let service = layer.layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
        service.oneshot(Order::with_id(id)).await.unwrap_err();
    }
    assert_eq!(desk.counts().delivered, ids.len() as u64);
    sink
}

/// The request ids of the records, and how many lines are none.
fn read(path: &Path) -> (Vec<String>, usize) {
    let text = fs::read_to_string(path).unwrap();
    let records = text.lines().map(serde_json::from_str::<Escalation>);
    let (good, bad): (Vec<_>, Vec<_>) = records.partition(Result::is_ok);
    let ids = good.into_iter().filter_map(|record| record.unwrap().context.request_id);
    (ids.collect(), bad.len())
}

#[tokio::test]
async fn records_are_there_when_the_caller_hears_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("escalations.jsonl");
    let sink = fail(&path, &["a", "b"]).await;
    assert_eq!(sink.skipped(), 0);
    assert_eq!(read(&path), (vec!["a".into(), "b".into()], 0));
}

#[tokio::test]
async fn kf54_a_half_written_last_record_is_skipped_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("escalations.jsonl");
    drop(fail(&path, &["a", "b"]).await);
    let length = fs::metadata(&path).unwrap().len();
    for cut in [1, 100] {
        let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.set_len(length - cut).unwrap();
        let expected = match cut {
            // Only the end of the line is missing: the record is whole, and known.
            1 => (vec!["a".into(), "b".into(), "c".into()], 0),
            _ => (vec!["a".into(), "b".into(), "c".into()], 1),
        };
        let sink = fail(&path, &["b", "c"]).await;
        assert_eq!(sink.skipped() > 0, cut > 1);
        assert_eq!(read(&path), expected, "cut {cut}");
    }
    // Found again, it is an old story.
    assert_eq!(JsonLinesSink::open(&path).unwrap().skipped(), 0);
    // Rubbish that is not even text is no obstacle either.
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\xff\xfe{").unwrap();
    assert_eq!(JsonLinesSink::open(&path).unwrap().skipped(), 3);
}

#[tokio::test]
async fn kf55_one_record_per_id() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("escalations.jsonl");
    fail(&path, &["a", "a", "b"]).await;
    fail(&path, &["a", "c"]).await;
    assert_eq!(read(&path), (vec!["a".into(), "b".into(), "c".into()], 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_one_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("escalations.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap();
    let desk = Desk::new(to_human(), [Receiver::new("human").record(sink)]).unwrap();
    let calls = (0..64).map(|_| {
        let service = EscalateLayer::new(classifier(), desk.clone())
            .policy(EscalatePolicy::new().wait(Duration::from_secs(60)))
            .layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
        tokio::spawn(async move { service.oneshot(Order::default()).await.unwrap_err() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().filter(|l| serde_json::from_str::<Escalation>(l).is_ok()).count(), 64);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(JsonLinesSink::open(folder.path()).is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_moved_away_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("a.jsonl"), folder.path().join("b.jsonl"));
    let sink = JsonLinesSink::open(&path).unwrap();
    let desk = Desk::new(to_human(), [Receiver::new("human").record(sink)]).unwrap();
    let layer = EscalateLayer::new(classifier(), desk);
    let fail = async |id| {
        let service = layer.layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
        service.oneshot(Order::with_id(id)).await.unwrap_err();
    };
    fail("a").await;
    fs::rename(&path, &moved).unwrap();
    for id in ["b", "a"] {
        fail(id).await;
    }
    assert_eq!(read(&moved), (vec!["a".into()], 0));
    assert_eq!(read(&path), (vec!["b".into(), "a".into()], 0), "what is told is where one looks");
    fs::remove_file(&path).unwrap();
    fail("c").await;
    assert_eq!(read(&path), (vec!["c".into()], 0));
}
