//! What is stored is stored once, and stays.

use std::sync::Arc;

use serde_json::json;
use tower_triage_escalate::Captured;
use tower_triage_escalate::store::{Change, LetterState, Put};

use super::fixture::{SECOND, escalation, id, later, numbers, t0, token};
use super::world::each;

#[tokio::test]
async fn one_letter_per_id() {
    each(async |world| {
        assert_eq!(world.store.put(escalation(1)).await.unwrap(), Put::New);
        world.step(SECOND);
        // A write that is repeated after an error.
        assert_eq!(world.store.put(escalation(1)).await.unwrap(), Put::Known);
        let letter = world.letter(1).await;
        assert_eq!(letter.escalation, escalation(1));
        assert_eq!((letter.stored, letter.due, letter.failures), (t0(), t0(), 1));
        assert_eq!((letter.state, letter.tries), (LetterState::Open, 0));
        assert_eq!(numbers(&world.all().await), [1]);
        assert_eq!(world.store.get(id(2)).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn the_same_request_fails_again_and_is_counted() {
    each(async |world| {
        _ = world.store.put(escalation(1)).await.unwrap();
        assert_eq!(world.store.put(later(1, SECOND)).await.unwrap(), Put::Again);
        let letter = world.letter(1).await;
        assert_eq!((letter.failures, letter.escalation.last_time), (2, t0().plus(SECOND)));
        assert_eq!(letter.escalation.first_time, t0());
    })
    .await;
}

#[tokio::test]
async fn a_settled_letter_is_opened_by_a_later_failure_and_by_no_other() {
    each(async |world| {
        _ = world.store.put(escalation(1)).await.unwrap();
        world.step(2 * SECOND);
        let leased = world.next().await;
        let settled = world.change(1, Change::Redriven(token(&leased))).await;
        assert_eq!(settled.state, LetterState::Redriven);
        // It happened before that, and is told of late.
        assert_eq!(world.store.put(later(1, SECOND)).await.unwrap(), Put::Known);
        assert_eq!(world.letter(1).await, settled);
        world.step(SECOND);
        assert_eq!(world.store.put(later(1, 3 * SECOND)).await.unwrap(), Put::Reopened);
        let again = world.next().await;
        assert_eq!((again.state, again.tries, again.failures), (LetterState::Open, 1, 2));
        assert_eq!((again.settled, again.seq), (None, leased.seq));
    })
    .await;
}

#[tokio::test]
async fn many_at_once_and_each_is_new_once() {
    each(async |world| {
        let other = world.other().await;
        let puts = (0..600_u32).map(|n| {
            // Three times each, over two handles.
            let store = Arc::clone(if n % 2 == 0 { &world.store } else { &other });
            tokio::spawn(async move { store.put(escalation(n % 200)).await.unwrap() })
        });
        let mut new = 0;
        for put in puts.collect::<Vec<_>>() {
            match put.await.unwrap() {
                Put::New => new += 1,
                other => assert_eq!(other, Put::Known),
            }
        }
        assert_eq!(new, 200);
        let all = world.all().await;
        assert_eq!(all.len(), 200);
        assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq) && all[0].seq > 0);
        assert!(all.iter().all(|letter| letter.failures == 1));
    })
    .await;
}

#[tokio::test]
async fn the_request_is_kept_and_not_shown() {
    each(async |world| {
        let captured = Captured::new("json", json!({ "card": "hunter2", "amount": 1.5 }));
        let mut escalation = escalation(1);
        escalation.request = Some(Arc::new(captured.clone()));
        _ = world.store.put(escalation).await.unwrap();
        _ = world.restart().await;
        let letter = world.letter(1).await;
        assert_eq!(letter.request, Some(captured));
        assert!(!format!("{letter:?} {:?}", letter.request).contains("hunter2"));
    })
    .await;
}

#[tokio::test]
async fn what_is_stored_outlives_a_crash() {
    each(async |world| {
        world.filled(20).await;
        let leased = world.next().await;
        let settled = world.change(1, Change::Delivered(token(&leased))).await;
        let before = world.all().await;
        if world.restart().await {
            assert_eq!(world.all().await, before);
            assert_eq!(world.letter(1).await, settled);
            // And the order goes on where it was.
            _ = world.store.put(escalation(21)).await.unwrap();
            assert_eq!(numbers(&world.all().await), (1..=21).collect::<Vec<_>>());
        }
    })
    .await;
}
