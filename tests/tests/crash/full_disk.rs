//! No room: not for the store, not for the spill file. And then there is room again.

use std::path::Path;
use std::process::Command;

use tokio::time::timeout;

use super::child::{Child, LONG, Load, Said};
use super::kept::Kept;

/// How much more memory may be in use after thousands of failures that found no room, in kB.
const MEMORY: u64 = 32 * 1024;
const LOAD: Load = Load { tasks: 8, refused: 0, bytes: 3_000 };

/// No file may grow beyond a limit: works everywhere.
#[tokio::test]
async fn the_truth_is_told_when_files_cannot_grow() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // A write beyond the limit is to fail, not to end the process.
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -S -f 2000; exec "$0" "$@""#]);
    shell.arg(env!("CARGO_BIN_EXE_failing"));
    let child = Child::start(shell, folder.path(), LOAD);
    let process = child.id().to_string();
    let spilled = fills_up_and_recovers(child, folder.path(), || {
        run("prlimit", &["--pid", &process, "--fsize=unlimited"])
    })
    .await;
    // The limit is each file's own: what the store has no room for, the spill file has.
    assert!(spilled > 0, "the spill file had its turn");
}

/// A file system that is full. Needs the right to mount one. Whether the store leaves enough room
/// for a record in the spill file is chance here.
#[tokio::test]
async fn the_truth_is_told_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path()) else { return };
    let child = Child::start(Child::program(), folder.path(), LOAD);
    fills_up_and_recovers(child, folder.path(), || disk.grow()).await;
}

/// Gives how many records were spilled.
async fn fills_up_and_recovers(
    mut child: Child,
    folder: &Path,
    make_room: impl FnOnce() -> Result<(), String>,
) -> usize {
    let (mut recorded, mut nowhere) = (Vec::new(), Vec::new());
    let mut memory = None;
    let filling = async {
        while nowhere.len() < 3_000 {
            match child.next().await.expect("it does not end of a full disk") {
                Said::Recorded(id) => recorded.push(id),
                Said::Nowhere(id) => nowhere.push(id),
                Said::Ready | Said::Skipped(_) => {}
                line @ Said::Other(_) => panic!("{line:?}"),
            }
            if nowhere.len() == 300 {
                memory.get_or_insert_with(|| resident(child.id()));
            }
        }
    };
    timeout(LONG, filling).await.expect("the disk is full some time");
    let (before, after) = (memory.expect("300 came before 3000"), resident(child.id()));
    assert!(after < before + MEMORY, "{before} kB, and {after} kB 2700 failures later");
    assert!(recorded.len() > 100, "there was room at first");

    make_room().expect("room can be made");
    let full = recorded.len();
    let recovering = async {
        while recorded.len() < full + 200 {
            match child.next().await.expect("it goes on") {
                Said::Recorded(id) => recorded.push(id),
                Said::Nowhere(id) => nowhere.push(id),
                line => panic!("{line:?}"),
            }
        }
    };
    timeout(LONG, recovering).await.expect("it works again when there is room");
    let mut last = String::new();
    for line in child.end().await {
        match line {
            Said::Recorded(id) => recorded.push(id),
            Said::Nowhere(id) => nowhere.push(id),
            Said::Other(counts) => last = counts,
            line => panic!("{line:?}"),
        }
    }
    assert!(last.contains(" dropped: 0 }, 0 queued"), "{last}");

    let mut kept = Kept::new(folder);
    kept.look().await;
    let spilled = kept.spilled();
    println!(
        "{} recorded ({} spilled), {} nowhere; {before} kB, then {after} kB",
        recorded.len(),
        spilled.len(),
        nowhere.len()
    );
    for id in &recorded {
        let places = u8::from(kept.stored.contains(id)) + u8::from(spilled.contains(id));
        assert_eq!(places, 1, "{id} was told recorded");
    }
    for id in &nowhere {
        let is_there = kept.stored.contains(id) || spilled.contains(id);
        assert!(!is_there, "{id} was told not recorded");
    }
    let all = kept.stored.len() + spilled.len();
    assert_eq!(all, recorded.len(), "whoever has a record was told so");
    spilled.len()
}

/// Memory in use, in kB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A file system of 2 MB; unmounted when dropped.
struct Disk<'a> {
    path: &'a str,
}

impl<'a> Disk<'a> {
    fn mount(path: &'a Path) -> Option<Self> {
        let path = path.to_str().expect("a temporary folder has a plain name");
        match run("mount", &["-t", "tmpfs", "-o", "size=2m", "tmpfs", path]) {
            Ok(()) => Some(Self { path }),
            Err(why) => {
                eprintln!("SKIPPED, not passed: no file system may be mounted here: {why}");
                None
            }
        }
    }

    fn grow(&self) -> Result<(), String> {
        run("mount", &["-o", "remount,size=200m", self.path])
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if let Err(why) = run("umount", &["-l", self.path]) {
            eprintln!("{why}");
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
