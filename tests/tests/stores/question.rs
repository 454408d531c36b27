//! One answer wins.

use std::sync::Arc;

use serde_json::json;
use tower_triage_escalate::Decision;
use tower_triage_escalate::store::{Change, Filter, LetterState, Refused, StoreError};

use super::fixture::{SECOND, asking, id, numbers, t0};
use super::world::each;

fn answer(decision: Decision, by: &str) -> Change {
    Change::Answered { decision, by: by.into(), why: format!("{by} says so") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_answers_at_once_the_first_wins_and_the_others_hear_of_it() {
    each(async |world| {
        for (n, decision) in [(1, Decision::Retry), (2, Decision::Abort)] {
            _ = world.store.put(asking(n, 60 * SECOND)).await.unwrap();
            let other = world.other().await;
            let people = (0..8).map(|person| {
                let store = Arc::clone(if person % 2 == 0 { &world.store } else { &other });
                let change = answer(decision.clone(), &format!("person-{person}"));
                tokio::spawn(async move { store.change(id(n), change).await })
            });
            let (mut won, mut lost) = (Vec::new(), Vec::new());
            for person in people.collect::<Vec<_>>() {
                match person.await.unwrap() {
                    Ok(letter) => won.push(letter.answer.unwrap()),
                    Err(StoreError::Refused(_, Refused::Answered(answer))) => lost.push(*answer),
                    Err(error) => panic!("{error:?}"),
                }
            }
            assert_eq!((won.len(), lost.len()), (1, 7));
            assert!(lost.iter().all(|winner| *winner == won[0]));
            assert_eq!(world.letter(n).await.answer.as_ref(), Some(&won[0]));
            assert_eq!(won[0].why, format!("{} says so", won[0].by));
            assert_eq!((won[0].at, &won[0].decision), (t0(), &decision));
        }
    })
    .await;
}

#[tokio::test]
async fn each_decision_is_kept_with_who_why_and_when() {
    each(async |world| {
        let value = json!({ "amount": 7, "text": "\u{0}é" });
        for (n, decision, state) in [
            (1, Decision::Retry, LetterState::Open),
            (2, Decision::RetryWith(value.clone()), LetterState::Open),
            (3, Decision::Respond(value.clone()), LetterState::Decided),
            (4, Decision::Abort, LetterState::Decided),
        ] {
            _ = world.store.put(asking(n, 60 * SECOND)).await.unwrap();
            let letter = world.change(n, answer(decision.clone(), "ann")).await;
            assert_eq!(letter.state, state);
        }
        _ = world.restart().await;
        for letter in world.all().await {
            let answer = letter.answer.unwrap();
            assert_eq!((answer.by.as_str(), answer.why.as_str()), ("ann", "ann says so"));
            if let Decision::RetryWith(given) | Decision::Respond(given) = answer.decision {
                assert_eq!(given, value);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_question_outlives_its_service_and_so_does_its_answer() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        if world.restart().await {
            let open = world.store.list(Filter::any().asking(), None, 10).await.unwrap();
            assert_eq!(numbers(&open.letters), [1]);
        }
        // After its deadline too: the call did not live to see it.
        world.step(100 * SECOND);
        assert_eq!(world.stats().await.asking, 0);
        _ = world.change(1, answer(Decision::Retry, "ann")).await;
        _ = world.restart().await;
        assert_eq!(world.letter(1).await.answer.unwrap().by, "ann");
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_refused() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        world.step(60 * SECOND);
        let expired = world.change(1, Change::Expired).await;
        let at = t0().plus(60 * SECOND);
        assert_eq!((expired.expired, expired.due), (Some(at), at));
        for change in [answer(Decision::Retry, "ann"), Change::Expired] {
            assert_eq!(world.refused(1, change).await, Refused::Expired(at));
        }
        assert_eq!(world.next().await.id(), id(1), "it is a letter like any other now");
    })
    .await;
}

#[tokio::test]
async fn the_answer_is_there_before_the_call_gives_up() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        let letter = world.change(1, answer(Decision::Retry, "ann")).await;
        let Refused::Answered(winner) = world.refused(1, Change::Expired).await else {
            panic!("the call must learn of the answer");
        };
        assert_eq!(Some(*winner), letter.answer);
    })
    .await;
}

#[tokio::test]
async fn it_moves_up_the_levels() {
    each(async |world| {
        _ = world.store.put(asking(1, 60 * SECOND)).await.unwrap();
        let raised = world.change(1, Change::Raised { level: 1, to: vec!["boss".into()] }).await;
        assert_eq!((raised.level, raised.escalation.to.clone()), (1, vec!["boss".to_owned()]));
        let theirs = world.store.list(Filter::any().receiver("boss").asking(), None, 10).await;
        assert_eq!(numbers(&theirs.unwrap().letters), [1]);
        let ours = world.store.list(Filter::any().receiver("ops"), None, 10).await.unwrap();
        assert_eq!(ours.letters.len(), 0);
    })
    .await;
}
