//! Who waits for a change is woken by it.

use std::time::Duration;

use tokio::time::Instant;
use tower_triage_escalate::Decision;
use tower_triage_escalate::store::{Change, Filter};

use super::fixture::{SECOND, asking, escalation, id};
use super::world::each;

#[tokio::test]
async fn it_looks_again_after_a_second_or_so_if_nothing_changes() {
    each(async |world| {
        let mut quickest = Duration::MAX;
        for _ in 0..3 {
            let started = Instant::now();
            // Long for a loaded machine.
            let waited = tokio::time::timeout(60 * SECOND, world.store.changed());
            waited.await.expect("a poll, in case that a word was lost");
            quickest = quickest.min(started.elapsed());
        }
        assert!(quickest < 5 * SECOND, "{quickest:?}");
    })
    .await;
}

/// Less than it takes to poll: who waits is woken within it, or after a second.
const WOKEN: Duration = Duration::from_millis(900);

/// Question and answer go back and forth between two handles much faster than they poll.
#[tokio::test]
async fn an_answer_from_elsewhere_wakes_the_call_that_waits() {
    const ROUNDS: u32 = 20;
    each(async |world| {
        let other = world.other().await;
        let people = tokio::spawn(async move {
            for n in 1..=ROUNDS {
                loop {
                    let changed = other.changed();
                    let open = other.list(Filter::any().asking(), None, 10).await.unwrap();
                    if !open.letters.is_empty() {
                        break;
                    }
                    changed.await;
                }
                let (decision, by, why) = (Decision::Abort, "ann".into(), String::new());
                other.change(id(n), Change::Answered { decision, by, why }).await.unwrap();
            }
        });
        let mut woken = 0;
        for n in 1..=ROUNDS {
            let started = Instant::now();
            _ = world.store.put(asking(n, 60 * SECOND)).await.unwrap();
            loop {
                let changed = world.store.changed();
                if world.letter(n).await.answer.is_some() {
                    break;
                }
                changed.await;
            }
            woken += u32::from(started.elapsed() < WOKEN);
        }
        people.await.unwrap();
        // A busy machine may be late now and then.
        assert!(woken >= ROUNDS / 2, "it polled instead of being woken: {woken} of {ROUNDS}");
    })
    .await;
}

/// The change comes after the look and before the wait.
#[tokio::test]
async fn a_change_between_look_and_wait_is_not_missed() {
    each(async |world| {
        // Whatever a store sets up when somebody waits for the first time.
        world.store.changed().await;
        let mut woken = 0;
        for n in 1..=20 {
            let changed = world.store.changed();
            _ = world.store.put(escalation(n)).await.unwrap();
            // The put may take its time; the wait may not.
            let stored = Instant::now();
            changed.await;
            woken += u32::from(stored.elapsed() < WOKEN);
        }
        assert!(woken >= 10, "missed all but {woken} of 20");
    })
    .await;
}
