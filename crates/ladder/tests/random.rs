//! Random ladders: whatever combination of levels, time limits and failures, every call ends within
//! the sum of its limits, with output or with an escalation, and each level is entered at most once.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt};
use tower_triage_core::{AnyError, AnyOk, Classifier, ErrorClass, Halves};
use tower_triage_escalate::Failed;
use tower_triage_ladder::{Changes, Ladder, Level, Rungs};
use tower_triage_test_support::Seen;

use common::{Act, Log, Said, agent, desk};

type Stack = BoxCloneService<String, String, AnyError>;

/// Without levels 2 to 5.
type Bare = Rungs<Halves<AnyOk, Said>>;

type Below<'a> = tower_triage_fallback::Failed<'a, String, AnyError>;

/// What the service called so does, call by call; the last one repeats.
type Script = BTreeMap<&'static str, Vec<Act>>;

/// Which of levels 2 to 5 are given.
type Given = [bool; 4];

/// Of level 1.
const MOST_WAITS: usize = 3;

const NAMES: [(Level, &str); 4] = [
    (Level::Retry, "asked"),
    (Level::Nudge, "nudged"),
    (Level::Replan, "replanned"),
    (Level::Fallback, "backup"),
];

fn boxed<L, S>(layer: L, agent: S) -> Stack
where
    L: Layer<S>,
    L::Service: Service<String, Response = String, Error = AnyError> + Clone + Send + 'static,
    <L::Service as Service<String>>::Future: Send + 'static,
{
    BoxCloneService::new(layer.layer(agent))
}

fn stack(rungs: Bare, given: Given, log: &Log, script: &Script) -> Stack {
    let acts = script.clone();
    let mut done = BTreeMap::<String, usize>::new();
    let act = move |name: &str| {
        let (acts, done) = (&acts[name], done.entry(name.to_owned()).or_default());
        *done += 1;
        acts[(*done - 1).min(acts.len() - 1)]
    };
    let (asked, backup) = (agent(None, log, act.clone()), agent(Some("backup"), log, act));
    let [nudged, replanned, fallen_back, finished] = given;
    let (nudge, replan) =
        (|_: String, _: Below<'_>| "nudged".into(), |_: String, _: Below<'_>| "replanned".into());
    macro_rules! top {
        ($rungs:expr) => {
            match finished {
                true => boxed(
                    $rungs.finish(|_: Failed<'_, String, AnyError>| "incomplete".to_owned()),
                    asked,
                ),
                false => boxed($rungs, asked),
            }
        };
    }
    match (nudged, replanned, fallen_back) {
        (false, false, false) => top!(rungs),
        (true, false, false) => top!(rungs.nudge(nudge)),
        (false, true, false) => top!(rungs.replan(replan)),
        (true, true, false) => top!(rungs.nudge(nudge).replan(replan)),
        (false, false, true) => top!(rungs.fallback(backup)),
        (true, false, true) => top!(rungs.nudge(nudge).fallback(backup)),
        (false, true, true) => top!(rungs.replan(replan).fallback(backup)),
        (true, true, true) => top!(rungs.nudge(nudge).replan(replan).fallback(backup)),
    }
}

fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (0..=most).prop_map(Duration::from_millis)
}

fn class() -> impl Strategy<Value = ErrorClass> {
    prop::sample::select(ErrorClass::ALL.to_vec())
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Answer),
        8 => class().prop_map(Act::Fail),
        // What time can heal more often than the rest.
        4 => Just(Act::Fail(ErrorClass::Transient)),
        1 => millis(20_000).prop_map(Act::Later),
        2 => millis(40_000).prop_map(Act::Slow),
        1 => Just(Act::HANG),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    prop::array::uniform4(prop::collection::vec(act(), 1..12))
        .prop_map(|acts| NAMES.into_iter().map(|(_, name)| name).zip(acts).collect())
}

fn ladder() -> impl Strategy<Value = Ladder> {
    let waits = prop::collection::vec(millis(8_000), 0..=MOST_WAITS);
    let limits = prop::array::uniform5(millis(30_000));
    let levels = prop::sample::select(Level::ALL.to_vec());
    let entries = prop::collection::vec((class(), levels), 0..4);
    (waits, limits, entries).prop_map(|(waits, limits, entries)| {
        let ladder = Ladder::default().waits(waits);
        let ladder = Level::ALL.into_iter().zip(limits).fold(ladder, |ladder, (level, limit)| {
            ladder.within(level, limit + Duration::from_millis(1))
        });
        entries.into_iter().fold(ladder, |ladder, (class, level)| ladder.enter(class, level))
    })
}

/// One call after another, through one stack.
async fn check(ladder: Ladder, given: Given, script: Script) {
    let (log, seen, (desk, mut inbox)) = (Log::new(), Seen::default(), desk());
    let classifier = Classifier::new(Halves { response: AnyOk, error: Said });
    classifier.observe(seen.clone());
    let stack = stack(ladder.clone().build(classifier, desk).unwrap(), given, &log, &script);
    for _ in 0..3 {
        let (before, incidents) = (log.lines().len(), seen.incidents().len());
        let begun = Instant::now();
        let answer = stack.clone().oneshot("asked".to_owned()).await;
        let took = begun.elapsed();
        assert!(took <= ladder.longest(), "{took:?}");

        let told: Vec<_> = std::iter::from_fn(|| inbox.try_recv().ok()).collect();
        match &answer {
            Ok(text) if text == "incomplete" => assert_eq!(told.len(), 1),
            Ok(_) => {}
            Err(_) => {
                assert!(!given[3] && told.len() == 1, "an escalation, and only without a finish")
            }
        }

        let calls: Vec<_> =
            log.lines().split_off(before).into_iter().map(|(_, name)| name).collect();
        let mut entered = calls.clone();
        entered.dedup();
        for (level, name) in NAMES {
            let (times, most) = (calls.iter().filter(|call| *call == name).count(), MOST_WAITS + 1);
            assert!(times <= if level == Level::Fallback { 1 } else { most }, "{name}: {calls:?}");
        }
        let Some(incident) = seen.incidents().into_iter().nth(incidents) else {
            assert_eq!(entered, ["asked"]);
            continue;
        };
        let primary = incident.failure.expect("the service failed").class;
        let mut expected = vec!["asked"];
        for ((level, name), given) in NAMES.into_iter().skip(1).zip(given) {
            let answered = answer.as_ref().is_ok_and(|text| expected.contains(&text.as_str()));
            if given && !answered && ladder.entry().of(primary) <= level {
                expected.push(name);
            }
        }
        assert_eq!(entered, expected, "{primary}");

        let changes = Changes::of(&incident);
        let recorded: Vec<_> = changes.as_slice().iter().map(|change| change.to).collect();
        assert!(recorded.is_sorted());
        for (level, name) in NAMES {
            let called = calls.iter().filter(|call| *call == name).count();
            match level {
                Level::Retry => assert!(called < 2 || recorded.contains(&level), "{changes}"),
                _ => assert_eq!(called > 0, recorded.contains(&level), "{name}: {changes}"),
            }
        }
        let finished = answer.as_ref().map_or(true, |text| text == "incomplete");
        assert_eq!(finished, recorded.contains(&Level::Finish), "{changes}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_call_ends_in_time_with_output_or_an_escalation(
        ladder in ladder(),
        given: Given,
        script in script(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(ladder, given, script));
    }
}
