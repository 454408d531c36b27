//! The file that survives a crash.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use tower_triage_core::{ErrorClass, Failure, Fingerprint, Operation};
use tower_triage_learn::{ImportError, LearnPlan, Learner, OpenError, Remedy, SaveError};

fn kind(text: &str) -> Fingerprint {
    Fingerprint::of(&Operation::EMPTY, &Failure::new(ErrorClass::Unknown), text)
}

fn retry() -> Remedy {
    Remedy::new("retry", ErrorClass::Transient)
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("remedies.jsonl");
    (directory, path)
}

fn open(path: &PathBuf) -> (Learner, u64, u64) {
    let (learner, opened) = Learner::open(path, LearnPlan::default()).unwrap();
    (learner, opened.kinds, opened.skipped)
}

fn teach(learner: &Learner, text: &str, times: u32) {
    for _ in 0..times {
        learner.record(kind(text), retry(), true);
    }
}

/// The writer's thread is not waited for when the learner is dropped: whoever needs the file to be
/// there flushes.
#[tokio::test]
async fn what_was_learned_is_there_after_a_restart() {
    let (_directory, path) = place();
    let (learner, kinds, skipped) = open(&path);
    assert_eq!((kinds, skipped), (0, 0));
    teach(&learner, "a", 9);
    teach(&learner, "b", 2);
    learner.flush().await.unwrap();
    let exported = learner.export();
    // As after a crash: the first learner lives on and has its file open no more than any other.
    let (again, kinds, skipped) = open(&path);
    assert_eq!((kinds, skipped), (2, 0));
    assert_eq!(again.export(), exported);
    assert_eq!(again.advise(kind("a")).unwrap().remedy, retry());
    assert!(again.advise(kind("b")).is_none());
}

/// A crash can come between any two bytes of the new file; the old one is whole until it is replaced.
#[tokio::test]
async fn a_new_file_that_was_not_finished_does_no_harm() {
    let (_directory, path) = place();
    let (learner, ..) = open(&path);
    teach(&learner, "a", 3);
    learner.flush().await.unwrap();
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(".new");
    fs::write(&unfinished, "{\"format\":\"tower-tri").unwrap();
    let (learner, kinds, skipped) = open(&path);
    assert_eq!((kinds, skipped), (1, 0));
    teach(&learner, "b", 1);
    learner.flush().await.unwrap();
    assert_eq!(open(&path).1, 2);
}

/// Cut anywhere, as a copy on a full disk is: what is whole is read, the rest is counted and kept.
#[tokio::test]
async fn a_file_cut_anywhere_is_read_as_far_as_it_goes() {
    let (_directory, path) = place();
    let (learner, ..) = open(&path);
    for text in ["a", "b", "c"] {
        teach(&learner, text, 2);
    }
    let whole = learner.export();
    let header = whole.find('\n').unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let opened = Learner::open(&path, LearnPlan::default());
        if cut > 0 && cut < header {
            assert!(matches!(opened, Err(OpenError::Content(ImportError::NotAMemory))), "{cut}");
            assert_eq!(fs::read_to_string(&path).unwrap(), whole[..cut], "left alone");
            continue;
        }
        let (_, opened) = opened.unwrap();
        let lines = whole[..cut].matches('\n').count().saturating_sub(1) as u64;
        // A last line that only lacks its end is whole.
        let last_is_whole = u64::from(whole[cut..].starts_with('\n') && cut > header);
        let torn = u64::from(cut > header + 1 && !whole[..cut].ends_with('\n')) - last_is_whole;
        assert_eq!((opened.kinds, opened.skipped), (lines + last_is_whole, torn), "{cut}");
    }
    let mut kept = path.into_os_string();
    kept.push(".unreadable");
    assert!(whole.starts_with(&fs::read_to_string(kept).unwrap()));
}

#[tokio::test]
async fn what_cannot_be_meant_is_skipped_and_counted() {
    let (_directory, path) = place();
    let (learner, ..) = open(&path);
    teach(&learner, "a", 1);
    let good = learner.export();
    let line = good.lines().nth(1).unwrap();
    let damaged = [
        good.clone(),
        line.replace("\"worked\":1.0", "\"worked\":-1.0"),
        line.replace("\"worked\":1.0", "\"worked\":1e999"),
        line.replace("Transient", "Permanent"),
        line.replace("Transient", "Unheard"),
        line.replace("\"fingerprint\":\"", "\"fingerprint\":\"x"),
        "\u{0}\u{0}\u{0}".to_owned(),
    ];
    let mut bytes = damaged.join("\n").into_bytes();
    bytes.extend(b"\n\xff\xfe{}\n");
    fs::write(&path, &bytes).unwrap();
    let (learner, kinds, skipped) = open(&path);
    assert_eq!((kinds, skipped), (1, 7));
    assert_eq!(learner.len(), 1);
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let (_directory, path) = place();
    for (content, expected) in [
        ("[package]\nname = \"x\"\n", ImportError::NotAMemory),
        ("{\"format\":\"other\",\"version\":1}\n", ImportError::NotAMemory),
        ("{\"format\":\"tower-triage-memory\",\"version\":2}\n", ImportError::Version(2)),
    ] {
        fs::write(&path, content).unwrap();
        match Learner::open(&path, LearnPlan::default()) {
            Err(OpenError::Content(error)) => assert_eq!(error, expected),
            other => panic!("{content}: {other:?}"),
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(
        Learner::open(directory.path(), LearnPlan::default()),
        Err(OpenError::File(_))
    ));
}

/// Nothing is lost: it is written as soon as that is possible, at the latest when the learner goes.
#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_error_and_is_written_later() {
    let (directory, path) = place();
    let (learner, ..) = open(&path);
    teach(&learner, "a", 1);
    // Where the new file would be there is a directory.
    let new = directory.path().join("remedies.jsonl.new");
    fs::create_dir(&new).unwrap();
    assert!(matches!(learner.flush().await, Err(SaveError::File(_))));
    fs::remove_dir(&new).unwrap();
    drop(learner);
    let written = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // The writer's thread tries again after 5 s, or now.
    tokio::time::timeout(Duration::from_secs(30), written).await.expect("it is written");
    assert_eq!(open(&path).1, 1);
}

#[test]
fn instances_merge_what_they_export() {
    let (a, b) = (Learner::new(LearnPlan::default()), Learner::new(LearnPlan::default()));
    teach(&a, "a", 4);
    teach(&b, "a", 4);
    teach(&b, "b", 8);
    assert!(a.advise(kind("a")).is_none() && b.advise(kind("a")).is_none());
    let imported = a.import(&b.export()).unwrap();
    assert_eq!((imported.kinds, imported.skipped), (2, 0));
    assert!(a.advise(kind("a")).is_some() && a.advise(kind("b")).is_some());
    assert_eq!(a.import("nonsense").unwrap_err(), ImportError::NotAMemory);
    assert_eq!(a.len(), 2);
}

proptest! {
    /// Whatever a file holds: it is read, skipped or refused.
    #[test]
    fn no_text_makes_it_panic(at in 0usize..400, with in any::<u8>(), text in ".{0,80}") {
        let learner = Learner::new(LearnPlan::default());
        teach(&learner, "a", 3);
        teach(&learner, "b", 3);
        let mut bytes = learner.export().into_bytes();
        let place = at % bytes.len();
        bytes[place] = with;
        let damaged = String::from_utf8_lossy(&bytes).into_owned();
        for text in [damaged, text.clone(), learner.export() + &text] {
            let other = Learner::new(LearnPlan::default());
            if let Ok(imported) = other.import(&text) {
                prop_assert!(imported.kinds >= other.len() as u64);
            }
            for kind in [kind("a"), kind("b")] {
                for known in other.known(kind) {
                    prop_assert!((0.0..=1.0).contains(&known.confidence), "{known:?}");
                    prop_assert!(known.worked + known.failed <= 50.0 + 1e-9, "{known:?}");
                }
            }
        }
    }
}
