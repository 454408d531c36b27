//! The preset `ladder` climbs all five levels in the times of its rows. Row by row they are tested in
//! the ladder's own crate.

mod scenarios;

use std::time::Duration;

use scenarios::{Answer, Says, Task, answer, classifier, desk, fails, taken, task, worker};
use tower::{Layer, ServiceExt};
use tower_triage::escalate::{Failed, Route, Routes};
use tower_triage::ladder::{Changes, Ladder, Level, Mode};
use tower_triage::{AnyError, ErrorClass, Resolution, preset};

#[tokio::test(start_paused = true)]
async fn the_preset_climbs_level_by_level() {
    let (classifier, seen) = classifier();
    let (desk, mut letters) = desk(Routes::new(Route::new(["human"], "look_into_it")));
    let (agent, other) = (worker([fails(ErrorClass::Transient)]), worker([Says("otherwise")]));
    let change = |how: &'static str| {
        move |task: Task, failed: tower_triage::fallback::Failed<'_, Answer, AnyError>| {
            let why = failed.failure.class;
            Task { prompt: format!("{}, {how} ({why})", task.prompt), ..task }
        }
    };
    let rungs = preset::ladder(classifier, desk);
    assert_eq!(rungs.ladder(), &Ladder::default());
    assert_eq!(rungs.ladder().acts_in(), Mode::Balanced);
    let rungs =
        rungs.nudge(change("shorter")).replan(change("in steps")).fallback(other.clone()).finish(
            |failed: Failed<'_, Answer, AnyError>| {
                answer(&Changes::of(failed.incident).as_slice().len().to_string())
            },
        );
    let stack = rungs.layer(agent.clone());
    let ask = async || {
        let stack = stack.clone();
        tokio::spawn(async move { stack.oneshot(task("p")).await }).await.unwrap().unwrap()
    };

    // Level 1 waits 1, 2, 4 s; levels 2 and 3 have retries of their own; level 4 answers.
    assert_eq!(ask().await.text, "otherwise");
    let times: Vec<_> = agent.times().iter().map(Duration::as_secs).collect();
    assert_eq!(times, [0, 1, 3, 7, 7, 8, 10, 14, 14, 15, 17, 21]);
    let prompts = agent.prompts();
    let each = ["p", "p, shorter (Transient)", "p, in steps (Transient)"];
    assert_eq!(prompts, each.map(|prompt| [prompt; 4]).concat());
    let changes = Changes::of(&seen.last());
    let levels: Vec<_> = changes.as_slice().iter().map(|change| change.to).collect();
    assert_eq!(levels, [Level::Retry, Level::Nudge, Level::Replan, Level::Fallback]);
    assert!(taken(&mut letters).is_empty());

    // Level 5: what there is, and somebody hears of it.
    other.now(fails(ErrorClass::Internal));
    assert_eq!(ask().await.text, "4");
    assert_eq!(seen.last().resolution, Resolution::ForcedFinish);
    assert_eq!(taken(&mut letters).len(), 1);
}
