//! Whatever happens to it, it holds what the store in memory holds.

mod common;

use std::time::Duration;

use common::{escalation, id, second};
use proptest::prelude::*;
use tokio::runtime::Builder;
use tower_triage_core::{ClassSet, ErrorClass};
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::{
    Change, Filter, LeaseRequest, LeaseToken, Letter, LetterState, MemoryStore, Retention, Store,
    StoreError,
};
use tower_triage_escalate::{Decision, Escalation, Question, WallClock};

#[derive(Clone, Debug)]
enum Op {
    Put { number: u128, asks: bool },
    Lease(Leasing),
    Change { number: u128, change: Changing },
    List { filter: Filter, after: Option<u64>, limit: u32 },
    Retain(Retention),
    Step(u64),
}

#[derive(Clone, Debug)]
struct Leasing {
    filter: Filter,
    numbers: Vec<u128>,
    limit: u32,
    waiter: bool,
    park_after: u32,
}

#[derive(Clone, Copy, Debug)]
enum Changing {
    Redriven,
    Failed(u32),
    Released,
    Discarded,
    Reopened,
    Answered(bool),
    Expired,
}

fn filter() -> impl Strategy<Value = Filter> {
    let class = prop::option::of(0_usize..5);
    let pattern = prop::sample::select(vec!["*", "orders.create", "orders.c*", "*.list", "no"]);
    let from = prop::sample::select(vec!["*", "worker-1", "work*2", "wor?er-1"]);
    let states = prop::collection::vec(prop::sample::select(LetterState::ALL.to_vec()), 0..3);
    let times = (prop::option::of(0_u64..40), prop::option::of(0_u64..40));
    let rest = (prop::option::of(0_u128..7), prop::option::of(0_u32..2), prop::bool::ANY);
    (class, pattern, from, states, times, rest).prop_map(
        |(class, pattern, from, states, (before, after), (kind, receiver, asking))| {
            let mut filter = Filter::any().operation(pattern).from(from).states(states);
            if let Some(class) = class {
                filter.classes = ClassSet::from(ErrorClass::ALL[class]);
            }
            filter.before = before.map(second);
            filter.after = after.map(second);
            filter.receiver = receiver.map(|number| format!("team-{number}"));
            filter.fingerprint = kind.map(|number| escalation(number, 0).fingerprint);
            filter.asking = asking && receiver.is_none();
            filter
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let number = 0_u128..12;
    let changing = prop_oneof![
        Just(Changing::Redriven),
        (1_u32..3).prop_map(Changing::Failed),
        Just(Changing::Released),
        Just(Changing::Discarded),
        Just(Changing::Reopened),
        any::<bool>().prop_map(Changing::Answered),
        Just(Changing::Expired),
    ];
    let leasing = (
        prop_oneof![2 => Just(Filter::any()), 1 => filter()],
        prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(0_u128..12, 1..4)],
        0_u32..4,
        prop::bool::weighted(0.1),
        1_u32..4,
    )
        .prop_map(|(filter, numbers, limit, waiter, park_after)| Leasing {
            filter,
            numbers,
            limit,
            waiter,
            park_after,
        });
    let retention =
        (0_u64..60, prop::option::of(0_u64..60), 1_u64..12).prop_map(|(settled, open, most)| {
            let retention = Retention::new().settled_for(Duration::from_secs(settled)).most(most);
            match open {
                Some(open) => retention.open_for(Duration::from_millis(open * 1_000 + 500)),
                None => retention,
            }
        });
    prop_oneof![
        6 => (number.clone(), prop::bool::weighted(0.3))
            .prop_map(|(number, asks)| Op::Put { number, asks }),
        4 => leasing.prop_map(Op::Lease),
        6 => (number, changing).prop_map(|(number, change)| Op::Change { number, change }),
        3 => (filter(), prop::option::of(0_u64..14), 0_u32..5)
            .prop_map(|(filter, after, limit)| Op::List { filter, after, limit }),
        1 => retention.prop_map(Op::Retain),
        3 => (1_u64..12).prop_map(Op::Step),
    ]
}

fn failure(number: u128, at: u64, asks: bool) -> Escalation {
    let mut escalation = escalation(number, at);
    if asks {
        let question: Question = serde_json::from_value(serde_json::json!({
            "text": "again?", "deadline": second(at + 8), "on_timeout": "abort",
        }))
        .unwrap();
        escalation.question = Some(question);
    }
    escalation
}

/// Tokens are random: each store knows its own.
fn shown(letters: &[Letter]) -> Vec<serde_json::Value> {
    let without_token = |letter: &Letter| {
        let mut value = serde_json::to_value(letter).unwrap();
        if let Some(lease) = value.get_mut("lease") {
            lease.as_object_mut().unwrap().remove("token");
        }
        value
    };
    letters.iter().map(without_token).collect()
}

async fn change(store: &dyn Store, number: u128, change: Changing) -> Result<Letter, StoreError> {
    let held = store.get(id(number)).await?.and_then(|letter| letter.lease);
    let stranger = || serde_json::from_value::<LeaseToken>(serde_json::json!(id(99))).unwrap();
    let lease = held.map_or_else(stranger, |lease| lease.token);
    let (by, why) = ("ops".to_owned(), "test".to_owned());
    let change = match change {
        Changing::Redriven => Change::Redriven(lease),
        Changing::Failed(park_after) => {
            let (error, after) = ("again".to_owned(), Duration::from_secs(3));
            Change::Failed { lease, error, after, park_after }
        }
        Changing::Released => Change::Released(lease),
        Changing::Discarded => Change::Discarded { by, why },
        Changing::Reopened => Change::Reopened { by, why },
        Changing::Answered(retry) => {
            let decision = if retry { Decision::Retry } else { Decision::Abort };
            Change::Answered { decision, by, why }
        }
        Changing::Expired => Change::Expired,
    };
    store.change(id(number), change).await
}

/// What the store says to it, as text.
async fn run(store: &dyn Store, op: Op, at: u64) -> String {
    match op {
        Op::Put { number, asks } => format!("{:?}", store.put(failure(number, at, asks)).await),
        Op::Lease(Leasing { filter, numbers, limit, waiter, park_after }) => {
            let request = LeaseRequest::new("w", limit).time(Duration::from_secs(10));
            let mut request = request.filter(filter).ids(numbers.into_iter().map(id));
            request.waiter = waiter;
            format!("{:?}", shown(&store.lease(request.park_after(park_after)).await.unwrap()))
        }
        Op::Change { number, change: what } => match change(store, number, what).await {
            Ok(letter) => format!("{:?}", shown(&[letter])),
            Err(error) => error.to_string(),
        },
        Op::List { filter, after, limit } => {
            let page = store.list(filter, after, limit).await.unwrap();
            format!("{:?} {:?}", shown(&page.letters), page.next)
        }
        Op::Retain(retention) => format!("{:?}", store.retain(retention).await),
        Op::Step(_) => String::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn as_the_store_in_memory(ops in prop::collection::vec(op(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let clock = WallClock::stepped(second(0));
        let sqlite = SqliteStore::open(folder.path().join("store")).unwrap().clock(clock.clone());
        let memory = MemoryStore::new().clock(clock.clone());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut at = 0;
            for op in ops {
                if let Op::Step(by) = op {
                    clock.step(Duration::from_secs(by));
                    at += by;
                }
                let ours = run(&sqlite, op.clone(), at).await;
                prop_assert_eq!(ours, run(&memory, op.clone(), at).await, "{:?}", op);
            }
            let all = sqlite.list(Filter::any(), None, 100).await.unwrap().letters;
            let expected = memory.list(Filter::any(), None, 100).await.unwrap().letters;
            prop_assert_eq!(shown(&all), shown(&expected));
            prop_assert_eq!(sqlite.stats().await.unwrap(), memory.stats().await.unwrap());
            Ok(())
        })?;
    }
}
