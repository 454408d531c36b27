//! SIGKILL at random moments, the same files again and again.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};
use tower_triage_core::incident::IncidentId;

use super::child::{Child, LONG, Load, Said};
use super::kept::Kept;

/// Another one finds other moments.
const SEED: &str = "TOWER_TRIAGE_SEED";
const KILLS: u32 = 200;
/// How far the kills hit what they are meant to hit depends on the machine. So many at most, until
/// enough has happened.
const MOST_KILLS: u32 = 10 * KILLS;

#[tokio::test]
async fn kf54_what_was_told_recorded_is_there_after_two_hundred_kills() {
    let seed = std::env::var(SEED).map_or(54, |seed| seed.parse().expect("a number"));
    println!("{SEED}={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // A real disk, where the target folder is.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut kept = Kept::new(folder.path());
    let (mut told, mut spilled, mut torn, mut skipped) = (0, 0, 0, 0);
    let mut last_told = Vec::new();
    let mut all_told = Vec::new();

    let mut kill = 0;
    while kill < KILLS || !(told > 1_000 && spilled > 100 && torn > 20 && skipped > 10) {
        assert!(kill < MOST_KILLS, "too little happened: {told} {spilled} {torn} {skipped}");
        // Now and then records of several pages, so that one may be written in part.
        let bytes = if kill % 10 == 0 { 20_000 } else { random.random_range(0..1_000) };
        let load = Load { tasks: 6, refused: random.random_range(2..8), bytes };
        let mut child = Child::start(Child::program(), folder.path(), load);
        let mut said = Vec::new();
        if random.random() {
            // So long after its start, also while it replays or opens.
            let moment = sleep(Duration::from_micros(random.random_range(0..60_000)));
            tokio::pin!(moment);
            loop {
                tokio::select! {
                    biased;
                    () = &mut moment => break,
                    line = child.next() => said.push(line.expect("it runs until it is killed")),
                }
            }
        } else {
            // So many calls after its start.
            let calls = random.random_range(1..100);
            let work = async {
                while said.iter().filter(|said| matches!(said, Said::Recorded(_))).count() < calls {
                    said.push(child.next().await.expect("it runs until it is killed"));
                }
            };
            timeout(LONG, work).await.expect("its calls go on");
        }
        child.kill();
        said.extend(timeout(LONG, child.rest()).await.expect("it is dead"));

        kept.look().await;
        let spill = kept.spilled();
        spilled += spill.len();
        let is_there = |id: &IncidentId| kept.stored.contains(id) || spill.contains(id);
        // What was spilled before the last kill has been replayed, or is still in the file.
        for id in &last_told {
            assert!(is_there(id), "{id} was told recorded before kill {kill}, and is lost");
        }
        last_told.clear();
        for line in said {
            match line {
                Said::Recorded(id) => {
                    assert!(is_there(&id), "{id} was told recorded, and is lost by kill {kill}");
                    last_told.push(id);
                }
                Said::Skipped(lines) => skipped += lines,
                Said::Ready => {}
                // The spill file takes what the store refuses.
                Said::Nowhere(_) | Said::Other(_) => panic!("{line:?}"),
            }
        }
        told += last_told.len();
        all_told.extend_from_slice(&last_told);
        if random.random_ratio(1, 4) && kept.tear() {
            torn += 1;
        }
        kill += 1;
    }

    let load = Load { tasks: 1, refused: 0, bytes: 0 };
    let mut child = Child::start(Child::program(), folder.path(), load);
    while !matches!(child.next().await.expect("it runs"), Said::Ready) {}
    child.end().await;
    kept.look().await;
    assert!(kept.spilled().is_empty(), "replayed, all of it");
    for id in &all_told {
        assert!(kept.stored.contains(id), "{id} was told recorded, and is lost");
    }
    let aside = kept.unreadable();
    println!(
        "{told} told recorded, {} stored; at {kill} kills {spilled} were spilled; {torn} lines torn, \
         {skipped} reported, {aside} kept aside",
        kept.stored.len()
    );
    assert!(aside >= torn, "half-written lines are kept aside");
}
