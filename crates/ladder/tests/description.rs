//! The description: from a file and back, what it refuses, and how a person reads it.

use std::time::Duration;

use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves};
use tower_triage_escalate::{Desk, Failed as Ended};
use tower_triage_fallback::Failed;
use tower_triage_ladder::{Ladder, Level, Mode, Rungs};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn it_is_plain_data() {
    let ladder = Ladder::default()
        .mode(Mode::Cautious)
        .waits([SECOND / 2, 3 * SECOND])
        .within(Level::Replan, 600 * SECOND)
        .within(Level::Finish, Duration::ZERO)
        .enter(ErrorClass::Quota, Level::Replan);
    let text = toml::to_string(&ladder).unwrap();
    assert_eq!(toml::from_str::<Ladder>(&text).unwrap(), ladder, "{text}");

    assert_eq!(toml::from_str::<Ladder>("").unwrap(), Ladder::default());
    let partly = toml::from_str::<Ladder>("[retry]\nwithin = '5s'\n[entry]\nQuota = 'finish'");
    let expected =
        Ladder::default().within(Level::Retry, 5 * SECOND).enter(ErrorClass::Quota, Level::Finish);
    assert_eq!(partly.unwrap(), expected);
}

#[test]
fn what_it_does_not_know_it_refuses() {
    for text in [
        "levels = 5",
        "mode = 'reckless'",
        "[retry]\nattempts = 3",
        "[nudge]\nwithin = '60s'\nwaits = []",
        "[replan]\nwithin = 'soon'",
        "[entry]\nFlaky = 'retry'",
        "[entry]\nQuota = 'give_up'",
    ] {
        assert!(toml::from_str::<Ladder>(text).is_err(), "{text}");
    }
}

#[test]
fn a_level_without_time_does_not_build() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    for level in Level::ALL {
        let ladder = Ladder::default().within(level, Duration::ZERO);
        let built: Result<Rungs<_>, _> = ladder.build(classifier.clone(), Desk::log());
        match level {
            Level::Finish => assert!(built.is_ok(), "nobody is held up"),
            _ => {
                let error = built.unwrap_err();
                assert_eq!(error.field(), "within");
                assert!(error.to_string().contains(level.as_str()), "{error}");
            }
        }
    }
}

#[test]
fn it_reads_as_a_table() {
    let table = Ladder::default().to_string();
    let readme = include_str!("../README.md");
    assert!(readme.contains(&format!("```text\n{table}```")), "\n{table}");

    let line =
        |table: &str, level: Level| table.lines().nth(1 + level as usize + 1).unwrap().to_owned();
    let table = Ladder::default().waits([]).enter(ErrorClass::Unknown, Level::Replan).to_string();
    assert!(line(&table, Level::Retry).contains("nothing"), "\n{table}");
    assert_eq!(line(&table, Level::Nudge), "2 nudge    60s     the same approach, adjusted");

    // What was built says what it was given.
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let rungs: Rungs<_> = Ladder::default().build(classifier, Desk::log()).unwrap();
    let rungs = rungs.replan(|request: u32, _: Failed<'_, u32, AnyError>| request);
    let table = rungs.to_string();
    assert!(line(&table, Level::Nudge).contains("not given: passed over"), "\n{table}");
    assert!(line(&table, Level::Replan).contains("another approach"), "\n{table}");
    assert!(line(&table, Level::Finish).contains("not given: the failure as it is"), "\n{table}");
    assert!(rungs.finish(|_: Ended<'_, u32, AnyError>| 0).to_string().contains("what there is"));
}
