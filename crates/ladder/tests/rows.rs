//! The five-level ladder, row by row: rows L1 to L7 of what its users ask for, with the numbers of
//! `Ladder::default()`.

mod common;

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{
    AnyError, AnyOk, Chain, Classifier, ClassifyLayer, ErrorClass, Failure, Halves, Incident,
    Observation, RulesExt, Verdict,
};
use tower_triage_escalate::{Desk, Escalation, Failed, Receiver, Route, Routes};
use tower_triage_ladder::{Changes, Ladder, Level, Mode};
use tower_triage_test_support::Seen;
use tower_triage_timeout::TimeoutLayer;

use common::{Act, Log, Said, agent, desk};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One call from the bottom to wherever it ends.
struct Run {
    answer: Result<String, AnyError>,
    /// Milliseconds.
    took: u128,
    calls: Vec<(u128, String)>,
    incident: Option<Incident>,
    told: Vec<Escalation>,
}

impl Run {
    fn names(&self) -> Vec<&str> {
        self.calls.iter().map(|(_, name)| name.as_str()).collect()
    }

    /// When it was called so.
    fn times(&self, name: &str) -> Vec<u128> {
        self.calls.iter().filter(|(_, called)| called == name).map(|(at, _)| *at).collect()
    }
}

/// Asks the ladder with all its levels once, in a task of its own and un-boxed. The jobs are called
/// `asked`, `nudged` and `replanned`, and level 4 is called `backup`.
async fn climb(ladder: Ladder, act: impl FnMut(&str) -> Act + Send + Clone + 'static) -> Run {
    let (log, seen, (desk, mut inbox)) = (Log::new(), Seen::default(), desk());
    let classifier = Classifier::new(Halves { response: AnyOk, error: Said });
    classifier.observe(seen.clone());
    let backup = agent(Some("backup"), &log, act.clone());
    let rungs = ladder
        .build(classifier, desk)
        .unwrap()
        .nudge(|_job: String, _failed| "nudged".to_owned())
        .replan(|_job: String, _failed| "replanned".to_owned())
        .fallback(backup)
        .finish(|failed: Failed<'_, String, AnyError>| {
            format!("incomplete: {}", failed.failure.class)
        });
    let stack = ServiceBuilder::new().layer(rungs).service(agent(None, &log, act));
    let begun = Instant::now();
    let call = tokio::spawn(async move { stack.oneshot("asked".to_owned()).await });
    let answer = call.await.unwrap();
    let took = begun.elapsed().as_millis();
    let told = std::iter::from_fn(|| inbox.try_recv().ok()).collect();
    let incident = seen.incidents().pop();
    Run { answer, took, calls: log.lines(), incident, told }
}

/// Same action; adjusted parameters; new approach; somebody else; a partial result with an
/// explanation. Each level only if the ones below did not help.
#[tokio::test(start_paused = true)]
async fn l01_levels() {
    let answers = ["asked", "nudged", "replanned", "backup", "incomplete: Transient"];
    for (level, answer) in answers.into_iter().enumerate() {
        let run = climb(Ladder::default(), move |name| match name == answer {
            true => Act::Answer,
            false => Act::Fail(ErrorClass::Transient),
        })
        .await;
        assert_eq!(run.answer.unwrap(), answer);
        let mut names = run.calls.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>();
        names.dedup();
        assert_eq!(names, &answers[..4.min(level + 1)]);
        assert_eq!(run.told.len(), usize::from(level == 4), "somebody hears of a forced finish");
    }

    let ladder = Ladder::default();
    let numbers: Vec<_> = Level::ALL.into_iter().map(Level::number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(ladder.acts_in(), Mode::Balanced);
    let thresholds = [Mode::Cautious, Mode::Balanced, Mode::Aggressive].map(Mode::threshold);
    assert_eq!(thresholds, [0.9, 0.7, 0.5]);
}

/// The class decides the level at which one enters: what is called after the first attempt failed.
#[tokio::test(start_paused = true)]
async fn l02_entry() {
    use ErrorClass::*;
    for class in ErrorClass::ALL {
        let mut first = true;
        let run = climb(Ladder::default(), move |name| {
            let fails = name == "asked" && std::mem::take(&mut first);
            if fails { Act::Fail(class) } else { Act::Answer }
        })
        .await;
        let (next, level) = match class {
            // No skipping for a mere network error.
            Transient | Timeout | Throttled | Contention => (Some("asked"), Level::Retry),
            // Ambiguous errors enter at level 2.
            Unknown => (Some("nudged"), Level::Nudge),
            Permanent => (Some("replanned"), Level::Replan),
            Declined | Quota | Internal | Rejected => (Some("backup"), Level::Fallback),
            Auth | Cancelled => (None, Level::Finish),
        };
        assert_eq!(run.calls.get(1).map(|(_, name)| name.as_str()), next, "{class}");
        assert_eq!(Ladder::default().entry().of(class), level, "{class}");
        let changes = Changes::of(&run.incident.unwrap());
        let [change] = changes.as_slice() else { panic!("{class}: {changes}") };
        assert_eq!((change.from, change.to, change.class), (None, level, class));
    }

    // It is configuration.
    let ladder = Ladder::default().enter(Unknown, Level::Fallback);
    let run = climb(ladder, |name| match name {
        "asked" => Act::Fail(Unknown),
        _ => Act::Answer,
    })
    .await;
    assert_eq!(run.names(), ["asked", "backup"]);
}

/// Transient and repeatable, less than 3 retries so far; waits 1, 2, 4 s; 30 s for the level.
#[tokio::test(start_paused = true)]
async fn l03_level_1() {
    let run = climb(Ladder::default(), |name| match name {
        "asked" => Act::Fail(ErrorClass::Transient),
        _ => Act::Answer,
    })
    .await;
    assert_eq!(run.times("asked"), [0, 1_000, 3_000, 7_000]);
    assert_eq!(run.times("nudged"), [7_000]);

    // The waits are one schedule, whatever the failures are.
    let mut classes =
        [ErrorClass::Timeout, ErrorClass::Transient, ErrorClass::Throttled].into_iter();
    let run =
        climb(Ladder::default(), move |_| classes.next().map_or(Act::Answer, Act::Fail)).await;
    assert_eq!(run.times("asked"), [0, 1_000, 3_000, 7_000]);

    // What is in flight is dropped after 30 s: here the fourth attempt.
    let mut left = 3;
    let run = climb(Ladder::default(), move |name| match name {
        "asked" if left > 0 => {
            left -= 1;
            Act::Fail(ErrorClass::Transient)
        }
        "asked" => Act::HANG,
        _ => Act::Answer,
    })
    .await;
    assert_eq!(run.times("asked"), [0, 1_000, 3_000, 7_000]);
    assert_eq!(run.times("nudged"), [30_000]);

    // A server's hint is a lower bound; one beyond the level's time is not waited for.
    for (hint, nudged) in [(20, None), (40, Some(0))] {
        let mut first = true;
        let run = climb(Ladder::default(), move |_| match std::mem::take(&mut first) {
            true => Act::Later(seconds(hint)),
            false => Act::Answer,
        })
        .await;
        assert_eq!(run.times("nudged").first().copied(), nudged, "{hint} s");
        let again = run.times("asked").get(1).copied();
        assert_eq!(again.is_some_and(|at| (20_000..22_500).contains(&at)), nudged.is_none());
    }

    // Without waits there are no retries.
    let run = climb(Ladder::default().waits([]), |name| match name {
        "asked" => Act::Fail(ErrorClass::Transient),
        _ => Act::Answer,
    })
    .await;
    assert_eq!(run.names(), ["asked", "nudged"]);
}

/// Each level has its own limit; when it passes the next one starts at once, to the tick.
#[tokio::test(start_paused = true)]
async fn l04_time_limits() {
    let ladder = Ladder::default();
    let limits = Level::ALL.map(|level| ladder.limit(level));
    let ms = Duration::from_millis;
    assert_eq!(limits, [seconds(30), seconds(60), seconds(120), seconds(60), ms(250)]);
    assert_eq!(ladder.longest(), ms(270_250));

    let run = climb(ladder, |_| Act::HANG).await;
    let expected = [(0, "asked"), (30_000, "nudged"), (90_000, "replanned"), (210_000, "backup")];
    assert_eq!(run.calls, expected.map(|(at, name)| (at, name.to_owned())));
    assert_eq!((run.took, run.answer.unwrap().as_str()), (270_000, "incomplete: Timeout"));

    let ladder = Ladder::default()
        .within(Level::Retry, seconds(5))
        .within(Level::Nudge, ms(1))
        .within(Level::Replan, seconds(3))
        .within(Level::Fallback, seconds(2));
    let run = climb(ladder, |_| Act::HANG).await;
    assert_eq!(run.calls.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 5_000, 5_001, 8_001]);
    assert_eq!(run.took, 10_001);
}

/// What was in flight is gone when the next level starts.
#[tokio::test(start_paused = true)]
async fn l04_in_flight() {
    static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
    struct Work;
    impl Drop for Work {
        fn drop(&mut self) {
            IN_FLIGHT.fetch_sub(1, SeqCst);
        }
    }

    let (classifier, (desk, _inbox)) =
        (Classifier::new(Halves { response: AnyOk, error: Chain }), desk());
    let hangs = service_fn(async |_: u32| {
        assert_eq!(IN_FLIGHT.fetch_add(1, SeqCst), 0);
        let _work = Work;
        std::future::pending::<Result<u32, AnyError>>().await
    });
    let rungs = Ladder::default()
        .build(classifier, desk)
        .unwrap()
        .nudge(|_: u32, _| 2)
        .replan(|_: u32, _| 3)
        .fallback(hangs)
        .finish(|_: Failed<'_, u32, AnyError>| IN_FLIGHT.load(SeqCst) as u32);
    let stack = ServiceBuilder::new().layer(rungs).service(hangs);
    assert_eq!(stack.oneshot(1).await.unwrap(), 0);
}

/// Every change of level is recorded with the reason.
#[tokio::test(start_paused = true)]
async fn l05_record() {
    let run = climb(Ladder::default(), |name| match name {
        "asked" => Act::Fail(ErrorClass::Transient),
        "nudged" => Act::HANG,
        "replanned" => Act::Fail(ErrorClass::Permanent),
        _ => Act::Fail(ErrorClass::Declined),
    })
    .await;
    let changes = Changes::of(&run.incident.unwrap());
    assert_eq!(
        changes.to_string(),
        "0ns: call -> retry: Transient (it was Transient)\n\
         7s: retry -> nudge: Transient (it was Transient)\n\
         67s: nudge -> replan: Timeout (no answer within 60s)\n\
         67s: replan -> fallback: Permanent (it was Permanent)\n\
         67s: fallback -> finish: Declined (it was Declined)\n"
    );

    // The limit of level 1 is a reason too, also where what follows is repeated.
    let run = climb(Ladder::default(), |name| match name {
        "asked" => Act::HANG,
        "nudged" => Act::Fail(ErrorClass::Transient),
        _ => Act::Answer,
    })
    .await;
    assert_eq!(
        Changes::of(&run.incident.unwrap()).to_string(),
        "30s: call -> nudge: Timeout (no answer within 30s)\n\
         37s: nudge -> replan: Transient (it was Transient)\n"
    );

    // The retries of a nudge are no entry into level 1.
    let run = climb(Ladder::default(), |name| match name {
        "asked" => Act::Fail(ErrorClass::Unknown),
        "nudged" => Act::Fail(ErrorClass::Transient),
        _ => Act::Answer,
    })
    .await;
    assert_eq!(run.times("nudged"), [0, 1_000, 3_000, 7_000]);
    assert_eq!(
        Changes::of(&run.incident.unwrap()).to_string(),
        "0ns: call -> nudge: Unknown (it was Unknown)\n\
         7s: nudge -> replan: Transient (it was Transient)\n"
    );

    // Nothing failed, nothing changed.
    assert!(climb(Ladder::default(), |_| Act::Answer).await.incident.is_none());
}

/// A forced finish is no failure: the caller gets what there is, marked, whatever the class was.
#[tokio::test(start_paused = true)]
async fn l06_forced_finish() {
    for class in ErrorClass::ALL {
        let run = climb(Ladder::default(), move |_| Act::Fail(class)).await;
        assert_eq!(run.answer.unwrap(), format!("incomplete: {class}"));
        assert_eq!(run.incident.unwrap().resolution.as_str(), "forced_finish");
        let [told] = &run.told[..] else { panic!("{class}: {:?}", run.told) };
        assert_eq!((told.class, told.outcome.as_str()), (class, "forced"));
    }
}

/// A desk that does not answer holds the output up no longer than the time of the finish.
#[tokio::test(start_paused = true)]
async fn l06_nobody_hears() {
    let deaf = service_fn(|_: Escalation| std::future::pending::<Result<(), Infallible>>());
    let routes = Routes::new(Route::new(["operator"], "human_required"));
    let desk = Desk::new(routes, [Receiver::new("operator").record(deaf)]).unwrap();
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let ladder = Ladder::default().within(Level::Finish, Duration::from_millis(100));
    let rungs = ladder
        .build(classifier, desk)
        .unwrap()
        .finish(|_: Failed<'_, String, AnyError>| "incomplete".to_owned());
    let agent = service_fn(|_: String| async { Err::<String, _>(AnyError::msg("unheard of")) });
    let begun = Instant::now();
    let answer =
        ServiceBuilder::new().layer(rungs).service(agent).oneshot("asked".to_owned()).await;
    assert_eq!(answer.unwrap(), "incomplete");
    assert_eq!(begun.elapsed().as_millis(), 100);
}

/// Not only errors: a reviewer's FAIL, an unexpected output, a call in progress for longer than
/// expected, and the same failure again and again; each is classified and enters the ladder.
#[tokio::test(start_paused = true)]
async fn l07_other_entries() {
    /// Asks for `job`; gives the answer and the changes of level.
    async fn ask(job: &str) -> (String, String) {
        // The verdicts on answers are rules.
        let rules = Halves { response: AnyOk, error: Chain }.adjust(
            |outcome: Result<&String, &AnyError>, verdict| match outcome {
                Ok(text) if text.starts_with("FAIL") => {
                    Failure::new(ErrorClass::Unknown).reason("the reviewer said no").into()
                }
                Ok(text) if !text.ends_with('.') => {
                    Failure::new(ErrorClass::Permanent).reason("not a sentence").into()
                }
                _ => verdict,
            },
        );
        let (classifier, seen, (desk, _inbox)) = (Classifier::new(rules), Seen::default(), desk());
        classifier.observe(seen.clone());

        // A loop: the third time in a row that this agent fails in the same way.
        let last = Arc::new(Mutex::new((None, 0)));
        let detector = service_fn(move |observation: Observation| {
            let mut last = last.lock().unwrap();
            let same = last.0 == Some(observation.fingerprint);
            *last = (Some(observation.fingerprint), if same { last.1 + 1 } else { 1 });
            let verdict: Verdict = match last.1 >= 3 {
                true => Failure::new(ErrorClass::Permanent).reason("loop").into(),
                false => observation.local.into(),
            };
            async move { Ok::<_, Infallible>(verdict) }
        });

        let agent = service_fn(|job: String| async move {
            match job.as_str() {
                "write" => Ok("FAIL: no tests".to_owned()),
                "say" => Ok("unexpected {".to_owned()),
                "think" => {
                    sleep(seconds(20)).await;
                    Ok("Too late.".to_owned())
                }
                "loop" => Err(AnyError::from(io::Error::from(io::ErrorKind::ConnectionReset))),
                other => Ok(format!("{other}.")),
            }
        });
        let rungs = Ladder::default()
            .enter(ErrorClass::Timeout, Level::Nudge)
            .build(classifier.clone(), desk)
            .unwrap()
            .nudge(|_job: String, _failed| "Nudged".to_owned())
            .replan(|_job: String, _failed| "Replanned".to_owned());
        let stack = ServiceBuilder::new()
            .layer(rungs)
            .layer(ClassifyLayer::new(classifier.clone(), detector))
            .layer(TimeoutLayer::new(classifier, seconds(10)).unwrap())
            .service(agent);
        let job = job.to_owned();
        let answer = tokio::spawn(async move { stack.oneshot(job).await }).await.unwrap();
        (answer.unwrap(), Changes::of(&seen.last()).to_string())
    }

    let (answer, changes) = ask("write").await;
    assert_eq!(answer, "Nudged.");
    assert_eq!(changes, "0ns: call -> nudge: Unknown (the reviewer said no)\n");

    let (answer, changes) = ask("say").await;
    assert_eq!(answer, "Replanned.");
    assert_eq!(changes, "0ns: call -> replan: Permanent (not a sentence)\n");

    // Expected within 10 s; a tenth more to come to an end.
    let (answer, changes) = ask("think").await;
    assert_eq!(answer, "Nudged.");
    assert_eq!(changes, "11s: call -> nudge: Timeout (no answer within 11s)\n");

    // Two retries as for a network error; then it is no longer taken for one.
    let (answer, changes) = ask("loop").await;
    assert_eq!(answer, "Replanned.");
    assert_eq!(
        changes,
        "0ns: call -> retry: Transient (connection reset)\n\
         3s: retry -> replan: Permanent (connection reset)\n"
    );
}

/// A time limit of an attempt below the retry is not the end of level 1.
#[tokio::test(start_paused = true)]
async fn l05_record_with_limited_attempts() {
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let (seen, (desk, _inbox)) = (Seen::default(), desk());
    classifier.observe(seen.clone());
    let agent = service_fn(|job: u32| async move {
        sleep(seconds(if job == 1 { 60 } else { 1 })).await;
        Ok::<_, AnyError>(job)
    });
    let stack = ServiceBuilder::new()
        .layer(Ladder::default().build(classifier.clone(), desk).unwrap().nudge(|_: u32, _| 2))
        .layer(TimeoutLayer::new(classifier, seconds(2)).unwrap())
        .service(agent);
    assert_eq!(stack.oneshot(1).await.unwrap(), 2);
    assert_eq!(
        Changes::of(&seen.last()).to_string(),
        "2.2s: call -> retry: Timeout (no answer within 2.2s)\n\
         15.8s: retry -> nudge: Timeout (no answer within 2.2s)\n"
    );
}
