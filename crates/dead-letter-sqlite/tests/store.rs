//! What is special to a file that several may open.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{escalation, id, second};
use futures_util::future::{join_all, try_join_all};
use futures_util::poll;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::time::timeout;
use tower_triage_dead_letter_sqlite::{OpenError, SqliteOptions, SqliteStore};
use tower_triage_escalate::WallClock;
use tower_triage_escalate::store::{
    Change, Filter, LeaseRequest, LetterState, Put, Retention, Store, StoreError,
};

/// Longer than anything takes; who waits for it has failed.
const LONG: Duration = Duration::from_secs(60);

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn discard() -> Change {
    Change::Discarded { by: "ops".to_owned(), why: "test".to_owned() }
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(error @ StoreError::Unavailable(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn letters_outlive_the_store_with_their_request_and_what_became_of_them() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = SqliteStore::open(&path).unwrap();
    for number in 1..=3 {
        assert_eq!(store.put(escalation(number, 0)).await.unwrap(), Put::New);
    }
    let leased = store.lease(LeaseRequest::new("w", 1)).await.unwrap();
    store.change(id(2), discard()).await.unwrap();
    store.retain(Retention::new().settled_for(Duration::ZERO).most(1)).await.unwrap();
    drop(store);

    let store = SqliteStore::open_existing(&path).unwrap();
    assert_eq!(store.get(id(1)).await.unwrap(), Some(leased[0].clone()));
    assert_eq!(leased[0].request.as_ref().unwrap().data["number"], 1);
    assert_eq!(store.stats().await.unwrap().dropped, 1, "counted for ever");
    assert_eq!(store.put(escalation(1, 0)).await.unwrap(), Put::Known);
    // A number is not given twice, also if the last letter is gone.
    store.put(escalation(4, 0)).await.unwrap();
    assert_eq!(store.get(id(4)).await.unwrap().unwrap().seq, 4);
}

#[tokio::test]
async fn a_commit_for_many_puts() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = SqliteStore::open(&path).unwrap();
    let before = commits(&path);
    // They come while somebody else writes, so they wait together.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut puts: Vec<_> = (0..200).map(|number| store.put(escalation(number, 0))).collect();
    for put in &mut puts {
        assert!(poll!(put).is_pending());
    }
    other.execute_batch("COMMIT").unwrap();
    assert!(join_all(puts).await.iter().all(|put| matches!(put, Ok(Put::New))));
    let commits = commits(&path) - before;
    assert!((1..=2).contains(&commits), "200 puts took {commits} commits");
}

/// Commits in the write-ahead log: its frames (24 bytes and a page, after 32 bytes) that carry the
/// size of the whole file. See the file format, section 4.1.
fn commits(path: &Path) -> usize {
    let log = std::fs::read(path.with_file_name("store-wal")).unwrap();
    log[32..].chunks_exact(24 + 4096).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn two_stores_on_one_file() {
    let folder = folder();
    let path = folder.path().join("store");
    let opened = join_all((0..4).map(|_| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || SqliteStore::open(path).unwrap())
    }));
    let stores: Vec<_> = opened.await.into_iter().map(Result::unwrap).collect();
    let puts = (0..100).map(|number| stores[number as usize % 4].put(escalation(number % 50, 0)));
    let put = try_join_all(puts).await.unwrap();
    assert_eq!(put.iter().filter(|put| **put == Put::New).count(), 50);

    let leases = stores.iter().map(|store| store.lease(LeaseRequest::new("w", 20)));
    let leased = try_join_all(leases).await.unwrap().concat();
    let mut ids: Vec<_> = leased.iter().map(|letter| letter.id().to_string()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((leased.len(), ids.len()), (50, 50), "each leased once");
    let lease = leased[0].lease.as_ref().unwrap().token;
    stores[3].change(leased[0].id(), Change::Redriven(lease)).await.unwrap();
    assert_eq!(stores[0].stats().await.unwrap().of(LetterState::Redriven), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_writer_gets_its_turn_in_a_storm() {
    let folder = folder();
    let path = folder.path().join("store");
    let service = SqliteStore::open(&path).unwrap();
    let tool = SqliteOptions::new().busy_timeout(Duration::from_secs(2)).open(&path).unwrap();
    let storm: Vec<_> = (0..64)
        .map(|caller| {
            let service = service.clone();
            tokio::spawn(async move {
                for number in 0_u64.. {
                    let number = u128::from(1_000_000 * (caller + 1) + number);
                    service.put(escalation(number, 0)).await.unwrap();
                }
            })
        })
        .collect();
    while tool.stats().await.unwrap().total < 100 {}
    for number in 0..20 {
        tool.put(escalation(number, 0)).await.unwrap();
    }
    storm.iter().for_each(|caller| caller.abort());
}

#[tokio::test]
async fn a_change_is_seen_here_and_in_another_store() {
    let folder = folder();
    let path = folder.path().join("store");
    let (one, other) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    // The first look of a store has nothing to compare with.
    other.changed().await;
    // On a busy machine its looks may be late, but hardly each time.
    let mut number = 0..20;
    loop {
        let number = number.next().expect("it is seen before the second is over");
        let (here, there) = (one.changed(), other.changed());
        one.put(escalation(number, 0)).await.unwrap();
        // Own writes need no look.
        assert!(poll!(here).is_ready());
        if timeout(Duration::from_millis(900), there).await.is_ok() {
            break;
        }
    }
    // Nothing happens: whoever waits may look for themselves after a second or so.
    timeout(LONG, other.changed()).await.unwrap();
}

#[tokio::test]
async fn a_locked_file_fails_changes_in_time_and_no_reads() {
    let folder = folder();
    let path = folder.path().join("store");
    let options = SqliteOptions::new().busy_timeout(Duration::from_millis(50));
    let store = options.open(&path).unwrap();
    store.put(escalation(1, 0)).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let said = unavailable(store.put(escalation(2, 0)).await);
    assert!(said.contains("another process kept the file locked"), "{said}");
    assert!(store.get(id(1)).await.unwrap().is_some());
    assert_eq!(store.stats().await.unwrap().total, 1);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.put(escalation(2, 0)).await.unwrap(), Put::New);

    drop(store);
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let error = options.create(false).open(folder.path().join("store")).unwrap_err();
    assert!(matches!(error, OpenError::Locked(_)), "{error}");
}

#[tokio::test]
async fn a_letter_that_cannot_be_read_is_no_obstacle() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = SqliteStore::open(&path).unwrap();
    for number in 1..=3 {
        store.put(escalation(number, 0)).await.unwrap();
    }
    Connection::open(&path)
        .unwrap()
        .execute_batch("UPDATE letter SET document = '{\"seq\": \"s3cret\"}' WHERE seq = 2")
        .unwrap();
    for result in [
        store.get(id(2)).await.map(drop),
        store.change(id(2), discard()).await.map(drop),
        store.put(escalation(2, 9)).await.map(drop),
    ] {
        let Err(StoreError::Corrupt(what)) = result else { panic!("{result:?}") };
        assert!(what.contains("letter number 2") && !what.contains("s3cret"), "{what}");
    }
    let listed = store.list(Filter::any(), None, 10).await.unwrap();
    assert_eq!(listed.letters.iter().map(|letter| letter.seq).collect::<Vec<_>>(), [1, 3]);
    let all = LeaseRequest::new("w", 10).ids([id(1), id(2), id(1)]);
    assert_eq!(store.lease(all).await.unwrap().len(), 1);
    assert_eq!(store.lease(LeaseRequest::new("w", 10)).await.unwrap().len(), 1);
    // It counts, and retention takes it like any other.
    assert_eq!(store.stats().await.unwrap().total, 3);
    let most = Retention::new().most(1);
    assert_eq!(store.retain(most).await.unwrap().open, 1, "the others are leased");
}

#[tokio::test]
async fn a_lease_that_fails_half_way_leases_nothing_and_costs_nobody_else_anything() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = SqliteStore::open(&path).unwrap();
    for number in 1..=3 {
        store.put(escalation(number, 0)).await.unwrap();
    }
    let other = Connection::open(&path).unwrap();
    let third = "CREATE TRIGGER third BEFORE UPDATE ON letter WHEN new.seq = 3 \
        BEGIN SELECT RAISE(ABORT, 'not this one'); END; BEGIN IMMEDIATE";
    other.execute_batch(third).unwrap();
    // Both are in one transaction.
    let (mut lease, mut put) =
        (store.lease(LeaseRequest::new("w", 3)), store.put(escalation(4, 0)));
    assert!(poll!(&mut lease).is_pending() && poll!(&mut put).is_pending());
    other.execute_batch("COMMIT").unwrap();
    assert!(unavailable(lease.await).contains("not this one"));
    assert_eq!(put.await.unwrap(), Put::New);
    other.execute_batch("DROP TRIGGER third").unwrap();
    let leased = store.lease(LeaseRequest::new("w", 9)).await.unwrap();
    assert_eq!(leased.iter().map(|letter| letter.tries).collect::<Vec<_>>(), [1, 1, 1, 1]);
}

#[tokio::test]
async fn times_are_kept_to_the_millisecond() {
    const TIME: Duration = Duration::from_secs(10);
    const MOMENT: Duration = Duration::from_millis(1);
    let folder = folder();
    let clock = WallClock::stepped(second(0));
    let store = SqliteStore::open(folder.path().join("store")).unwrap().clock(clock.clone());
    store.put(escalation(1, 0)).await.unwrap();
    let request = LeaseRequest::new("w", 1).time(TIME);
    assert_eq!(store.lease(request.clone()).await.unwrap().len(), 1);
    clock.step(TIME - MOMENT);
    assert!(store.lease(request.clone()).await.unwrap().is_empty());
    let all = Retention::new().open_for(Duration::ZERO);
    assert_eq!(store.retain(all).await.unwrap().open, 0, "somebody works on it");
    clock.step(MOMENT);
    assert_eq!(store.lease(request).await.unwrap().len(), 1, "the lease is over");
    clock.step(TIME);
    assert_eq!(store.retain(all).await.unwrap().open, 1, "and the next one");

    store.put(escalation(2, 0)).await.unwrap();
    store.change(id(2), discard()).await.unwrap();
    let old = Retention::new().settled_for(TIME);
    clock.step(TIME);
    assert_eq!(store.retain(old).await.unwrap().settled, 0);
    clock.step(MOMENT);
    assert_eq!(store.retain(old).await.unwrap().settled, 1);
}

#[tokio::test]
async fn a_full_store_says_so_keeps_what_it_has_and_works_again_with_room() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = SqliteOptions::new().max_bytes(200_000).open(&path).unwrap();
    let put = |number| store.put(escalation(number, 0));
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    // Many in one transaction: those that still fit are in it, the others are told.
    for round in 0..8 {
        let numbers = round * 40..(round + 1) * 40;
        let results = join_all(numbers.clone().map(put)).await;
        for (number, result) in numbers.zip(results) {
            match result {
                Ok(_) => stored.push(number),
                error => {
                    assert!(unavailable(error).contains("full"));
                    refused.push(number);
                }
            }
        }
    }
    assert!(stored.len() > 20 && refused.len() > 20, "{} {}", stored.len(), refused.len());
    for number in stored {
        assert!(store.get(id(number)).await.unwrap().is_some(), "{number} was told stored");
    }
    for number in &refused {
        assert!(store.get(id(*number)).await.unwrap().is_none(), "{number} was told not stored");
    }
    store.retain(Retention::new().most(10)).await.unwrap();
    assert_eq!(put(refused[0]).await.unwrap(), Put::New);
}

#[tokio::test]
async fn a_file_that_was_removed_is_no_place_to_store_anything() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = SqliteStore::open(&path).unwrap();
    store.put(escalation(1, 0)).await.unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let said = unavailable(store.put(escalation(2, 0)).await);
    assert!(said.contains("was removed or replaced"), "{said}");
    unavailable(store.get(id(1)).await);
    unavailable(store.stats().await);
    timeout(LONG, store.changed()).await.unwrap();
    // Another one in its place is another store.
    let new = SqliteStore::open(&path).unwrap();
    assert_eq!(new.put(escalation(2, 0)).await.unwrap(), Put::New);
    unavailable(store.put(escalation(3, 0)).await);
}

#[tokio::test]
async fn what_was_queued_is_done_after_the_last_handle_is_gone() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = SqliteStore::open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for number in 0..50 {
        // Nobody waits for the answer.
        assert!(poll!(store.put(escalation(number, 0))).is_pending());
    }
    drop(store);
    other.execute_batch("COMMIT").unwrap();
    drop(other);
    // The last to close the file removes the log.
    let log = path.with_file_name("store-wal");
    let gone = async {
        while log.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, gone).await.expect("the writer ends");
    let store = SqliteStore::open_existing(&path).unwrap();
    assert_eq!(store.stats().await.unwrap().total, 50);
}

#[tokio::test]
async fn retention_in_parts_is_complete() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("store")).unwrap();
    join_all((0..2_500).map(|number| store.put(escalation(number, 0)))).await;
    let dropped = store.retain(Retention::new().most(100)).await.unwrap();
    assert_eq!(dropped.open, 2_400);
    let left = store.list(Filter::any(), None, 1_000).await.unwrap().letters;
    assert_eq!((left.len(), left[0].seq), (100, 2_401), "the oldest went");
    assert_eq!(store.stats().await.unwrap().dropped, 2_400);
}

#[test]
fn files_that_are_no_stores_are_left_alone() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let missing = SqliteStore::open_existing(at("missing")).unwrap_err();
    assert!(matches!(missing, OpenError::Missing(_)) && !at("missing").exists(), "{missing}");

    let text = "not a database, but long enough to be mistaken for one by its size. ".repeat(20);
    std::fs::write(at("text"), &text).unwrap();
    let foreign = Connection::open(at("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE accounts (id INTEGER PRIMARY KEY)").unwrap();
    drop(foreign);
    let before = std::fs::read(at("foreign")).unwrap();
    for name in ["text", "foreign"] {
        let error = SqliteStore::open(at(name)).unwrap_err();
        assert!(matches!(error, OpenError::NotAStore(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(std::fs::read_to_string(at("text")).unwrap(), text);
    assert_eq!(std::fs::read(at("foreign")).unwrap(), before);

    // An empty file becomes a store only where one may be made.
    std::fs::write(at("empty"), "").unwrap();
    let error = SqliteStore::open_existing(at("empty")).unwrap_err();
    assert!(matches!(error, OpenError::NotAStore(_)), "{error}");
    SqliteStore::open(at("empty")).unwrap();

    let error = SqliteStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Failed(..)), "{error}");
    let error = SqliteOptions::new().max_bytes(0).open(at("new")).unwrap_err();
    assert!(error.to_string().contains("max_bytes"), "{error}");
}

#[test]
fn a_newer_schema_is_left_to_a_newer_version() {
    let folder = folder();
    let path = folder.path().join("store");
    drop(SqliteStore::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 1_000, .. }), "{error}");
    assert!(error.to_string().contains("schema 1000"), "{error}");
}
