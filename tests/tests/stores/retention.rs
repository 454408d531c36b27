//! What is forgotten, and what the counts say.

use tower_triage_core::ErrorClass;
use tower_triage_escalate::store::{Change, LeaseRequest, LetterState, Retention};

use super::fixture::{SECOND, asking, escalation, numbers, t0, token};
use super::world::{World, each};

async fn settle(world: &World, n: u32) {
    let (by, why) = ("ann".into(), String::new());
    _ = world.change(n, Change::Discarded { by, why }).await;
}

fn ever() -> Retention {
    Retention::new().settled_for(1_000_000_000 * SECOND)
}

#[tokio::test]
async fn settled_letters_go_by_age_and_open_ones_stay() {
    each(async |world| {
        world.filled(4).await;
        settle(world, 1).await;
        world.step(SECOND);
        settle(world, 2).await;
        world.step(10 * SECOND);
        let retention = Retention::new().settled_for(10 * SECOND);
        let dropped = world.store.retain(retention).await.unwrap();
        assert_eq!((dropped.settled, dropped.open), (1, 0));
        assert_eq!(numbers(&world.all().await), [2, 3, 4], "the second is just old enough to stay");
        assert_eq!(world.stats().await.dropped, 0, "nothing was lost");
    })
    .await;
}

#[tokio::test]
async fn what_goes_while_it_is_open_is_counted_for_good() {
    each(async |world| {
        world.filled(3).await;
        world.step(11 * SECOND);
        _ = world.store.put(escalation(4)).await.unwrap();
        let dropped = world.store.retain(ever().open_for(10 * SECOND)).await.unwrap();
        assert_eq!((dropped.settled, dropped.open), (0, 3));
        assert_eq!(numbers(&world.all().await), [4]);
        assert_eq!(world.stats().await.dropped, 3);
        if world.restart().await {
            assert_eq!(world.stats().await.dropped, 3);
        }
    })
    .await;
}

#[tokio::test]
async fn of_too_many_the_settled_go_first_then_the_parked_then_the_oldest() {
    each(async |world| {
        world.filled(6).await;
        settle(world, 5).await;
        let leased = world.lease(LeaseRequest::new("worker", 2)).await;
        let parked = Change::Parked { lease: token(&leased[1]), error: String::new() };
        _ = world.change(2, parked).await;
        _ = world.change(1, Change::Released(token(&leased[0]))).await;
        for (most, left) in [
            (6, vec![1, 2, 3, 4, 5, 6]),
            (5, vec![1, 2, 3, 4, 6]),
            (3, vec![3, 4, 6]),
            (1, vec![6]),
        ] {
            let before = world.all().await.len();
            let dropped = world.store.retain(ever().most(most)).await.unwrap();
            assert_eq!(numbers(&world.all().await), left, "at most {most}");
            assert_eq!(dropped.settled + dropped.open, (before - left.len()) as u64);
        }
        assert_eq!(world.stats().await.dropped, 4);
    })
    .await;
}

#[tokio::test]
async fn what_somebody_works_on_or_waits_for_stays() {
    each(async |world| {
        world.filled(3).await;
        _ = world.store.put(asking(4, 1000 * SECOND)).await.unwrap();
        let long = LeaseRequest::new("worker", 1).time(1000 * SECOND);
        assert_eq!(numbers(&world.lease(long).await), [1]);
        world.step(100 * SECOND);
        let all = ever().open_for(SECOND).most(1);
        assert_eq!(world.store.retain(all).await.unwrap().open, 2);
        assert_eq!(numbers(&world.all().await), [1, 4], "more than allowed, and none can go");
        world.step(900 * SECOND);
        assert_eq!(world.store.retain(all).await.unwrap().open, 2);
        assert_eq!(world.all().await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_forgotten_letter_is_new_when_it_comes_again() {
    each(async |world| {
        world.filled(2).await;
        settle(world, 1).await;
        world.step(SECOND);
        let nothing = Retention::new().settled_for(std::time::Duration::ZERO);
        assert_eq!(world.store.retain(nothing).await.unwrap().settled, 1);
        let put = world.store.put(escalation(1)).await.unwrap();
        assert_eq!(put, tower_triage_escalate::store::Put::New);
        assert_eq!(numbers(&world.all().await), [2, 1], "a cursor does not go back");
    })
    .await;
}

#[tokio::test]
async fn the_counts() {
    each(async |world| {
        assert_eq!(world.stats().await, Default::default());
        world.filled(2).await;
        world.step(SECOND);
        let mut other = asking(3, 60 * SECOND);
        (other.class, other.operation) = (ErrorClass::Quota, "nul \0 \u{1} \u{fffd}".into());
        _ = world.store.put(other).await.unwrap();
        settle(world, 1).await;
        let leased = world.next().await;
        let stats = world.stats().await;
        assert_eq!(stats.total, 3);
        assert_eq!(
            (stats.of(LetterState::Open), stats.of(LetterState::Discarded), stats.by_state.len()),
            (2, 1, 2)
        );
        let of = |counts: &std::collections::BTreeMap<String, u64>| {
            counts.iter().map(|(name, n)| (name.clone(), *n)).collect::<Vec<_>>()
        };
        assert_eq!(of(&stats.by_class), [("Quota".to_owned(), 1), ("Transient".to_owned(), 1)]);
        let odd = "nul \0 \u{1} \u{fffd}".to_owned();
        assert_eq!(of(&stats.by_operation), [(odd, 1), ("orders.create".to_owned(), 1)]);
        assert_eq!((stats.asking, stats.leased, stats.dropped), (1, 1, 0));
        assert_eq!(stats.oldest_open, Some(t0()));
        _ = world.change(2, Change::Redriven(token(&leased))).await;
        assert_eq!(world.stats().await.oldest_open, Some(t0().plus(SECOND)));
    })
    .await;
}
