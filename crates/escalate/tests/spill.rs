//! A store that fails, the file behind it, and the store again.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Broken, Moody, Order, always, classifier, to_human};
use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_triage_core::incident::scope;
use tower_triage_core::{Backoff, ErrorClass, Resolution};
use tower_triage_escalate::store::{Filter, Store, StoreSink};
use tower_triage_escalate::{
    Captured, Desk, DeskPolicy, EscalateLayer, EscalatePolicy, JsonLinesSink, Receiver, ReplayError,
};

struct World {
    folder: tempfile::TempDir,
    store: Arc<Moody>,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store: Arc::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("spill.jsonl")
    }

    fn down(&self, down: bool) {
        self.store.down.store(down, Ordering::SeqCst);
    }

    /// Fails `ids`, store first and file last; gives how each call's incident ended.
    async fn fail(&self, ids: &[&'static str]) -> Vec<Resolution> {
        let receiver = Receiver::new("human")
            .record(StoreSink::new(self.store.clone()))
            .record(JsonLinesSink::open(self.path()).unwrap());
        let quick = DeskPolicy::new().tries(2).backoff(Backoff::immediate());
        let desk = Desk::with_policy(quick, to_human(), [receiver]).unwrap();
        let layer = EscalateLayer::new(classifier(), desk)
            .policy(EscalatePolicy::new().wait(Duration::from_secs(60)))
            .enrich(|escalation| {
                let request = Captured::new("json", json!({"id": escalation.context.request_id}));
                escalation.request = Some(Arc::new(request));
            });
        let mut ends = Vec::new();
        for id in ids {
            let service = layer.layer(always(|| Err(Broken(ErrorClass::Transient, "reset"))));
            let (outcome, incident) = scope(service.oneshot(Order::with_id(id))).await;
            outcome.unwrap_err();
            ends.push(incident.unwrap().resolution);
        }
        ends
    }

    async fn stored(&self) -> Vec<(String, serde_json::Value)> {
        let page = self.store.list(Filter::any(), None, 100).await.unwrap();
        let mut found: Vec<_> = page
            .letters
            .into_iter()
            .map(|l| (l.escalation.context.request_id.unwrap(), l.request.unwrap().data))
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }
}

fn cut(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().append(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - bytes).unwrap();
}

#[tokio::test]
async fn kf53_a_store_that_fails_is_followed_by_the_file_and_replayed_into_at_the_next_start() {
    let world = World::new();
    assert_eq!(world.fail(&["a"]).await, [Resolution::Escalated]);
    world.down(true);
    assert_eq!(world.fail(&["b", "c", "d"]).await, [Resolution::Escalated; 3]);
    assert_eq!(world.stored().await.len(), 1);
    // The process dies while it writes the last one; the store is still down at the next start.
    cut(&world.path(), 10);
    let before = fs::read(world.path()).unwrap();
    let failed = JsonLinesSink::replay(world.path(), &*world.store).await.unwrap_err();
    assert!(matches!(failed, ReplayError::Store(_)), "{failed}");
    assert_eq!(fs::read(world.path()).unwrap(), before, "nothing is lost by trying");

    world.down(false);
    let replayed = JsonLinesSink::replay(world.path(), &*world.store).await.unwrap();
    assert_eq!((replayed.stored, replayed.known, replayed.skipped), (2, 0, 1));
    let ids = ["a", "b", "c"].map(|id| (id.to_owned(), json!({"id": id})));
    assert_eq!(world.stored().await, ids, "each once, with its request");
    assert_eq!(fs::read(world.path()).unwrap(), b"");
    let beside = fs::read_to_string(world.folder.path().join("spill.jsonl.unreadable")).unwrap();
    assert!(beside.contains(r#""request_id":"d""#), "half a record is not thrown away");
    // Once more, and with what a crash between storing and emptying leaves behind.
    fs::write(world.path(), before).unwrap();
    let replayed = JsonLinesSink::replay(world.path(), &*world.store).await.unwrap();
    assert_eq!((replayed.stored, replayed.known), (0, 2));
    assert_eq!(world.stored().await.len(), 3);
}

#[tokio::test]
async fn without_a_file_there_is_nothing_to_replay() {
    let world = World::new();
    let replayed = JsonLinesSink::replay(world.path(), &*world.store).await.unwrap();
    assert_eq!((replayed.stored, replayed.skipped), (0, 0));
    assert!(!world.path().exists());
    let folder = JsonLinesSink::replay(world.folder.path(), &*world.store).await.unwrap_err();
    assert!(matches!(folder, ReplayError::File(_)), "{folder}");
}
