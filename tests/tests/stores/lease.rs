//! Who may work on a letter, when, and how that ends.

use std::sync::Arc;

use tower_triage_escalate::Decision;
use tower_triage_escalate::store::{Change, Filter, LeaseRequest, LetterState, Refused, Store};

use super::fixture::{SECOND, asking, escalation, id, numbers, t0, token};
use super::world::each;

fn work(limit: u32) -> LeaseRequest {
    LeaseRequest::new("worker", limit).time(10 * SECOND)
}

fn only(ids: impl IntoIterator<Item = u32>) -> LeaseRequest {
    work(100).ids(ids.into_iter().map(id))
}

fn failed(letter: &tower_triage_escalate::store::Letter, seconds: u32) -> Change {
    let lease = token(letter);
    Change::Failed { lease, error: "again".into(), after: seconds * SECOND, park_after: 3 }
}

#[tokio::test]
async fn in_their_order_and_no_more_than_asked() {
    each(async |world| {
        world.filled(5).await;
        assert_eq!(world.lease(work(0)).await.len(), 0);
        let first = world.lease(work(2)).await;
        assert_eq!(numbers(&first), [1, 2]);
        let lease = first[0].lease.as_ref().unwrap();
        assert_eq!((lease.owner.as_str(), lease.until), ("worker", t0().plus(10 * SECOND)));
        assert_ne!(token(&first[0]), token(&first[1]));
        assert_eq!(first[0], world.letter(1).await, "what it gives is what it keeps");
        assert_eq!(numbers(&world.lease(work(100)).await), [3, 4, 5]);
        assert_eq!(world.lease(work(100)).await.len(), 0);
        assert_eq!(world.stats().await.leased, 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_gets_what_somebody_has() {
    each(async |world| {
        world.filled(300).await;
        let other = world.other().await;
        let workers = (0..8).map(|worker| {
            let store = Arc::clone(if worker % 2 == 0 { &world.store } else { &other });
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let got = store.lease(work(7)).await.unwrap();
                    let some = numbers(&got);
                    assert!(some.is_sorted());
                    if some.is_empty() {
                        return mine;
                    }
                    mine.extend(some);
                }
            })
        });
        let mut all = Vec::new();
        for worker in workers.collect::<Vec<_>>() {
            all.extend(worker.await.unwrap());
        }
        all.sort_unstable();
        // A lock that somebody holds for a moment may hide a letter for that moment.
        all.extend(numbers(&world.lease(work(300)).await));
        assert_eq!(all, (1..=300).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn a_lease_ends_by_itself_and_its_holder_with_it() {
    each(async |world| {
        world.filled(1).await;
        let dead = world.next().await;
        assert_eq!(dead.lease.as_ref().unwrap().until, t0().plus(300 * SECOND), "5 min");
        world.step(299 * SECOND);
        assert_eq!(world.lease(work(1)).await.len(), 0);
        world.step(SECOND);
        assert_eq!(world.stats().await.leased, 0);
        let alive = world.next().await;
        assert_eq!((alive.tries, dead.tries), (2, 1));
        for change in [
            Change::Redriven(token(&dead)),
            Change::Delivered(token(&dead)),
            Change::Decided(token(&dead)),
            Change::Released(token(&dead)),
            Change::Extended(token(&dead), SECOND),
            Change::Parked { lease: token(&dead), error: String::new() },
            failed(&dead, 1),
        ] {
            assert_eq!(world.refused(1, change).await, Refused::NotLeased);
        }
        let settled = world.change(1, Change::Redriven(token(&alive))).await;
        assert_eq!((settled.state, settled.lease), (LetterState::Redriven, None));
    })
    .await;
}

#[tokio::test]
async fn a_holder_that_is_late_but_not_replaced_is_heard() {
    each(async |world| {
        world.filled(1).await;
        let late = world.next().await;
        world.step(1000 * SECOND);
        assert_eq!(
            world.change(1, Change::Redriven(token(&late))).await.state,
            LetterState::Redriven
        );
    })
    .await;
}

#[tokio::test]
async fn what_failed_rests_until_it_is_due_and_is_parked_after_too_many_tries() {
    each(async |world| {
        world.filled(1).await;
        for tries in 1..=3 {
            let letter = world.next().await;
            assert_eq!(letter.tries, tries);
            let rests = world.change(1, failed(&letter, 5)).await;
            assert_eq!(rests.lease, None);
            assert_eq!(world.lease(work(1)).await.len(), 0);
            world.step(5 * SECOND);
        }
        let letter = world.letter(1).await;
        assert_eq!((letter.state, letter.tries), (LetterState::Parked, 3));
        assert_eq!(world.lease(work(1)).await.len(), 0, "a person has to look at it");
        let by_hand = world.lease(only([1])).await;
        assert_eq!(by_hand[0].state, LetterState::Parked);
        let settled = world.change(1, Change::Redriven(token(&by_hand[0]))).await;
        assert_eq!(settled.state, LetterState::Redriven);
    })
    .await;
}

#[tokio::test]
async fn a_letter_that_kills_its_workers_is_parked_and_holds_nobody_up() {
    each(async |world| {
        world.filled(3).await;
        for _ in 0..2 {
            assert_eq!(numbers(&world.lease(work(1).park_after(2)).await), [1]);
            world.step(10 * SECOND);
        }
        // The third worker gets as many as it asks for, without this one.
        assert_eq!(numbers(&world.lease(work(2).park_after(2)).await), [2, 3]);
        let poison = world.letter(1).await;
        assert_eq!((poison.state, poison.tries), (LetterState::Parked, 2));
        assert_eq!(world.stats().await.of(LetterState::Parked), 1);
    })
    .await;
}

#[tokio::test]
async fn a_lease_given_back_untried_does_not_count() {
    each(async |world| {
        world.filled(1).await;
        let letter = world.next().await;
        let back = world.change(1, Change::Released(token(&letter))).await;
        assert_eq!((back.tries, &back.lease), (0, &None));
        assert_eq!(world.next().await.tries, 1);
    })
    .await;
}

#[tokio::test]
async fn a_lease_is_prolonged_by_who_is_still_at_work() {
    each(async |world| {
        world.filled(1).await;
        let letter = world.lease(work(1)).await.remove(0);
        world.step(9 * SECOND);
        _ = world.change(1, Change::Extended(token(&letter), 10 * SECOND)).await;
        world.step(9 * SECOND);
        assert_eq!(world.lease(work(1)).await.len(), 0);
        world.step(SECOND);
        assert_eq!(world.lease(work(1)).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn only_those_that_match() {
    each(async |world| {
        for n in 1..=6 {
            let mut escalation = escalation(n);
            escalation.from = format!("shop-{}", n % 2);
            _ = world.store.put(escalation).await.unwrap();
        }
        let odd = work(2).filter(Filter::any().from("*-1"));
        assert_eq!(numbers(&world.lease(odd.clone()).await), [1, 3]);
        assert_eq!(numbers(&world.lease(odd).await), [5]);
        assert_eq!(numbers(&world.lease(work(9)).await), [2, 4, 6]);
        // What is leased, parked or settled is not leased, whatever the filter says.
        let parked = work(9).filter(Filter::any().states([LetterState::Parked]));
        assert_eq!(world.lease(parked).await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn by_id_due_or_not_parked_or_not_but_not_out_of_somebodys_hands() {
    each(async |world| {
        world.filled(6).await;
        _ = world.store.put(asking(7, 60 * SECOND)).await.unwrap();
        let mut leased = world.lease(work(4)).await;
        // 1 is not due, 2 parked, 3 settled, 4 in somebody's hands, 5 and 6 free, 7 asks.
        _ = world.change(1, failed(&leased.remove(0), 1000)).await;
        let parked = Change::Parked { lease: token(&leased.remove(0)), error: "no use".into() };
        assert_eq!(world.change(2, parked).await.state, LetterState::Parked);
        _ = world.change(3, Change::Redriven(token(&leased.remove(0)))).await;
        assert_eq!(
            numbers(&world.lease(only([99, 7, 6, 4, 3, 2, 1]).park_after(1)).await),
            [1, 2, 6]
        );
        world.step(10 * SECOND);
        let mut two = only(1..=7);
        two.limit = 2;
        assert_eq!(numbers(&world.lease(two).await), [1, 2]);
    })
    .await;
}

#[tokio::test]
async fn an_answered_question_belongs_to_the_call_that_waits_and_then_to_a_worker() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        assert_eq!(world.lease(work(9)).await.len(), 0, "its call waits");
        assert_eq!(world.lease(only([1])).await.len(), 0);
        let answer =
            Change::Answered { decision: Decision::Retry, by: "ann".into(), why: "up".into() };
        _ = world.change(1, answer).await;
        assert_eq!(world.lease(only([1])).await.len(), 0, "its call may take it up");
        let call = world.lease(LeaseRequest::waiter(id(1), "call")).await;
        assert_eq!(numbers(&call), [1]);
        assert_eq!(world.lease(LeaseRequest::waiter(id(1), "twin")).await.len(), 0);
        _ = world.change(1, Change::Released(token(&call[0]))).await;
        world.step(10 * SECOND);
        // The call is gone.
        assert_eq!(numbers(&world.lease(work(9)).await), [1]);
    })
    .await;
}

#[tokio::test]
async fn a_question_whose_call_is_gone_is_leased_after_its_deadline() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        world.step(69 * SECOND);
        assert_eq!(world.lease(work(1)).await.len(), 0);
        world.step(SECOND);
        assert_eq!(world.lease(work(1)).await.len(), 1);
    })
    .await;
}

/// The trait's own promise, for whoever writes a store: it is used behind `Arc<dyn Store>`.
#[tokio::test]
async fn a_store_is_shared_as_an_object() {
    fn shared(_: &(impl Send + Sync + ?Sized)) {}
    each(async |world| {
        let store: &dyn Store = &*world.store;
        shared(store);
        assert!(!format!("{store:?}").is_empty());
    })
    .await;
}
