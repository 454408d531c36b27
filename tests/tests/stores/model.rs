//! Whatever is done, every store holds the letters that the one in memory holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tower_triage_core::ErrorClass;
use tower_triage_escalate::store::{
    Change, Filter, LeaseRequest, LeaseToken, Letter, LetterState, Retention, Stats, Store,
    StoreError,
};
use tower_triage_escalate::{Decision, Timestamp};
use tower_triage_test_support::postgres::PostgresServer;

use super::fixture::{asking, id, later, number, stranger, t0, token};
use super::world::{NAMES, World, world};

const LETTERS: u32 = 6;

#[derive(Clone, Debug)]
enum Step {
    Put { n: u32, asks: Option<u32> },
    Lease { limit: u32, park_after: u32, filter: u8, seconds: u32 },
    LeaseIds { from: u32, to: u32, limit: u32 },
    Waiter(u32),
    Change { n: u32, what: u8, seconds: u32 },
    List { filter: u8, limit: u32 },
    Retain { settled: u32, open: Option<u32>, most: u64 },
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 1..=LETTERS;
    prop_oneof![
        4 => (n(), prop::option::weighted(0.3, 1..40_u32)).prop_map(|(n, asks)| Step::Put { n, asks }),
        3 => (0..4_u32, 1..4_u32, any::<u8>(), 1..30_u32).prop_map(
            |(limit, park_after, filter, seconds)| Step::Lease { limit, park_after, filter, seconds }
        ),
        1 => (n(), n(), 1..9_u32).prop_map(|(from, to, limit)| Step::LeaseIds { from, to, limit }),
        1 => n().prop_map(Step::Waiter),
        8 => (n(), any::<u8>(), 0..20_u32).prop_map(|(n, what, seconds)| Step::Change { n, what, seconds }),
        2 => (any::<u8>(), 1..5_u32).prop_map(|(filter, limit)| Step::List { filter, limit }),
        1 => (0..60_u32, prop::option::weighted(0.3, 20..90_u32), 1..8_u64)
            .prop_map(|(settled, open, most)| Step::Retain { settled, open, most }),
        3 => (0..15_u32).prop_map(Step::Wait),
    ]
}

fn seconds(n: u32) -> Duration {
    Duration::from_secs(n.into())
}

fn filter(n: u8, now: Timestamp) -> Filter {
    match n % 10 {
        0 => Filter::any().classes(ErrorClass::Quota),
        1 => Filter::any().operation("op-*1"),
        2 => Filter::any().from("shop"),
        3 => Filter::any().receiver("boss"),
        4 => Filter::any().states([LetterState::Open, LetterState::Parked]),
        5 => Filter::any().asking(),
        6 => Filter::any().after(now.minus(seconds(10))),
        7 => Filter::any().before(now.minus(seconds(10))),
        _ => Filter::any(),
    }
}

/// One store, with the proofs that it gave out.
struct Side<'a> {
    world: &'a World,
    tokens: HashMap<u32, LeaseToken>,
}

impl Side<'_> {
    /// Does one step; gives what came of it, fit for comparing.
    async fn take(&mut self, step: &Step, now: Timestamp) -> Value {
        let store = Arc::clone(&self.world.store);
        match *step {
            Step::Put { n, asks } => {
                let after = now.since(t0());
                let mut escalation = later(n, after);
                escalation.class = [ErrorClass::Transient, ErrorClass::Quota][n as usize % 2];
                escalation.operation = format!("op-{}", n % 3);
                if let Some(asks) = asks {
                    escalation.question = asking(n, after + seconds(asks)).question;
                }
                json!(format!("{:?}", store.put(escalation).await.unwrap()))
            }
            Step::Lease { limit, park_after, filter: which, seconds: time } => {
                let request = LeaseRequest::new("worker", limit)
                    .park_after(park_after)
                    .time(seconds(time))
                    .filter(filter(which, now));
                self.lease(&*store, request).await
            }
            Step::LeaseIds { from, to, limit } => {
                let ids = (from.min(to)..=from.max(to)).map(id);
                self.lease(&*store, LeaseRequest::new("by hand", limit).ids(ids)).await
            }
            Step::Waiter(n) => self.lease(&*store, LeaseRequest::waiter(id(n), "call")).await,
            Step::Change { n, what, seconds } => {
                let change = self.change(n, what, seconds);
                match store.change(id(n), change).await {
                    Ok(letter) => comparable(&letter),
                    Err(StoreError::NotFound(_)) => json!("not found"),
                    Err(StoreError::Refused(_, why)) => json!(why.to_string()),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::List { filter: which, limit } => {
                let (mut pages, mut after) = (Vec::new(), None);
                loop {
                    let page = store.list(filter(which, now), after, limit).await.unwrap();
                    pages.push(page.letters.iter().map(number).collect::<Vec<_>>());
                    after = page.next;
                    if after.is_none() {
                        return json!(pages);
                    }
                }
            }
            Step::Retain { settled, open, most } => {
                let mut retention = Retention::new().settled_for(seconds(settled)).most(most);
                if let Some(open) = open {
                    retention = retention.open_for(seconds(open));
                }
                let dropped = store.retain(retention).await.unwrap();
                json!([dropped.settled, dropped.open])
            }
            Step::Wait(time) => {
                self.world.step(seconds(time));
                Value::Null
            }
        }
    }

    async fn lease(&mut self, store: &dyn Store, request: LeaseRequest) -> Value {
        let leased = store.lease(request).await.unwrap();
        self.tokens.extend(leased.iter().map(|letter| (number(letter), token(letter))));
        leased.iter().map(comparable).collect()
    }

    fn change(&self, n: u32, what: u8, time: u32) -> Change {
        let lease = self.tokens.get(&n).copied().unwrap_or_else(stranger);
        let (by, why) = (format!("person-{n}"), "because".to_owned());
        let decision = [Decision::Retry, Decision::Abort][time as usize % 2].clone();
        match what % 12 {
            0 => Change::Redriven(lease),
            1 => Change::Delivered(lease),
            2 => Change::Decided(lease),
            3 => Change::Failed { lease, error: "no".into(), after: seconds(time), park_after: 3 },
            4 => Change::Parked { lease, error: "never".into() },
            5 => Change::Released(lease),
            6 => Change::Extended(lease, seconds(time)),
            7 => Change::Discarded { by, why },
            8 => Change::Reopened { by, why },
            9 => Change::Answered { decision, by, why },
            10 => Change::Expired,
            _ => Change::Raised { level: 1, to: vec!["boss".into()] },
        }
    }
}

/// Without the proof, which is random, and the number, which may have gaps.
fn comparable(letter: &Letter) -> Value {
    let mut letter = serde_json::to_value(letter).unwrap();
    letter["seq"] = Value::Null;
    if letter["lease"].is_object() {
        letter["lease"]["token"] = Value::Null;
    }
    letter
}

async fn contents(world: &World) -> (Vec<Value>, Stats) {
    (world.all().await.iter().map(comparable).collect(), world.stats().await)
}

#[test]
fn whatever_is_done_the_letters_are_those_of_the_model() {
    // One for all cases.
    let _server = PostgresServer::shared();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for name in NAMES {
        let steps = prop::collection::vec(step(), 1..60);
        TestRunner::new(Config { cases: 24, ..Config::default() })
            .run(&steps, |steps| {
                runtime.block_on(async {
                    let (model, Some(store)) = (world("memory").await.unwrap(), world(name).await)
                    else {
                        return Ok(());
                    };
                    let side = |world| Side { world, tokens: HashMap::new() };
                    let (mut expected, mut found) = (side(&model), side(&store));
                    let mut now = t0();
                    for step in &steps {
                        let (expected, found) =
                            (expected.take(step, now).await, found.take(step, now).await);
                        prop_assert_eq!(&found, &expected, "{}: {:?}", name, step);
                        if let Step::Wait(time) = step {
                            now = now.plus(seconds(*time));
                        }
                    }
                    prop_assert_eq!(contents(&store).await, contents(&model).await, "{}", name);
                    Ok(())
                })
            })
            .unwrap_or_else(|error| panic!("{error}"));
    }
}
