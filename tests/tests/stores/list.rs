//! Pages without gap or repeat, and every filter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower_triage_core::{ClassSet, ErrorClass};
use tower_triage_escalate::store::{Change, Filter, LetterState};

use super::fixture::{SECOND, asking, escalation, number, numbers, t0};
use super::world::each;

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repeat() {
    each(async |world| {
        world.filled(50).await;
        for size in [1, 7, 10, 49, 50, 51] {
            let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = world.store.list(Filter::any(), after, size).await.unwrap();
                assert!(page.letters.len() <= size as usize);
                seen.extend(numbers(&page.letters));
                (after, pages) = (page.next, pages + 1);
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, (1..=50).collect::<Vec<_>>());
            assert_eq!(pages, 50_u32.div_ceil(size), "no empty page at the end");
        }
        let nothing = world.store.list(Filter::any(), None, 0).await.unwrap();
        assert_eq!((nothing.letters.len(), nothing.next), (0, None));
        let beyond = world.store.list(Filter::any(), Some(u64::MAX), 5).await.unwrap();
        assert_eq!(beyond.letters.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_filter_that_matches_few_fills_its_pages_all_the_same() {
    each(async |world| {
        for n in 1..=600 {
            let mut escalation = escalation(n);
            if n % 100 == 0 {
                escalation.operation = "rare".into();
            }
            _ = world.store.put(escalation).await.unwrap();
        }
        let rare = Filter::any().operation("ra*e");
        let first = world.store.list(rare.clone(), None, 4).await.unwrap();
        assert_eq!(numbers(&first.letters), [100, 200, 300, 400]);
        let last = world.store.list(rare, first.next, 4).await.unwrap();
        assert_eq!((numbers(&last.letters), last.next), (vec![500, 600], None));
    })
    .await;
}

/// A reader that follows the end must not overtake a letter that is stored a little later than the
/// one behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_follows_the_end_misses_nothing_that_is_stored_meanwhile() {
    const WRITERS: u32 = 8;
    const EACH: u32 = 40;
    each(async |world| {
        let done = Arc::new(AtomicUsize::new(0));
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let (store, done) = (world.other().await, Arc::clone(&done));
            writers.push(tokio::spawn(async move {
                for n in 0..EACH {
                    _ = store.put(escalation(writer * EACH + n + 1)).await.unwrap();
                }
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let last_look = done.load(Ordering::SeqCst) == WRITERS as usize;
            let page = world.store.list(Filter::any(), after, 10).await.unwrap();
            after = page.letters.last().map(|letter| letter.seq).or(after);
            seen.extend(page.letters.iter().map(number));
            if page.letters.is_empty() && last_look {
                break;
            }
            tokio::task::yield_now().await;
        }
        for writer in writers {
            writer.await.unwrap();
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=WRITERS * EACH).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn every_filter() {
    each(async |world| {
        for n in 1..=4 {
            let mut escalation = if n == 4 { asking(4, 60 * SECOND) } else { escalation(n) };
            escalation.class = [ErrorClass::Transient, ErrorClass::Quota][n as usize % 2];
            escalation.operation = format!("orders.{n}_%");
            escalation.from = format!("shop-{n}");
            escalation.to = vec!["ops".into(), format!("team \"{n}\"")];
            escalation.fingerprint =
                serde_json::from_str(&format!("\"ffffffffffffff{n:02}\"")).unwrap();
            _ = world.store.put(escalation).await.unwrap();
            world.step(SECOND);
        }
        let why = || ("ann".to_owned(), "done by hand".to_owned());
        let ((by, why), at) = (why(), |seconds: u32| t0().plus(seconds * SECOND));
        _ = world.change(3, Change::Discarded { by, why }).await;
        let kind = serde_json::from_str("\"ffffffffffffff02\"").unwrap();
        let any = Filter::any;
        for (filter, expected) in [
            (any(), vec![1, 2, 3, 4]),
            (any().classes(ErrorClass::Quota), vec![1, 3]),
            (any().classes(ErrorClass::Transient), vec![2, 4]),
            (any().classes(ClassSet::default()), vec![]),
            (any().operation("orders.*"), vec![1, 2, 3, 4]),
            (any().operation("orders.2_%"), vec![2]),
            (any().operation("orders.2__"), vec![]),
            (any().operation("orders.2%"), vec![]),
            (any().operation("*.3*"), vec![3]),
            (any().operation("ORDERS.*"), vec![]),
            (any().operation("orders"), vec![]),
            (any().operation(""), vec![]),
            (any().operation("*\\*"), vec![]),
            (any().from("shop-1"), vec![1]),
            (any().from("*-*4"), vec![4]),
            (any().receiver("ops"), vec![1, 2, 3, 4]),
            (any().receiver("team \"2\""), vec![2]),
            (any().receiver("op"), vec![]),
            (any().receiver("*"), vec![]),
            (any().states([LetterState::Open]), vec![1, 2, 4]),
            (any().states([LetterState::Discarded, LetterState::Parked]), vec![3]),
            (any().states([LetterState::Redriven]), vec![]),
            (any().fingerprint(kind), vec![2]),
            (any().before(at(2)), vec![1, 2]),
            (any().after(at(2)), vec![3, 4]),
            (any().after(at(1)).before(at(3)), vec![2, 3]),
            (any().asking(), vec![4]),
            (any().asking().from("shop-1"), vec![]),
            (any().classes(ErrorClass::Quota).states([LetterState::Open]), vec![1]),
        ] {
            let page = world.store.list(filter.clone(), None, 100).await.unwrap();
            assert_eq!(numbers(&page.letters), expected, "{filter:?}");
        }
        world.step(Duration::from_secs(60));
        let late = world.store.list(any().asking(), None, 100).await.unwrap();
        assert_eq!(late.letters.len(), 0, "nobody waits any more");
    })
    .await;
}
