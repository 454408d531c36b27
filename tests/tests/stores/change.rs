//! Every change, and every reason to refuse one.

use std::sync::Arc;

use tower_triage_escalate::Decision;
use tower_triage_escalate::store::{Change, LetterState, Refused, StoreError};

use super::fixture::{SECOND, asking, escalation, id, stranger, t0, token};
use super::world::each;

fn discard() -> Change {
    Change::Discarded { by: "ann".into(), why: "a test order".into() }
}

fn reopen() -> Change {
    Change::Reopened { by: "ann".into(), why: "after all".into() }
}

fn answer(decision: Decision) -> Change {
    Change::Answered { decision, by: "ann".into(), why: "upstream is back".into() }
}

#[tokio::test]
async fn settled_by_whoever_holds_the_lease() {
    each(async |world| {
        world.filled(3).await;
        for n in 1..=3 {
            let lease = token(&world.next().await);
            let (change, state) = match n {
                1 => (Change::Redriven(lease), LetterState::Redriven),
                2 => (Change::Delivered(lease), LetterState::Delivered),
                _ => (Change::Decided(lease), LetterState::Decided),
            };
            let settled = world.change(n, change.clone()).await;
            assert_eq!((settled.state, settled.settled), (state, Some(t0())));
            assert_eq!(settled, world.letter(n).await, "what it gives is what it keeps");
            assert_eq!(world.refused(n, change).await, Refused::NotLeased);
            assert_eq!(world.refused(n, discard()).await, Refused::Settled(state));
        }
        let stats = world.stats().await;
        assert_eq!((stats.total, stats.leased, stats.oldest_open), (3, 0, None));
    })
    .await;
}

#[tokio::test]
async fn there_is_no_such_letter() {
    each(async |world| {
        let error = world.store.change(id(1), discard()).await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound(which) if which == id(1)), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn discarded_and_opened_again() {
    each(async |world| {
        world.filled(1).await;
        assert_eq!(world.refused(1, reopen()).await, Refused::Open);
        let leased = world.next().await;
        let lease = leased.lease.as_ref().unwrap();
        let refused = Refused::Leased { owner: "worker".into(), until: lease.until };
        assert_eq!(world.refused(1, discard()).await, refused);
        _ = world.change(1, Change::Released(lease.token)).await;
        world.step(SECOND);
        let gone = world.change(1, discard()).await;
        assert_eq!((gone.state, gone.settled), (LetterState::Discarded, Some(t0().plus(SECOND))));
        let event = gone.history.last().unwrap();
        assert_eq!((event.by.as_str(), event.note.as_str()), ("ann", "a test order"));
        assert_eq!(world.refused(1, discard()).await, Refused::Settled(LetterState::Discarded));
        world.step(SECOND);
        let open = world.change(1, reopen()).await;
        assert_eq!((open.state, open.settled, open.tries), (LetterState::Open, None, 0));
        assert_eq!(open.due, t0().plus(2 * SECOND));
        assert_eq!(world.next().await.id(), id(1));
    })
    .await;
}

#[tokio::test]
async fn parked_at_once_and_opened_again() {
    each(async |world| {
        world.filled(1).await;
        let lease = token(&world.next().await);
        let park = |lease| Change::Parked { lease, error: "unreadable".into() };
        assert_eq!(world.refused(1, park(stranger())).await, Refused::NotLeased);
        let parked = world.change(1, park(lease)).await;
        assert_eq!(
            (parked.state, parked.settled, &parked.lease),
            (LetterState::Parked, None, &None)
        );
        assert!(parked.history.last().unwrap().note.contains("unreadable"));
        assert_eq!(world.change(1, reopen()).await.tries, 0);
        assert_eq!(world.next().await.tries, 1);
    })
    .await;
}

#[tokio::test]
async fn what_asks_nothing_cannot_be_answered() {
    each(async |world| {
        world.filled(1).await;
        let raised = Change::Raised { level: 1, to: vec!["boss".into()] };
        for change in [answer(Decision::Abort), Change::Expired, raised] {
            assert_eq!(world.refused(1, change).await, Refused::NoQuestion);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_given_up_asks_no_more() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        _ = world.change(1, discard()).await;
        let refused = world.refused(1, answer(Decision::Retry)).await;
        assert_eq!(refused, Refused::Settled(LetterState::Discarded));
        assert_eq!(world.stats().await.asking, 0);
    })
    .await;
}

#[tokio::test]
async fn the_history_is_bounded_and_keeps_its_beginning() {
    each(async |world| {
        _ = world.store.put(escalation(1)).await.unwrap();
        for _ in 0..40 {
            let lease = token(&world.next().await);
            _ = world.change(1, Change::Released(lease)).await;
        }
        let letter = world.letter(1).await;
        assert_eq!(letter.history.len(), 32);
        assert_eq!(letter.history[0].what, "stored");
    })
    .await;
}

/// Two handles change one letter at the same time: none of the changes is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_at_the_same_time_do_not_undo_each_other() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        let stores = [world.other().await, world.other().await];
        let changes = (0..16).map(|n| {
            let store = Arc::clone(&stores[n as usize % 2]);
            tokio::spawn(async move {
                let raised = Change::Raised { level: n, to: vec![format!("team-{n}")] };
                store.change(id(1), raised).await.unwrap();
            })
        });
        for change in changes.collect::<Vec<_>>() {
            change.await.unwrap();
        }
        let letter = world.letter(1).await;
        assert_eq!(letter.history.len(), 17, "stored, and raised 16 times");
    })
    .await;
}
