//! What the reports say, and how it looks in 100 columns and in 50. Tests are named after the rows of
//! the recovery systems that ask for them.

mod common;

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Task, stack};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage_core::{
    AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves, Resolution, incident,
};
use tower_triage_report::{
    Advice, BreakerTable, CallState, Choice, Difficulty, ErrorReport, FailureLog, FailureReport,
    Risk, Severity, Wave, WaveChart,
};
use tower_triage_retry::RetryLayer;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Compares with the text in `tests/golden`.
fn assert_looks(report: &impl Display, expected: &str) {
    let shown = format!("{report:100}\n{report:50}");
    assert!(shown == expected, "it looks so:\n{shown}\nnot so:\n{expected}");
}

// === A failure report ===

async fn failures() -> FailureReport {
    let log = FailureLog::new();
    let (stack, _) = stack(log.clone());
    let call = async |task| stack.clone().oneshot(task).await.is_ok();
    call(Task::new("GET /orders", secs(1)).failing(1)).await;
    call(Task::new("GET /orders", secs(1))).await;
    let denied = ErrorKind::PermissionDenied;
    call(Task::new("POST /orders", secs(1)).failing(9).with(denied)).await;
    call(Task::new("GET /stock", secs(1)).failing(9)).await;
    call(Task::new("GET /stock", secs(1))).await;
    log.report()
}

#[tokio::test(start_paused = true)]
async fn r10_a_failure_report_counts_by_class_by_operation_and_by_hour() {
    use ErrorClass::{Permanent, Rejected, Transient};
    use Resolution::{Failed, RecoveredByRetry};
    let mut report = failures().await;
    assert_eq!((report.failures, report.calls), (6, 4), "the success is not known");
    assert_eq!(report.by_class, [(Transient, 4), (Permanent, 1), (Rejected, 1)]);
    assert_eq!(report.resolutions, [(Failed, 3), (RecoveredByRetry, 1)]);
    let operations = report.by_operation.iter().map(|(name, count)| (name.as_str(), *count));
    let expected = [("GET /stock", 4), ("GET /orders", 1), ("POST /orders", 1)];
    assert_eq!(operations.collect::<Vec<_>>(), expected);
    // The hours are the calendar's.
    assert_eq!(report.by_hour.iter().map(|(_, count)| count).sum::<u64>(), 6);
    report.by_hour = vec![(24 * 20_000 + 9, 1), (24 * 20_000 + 10, 5)];
    assert_looks(&report, include_str!("golden/r10_failures.txt"));
}

#[test]
fn nothing_to_say_is_said_in_one_line() {
    assert_eq!(FailureLog::new().report().to_string(), "0 failures in 0 calls\n");
    assert_eq!(BreakerTable::of([]).to_string(), "");
    let chart = Wave::new().chart();
    assert_eq!(chart.efficiency, 0.0);
    assert_eq!(chart.to_string().lines().count(), 1);
}

// === Breakers ===

#[tokio::test(start_paused = true)]
async fn o5_a_breaker_table_has_name_success_rate_state_and_what_it_does_now() {
    let (stack, shop) = stack(FailureLog::new());
    let (other, closed) = common::stack(FailureLog::new());
    for _ in 0..19 {
        stack.clone().oneshot(Task::new("GET /", secs(0))).await.unwrap();
        other.clone().oneshot(Task::new("GET /", secs(0))).await.unwrap();
    }
    let broken = Task::new("GET /", secs(0)).with(ErrorKind::InvalidData);
    other.oneshot(broken.failing(1)).await.unwrap_err();
    stack.clone().oneshot(Task::new("GET /", secs(0)).failing(9)).await.unwrap_err();
    stack.oneshot(Task::new("GET /", secs(0))).await.unwrap_err();
    let (_, forced) = common::stack(FailureLog::new());
    forced.force_open();

    let table = BreakerTable::of([&closed, &shop, &forced]);
    assert_eq!((table.breakers[0].succeeded, table.breakers[0].judged), (19, 20));
    assert_looks(&table, include_str!("golden/o5_breakers.txt"));
    tokio::time::advance(secs(60)).await;
    assert_eq!(BreakerTable::of([&shop]).breakers[0].doing(), "the next call is a probe");
}

// === One error ===

fn choice(action: &str, confidence: f64, expected: u64, risk: Risk) -> Choice {
    Choice { action: action.to_owned(), confidence, expected: secs(expected), risk }
}

async fn error() -> ErrorReport {
    let (stack, _) = stack(FailureLog::new());
    let call = stack.oneshot(Task::new("GET /orders", secs(1)).failing(9));
    let (_, incident) = incident::scope(call).await;
    let report = ErrorReport::of(&incident.unwrap()).unwrap();
    report.option(choice("answer from the cache", 0.6, 1, Risk::Medium)).option(choice(
        "ask the replica",
        0.82,
        2,
        Risk::Low,
    ))
}

#[tokio::test(start_paused = true)]
async fn o6_an_error_report_has_options_and_escalates_below_the_threshold() {
    let report = error().await;
    assert_eq!((report.class, report.error.as_str()), (ErrorClass::Transient, "connection reset"));
    assert_eq!((report.severity, report.difficulty), (Severity::Medium, Difficulty::Easy));
    assert_eq!(report.advice(), Advice::Escalate, "cautious unless told otherwise");
    assert_looks(&report, include_str!("golden/o6_error.txt"));
}

#[tokio::test(start_paused = true)]
async fn of_a_refusal_the_error_is_the_breaker() {
    let (stack, shop) = stack(FailureLog::new());
    shop.force_open();
    let (_, incident) = incident::scope(stack.oneshot(Task::new("GET /orders", secs(1)))).await;
    let report = ErrorReport::of(&incident.unwrap()).unwrap();
    assert_eq!(report.class, ErrorClass::Rejected);
    assert!(report.error.starts_with("breaker `shop` refused to send"), "{}", report.error);
    let option = choice("wait", 0.5, 60, Risk::Low).to_string();
    assert_eq!(option, "wait (confidence 0.50, about 1m00s, low risk)");
}

/// What a later attempt called on its way did not fail this call.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_call_is_its_own() {
    let (stock, _) = stack(FailureLog::new());
    let first = Arc::new(AtomicBool::new(true));
    let order = move |()| {
        let (stock, first) = (stock.clone(), first.swap(false, Ordering::Relaxed));
        async move {
            if first {
                return Err(AnyError::from(io::Error::from(ErrorKind::ConnectionRefused)));
            }
            stock.oneshot(Task::new("GET /stock", secs(1)).failing(9)).await.or(Ok(()))
        }
    };
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    let call = RetryLayer::new(classifier).layer(service_fn(order)).oneshot(());
    let (outcome, incident) = incident::scope(call).await;
    outcome.unwrap();
    let report = ErrorReport::of(&incident.unwrap()).unwrap();
    assert_eq!(report.error, "connection refused");
}

#[tokio::test(start_paused = true)]
async fn o7_the_recommended_option_is_applied_from_the_threshold_of_the_mode_on() {
    let mut report = error().await;
    for (mode, threshold, applied) in
        [("cautious", 0.9, false), ("balanced", 0.7, true), ("aggressive", 0.5, true)]
    {
        report = report.threshold(threshold);
        assert_eq!(matches!(report.advice(), Advice::Apply(_)), applied, "{mode}");
    }
    assert_eq!(report.clone().threshold(0.82).advice(), Advice::Apply(&report.options[1]));
    assert_looks(&report, include_str!("golden/o7_error.txt"));
}

#[tokio::test(start_paused = true)]
async fn of_equal_confidence_the_least_risk_is_recommended_and_only_zero_to_one_is_confidence() {
    let mut report = error().await;
    report.options = vec![
        choice("unknown", f64::NAN, 0, Risk::Low),
        choice("in percent", 40.0, 0, Risk::Low),
        choice("endless", f64::INFINITY, 0, Risk::Low),
        choice("negative", -0.5, 0, Risk::Low),
        choice("risky", 0.8, 1, Risk::High),
        choice("slow", 0.8, 9, Risk::Low),
        choice("quick", 0.8, 2, Risk::Low),
    ];
    assert_eq!(report.recommended().unwrap().action, "quick");
    report.options.truncate(4);
    assert_eq!((report.recommended(), report.advice()), (None, Advice::Escalate));
}

// === A wave ===

/// Five calls over one breaker, which the fourth opens, and two that depend on it; with a look at the
/// chart after 3.5 s.
async fn wave() -> (Wave, WaveChart) {
    let wave = Wave::new().expecting(7);
    let (stack, _) = stack(wave.clone());
    let call = |name: &str, task| wave.watch(name, stack.clone().oneshot(task));
    let denied = Task::new("write", secs(3)).with(ErrorKind::PermissionDenied);
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(3500)).await;
        wave.chart()
    };
    let (_, _, _, chart) = tokio::join!(
        call("plan", Task::new("plan", secs(4))),
        call("fetch prices", Task::new("fetch", secs(2)).failing(1)),
        call("write", denied.failing(1)),
        meanwhile,
    );
    let _ = call("fetch stock", Task::new("fetch", secs(1)).failing(9)).await;
    let _ = call("fetch images", Task::new("fetch", secs(1))).await;
    wave.block("compare", "fetch stock");
    wave.block("publish", "compare");
    (wave, chart)
}

#[tokio::test(start_paused = true)]
async fn o9_a_wave_summary_finds_the_root_cause_and_what_it_cascaded_into() {
    let (wave, _) = wave().await;
    let summary = wave.summary();
    assert_eq!((summary.succeeded, summary.failed, summary.blocked), (2, 2, 3));
    let recovered = &summary.problems[0];
    assert_eq!((recovered.call.as_str(), recovered.retries), ("fetch prices", 1));
    assert_eq!(recovered.resolution, Some(Resolution::RecoveredByRetry));
    let cause = summary.cause.as_ref().unwrap();
    assert_eq!(cause.call, "fetch stock");
    // One was refused by the breaker that it opened, one waits for it, one for that one.
    assert_eq!(cause.cascaded, ["fetch images", "compare", "publish"]);
    assert_looks(&summary, include_str!("golden/o9_summary.txt"));
}

#[tokio::test(start_paused = true)]
async fn o11_a_chart_shows_what_ran_waited_and_failed_when() {
    let (wave, meanwhile) = wave().await;
    let state = |chart: &WaveChart, call: &str| {
        chart.rows.iter().find(|row| row.call == call).map(|row| row.state)
    };
    assert_eq!(state(&meanwhile, "plan"), Some(CallState::Running));
    assert_eq!(state(&meanwhile, "fetch prices"), Some(CallState::Retrying));
    assert_eq!(state(&meanwhile, "write"), Some(CallState::Failed));
    // One of seven calls ended in 3.5 s.
    assert_eq!(meanwhile.left, Some(secs(21)));
    // 3.5 s of `plan`, 2.5 of `fetch prices`, which waited a second, 3 of `write`.
    assert_eq!(meanwhile.work, secs(9));
    assert!((meanwhile.efficiency - 9.0 / 3.5).abs() < 1e-9, "{}", meanwhile.efficiency);
    assert_looks(&meanwhile, include_str!("golden/o11_meanwhile.txt"));

    let end = wave.chart();
    assert_eq!((end.left, end.wall), (Some(Duration::ZERO), secs(10)));
    assert_looks(&end, include_str!("golden/o11_end.txt"));
    tokio::time::advance(secs(100)).await;
    assert_eq!(wave.chart(), end, "the wave is over");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_is_waiting_and_one_that_is_dropped_is_abandoned() {
    let wave = Wave::new();
    let (stack, _) = stack(wave.clone());
    let call = wave.watch("call", stack.oneshot(Task::new("fetch", secs(1)).failing(9)));
    let cut_off = tokio::time::timeout(Duration::from_millis(1500), call);
    let (cut_off, state) = tokio::join!(cut_off, async {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        wave.chart().rows[0].state
    });
    cut_off.unwrap_err();
    assert_eq!(state, CallState::Waiting);
    let summary = wave.summary();
    assert_eq!((summary.abandoned, summary.failed, summary.running), (1, 0, 0));
    assert_eq!(wave.chart().work, secs(1), "the wait is no work");
}

/// Both fail, and the second attempt of one opens the breaker before that of the other.
#[tokio::test(start_paused = true)]
async fn a_call_that_failed_before_a_breaker_refused_it_has_failed() {
    let wave = Wave::new();
    let (stack, _) = stack(wave.clone());
    let call = |name| wave.watch(name, stack.clone().oneshot(Task::new("", secs(1)).failing(9)));
    let _ = tokio::join!(call("one"), call("two"));
    let summary = wave.summary();
    assert_eq!((summary.failed, summary.blocked), (2, 0), "{summary}");
}

/// A wave that observes no classifier knows that calls began and how they ended.
#[tokio::test(start_paused = true)]
async fn a_wave_counts_calls_of_any_kind() {
    let wave = Wave::new();
    let good = async {
        tokio::time::sleep(secs(1)).await;
        Ok::<_, ()>(())
    };
    wave.watch("good", good).await.unwrap();
    wave.watch("bad", async { Err::<(), _>(()) }).await.unwrap_err();
    let summary = wave.summary();
    assert_eq!((summary.succeeded, summary.failed), (1, 1));
    assert_eq!(summary.cause.unwrap().call, "bad");
}

/// Nothing was held up: three outages say more of the wave than the mistake before them.
#[tokio::test(start_paused = true)]
async fn of_calls_that_held_up_nothing_the_cause_is_the_first_of_the_most_frequent_kind() {
    let wave = Wave::new();
    for (name, kind) in [
        ("mistaken", ErrorKind::PermissionDenied),
        ("one", ErrorKind::ConnectionReset),
        ("two", ErrorKind::ConnectionReset),
    ] {
        // A stack each: what one breaker refuses is not another's.
        let (stack, _) = stack(wave.clone());
        let task = Task::new("fetch", secs(0)).failing(9).with(kind);
        wave.watch(name, stack.oneshot(task)).await.unwrap_err();
    }
    let cause = wave.summary().cause.unwrap();
    assert_eq!((cause.call.as_str(), cause.class), ("one", Some(ErrorClass::Transient)));
}

/// Steps belong to the call that is polled, not to another one of the same wave or of another wave.
#[tokio::test(start_paused = true)]
async fn calls_at_the_same_time_are_kept_apart() {
    let (wave, other) = (Wave::new(), Wave::new());
    let (stack, _) = stack(wave.clone());
    let call = |task| stack.clone().oneshot(task);
    let (one, two, three) = tokio::join!(
        wave.watch("fails", call(Task::new("fetch", secs(1)).failing(1))),
        wave.watch("works", call(Task::new("fetch", secs(1)))),
        other.watch("unseen", call(Task::new("fetch", secs(1)).failing(2))),
    );
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    let problems = wave.summary().problems;
    let problems: Vec<_> = problems.iter().map(|row| (row.call.as_str(), row.retries)).collect();
    assert_eq!(problems, [("fails", 1)]);
    assert!(other.summary().problems.is_empty());
}
